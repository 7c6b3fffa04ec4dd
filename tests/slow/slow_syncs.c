/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A disk whose syncs are slow, for a process that loads this first (LD_PRELOAD): each fsync and fdatasync
 * takes GNSTOR_SYNC_MS milliseconds longer. GNSTOR_SYNC_COUNT names a file that gets a byte for each. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void count(void)
{
	const char *name = getenv("GNSTOR_SYNC_COUNT");
	int fd = name ? open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;

	if (fd < 0)
		return;
	if (write(fd, "s", 1) != 1)
		abort();
	close(fd);
}

static void wait_first(void)
{
	const char *text = getenv("GNSTOR_SYNC_MS");
	long ms = text ? atol(text) : 0;
	struct timespec left = { ms / 1000, ms % 1000 * 1000000 };

	while (nanosleep(&left, &left))
		;
	count();
}

int fdatasync(int fd)
{
	wait_first();
	return (int)syscall(SYS_fdatasync, fd);
}

int fsync(int fd)
{
	wait_first();
	return (int)syscall(SYS_fsync, fd);
}

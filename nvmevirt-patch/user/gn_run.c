// SPDX-License-Identifier: GPL-2.0-only
/* The checks as a program: operations on standard input, answers on standard output; or vector files. */
#include "gn_user.h"

#include <errno.h>
#include <unistd.h>

static const char gn_help[] =
    "gn_run: GNStor's firmware checks in C, as a program\n"
    "\n"
    "  gn_run                     operations on standard input, answers on standard output, each behind its\n"
    "                             length in four bytes, little-endian\n"
    "  gn_run --vectors DIR       plays every *.gnv file of DIR: one line a script, and of a script that\n"
    "                             differs the first difference in words; status 1 where one differs\n"
    "  gn_run --cost [BLOCKS]     CPU time of the verdict and look-up of a mapped 4 KiB read\n"
    "  gn_run --alone             what this code does in states that no command of a script brings the\n"
    "                             firmware into: one line a state; status 1 where one is not right\n"
    "  gn_run --hostile SEED COUNT\n"
    "                             plays COUNT operations of random bytes, and bent vector files, none of\n"
    "                             which may do harm\n"
    "  gn_run --prp ...           every device gets a twin whose commands have PRP: it must answer the same\n"
    "  gn_run --through PATH ...  the same, played by the module, by its device PATH\n"
    "  gn_run --help              this text\n";

/* Reads operations until the end of input and answers them. The output is written when the input has
 * nothing more for now: both ends of a pipe go on. */
static int gn_serve(struct gn_way *way) {
  static gn_u8 in[GN_OP_MOST + 4];
  gn_u32 have = 0;
  for (;;) {
    ssize_t got = read(0, in + have, sizeof in - have);
    gn_u32 at = 0, used;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return gn_complain("standard input", strerror(errno));
    if (got == 0) break;
    have += (gn_u32)got;
    while (have - at >= 4) {
      gn_u32 length = gn_u32_of(in + at);
      if (length == 0 || length > GN_OP_MOST)
        return gn_complain("standard input", "an operation of no possible length");
      if (have - at - 4 < length) break;
      at += 4 + length;
    }
    if (at && gn_way_play(way, in, at, 1)) return 1;
    used = at;
    memmove(in, in + used, have - used);
    have -= used;
  }
  return have ? gn_complain("standard input", "the last operation is cut short") : 0;
}

/* The options of the command line. */
struct gn_ask {
  const char *through;
  const char *folder;
  gn_u64 seed;
  gn_u64 hostile;
  bool twins;
};

/* Reads the arguments. Returns -1 to go on, otherwise the exit status. */
static int gn_read_arguments(int argc, char **argv, struct gn_ask *ask) {
  int at;
  for (at = 1; at < argc; ++at) {
    if (!strcmp(argv[at], "--help")) {
      fputs(gn_help, stdout);
      return 0;
    }
    if (!strcmp(argv[at], "--cost")) return gn_cost(at + 1 < argc ? strtoull(argv[at + 1], NULL, 10) : 0);
    if (!strcmp(argv[at], "--alone")) return gn_alone();
    if (!strcmp(argv[at], "--vectors") && at + 1 < argc) {
      ask->folder = argv[++at];
    } else if (!strcmp(argv[at], "--prp")) {
      ask->twins = true;
    } else if (!strcmp(argv[at], "--through") && at + 1 < argc) {
      ask->through = argv[++at];
    } else if (!strcmp(argv[at], "--hostile") && at + 2 < argc) {
      ask->seed = strtoull(argv[++at], NULL, 10);
      ask->hostile = strtoull(argv[++at], NULL, 10);
    } else {
      fprintf(stderr, "gn_run: %s: not an option; `gn_run --help` lists them\n", argv[at]);
      return 2;
    }
  }
  return -1;
}

int main(int argc, char **argv) {
  struct gn_ask ask = {NULL, NULL, 0, 0, false};
  struct gn_way way;
  int result = gn_read_arguments(argc, argv, &ask);
  if (result >= 0) return result;
  if (ask.twins && ask.through)
    return gn_complain("--prp", "not with --through: there a vector file asks for its twins");
  if (gn_way_open(&way, ask.through)) return 1;
  way.twins = ask.twins;
  if (ask.hostile)
    result = gn_hostile(&way, ask.seed, ask.hostile);
  else
    result = ask.folder ? gn_vectors(&way, ask.folder) : gn_serve(&way);
  gn_way_close(&way);
  if (gn_os_bytes) return gn_complain("memory", "bytes are left that were never taken back");
  return result;
}

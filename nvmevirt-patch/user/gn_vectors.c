// SPDX-License-Identifier: GPL-2.0-only
/* Vector files: read, played here or by the module, and the first difference in words. */
#define _DEFAULT_SOURCE
#include "gn_user.h"

#include <dirent.h>
#include <errno.h>
#include <unistd.h>

static gn_u8 *gn_read_file(const char *path, gn_u32 *len) {
  FILE *file = fopen(path, "rb");
  gn_u8 *bytes = NULL;
  long end;
  if (!file) return NULL;
  if (!fseek(file, 0, SEEK_END) && (end = ftell(file)) >= 0 && end <= (long)GN_VECTOR_MOST &&
      !fseek(file, 0, SEEK_SET)) {
    bytes = malloc((size_t)end + 1);
    *len = (gn_u32)end;
    if (bytes && fread(bytes, 1, (size_t)end, file) != (size_t)end) {
      free(bytes);
      bytes = NULL;
    }
  }
  fclose(file);
  return bytes;
}

/* The length of the answer to the current operation; -1: there is none. */
static int gn_answer_of(struct gn_way *way, const struct gn_vector *vector, gn_u8 *answer) {
  if (way->device < 0) return gn_way_one(way, vector->op, vector->op_bytes, answer);
  return gn_way_read_answer(way, answer);
}

/* Checks the module's result at the end of a file: no more answers, or EILSEQ after a difference. */
static int gn_check_end(struct gn_way *way, bool differs) {
  gn_u8 more;
  ssize_t got = read(way->device, &more, 1);
  if (differs ? got < 0 && errno == EILSEQ : got == 0) return 0;
  return gn_complain("the module", differs ? "it has not seen the difference" : "it goes on behind the file");
}

/* Plays a file. Returns whether every answer is equal to the file's. */
static int gn_play_file(struct gn_way *way, struct gn_vector *vector) {
  static gn_u8 answer[GN_ANSWER_MOST];
  while (gn_vector_next(vector)) {
    int got = gn_answer_of(way, vector, answer);
    if (got >= 0 && gn_vector_is_answer(vector, answer, (gn_u32)got)) continue;
    printf("DIFFERS  %.*s\n", (int)vector->name_len, vector->name);
    gn_say_op(vector->number, vector->op, vector->op_bytes);
    gn_say_answer("Rust", vector->wanted, vector->wanted_bytes);
    if (got >= 0) gn_say_answer("here", answer, (gn_u32)got);
    if (got >= 0 && way->device >= 0) gn_check_end(way, true);
    return 1;
  }
  if (way->device >= 0 && gn_check_end(way, false)) return 1;
  printf("same     %.*s (%u operations)\n", (int)vector->name_len, vector->name, vector->number);
  return 0;
}

/* Takes a file. This program checks it before it plays it here. The module gets it in one write and checks it
 * itself. */
static int gn_take_file(struct gn_way *way, const char *path) {
  struct gn_vector vector;
  gn_u32 len = 0;
  gn_u8 *bytes = gn_read_file(path, &len);
  const char *why = bytes ? gn_vector_open(&vector, bytes, len) : "the file cannot be read";
  int bad;
  if (gn_way_reset(way))
    bad = 1;
  else if (bytes && way->device >= 0 && write(way->device, bytes, len) != (ssize_t)len)
    bad = gn_complain(path, why ? why : strerror(errno));
  else if (why)
    bad = gn_complain(path, way->device < 0 ? why : "the module took what is no vector file");
  else
    bad = gn_play_file(way, &vector);
  free(bytes);
  return bad;
}

static int gn_is_vector(const struct dirent *entry) {
  size_t len = strlen(entry->d_name);
  return len > 4 && !strcmp(entry->d_name + len - 4, ".gnv");
}

int gn_vectors(struct gn_way *way, const char *folder) {
  struct dirent **names;
  int count = scandir(folder, &names, gn_is_vector, alphasort), at, bad = 0;
  if (count < 0) return gn_complain(folder, "the folder cannot be read");
  if (count == 0) return gn_complain(folder, "there is no *.gnv file");
  for (at = 0; at < count; ++at) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, names[at]->d_name);
    bad += gn_take_file(way, path);
    free(names[at]);
  }
  free(names);
  printf("%d scripts, %d of them differ or are damaged\n", count, bad);
  return bad != 0;
}

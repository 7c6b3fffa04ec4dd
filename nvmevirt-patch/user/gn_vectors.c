// SPDX-License-Identifier: GPL-2.0-only
/* Vector files: read, checked, played, and the first difference in words. */
#define _DEFAULT_SOURCE
#include "gn_user.h"

#include <dirent.h>

/*
 *   0       4         6       8            12          16
 *   "GNVS"  version   zero    body bytes   CRC-32C of the body
 *   body: name length (2), name, then operation length (4), operation, answer length (4), answer, ...
 */
#define GN_FILE_HEAD 16u
#define GN_FILE_VERSION 1u
#define GN_FILE_MOST (8u << 20)

struct gn_file {
  gn_u8 *bytes;
  gn_u32 len;
  const char *name;
  gn_u32 name_len;
  gn_u32 first;
};

static gn_u8 *gn_read_file(const char *path, gn_u32 *len) {
  FILE *file = fopen(path, "rb");
  gn_u8 *bytes = NULL;
  long end;
  if (!file) return NULL;
  if (!fseek(file, 0, SEEK_END) && (end = ftell(file)) >= 0 && end <= (long)GN_FILE_MOST &&
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

/* What is wrong with a file; NULL: nothing. Then every length in it is within the file. */
static const char *gn_check_file(struct gn_file *file) {
  const gn_u8 *b = file->bytes;
  gn_u32 at, part;
  if (file->len < GN_FILE_HEAD + 2 || memcmp(b, "GNVS", 4) != 0) return "not a vector file";
  if ((b[4] | b[5] << 8) != GN_FILE_VERSION) return "a vector file of another version";
  if (gn_u32_of(b + 8) != file->len - GN_FILE_HEAD) return "the file is cut short, or too long";
  if (gn_u32_of(b + 12) != gn_crc32c(0, b + GN_FILE_HEAD, file->len - GN_FILE_HEAD))
    return "the checksum is wrong";
  file->name_len = b[GN_FILE_HEAD] | (gn_u32)b[GN_FILE_HEAD + 1] << 8;
  file->name = (const char *)b + GN_FILE_HEAD + 2;
  if (file->name_len > file->len - GN_FILE_HEAD - 2) return "the name is longer than the file";
  file->first = GN_FILE_HEAD + 2 + file->name_len;
  for (at = file->first, part = 0; at < file->len; part ^= 1) {
    gn_u32 left = file->len - at;
    if (left < 4 || gn_u32_of(b + at) > left - 4) return "a length is beyond the file";
    if (!part && (gn_u32_of(b + at) == 0 || gn_u32_of(b + at) > GN_OP_MOST)) return "an operation of no possible length";
    if (part && gn_u32_of(b + at) > GN_ANSWER_MOST) return "an answer of no possible length";
    at += 4 + gn_u32_of(b + at);
  }
  return part ? "the last operation has no answer" : NULL;
}

void gn_say_refusal(FILE *out, gn_u16 status, gn_u32 dw0, gn_u32 dw1) {
  gn_u8 code = (gn_u8)dw0;
  if (!status) {
    fprintf(out, "success, DW0 %xh, DW1 %xh", dw0, dw1);
    return;
  }
  fprintf(out, "%04xh %s (rule: %s; volume %u, epoch %u)", status, gn_name_of(code), gn_rule_of(code), dw0 >> 16, dw1);
}

/* An answer in words. */
static void gn_say_answer(const char *who, const gn_u8 *a, gn_u32 len) {
  printf("    %s:", who);
  if (!len) printf(" nothing");
  while (len) {
    gn_u8 event = a[0];
    gn_u32 used = 1, at;
    printf(" %s", gn_event_name(event));
    if (event == GN_EV_COMPLETE && len >= 15) {
      printf(" of %u: ", gn_u32_of(a + 1));
      gn_say_refusal(stdout, (gn_u16)(a[5] | a[6] << 8), gn_u32_of(a + 7), gn_u32_of(a + 11));
      used = 15;
    } else if (event == GN_EV_PAGES && len >= 7) {
      gn_u32 count = a[5] | (gn_u32)a[6] << 8;
      printf(" of %u:", gn_u32_of(a + 1));
      for (at = 0; at < count && 7 + 4 * at + 4 <= len; ++at) printf(" %08x", gn_u32_of(a + 7 + 4 * at));
      used = 7 + 4 * count;
    } else if ((event == GN_EV_WANTS && len >= 9) || (event == GN_EV_OUT && len >= 13)) {
      printf(" of %u: %u bytes", gn_u32_of(a + 1), gn_u32_of(a + 5));
      used = event == GN_EV_WANTS ? 9 : 13;
    } else if (event == GN_EV_CLOSED && len >= 3) {
      printf(" client %u", a[1] | a[2] << 8);
      used = 3;
    } else if ((event == GN_EV_STATE || event == GN_EV_VALUE) && len >= 9) {
      printf(" %08x%08x", gn_u32_of(a + 5), gn_u32_of(a + 1));
      used = 9;
    } else {
      used = len;
    }
    if (used > len) used = len;
    a += used;
    len -= used;
    if (len) printf(";");
  }
  printf("\n");
}

static void gn_say_op(gn_u32 number, const gn_u8 *op, gn_u32 bytes) {
  gn_u32 at, head = op[0] == GN_OP_COMMAND || op[0] == GN_OP_ADMIN ? 15 : bytes;
  printf("    operation %u: %s", number, gn_op_name(op[0]));
  if (head == 15 && bytes >= 79) {
    gnp_sqe sqe;
    memcpy(&sqe, op + 15, sizeof sqe);
    printf(" opcode %02xh of client %u, token %u, NSID %u, CDW2 %xh, CDW3 %xh, CDW10 %xh, CDW11 %xh, CDW12 %xh, CDW13 %xh,"
           " CDW14 %xh, CDW15 %xh", sqe.opcode, op[9] | op[10] << 8, gn_u32_of(op + 11), sqe.nsid, sqe.cdw2, sqe.cdw3,
           sqe.cdw10, sqe.cdw11, sqe.cdw12, sqe.cdw13, sqe.cdw14, sqe.cdw15);
  } else {
    for (at = 1; at < bytes && at < 40; ++at) printf(" %02x", op[at]);
  }
  printf("\n");
}

/* Plays a file; whether every answer is the one in it. */
static int gn_play_file(struct gn_way *way, const struct gn_file *file) {
  static gn_u8 answer[GN_ANSWER_MOST];
  gn_u32 at = file->first, number = 0;
  if (gn_way_reset(way)) return 1;
  while (at < file->len) {
    const gn_u8 *op = file->bytes + at + 4, *wanted;
    gn_u32 bytes = gn_u32_of(file->bytes + at), wants;
    int got = gn_way_one(way, op, bytes, answer);
    at += 4 + bytes;
    wants = gn_u32_of(file->bytes + at);
    wanted = file->bytes + at + 4;
    at += 4 + wants;
    ++number;
    if (got >= 0 && (gn_u32)got == wants && !memcmp(answer, wanted, wants)) continue;
    printf("DIFFERS  %.*s\n", (int)file->name_len, file->name);
    gn_say_op(number, op, bytes);
    gn_say_answer("Rust", wanted, wants);
    if (got >= 0) gn_say_answer("here", answer, (gn_u32)got);
    return 1;
  }
  printf("same     %.*s (%u operations)\n", (int)file->name_len, file->name, number);
  return 0;
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
    struct gn_file file;
    const char *why;
    snprintf(path, sizeof path, "%s/%s", folder, names[at]->d_name);
    memset(&file, 0, sizeof file);
    file.bytes = gn_read_file(path, &file.len);
    why = file.bytes ? gn_check_file(&file) : "the file cannot be read";
    if (why)
      bad += gn_complain(path, why);
    else
      bad += gn_play_file(way, &file);
    free(file.bytes);
    free(names[at]);
  }
  free(names);
  printf("%d scripts, %d of them differ or are damaged\n", count, bad);
  return bad != 0;
}

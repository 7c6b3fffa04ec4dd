// SPDX-License-Identifier: GPL-2.0-only
/* Vector files: the whole file is checked first, then its operations are taken one by one. */
#include "gn_vector.h"

bool gn_vector_begins(const gn_u8 *bytes, gn_u32 len) { return len >= 4 && !memcmp(bytes, "GNVS", 4); }

/* Walks over operations and answers. */
static const char *gn_check_body(const struct gn_vector *v) {
  gn_u32 at = v->at;
  bool is_answer = false;
  while (at < v->len) {
    gn_u32 left = v->len - at, length;
    if (left < 4 || gn_u32_of(v->bytes + at) > left - 4) return "a length is beyond the file";
    length = gn_u32_of(v->bytes + at);
    if (!is_answer && (length == 0 || length > GN_OP_MOST)) return "an operation of no possible length";
    if (is_answer && length > GN_ANSWER_MOST) return "an answer of no possible length";
    at += 4 + length;
    is_answer = !is_answer;
  }
  return is_answer ? "the last operation has no answer" : NULL;
}

const char *gn_vector_open(struct gn_vector *v, const gn_u8 *bytes, gn_u32 len) {
  memset(v, 0, sizeof *v);
  v->bytes = bytes;
  v->len = len;
  if (!gn_vector_begins(bytes, len)) return "not a vector file";
  if (len > GN_VECTOR_MOST) return "a vector file of more than 8 MiB";
  if (len < GN_VECTOR_HEAD + 2) return "the file is cut short, or too long";
  if ((bytes[4] | bytes[5] << 8) != GN_VECTOR_VERSION) return "a vector file of another version";
  if (bytes[6] | bytes[7]) return "a reserved field is not zero";
  if (gn_u32_of(bytes + 8) != len - GN_VECTOR_HEAD) return "the file is cut short, or too long";
  if (gn_u32_of(bytes + 12) != gn_crc32c(0, bytes + GN_VECTOR_HEAD, len - GN_VECTOR_HEAD))
    return "the checksum is wrong";
  v->name_len = bytes[GN_VECTOR_HEAD] | (gn_u32)bytes[GN_VECTOR_HEAD + 1] << 8;
  v->name = (const char *)bytes + GN_VECTOR_HEAD + 2;
  if (v->name_len > len - GN_VECTOR_HEAD - 2) return "the name is longer than the file";
  v->at = GN_VECTOR_HEAD + 2 + v->name_len;
  return gn_check_body(v);
}

bool gn_vector_next(struct gn_vector *v) {
  if (v->at >= v->len) return false;
  v->op_bytes = gn_u32_of(v->bytes + v->at);
  v->op = v->bytes + v->at + 4;
  v->at += 4 + v->op_bytes;
  v->wanted_bytes = gn_u32_of(v->bytes + v->at);
  v->wanted = v->bytes + v->at + 4;
  v->at += 4 + v->wanted_bytes;
  ++v->number;
  return true;
}

bool gn_vector_is_answer(const struct gn_vector *v, const gn_u8 *answer, gn_u32 bytes) {
  return bytes == v->wanted_bytes && !memcmp(answer, v->wanted, bytes);
}

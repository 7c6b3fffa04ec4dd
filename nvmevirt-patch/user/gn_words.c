// SPDX-License-Identifier: GPL-2.0-only
/* Operations and answers in words. */
#include "gn_user.h"

void gn_say_refusal(FILE *out, gn_u16 status, gn_u32 dw0, gn_u32 dw1) {
  gn_u8 code = (gn_u8)dw0;
  if (!status) {
    fprintf(out, "success, DW0 %xh, DW1 %xh", dw0, dw1);
    return;
  }
  fprintf(out, "%04xh %s (rule: %s; SSD %d, volume %u, epoch %u)", status, gn_name_of(code), gn_rule_of(code),
          (int)(dw0 >> 8 & 255) - 1, dw0 >> 16, dw1);
}

/* An answer in words. */
void gn_say_answer(const char *who, const gn_u8 *a, gn_u32 len) {
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
    } else if (event == GN_EV_WORDS && len >= 3) {
      gn_u32 count = a[1] | (gn_u32)a[2] << 8;
      for (at = 0; at < count && 3 + 8 * at + 8 <= len; ++at)
        printf(" %08x%08x", gn_u32_of(a + 7 + 8 * at), gn_u32_of(a + 3 + 8 * at));
      used = 3 + 8 * count;
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

void gn_say_op(gn_u32 number, const gn_u8 *op, gn_u32 bytes) {
  gn_u32 at, head = op[0] == GN_OP_COMMAND || op[0] == GN_OP_ADMIN ? 15 : bytes;
  printf("    operation %u: %s", number, gn_op_name(op[0]));
  if (head == 15 && bytes >= 79) {
    gnp_sqe sqe;
    memcpy(&sqe, op + 15, sizeof sqe);
    printf(" opcode %02xh of client %u, token %u, NSID %u, CDW2 %xh, CDW3 %xh,", sqe.opcode,
           op[9] | op[10] << 8, gn_u32_of(op + 11), sqe.nsid, sqe.cdw2, sqe.cdw3);
    printf(" CDW10 %xh, CDW11 %xh, CDW12 %xh, CDW13 %xh, CDW14 %xh, CDW15 %xh", sqe.cdw10, sqe.cdw11,
           sqe.cdw12, sqe.cdw13, sqe.cdw14, sqe.cdw15);
  } else {
    for (at = 1; at < bytes && at < 40; ++at) printf(" %02x", op[at]);
  }
  printf("\n");
}

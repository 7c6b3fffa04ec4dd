// SPDX-License-Identifier: Apache-2.0 OR MIT
// Why an SSD refuses a command: numbers, NVMe statuses, errnos, rules and sentences. A part of nvme.h, which
// includes it. The Rust source is src/status.rs.
#ifndef GNPROTO_REFUSALS_H
#define GNPROTO_REFUSALS_H

#ifndef GNPROTO_NVME_H
#error "include gnproto/nvme.h instead"
#endif

// Why an SSD refused: X(name, number in DW0, NVMe status, errno of Linux, rule, sentence).
#define GNP_REFUSALS(X) \
  X(UNKNOWN_VOLUME, 1, 0x4286, 13, "access: volume", "no such volume on this SSD") \
  X(NOT_A_READER, 2, 0x4286, 13, "access: readers", "this client has not opened the volume") \
  X(READ_ONLY, 3, 0x4182, 30, "access: writer", "this client opened the volume for reading only") \
  X(LEASE_HELD_BY_OTHER, 4, 0x4083, 16, "8 (fencing)", "another client holds the write lease") \
  X(LEASE_EXPIRED, 5, 0x0083, 11, "8 (fencing)", "the write lease has expired; renew it and submit again") \
  X(WRONG_IDENTITY, 6, 0x4286, 1, "4 (identity)", "the client id of the command is not the connection's") \
  X(NOT_THE_DAEMON, 7, 0x4286, 1, "4 (identity)", "only the daemon may use this command") \
  X(WRONG_TARGET, 8, 0x4701, 6, "placement", "the block does not belong to this SSD") \
  X(STALE_MAP, 9, 0x0702, 116, "1 (map epoch)", "the client's fleet map is out of date") \
  X(MAP_BEHIND, 10, 0x0703, 11, "1 (map epoch)", "this SSD has not got the client's fleet map yet") \
  X(NOT_HERE_YET, 11, 0x0704, 11, "1 (serving and filling)", \
    "this replica is still being filled; read another") \
  X(ASK_THE_FIRST, 12, 0x0705, 11, "7 (readers beside a writer)", \
    "a writer is active; read the first serving SSD") \
  X(NOT_SERVING, 13, 0x0706, 11, "2 (serving lease)", "this SSD is not serving") \
  X(OUT_OF_RANGE, 14, 0x4080, 22, "NVMe", "the range ends beyond the volume") \
  X(CAPACITY_EXCEEDED, 15, 0x4081, 28, "NVMe", "the SSD is full") \
  X(NOT_READY, 16, 0x0882, 11, "11 (power)", "the SSD is recovering") \
  X(WRONG_KEY, 17, 0x0281, 5, "10 (deletion)", "internal error: the page holds another block") \
  X(BAD_CHECKSUM, 18, 0x0281, 5, "checksum", "the data of the page is damaged") \
  X(DELETING, 19, 0x4286, 13, "10 (deletion)", "the volume is being deleted") \
  X(INVALID_FIELD, 20, 0x4002, 22, "NVMe", "a field of the command is not valid") \
  X(INVALID_OPCODE, 21, 0x4001, 95, "4 (identity)", "this command is not known") \
  X(INVALID_SGL, 22, 0x400F, 22, "NVMe", "the data pointer does not describe the transfer") \
  X(TRANSFER_ERROR, 23, 0x0004, 5, "NVMe", "the data could not be transferred") \
  X(VOLUME_EXISTS, 24, 0x41C0, 17, "VOLUME ADD", "the volume id is taken") \
  X(VOLUME_ABSENT, 25, 0x41C1, 2, "VOLUME", "no such volume") \
  X(TABLE_FULL, 26, 0x41C2, 28, "VOLUME ADD", "the permission table is full") \
  X(STALE_TERM, 27, 0x41C3, 116, "3 (terms)", "a newer daemon has taken over") \
  X(STALE_VERSION, 28, 0x41C4, 116, "3 (terms)", "the SSD holds a newer version") \
  X(SWEEP_PENDING, 29, 0x01C5, 16, "10 (deletion)", "the volume id is still being swept") \
  X(CONNECT_REFUSED, 30, 0x4184, 111, "4 (identity)", "this host may not connect") \
  X(CONNECT_INVALID, 31, 0x4182, 22, "NVMe-oF", "the parameters of Connect are not valid") \
  X(SEQUENCE_ERROR, 32, 0x400C, 71, "NVMe", "the command came out of sequence") \
  X(INVALID_NAMESPACE, 33, 0x400B, 22, "NVMe", "the namespace does not exist") \
  X(INVALID_LOG_PAGE, 34, 0x4109, 22, "NVMe", "the SSD has no such log page") \
  X(FEATURE_NOT_SAVEABLE, 35, 0x410D, 95, "NVMe", "the feature cannot be saved") \
  X(EVENT_LIMIT, 36, 0x4105, 28, "NVMe", "too many event requests are outstanding") \
  X(ABORT_REQUESTED, 37, 0x0007, 125, "NVMe", "the command was aborted before it began") \
  X(COMPARE_FAILED, 38, 0x4285, 84, "NVMe", "the stored blocks differ from the data to compare") \
  X(DEALLOCATED, 39, 0x4287, 61, "NVMe", "a block of the range holds no data") \
  X(UNREADABLE, 40, 0x0281, 5, "NVMe", "the page cannot be read from the medium") \
  X(AUTHENTICATION_REQUIRED, 41, 0x4191, 13, "4 (identity)", "the host has not proven who it is") \
  X(COPY_UNUSABLE, 42, 0x4707, 30, "1 (serving and filling)", \
    "the SSD of this copy cannot be used: gnstor status names it; put its file right and start the array again") \
  X(GROUP_WAITS, 43, 0x0708, 11, "1c (last copy)", \
    "an SSD of the block's group is away with the last copy, or too few copies are left to write: wait for it") \
  X(GROUP_FULL, 44, 0x4081, 28, "15 (full)", \
    "an SSD of the block's group is full: delete or trim, or add SSDs") \
  X(OTHER_ARRAY, 45, 0x41C6, 6, "3b (array id)", \
    "this SSD belongs to another array: connect to the right SSDs") \
  X(DEPRIVED, 46, 0x01C7, 11, "2a (serving lease)", \
    "a newer map took places from this SSD: learn that map") \
  X(OLDER_IMAGE, 47, 0x41C8, 116, "2a (serving lease)", \
    "this SSD was opened more often than its content says, so it is an older image: it is filled anew") \
  X(NEEDS_SALVAGE, 48, 0x0709, 11, "17 (salvage)", \
    "no copy of the block serves, and this one has lost writes: gnstor fleet salvage merges the copies") \
  X(HOSTS_FULL, 49, 0x0181, 11, "NVMe-oF", \
    "hosts hold all controllers or queue entries that the SSD gives out: try again later")

enum {
#define GNP_REFUSAL_NUMBER(NAME, CODE, STATUS, ERRNO, RULE, SENTENCE) GNP_REFUSED_##NAME = CODE,
  GNP_REFUSALS(GNP_REFUSAL_NUMBER)
#undef GNP_REFUSAL_NUMBER
  GNP_REFUSED_LAST = 49
};

// DW0 of a refused command: VID in 31:16, SSD + 1 in 15:8, number in 7:0.
enum { GNP_DW0_NO_SSD = 0xffff };
GNP_FN gnp_u8 gnp_dw0_refusal(gnp_u32 dw0) { return (gnp_u8)dw0; }
GNP_FN gnp_u16 gnp_dw0_vid(gnp_u32 dw0) { return (gnp_u16)(dw0 >> 16); }
// The number of the SSD in the fleet map, or GNP_DW0_NO_SSD: the SSD does not say it.
GNP_FN gnp_u16 gnp_dw0_ssd(gnp_u32 dw0) {
  gnp_u8 ssd = (gnp_u8)(dw0 >> 8);
  return ssd ? (gnp_u16)(ssd - 1) : (gnp_u16)GNP_DW0_NO_SSD;
}

// These functions take a refusal's number. They give 0 or null for a number that this version does not know.
GNP_FN gnp_u16 gnp_refusal_status(gnp_u8 refusal) {
  switch (refusal) {
#define GNP_REFUSAL_CASE(NAME, CODE, STATUS, ERRNO, RULE, SENTENCE) case CODE: return STATUS;
    GNP_REFUSALS(GNP_REFUSAL_CASE)
#undef GNP_REFUSAL_CASE
    default: return 0;
  }
}
GNP_FN int gnp_refusal_errno(gnp_u8 refusal) {
  switch (refusal) {
#define GNP_REFUSAL_CASE(NAME, CODE, STATUS, ERRNO, RULE, SENTENCE) case CODE: return ERRNO;
    GNP_REFUSALS(GNP_REFUSAL_CASE)
#undef GNP_REFUSAL_CASE
    default: return 0;
  }
}
GNP_FN const char *gnp_refusal_rule(gnp_u8 refusal) {
  switch (refusal) {
#define GNP_REFUSAL_CASE(NAME, CODE, STATUS, ERRNO, RULE, SENTENCE) case CODE: return RULE;
    GNP_REFUSALS(GNP_REFUSAL_CASE)
#undef GNP_REFUSAL_CASE
    default: return 0;
  }
}
GNP_FN const char *gnp_refusal_sentence(gnp_u8 refusal) {
  switch (refusal) {
#define GNP_REFUSAL_CASE(NAME, CODE, STATUS, ERRNO, RULE, SENTENCE) case CODE: return SENTENCE;
    GNP_REFUSALS(GNP_REFUSAL_CASE)
#undef GNP_REFUSAL_CASE
    default: return 0;
  }
}

#endif // GNPROTO_REFUSALS_H

/* SPDX-License-Identifier: GPL-2.0-only */
/* Generated from proto/src/status.rs by proto/tests/status_tables.rs: the refusals of an SSD. */
#ifndef GN_STATUS_H
#define GN_STATUS_H

#include "gn_os.h"

enum {
  GN_UNKNOWN_VOLUME = 1,
  GN_NOT_A_READER = 2,
  GN_READ_ONLY = 3,
  GN_LEASE_HELD_BY_OTHER = 4,
  GN_LEASE_EXPIRED = 5,
  GN_WRONG_IDENTITY = 6,
  GN_NOT_THE_DAEMON = 7,
  GN_WRONG_TARGET = 8,
  GN_STALE_MAP = 9,
  GN_MAP_BEHIND = 10,
  GN_NOT_HERE_YET = 11,
  GN_ASK_THE_FIRST = 12,
  GN_NOT_SERVING = 13,
  GN_OUT_OF_RANGE = 14,
  GN_CAPACITY_EXCEEDED = 15,
  GN_NOT_READY = 16,
  GN_WRONG_KEY = 17,
  GN_BAD_CHECKSUM = 18,
  GN_DELETING = 19,
  GN_INVALID_FIELD = 20,
  GN_INVALID_OPCODE = 21,
  GN_INVALID_SGL = 22,
  GN_TRANSFER_ERROR = 23,
  GN_VOLUME_EXISTS = 24,
  GN_VOLUME_ABSENT = 25,
  GN_TABLE_FULL = 26,
  GN_STALE_TERM = 27,
  GN_STALE_VERSION = 28,
  GN_SWEEP_PENDING = 29,
  GN_CONNECT_REFUSED = 30,
  GN_CONNECT_INVALID = 31,
  GN_SEQUENCE_ERROR = 32,
  GN_INVALID_NAMESPACE = 33,
  GN_INVALID_LOG_PAGE = 34,
  GN_FEATURE_NOT_SAVEABLE = 35,
  GN_EVENT_LIMIT = 36,
  GN_ABORT_REQUESTED = 37,
  GN_COMPARE_FAILED = 38,
  GN_DEALLOCATED = 39,
  GN_UNREADABLE = 40,
  GN_AUTHENTICATION_REQUIRED = 41,
  GN_COPY_UNUSABLE = 42,
  GN_GROUP_WAITS = 43,
  GN_GROUP_FULL = 44,
  GN_OTHER_ARRAY = 45,
  GN_DEPRIVED = 46,
  GN_OLDER_IMAGE = 47,
  GN_NEEDS_SALVAGE = 48,
  GN_HOSTS_FULL = 49,
  GN_REFUSALS_END
};

/* NVMe status without the phase bit, name, rule of the protocol; 0 and question marks for a number
 * that there is not. */
struct gn_refusal {
  gn_u16 status;
  const char *name;
  const char *rule;
};

static inline const struct gn_refusal *gn_refusal_of(gn_u8 code) {
  static const struct gn_refusal all[GN_REFUSALS_END] = {
      {0, "?", "?"},
      [GN_UNKNOWN_VOLUME] = {0x4286, "UnknownVolume", "access: volume"},
      [GN_NOT_A_READER] = {0x4286, "NotAReader", "access: readers"},
      [GN_READ_ONLY] = {0x4182, "ReadOnly", "access: writer"},
      [GN_LEASE_HELD_BY_OTHER] = {0x4083, "LeaseHeldByOther", "8 (fencing)"},
      [GN_LEASE_EXPIRED] = {0x0083, "LeaseExpired", "8 (fencing)"},
      [GN_WRONG_IDENTITY] = {0x4286, "WrongIdentity", "4 (identity)"},
      [GN_NOT_THE_DAEMON] = {0x4286, "NotTheDaemon", "4 (identity)"},
      [GN_WRONG_TARGET] = {0x4701, "WrongTarget", "placement"},
      [GN_STALE_MAP] = {0x0702, "StaleMap", "1 (map epoch)"},
      [GN_MAP_BEHIND] = {0x0703, "MapBehind", "1 (map epoch)"},
      [GN_NOT_HERE_YET] = {0x0704, "NotHereYet", "1 (serving and filling)"},
      [GN_ASK_THE_FIRST] = {0x0705, "AskTheFirst", "7 (readers beside a writer)"},
      [GN_NOT_SERVING] = {0x0706, "NotServing", "2 (serving lease)"},
      [GN_OUT_OF_RANGE] = {0x4080, "OutOfRange", "NVMe"},
      [GN_CAPACITY_EXCEEDED] = {0x4081, "CapacityExceeded", "NVMe"},
      [GN_NOT_READY] = {0x0882, "NotReady", "11 (power)"},
      [GN_WRONG_KEY] = {0x0281, "WrongKey", "10 (deletion)"},
      [GN_BAD_CHECKSUM] = {0x0281, "BadChecksum", "checksum"},
      [GN_DELETING] = {0x4286, "Deleting", "10 (deletion)"},
      [GN_INVALID_FIELD] = {0x4002, "InvalidField", "NVMe"},
      [GN_INVALID_OPCODE] = {0x4001, "InvalidOpcode", "4 (identity)"},
      [GN_INVALID_SGL] = {0x400F, "InvalidSgl", "NVMe"},
      [GN_TRANSFER_ERROR] = {0x0004, "TransferError", "NVMe"},
      [GN_VOLUME_EXISTS] = {0x41C0, "VolumeExists", "VOLUME ADD"},
      [GN_VOLUME_ABSENT] = {0x41C1, "VolumeAbsent", "VOLUME"},
      [GN_TABLE_FULL] = {0x41C2, "TableFull", "VOLUME ADD"},
      [GN_STALE_TERM] = {0x41C3, "StaleTerm", "3 (terms)"},
      [GN_STALE_VERSION] = {0x41C4, "StaleVersion", "3 (terms)"},
      [GN_SWEEP_PENDING] = {0x01C5, "SweepPending", "10 (deletion)"},
      [GN_CONNECT_REFUSED] = {0x4184, "ConnectRefused", "4 (identity)"},
      [GN_CONNECT_INVALID] = {0x4182, "ConnectInvalid", "NVMe-oF"},
      [GN_SEQUENCE_ERROR] = {0x400C, "SequenceError", "NVMe"},
      [GN_INVALID_NAMESPACE] = {0x400B, "InvalidNamespace", "NVMe"},
      [GN_INVALID_LOG_PAGE] = {0x4109, "InvalidLogPage", "NVMe"},
      [GN_FEATURE_NOT_SAVEABLE] = {0x410D, "FeatureNotSaveable", "NVMe"},
      [GN_EVENT_LIMIT] = {0x4105, "EventLimit", "NVMe"},
      [GN_ABORT_REQUESTED] = {0x0007, "AbortRequested", "NVMe"},
      [GN_COMPARE_FAILED] = {0x4285, "CompareFailed", "NVMe"},
      [GN_DEALLOCATED] = {0x4287, "Deallocated", "NVMe"},
      [GN_UNREADABLE] = {0x0281, "Unreadable", "NVMe"},
      [GN_AUTHENTICATION_REQUIRED] = {0x4191, "AuthenticationRequired", "4 (identity)"},
      [GN_COPY_UNUSABLE] = {0x4707, "CopyUnusable", "1 (serving and filling)"},
      [GN_GROUP_WAITS] = {0x0708, "GroupWaits", "1c (last copy)"},
      [GN_GROUP_FULL] = {0x4081, "GroupFull", "15 (full)"},
      [GN_OTHER_ARRAY] = {0x41C6, "OtherArray", "3b (array id)"},
      [GN_DEPRIVED] = {0x01C7, "Deprived", "2a (serving lease)"},
      [GN_OLDER_IMAGE] = {0x41C8, "OlderImage", "2a (serving lease)"},
      [GN_NEEDS_SALVAGE] = {0x0709, "NeedsSalvage", "17 (salvage)"},
      [GN_HOSTS_FULL] = {0x0181, "HostsFull", "NVMe-oF"},
  };
  return &all[code < GN_REFUSALS_END ? code : 0];
}

static inline gn_u16 gn_status_of(gn_u8 code) { return gn_refusal_of(code)->status; }

static inline const char *gn_name_of(gn_u8 code) { return gn_refusal_of(code)->name; }

static inline const char *gn_rule_of(gn_u8 code) { return gn_refusal_of(code)->rule; }

#endif

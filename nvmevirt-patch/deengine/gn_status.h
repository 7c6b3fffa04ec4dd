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
  GN_REFUSALS_END
};

/* The NVMe status of a refusal, without the phase bit; 0 for a number that there is not. */
static inline gn_u16 gn_status_of(gn_u8 code) {
  switch (code) {
    case GN_UNKNOWN_VOLUME:
      return 0x4286;
    case GN_NOT_A_READER:
      return 0x4286;
    case GN_READ_ONLY:
      return 0x4182;
    case GN_LEASE_HELD_BY_OTHER:
      return 0x4083;
    case GN_LEASE_EXPIRED:
      return 0x0083;
    case GN_WRONG_IDENTITY:
      return 0x4286;
    case GN_NOT_THE_DAEMON:
      return 0x4286;
    case GN_WRONG_TARGET:
      return 0x4701;
    case GN_STALE_MAP:
      return 0x0702;
    case GN_MAP_BEHIND:
      return 0x0703;
    case GN_NOT_HERE_YET:
      return 0x0704;
    case GN_ASK_THE_FIRST:
      return 0x0705;
    case GN_NOT_SERVING:
      return 0x0706;
    case GN_OUT_OF_RANGE:
      return 0x4080;
    case GN_CAPACITY_EXCEEDED:
      return 0x4081;
    case GN_NOT_READY:
      return 0x0882;
    case GN_WRONG_KEY:
      return 0x0281;
    case GN_BAD_CHECKSUM:
      return 0x0281;
    case GN_DELETING:
      return 0x4286;
    case GN_INVALID_FIELD:
      return 0x4002;
    case GN_INVALID_OPCODE:
      return 0x4001;
    case GN_INVALID_SGL:
      return 0x400F;
    case GN_TRANSFER_ERROR:
      return 0x0004;
    case GN_VOLUME_EXISTS:
      return 0x41C0;
    case GN_VOLUME_ABSENT:
      return 0x41C1;
    case GN_TABLE_FULL:
      return 0x41C2;
    case GN_STALE_TERM:
      return 0x41C3;
    case GN_STALE_VERSION:
      return 0x41C4;
    case GN_SWEEP_PENDING:
      return 0x01C5;
    case GN_CONNECT_REFUSED:
      return 0x4184;
    case GN_CONNECT_INVALID:
      return 0x4182;
    case GN_SEQUENCE_ERROR:
      return 0x400C;
    case GN_INVALID_NAMESPACE:
      return 0x400B;
    case GN_INVALID_LOG_PAGE:
      return 0x4109;
    case GN_FEATURE_NOT_SAVEABLE:
      return 0x410D;
    case GN_EVENT_LIMIT:
      return 0x4105;
    case GN_ABORT_REQUESTED:
      return 0x0007;
    case GN_COMPARE_FAILED:
      return 0x4285;
    case GN_DEALLOCATED:
      return 0x4287;
    case GN_UNREADABLE:
      return 0x0281;
    case GN_AUTHENTICATION_REQUIRED:
      return 0x4191;
    case GN_COPY_UNUSABLE:
      return 0x4707;
    default:
      return 0;
  }
}

static inline const char *gn_name_of(gn_u8 code) {
  switch (code) {
    case GN_UNKNOWN_VOLUME:
      return "UnknownVolume";
    case GN_NOT_A_READER:
      return "NotAReader";
    case GN_READ_ONLY:
      return "ReadOnly";
    case GN_LEASE_HELD_BY_OTHER:
      return "LeaseHeldByOther";
    case GN_LEASE_EXPIRED:
      return "LeaseExpired";
    case GN_WRONG_IDENTITY:
      return "WrongIdentity";
    case GN_NOT_THE_DAEMON:
      return "NotTheDaemon";
    case GN_WRONG_TARGET:
      return "WrongTarget";
    case GN_STALE_MAP:
      return "StaleMap";
    case GN_MAP_BEHIND:
      return "MapBehind";
    case GN_NOT_HERE_YET:
      return "NotHereYet";
    case GN_ASK_THE_FIRST:
      return "AskTheFirst";
    case GN_NOT_SERVING:
      return "NotServing";
    case GN_OUT_OF_RANGE:
      return "OutOfRange";
    case GN_CAPACITY_EXCEEDED:
      return "CapacityExceeded";
    case GN_NOT_READY:
      return "NotReady";
    case GN_WRONG_KEY:
      return "WrongKey";
    case GN_BAD_CHECKSUM:
      return "BadChecksum";
    case GN_DELETING:
      return "Deleting";
    case GN_INVALID_FIELD:
      return "InvalidField";
    case GN_INVALID_OPCODE:
      return "InvalidOpcode";
    case GN_INVALID_SGL:
      return "InvalidSgl";
    case GN_TRANSFER_ERROR:
      return "TransferError";
    case GN_VOLUME_EXISTS:
      return "VolumeExists";
    case GN_VOLUME_ABSENT:
      return "VolumeAbsent";
    case GN_TABLE_FULL:
      return "TableFull";
    case GN_STALE_TERM:
      return "StaleTerm";
    case GN_STALE_VERSION:
      return "StaleVersion";
    case GN_SWEEP_PENDING:
      return "SweepPending";
    case GN_CONNECT_REFUSED:
      return "ConnectRefused";
    case GN_CONNECT_INVALID:
      return "ConnectInvalid";
    case GN_SEQUENCE_ERROR:
      return "SequenceError";
    case GN_INVALID_NAMESPACE:
      return "InvalidNamespace";
    case GN_INVALID_LOG_PAGE:
      return "InvalidLogPage";
    case GN_FEATURE_NOT_SAVEABLE:
      return "FeatureNotSaveable";
    case GN_EVENT_LIMIT:
      return "EventLimit";
    case GN_ABORT_REQUESTED:
      return "AbortRequested";
    case GN_COMPARE_FAILED:
      return "CompareFailed";
    case GN_DEALLOCATED:
      return "Deallocated";
    case GN_UNREADABLE:
      return "Unreadable";
    case GN_AUTHENTICATION_REQUIRED:
      return "AuthenticationRequired";
    case GN_COPY_UNUSABLE:
      return "CopyUnusable";
    default:
      return "?";
  }
}

static inline const char *gn_rule_of(gn_u8 code) {
  switch (code) {
    case GN_UNKNOWN_VOLUME:
      return "access: volume";
    case GN_NOT_A_READER:
      return "access: readers";
    case GN_READ_ONLY:
      return "access: writer";
    case GN_LEASE_HELD_BY_OTHER:
      return "8 (fencing)";
    case GN_LEASE_EXPIRED:
      return "8 (fencing)";
    case GN_WRONG_IDENTITY:
      return "4 (identity)";
    case GN_NOT_THE_DAEMON:
      return "4 (identity)";
    case GN_WRONG_TARGET:
      return "placement";
    case GN_STALE_MAP:
      return "1 (map epoch)";
    case GN_MAP_BEHIND:
      return "1 (map epoch)";
    case GN_NOT_HERE_YET:
      return "1 (serving and filling)";
    case GN_ASK_THE_FIRST:
      return "7 (readers beside a writer)";
    case GN_NOT_SERVING:
      return "2 (serving lease)";
    case GN_OUT_OF_RANGE:
      return "NVMe";
    case GN_CAPACITY_EXCEEDED:
      return "NVMe";
    case GN_NOT_READY:
      return "11 (power)";
    case GN_WRONG_KEY:
      return "10 (forgetting)";
    case GN_BAD_CHECKSUM:
      return "checksum";
    case GN_DELETING:
      return "10 (forgetting)";
    case GN_INVALID_FIELD:
      return "NVMe";
    case GN_INVALID_OPCODE:
      return "4 (identity)";
    case GN_INVALID_SGL:
      return "NVMe";
    case GN_TRANSFER_ERROR:
      return "NVMe";
    case GN_VOLUME_EXISTS:
      return "VOLUME ADD";
    case GN_VOLUME_ABSENT:
      return "VOLUME";
    case GN_TABLE_FULL:
      return "VOLUME ADD";
    case GN_STALE_TERM:
      return "3 (terms)";
    case GN_STALE_VERSION:
      return "3 (terms)";
    case GN_SWEEP_PENDING:
      return "10 (forgetting)";
    case GN_CONNECT_REFUSED:
      return "4 (identity)";
    case GN_CONNECT_INVALID:
      return "NVMe-oF";
    case GN_SEQUENCE_ERROR:
      return "NVMe";
    case GN_INVALID_NAMESPACE:
      return "NVMe";
    case GN_INVALID_LOG_PAGE:
      return "NVMe";
    case GN_FEATURE_NOT_SAVEABLE:
      return "NVMe";
    case GN_EVENT_LIMIT:
      return "NVMe";
    case GN_ABORT_REQUESTED:
      return "NVMe";
    case GN_COMPARE_FAILED:
      return "NVMe";
    case GN_DEALLOCATED:
      return "NVMe";
    case GN_UNREADABLE:
      return "NVMe";
    case GN_AUTHENTICATION_REQUIRED:
      return "4 (identity)";
    case GN_COPY_UNUSABLE:
      return "1 (serving and filling)";
    default:
      return "?";
  }
}

#endif

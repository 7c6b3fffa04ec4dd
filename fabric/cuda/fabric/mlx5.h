// SPDX-License-Identifier: Apache-2.0 OR MIT
// mlx5 queue bytes as both the initiator writes them and the emulated HCA reads them: work requests,
// completions, doorbells. Facts from public drivers and device headers; sizes and golden bytes are pinned by
// tests. Multi-byte fields are big-endian.
#pragma once
#include "fabric/arch.cuh"

namespace gn { namespace mlx5 {

enum : gn_u32 {
  OP_NOP = 0x00, OP_SEND_INVAL = 0x01, OP_RDMA_WRITE = 0x08, OP_RDMA_WRITE_IMM = 0x09, OP_SEND = 0x0a,
  OP_SEND_IMM = 0x0b, OP_RDMA_READ = 0x10, OP_LOCAL_INVAL = 0x1b, OP_DUMP = 0x23,
};
enum : gn_u32 { CE_CQ_UPDATE = 0x08 };  // completion mode "always" in fm_ce_se

// Completion opcodes (op_own bits 7:4).
enum : gn_u32 {
  CQE_REQ = 0,
  CQE_RESP_SEND = 2,
  CQE_SIG_ERR = 12,
  CQE_REQ_ERR = 13,
  CQE_RESP_ERR = 14,
  CQE_INVALID = 15
};

enum : gn_u32 {
  SYND_LOCAL_LENGTH = 0x01,
  SYND_LOCAL_QP_OP = 0x02,
  SYND_LOCAL_PROT = 0x04,
  SYND_FLUSH = 0x05,
  SYND_MEMORY_OP = 0x06,
  SYND_BAD_RESP = 0x10,
  SYND_LOCAL_ACCESS = 0x11,
  SYND_REMOTE_INVAL_REQ = 0x12,
  SYND_REMOTE_ACCESS = 0x13,
  SYND_REMOTE_OP = 0x14,
  SYND_RETRY_EXC = 0x15,
  SYND_RNR_EXC = 0x16,
  SYND_ABORTED = 0x22,
};

enum : gn_u32 { WQEBB = 64, WQEBB_SHIFT = 6, DS_BYTES = 16, CQE_BYTES = 64 };
enum : gn_u32 { INLINE_FLAG = 0x80000000u, BYTE_COUNT_MASK = 0x7fffffffu };
// A doorbell page has two registers of two halves each, which drivers ring in turn, and one for doorbells
// without a record. The word at +20h arms a completion queue for an event: the emulated HCA has no events and
// does not read it.
enum : gn_u32 {
  UAR_BYTES = 4096,
  UAR_CQ_ARM = 0x20,
  UAR_NO_RECORD = 0x600,
  UAR_DB0 = 0x800,
  UAR_DB1 = 0x900,
  UAR_DB2 = 0xa00,
  UAR_DB3 = 0xb00,
};
enum : gn_u32 { RCV_DBR = 0, SND_DBR = 1 };  // words of the doorbell record

// Segments, 16 bytes each, as four 32-bit words in memory order (already big-endian where stored).
struct ctrl_seg { gn_u32 opmod_idx_opcode, qpn_ds, fm_ce_se_word, imm; };
struct raddr_seg { gn_u32 addr_hi, addr_lo, rkey, reserved; };
struct data_seg { gn_u32 byte_count, lkey, addr_hi, addr_lo; };
static_assert(sizeof(ctrl_seg) == 16 && sizeof(raddr_seg) == 16 && sizeof(data_seg) == 16,
              "segments are 16 bytes");

// 64-byte completion. The last word holds wqe_counter (be16), signature and op_own. It is stored last, and
// together with the word before it: a poller may load both at once.
struct cqe64 {
  gn_u32 inline_or_reserved[6];  // 0
  gn_u32 flags_rqpn;             // 24
  gn_u32 reserved28;             // 28
  gn_u32 srqn_uidx;              // 32
  gn_u32 imm_inval;              // 36
  gn_u32 reserved40;             // 40
  gn_u32 byte_count;             // 44
  gn_u32 timestamp[2];           // 48; in an error completion 54 is the vendor syndrome and 55 the syndrome
  gn_u32 sop_qpn;                // 56
  gn_u32 counter_own;            // 60
};
static_assert(sizeof(cqe64) == CQE_BYTES, "a completion is 64 bytes");
static_assert(__builtin_offsetof(cqe64, sop_qpn) == 56 && __builtin_offsetof(cqe64, counter_own) == 60,
              "the last two words are one of 64 bits");

// The doorbell value of gpunetio and NVSHMEM: be32(producer index << 8), be32(qpn << 8), as one 64-bit store.
GN_DEV gn_u64 doorbell_value(gn_u32 pi, gn_u32 qpn) {
  return (gn_u64)be32((pi & 0xffffu) << 8) | (gn_u64)be32(qpn << 8) << 32;
}

// a is newer than b, both 16-bit counters.
GN_DEV bool newer16(gn_u32 a, gn_u32 b) { return ((a - b) & 0xffffu) != 0 && ((a - b) & 0xffffu) < 0x8000u; }

}}  // namespace gn::mlx5

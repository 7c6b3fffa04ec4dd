// SPDX-License-Identifier: Apache-2.0 OR MIT
// What the agent and the transport share: the contexts that create_qp/create_cq/reg_mr fill in, and the two
// rings between them. Mirrored by fabric/src/hca/abi.rs; a test compares every offset with the compiler's.
#pragma once
#include "fabric/arch.cuh"

namespace gn { namespace hca {

// Contexts are in device memory. The transport writes them while the agent is not resident.

enum : gn_u32 { MAX_QPS = 1024 };
// QP_SPARE: a spare queue pair, whose doorbells nothing reads before the first DOWN_QP_ANEW. QP_ANEW: this
// message has arrived, and the front end has yet to begin anew.
enum : gn_u32 { QP_FREE = 0, QP_RTS = 1, QP_ERROR = 2, QP_SPARE = 3, QP_ANEW = 4 };
enum : gn_u32 { ACCESS_LOCAL_WRITE = 1, ACCESS_REMOTE_READ = 2, ACCESS_REMOTE_WRITE = 4 };

struct qp_ctx {
  gn_u64 sq_addr;      // ring of 64-byte blocks
  gn_u64 rq_addr;      // ring of receive entries, 16 bytes each (one data segment)
  gn_u64 dbr_addr;     // doorbell record: be32 receive counter, be32 send counter
  gn_u64 uar_addr;     // doorbell page, 4 KiB
  gn_u64 seen_first;   // value seen last in the first doorbell register
  gn_u32 qpn;
  gn_u32 state;        // QP_*
  gn_u32 sq_mask;      // blocks - 1
  gn_u32 rq_mask;      // entries - 1
  gn_u32 sq_head;      // next block to execute, 16 bits count
  gn_u32 rq_head;      // next receive to consume, 16 bits count
  gn_u32 cq;           // index of the completion queue for both directions
  gn_u32 pd;           // protection domain: keys of another one are not valid here
  gn_u32 ring;         // the ring pair that serves it
  gn_u32 rq_posted;    // receives posted, as last read; read again when they are used up
  gn_u64 seen_others[4];   // values seen last in the other registers
  gn_u32 many_registers;   // 1: a register other than the first was rung, so every pass looks at all
  gn_u32 held_guard;   // HELD_COPYING, HELD_CLOSED (held.cuh)
  gn_u32 tag;          // of the last DOWN_QP_ANEW
  gn_u32 reserved;
};
static_assert(sizeof(qp_ctx) == 128, "one line pair a queue pair");

enum : gn_u32 { CQ_OVERRUN = 1 };

struct cq_ctx {
  gn_u64 addr;         // ring of 64-byte entries
  gn_u32 mask;         // entries - 1
  gn_u32 in_host;      // 1: queues of its owner are in host memory
  gn_u32 pi;           // producer index, never wraps before 2^32 entries
  gn_u32 state;        // 0, CQ_OVERRUN
  // its doorbell record, be32 consumer index (24 bits count); 0: an overrun is ignored (the hardware's `oi`)
  gn_u64 dbr_addr;
};
static_assert(sizeof(cq_ctx) == 32, "");

struct mr_ctx {
  gn_u64 base;
  gn_u64 bytes;        // 0: no region
  gn_u32 key;          // index << 8 | variant
  gn_u32 access;       // ACCESS_*
  gn_u32 pd;
  gn_u32 invalid;      // set by a LOCAL_INVAL for good: the one word of a region that the agent writes
};
static_assert(sizeof(mr_ctx) == 32, "");

// The up ring, agent -> transport: 128-byte entries in host memory. Bit 63 of *every* word carries the phase
// of the pass, as in the down ring. So an entry's words need no order among them. A release towards host
// memory would wait behind all that crosses PCIe.

enum : gn_u32 {
  UP_SEND = 1,         // a SEND was executed: `payload` holds the message
  UP_WRITE = 2,        // an RDMA WRITE or READ of the queue's owner: addresses and keys in `arg`
  UP_READ = 3,
  UP_NOP = 4,
  UP_WQE_ERROR = 5,    // a work request failed a check: syndrome in `status`; the queue pair is in error
  UP_WQE_FLUSH = 6,    // a work request found in a queue pair in error
  UP_DONE = 7,         // a copy descriptor ended: status and sum
  UP_RNR = 8,          // a SEND found no receive; arg[0..1] repeat its 16 bytes
  UP_RECV_ERROR = 9,   // a SEND met a receive that failed a check: syndrome in `status`
  UP_RQ_FLUSH = 10,    // receives index..status (16 bits each) found in a queue pair in error
  UP_PONG = 11,
  // fused responses ended, `flags` of them: 16 bits each in `payload`, slot | COPY_* << FUSED_STATUS_SHIFT
  UP_FUSED_DONE = 12,
  UP_SEND_INVAL = 13,  // as UP_SEND, with a key of the peer's to invalidate in arg[0]
  UP_LOCAL_INVAL = 14, // the key in arg[0] opens nothing from here on
  UP_DUMP = 15,        // local memory was read
  UP_CQ_ERROR = 16,    // a completion found no room; its queue pair is in error
  UP_QP_ANEW = 17,     // a DOWN_QP_ANEW was carried out: its tag in the place of the index
};
enum : gn_u32 { FUSED_STATUS_SHIFT = 14 };
// With UP_IMMEDIATE a SEND has its immediate data in arg[0], an RDMA WRITE in payload[1]. Without it arg[0]
// of a SEND is the client's stamp: the low 32 bits of its clock when it wrote the request. The agent has the
// same clock. 0: none.
enum : gn_u32 { UP_SIGNALLED = 1, UP_IMMEDIATE = 2 };
enum : gn_u32 { COPY_OK = 0, COPY_BAD_KEY = 1, COPY_BAD_SUM = 2 };

// Word by word; bit 63 of each goes to w2:
//   w0  kind(7) << 56 | qpn(24) << 32 | index of the work request, or tag of the copy(32)
//   w1  stamp: the agent's clock when it took the work, ns
//   w2  length of the message(32) | flags(8) << 32 | bits 63 of w0, w2, .. w14 << 40 |
//       of w1, w3, .. w15 << 48
//   w3  block sum, in UP_DONE(32) | syndrome or COPY_* << 32
//   w4, w5  arg[0], arg[1]
//   w8 to w15  payload
enum : gn_u32 { UP_ARG = 4, UP_PAYLOAD = 8, UP_EVEN_SHIFT = 40, UP_ODD_SHIFT = 48 };
struct up_entry {
  gn_u64 w[16];
};
static_assert(sizeof(up_entry) == 128, "");

// The down ring, transport -> agent: 64-byte descriptors in host memory. Bit 63 of *every* word carries the
// phase of the pass. So a descriptor that is read in pieces over PCIe is whole or not there.

enum : gn_u32 {
  DOWN_TO_DEVICE = 1,  // inbound RDMA WRITE: host memory -> remote address (key checked)
  DOWN_TO_HOST = 2,    // inbound RDMA READ: remote address (key checked) -> host memory
  DOWN_SEND = 3,       // inbound SEND of 16 bytes: consumes a receive, writes a CQE
  DOWN_CQE = 4,        // a CQE made by the transport: acknowledged, failed or flushed work
  DOWN_QP_ERROR = 5,   // put a queue pair into error
  DOWN_PING = 6,
  DOWN_FUSED = 7,      // last part of a fused response: DOWN_TO_DEVICE, and a SEND when all parts are there
  // a queue pair begins anew, as after create_qp: its connection is closed, and its doorbell page zeroed
  DOWN_QP_ANEW = 8,
};
// DOWN_PART: part of the fused response in this slot, reported with it. DOWN_TWO: two whole blocks, side by
// side at the remote address, from two places in host memory. It is one part of a fused response, but never
// its last.
enum : gn_u32 { DOWN_CHECK_SUM = 1, DOWN_PART = 2, DOWN_TWO = 4 };
enum : gn_u64 { PHASE_BIT = 1ull << 63 };

// Word by word (63 usable bits each):
//   w0  op(7) << 56 | qpn(24) << 32 | bytes(32), of one block where there are two
//   w1  host address, or for DOWN_CQE opcode(8) << 40 | syndrome(8) << 32 | wqe counter(16) << 0
//   w2  remote address, or for DOWN_SEND the modelled time of arrival, agent clock, ns
//   w3  key(32) << 31 | tag(31)
//   w4  of a DOWN_SEND its allowance: how long after the modelled time of arrival, ns, it counts as late,
//       late(31) << 32 | late to the client, signed(32); for DOWN_FUSED its modelled time of arrival; for
//       DOWN_TWO the second block's host address
//   w5  expected sum(32), of two blocks both together | flags(8) << 32 | bit 63 of payload word 0 << 40 |
//       of payload word 1 << 41 | slot(9) << 42 | parts(9) << 51
//   w6, w7  the 16 bytes of a DOWN_SEND, less their top bits; for DOWN_FUSED its allowance and the second 8
//           bytes: the first are zero
enum : gn_u32 { SLOT_SHIFT = 42, PARTS_SHIFT = 51 };
struct down_desc {
  gn_u64 w[8];
};
static_assert(sizeof(down_desc) == 64, "");

// Fused responses: what a read's data and response have in common while they are on their way. The transport
// numbers the slots of a ring. A slot is its own again when UP_FUSED_DONE has named it.

enum : gn_u32 { FUSED_SLOTS = 512 };

// How long before it is due the transport hands over a fused response, and a SEND. The agent delays either
// until then, but no longer than DELAY_MAX_NS: the offset of the clocks may be wrong.
enum : gn_u64 { FUSED_LEAD_NS = 40000, SEND_LEAD_NS = 80000, DELAY_MAX_NS = 200000 };
static_assert(DELAY_MAX_NS >= 2 * FUSED_LEAD_NS && DELAY_MAX_NS >= 2 * SEND_LEAD_NS, "not delivered early");

struct fused_slot {
  // parts that have ended | FUSED_BAD_* | parts in all << TOTAL_SHIFT, 0 until the last one has been seen
  gn_u32 word;
  gn_u32 qpn;
  gn_u64 due;          // modelled time of arrival, agent clock
  gn_u64 allowance;    // as in down_desc w4 of a DOWN_SEND
  gn_u64 until;        // when it is delivered: `due`, or DELAY_MAX_NS after the last part had ended
  gn_u64 response;     // the second 8 of its 16 bytes
};
static_assert(sizeof(fused_slot) == 40, "");

// What the agent is launched with. A ring group, which is a block or a part of one, serves a pair of rings.

enum : gn_u32 { LATENESS_BUCKETS = 32 };

struct ring_ctx {
  gn_u64 up_addr;        // up_entry[up_mask + 1], host memory
  gn_u64 up_head_addr;   // u64 consumed by the host, host memory
  gn_u64 down_addr;      // down_desc[down_mask + 1], host memory
  gn_u64 down_head_addr; // u64 consumed by the agent, host memory, written now and then
  gn_u32 up_mask;
  gn_u32 down_mask;
  gn_u32 up_tail;        // reserved by the agent's warps; low 32 bits
  gn_u32 up_head_seen;   // the host's head as last read; low 32 bits
  gn_u64 down_head;      // next descriptor, kept between launches
  gn_u64 responses;      // SENDs delivered to the queue pairs' owners
  gn_u64 late;           // of these, later than the model says
  gn_u64 stop_addr;      // u32 in host memory: 1 asks the agent to end
  gn_u64 ready_addr;     // u32 in host memory: launch number, stored when the block is resident
  gn_u64 fused_addr;   // fused_slot[FUSED_SLOTS], device memory: the slots between launches
  gn_u64 reports;        // UP_FUSED_DONE entries
  // of the responses, seen by their clients later than the model of the command alone says
  gn_u64 client_late;
  gn_u64 reserved[2];
  // responses seen 2^i to 2^(i+1) - 1 ns after they were due; bucket 0 also the earlier ones
  gn_u64 lateness[LATENESS_BUCKETS];
};
static_assert(sizeof(ring_ctx) == 384, "");

struct agent_args {
  qp_ctx* qps;
  cq_ctx* cqs;
  mr_ctx* mrs;
  ring_ctx* rings;       // ring_count of them
  gn_u32 qp_count;
  gn_u32 mr_count;
  gn_u32 cq_count;
  gn_u32 first_qpn;      // queue pair i has the number first_qpn + i
  gn_u32 launch;         // number of this launch, reported through ready_addr
  gn_u32 blocks;         // number of agent blocks
  gn_u32 in_smem;        // whether a block has shared memory for copies of all contexts
  gn_u32 rings_a_block;  // 1 to 3: its warps and its shared memory are divided among them
  gn_u32 ring_count;
  gn_u32 ring;           // in a copy of these in shared memory: the ring it is for
  // held_ctx[ring_count][HELD_PLACES], then HELD_BYTES for each; 0: inbound data does not wait
  gn_u64 held_addr;
  gn_u64 held_messages;  // 1: the 16 bytes of a SEND wait as well as data
  cq_ctx* cqs_home;      // `cqs` in device memory: producer indexes and states are all blocks'
  // `mrs` in device memory. A block with its own copy also writes invalidations here
  mr_ctx* mrs_home;
};

// Inbound data that waits for a DUMP (held.cuh).

// State of a queue pair: a DUMP is copying its waiting data; or no waiting data is copied any more.
enum : gn_u32 { HELD_COPYING = 1, HELD_CLOSED = 2 };
enum : gn_u32 { HELD_FREE = 0, HELD_FILLING = 1, HELD_FULL = 2, HELD_BYTES = 4096, HELD_PLACES = 256 };

struct held_ctx {
  gn_u64 to;             // where it belongs
  gn_u32 qpn;
  gn_u32 bytes;
  gn_u32 state;          // HELD_*
  gn_u32 reserved[3];
};
static_assert(sizeof(held_ctx) == 32, "");

}}  // namespace gn::hca

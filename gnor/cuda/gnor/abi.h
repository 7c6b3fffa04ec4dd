// SPDX-License-Identifier: Apache-2.0 OR MIT
// A channel as the CPU builds it and device code uses it. Mirrored by gnor/src/abi.rs; a test compares every
// offset.
#pragma once
#include "fabric/arch.cuh"

namespace gn {

enum : gn_u32 {
  // commands in flight over all SSDs of a channel, and requests: a request may be several commands
  SLOTS = 128,
  SIGNAL_EVERY = 8,    // every eighth SEND asks for a completion, which retires the send queue
  MAX_SSDS = 64,
  MAX_REPLICAS = 4,    // proto/src/vendor.rs
};

// The state of one SSD's queue pair. The channel's fields say where its queues are (`queue_of`), and the gate
// which of its two sets is in use. `gate`, `publish` and `rung` count blocks by 16 bits, as the wire does,
// `retired` and `completed` by 32. The last two change under cq_word's lock.
struct queue_pair {
  gn_u64 gate;         // send blocks handed out, and commands that wait for one (gate.cuh)
  gn_u32 publish;      // send blocks whose doorbell was rung, before their record at least
  gn_u32 retired;      // send blocks the HCA is done with
  gn_u32 completed;    // responses taken, and DUMPs that have ended
  gn_u32 error;        // 0, or QP_BROKEN | completion opcode << 8 | syndrome
  // send blocks whose doorbell was rung again after the record; a warp alone does that later
  gn_u32 rung;
  gn_u32 reserved;
};
static_assert(sizeof(queue_pair) == 32, "");

// State of one queue pair if writes to GPU memory are not ordered (dump.cuh): responses in the order of their
// receives, counted.
struct dumps {
  gn_u32 posted;       // DUMPs whose doorbell was rung
  gn_u32 at;           // send block of the last one
  gn_u32 arrived;      // responses whose completion was taken
  gn_u32 covers;       // responses that were there when the last DUMP was posted
  gn_u32 landed;       // those behind which a DUMP has ended; less than `covers` while one is under way
  gn_u32 taken;        // responses that were read
  gn_u32 reserved[2];
};
static_assert(sizeof(dumps) == 32, "");

// Entries of an NVMe submission queue for each command that may be in flight. With twice as many entries as
// commands, the tail never reaches the head that responses report (SQHD). So no code checks that (limit_of).
enum : gn_u32 { NVME_ENTRIES_EACH = 2 };

// One set of queues of one SSD, one after the other in registered memory. How deep they are says the channel:
// a budget is shared by the SSDs of an array. The first sets of all SSDs come first, then the second ones.
//
//   doorbell record (64) | send queue (depth x 64) | receive queue (depth x 16) | responses (depth x 16)
enum : gn_u32 {
  DBR_AT = 0, SQ_AT = 64, RQ_AT_EACH = 64, RECV_AT_EACH = 80, QUEUE_BYTES_EACH = 96, UAR_BYTES = 4096,
};

// A slot is a command id; the slot of a request's first command is the request's own, its *head*, until the
// request has ended.
struct slot {
  // of the command: CMD_FREE, or CMD_IN_FLIGHT | queue << 8 | head << 16, one word so that it cannot be of
  // two commands
  gn_u32 state;
  // of the request: its commands that have ended | REQ_FAILED; 0 while the slot is free. Only ever added to
  gn_u32 done;
  gn_u32 status;       // of its first failure: an NVMe status word, or GN_* above 16 bits
  // detail of the first failure. Of a request that waits for another map, why it does (a status), and the
  // tick at which it tries again
  gn_u32 dw0, dw1;
  // with pool_addr: the buffer that is held if the owner has gone. Until then of a write the epoch that its
  // commands carry, and the sequence of its first part. Of a request that waits for another map, the epoch
  // that it was refused with
  gn_u32 pool_bytes;
  gn_u64 pool_addr;
};
static_assert(sizeof(slot) == 32, "");
enum : gn_u32 { CMD_FREE = 0, CMD_IN_FLIGHT = 2, PARKED_BYTES = 64 };
// A thread that gives a request up adds REQ_ABANDONED less what it has sent: the command that makes it
// REQ_ABANDONED was the last.
enum : gn_u32 { REQ_ABANDONED = 0x80000000u, REQ_FAILED = 0x01000000u };

// The pool: one word for each 64 KiB block, see pool.cuh. Its whole address range is registered when it is
// made. `blocks` says how much of it has memory.
struct pool {
  gn_u64 base;
  gn_u64 words_addr;   // u32[most]
  gn_u64 host_addr;    // pool_host, in host memory; 0: the pool does not grow
  gn_u32 blocks;       // only ever more
  gn_u32 rkey;
  gn_u32 most;         // blocks of the range
  // blocks that the host was asked for, at most; the top bit: a thread gathers pieces (buffer.cuh)
  gn_u32 asked;
};

// Words in which a pool asks the CPU for more memory (design, section 8).
struct pool_host {
  gn_u32 asked;        // written by the device: blocks it would have
  gn_u32 granted;      // written by the host: blocks that have memory
};

struct channel {
  gn_u64 cq_addr;
  gn_u64 capsules_addr;  // SLOTS x 64 bytes, registered
  gn_u64 queues_addr;    // 2 x ssds x (SQ_AT + depth x QUEUE_BYTES_EACH), registered
  gn_u64 uars_addr;      // 2 x ssds x UAR_BYTES: doorbell pages
  gn_u64 qps_addr;       // queue_pair[ssds]
  gn_u64 parked_addr;    // parked[SLOTS], PARKED_BYTES each, see async.cuh
  gn_u64 port_addr;      // the HCA's state, u32: 0 while nothing serves its queues
  // ssds x 1,024 bytes of Connect data, registered; where the parked requests are later
  gn_u64 connect_addr;
  gn_u64 dumps_addr;     // dumps[ssds]; 0 where completions come behind what they speak of
  gn_u64 waiting_addr;   // gn_u8[ssds][SLOTS]: each queue pair's waiting list (gate.cuh)
  gn_u32 queue_lkey;     // key of queue memory, capsules and Connect data
  gn_u32 ssds;
  gn_u32 first_qpn;      // of 2 x ssds consecutive numbers, in the order of the queues
  gn_u32 cq_log;
  gn_u32 cq_word;        // completions taken << 1, or CQ_LOCKED
  // blocks of each send queue, and receives: a power of two. No more commands are in flight to one SSD
  gn_u32 depth;
  gn_u32 slot_bits[SLOTS / 32];  // taken
  gn_u32 tickets;        // slots asked for, in the order of arrival (slots.cuh)
  gn_u32 returned;       // slots given back, and tickets given up
  gn_u32 orphans[SLOTS / 32];    // slots of abandoned requests that have ended
  gn_u32 parked_bits[SLOTS / 32];  // requests that no thread has in hand
  gn_u32 uncalled;                 // requests that ended without their callback in the poller's table
  gn_u32 qid;
  gn_u32 protocol_errors;        // responses that name no command in flight
  // reads that were sent to another replica after a refusal or a broken queue pair
  gn_u32 retries;
  gn_u32 visitor, visits;        // by_warp, in the CPU execution: the warp inside
  gn_u32 stamps;                 // not 0: each command carries the time at which it was written
  gn_u32 reserved;
  pool data;
  slot slots[SLOTS];
};
enum : gn_u32 { CQ_LOCKED = 1 };

// An open volume as device code sees it.
struct volume {
  gn_u64 factor;
  gn_u64 capacity_blocks;
  // u16[2][groups * width]: two tables of the fleet map, one is in use. Behind them u16[2][groups], for each
  // table: the SSD that comes in for a place of the group | that place << 8, or PLACE_NONE
  gn_u64 places_addr;
  gn_u64 next_sequence;  // of the writer, counted up by atomics
  // the map in use: its epoch | number of its table << 32 | whether an SSD comes in somewhere << 48. One
  // word, so that they belong together. The host may change it while kernels run, behind the other table
  // (docs/decisions/0053)
  gn_u64 map;
  gn_u32 groups;
  gn_u32 width;
  gn_u32 lease_epoch;
  gn_u16 vid, client;
  gn_u8 replicas, chunk_shift, writer;
  gn_u8 follows;         // FOLLOWS_*: what a request waits through for another map
  gn_u32 reserved;
};
static_assert(sizeof(volume) == 64, "");
// What requests of a volume wait through: refusals because of the map, and broken queue pairs, too.
enum : gn_u32 { FOLLOWS_REFUSALS = 1, FOLLOWS_BROKEN = 2 };

enum : gn_u32 { PLACE_NONE = 0xffffu, PLACE_FILLING = 0x8000u };

// Status of a request. The low 16 bits are an NVMe status word. Bits above it are statuses of the device
// library itself.
enum : gn_u32 {
  GN_OK = 0,
  GN_PENDING = 0x00010000u,
  // no completion before the deadline; slots and buffers given back now are reused after the completion has
  // come
  GN_TIMED_OUT = 0x00020000u,
  GN_QP_BROKEN = 0x00040000u,    // low bits: completion opcode << 8 | HCA syndrome
  GN_OUT_OF_RANGE = 0x00080000u, // beyond the volume
  // zero blocks, misaligned address, longer than GN_MAX_BLOCKS or than its buffer
  GN_BAD_REQUEST = 0x00100000u,
  GN_READ_ONLY = 0x00200000u,    // a write through a volume opened for reading
  GN_NO_REPLICA = 0x00400000u,   // the map names no SSD for the block
  GN_BUSY = 0x00800000u,         // no slot was free: poll, then submit again
  // with GN_TIMED_OUT: no agent serves the queues, as the kernel was not launched by the library
  GN_NO_AGENT = 0x01000000u,
};
enum : gn_u32 { QP_BROKEN = 0x80000000u };
enum : gn_u32 { GN_BLOCK = 4096, GN_MAX_BLOCKS = 4096 };

}  // namespace gn

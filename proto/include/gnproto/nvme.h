// SPDX-License-Identifier: Apache-2.0 OR MIT
// The bytes of GNStor for C, C++ and CUDA: NVMe and NVMe-oF structures, the packed starting LBA, statuses
// and refusals (refusals.h). Also the permission entry of the vendor commands, the header of the fleet map
// and the placement hash (volumes.h), and the block sum. The Rust sources have the same layouts and explain
// them: src/nvme.rs, fabrics.rs, slba.rs, status.rs, vendor.rs, placement.rs, checksum.rs. A test compares
// every number.
//
// C99, C++11 or CUDA. NVRTC needs no header but the two beside this one. In the Linux kernel
// (C11) the types are the kernel's. All fields are little-endian, so the compiler's target must be. Fields
// and names that end in _z are zero-based.
#ifndef GNPROTO_NVME_H
#define GNPROTO_NVME_H

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "gnproto/nvme.h: the structures are little-endian"
#endif

#ifdef __CUDACC_RTC__
typedef unsigned char gnp_u8;
typedef unsigned short gnp_u16;
typedef unsigned int gnp_u32;
typedef unsigned long long gnp_u64;
#elif defined(__KERNEL__)
#include <linux/stddef.h>
#include <linux/types.h>
typedef u8 gnp_u8;
typedef u16 gnp_u16;
typedef u32 gnp_u32;
typedef u64 gnp_u64;
#else
#include <stddef.h>
#include <stdint.h>
typedef uint8_t gnp_u8;
typedef uint16_t gnp_u16;
typedef uint32_t gnp_u32;
typedef uint64_t gnp_u64;
#endif

#ifdef __CUDACC__
#define GNP_FN static __host__ __device__ inline
#else
#define GNP_FN static inline
#endif

#if defined(__cplusplus) && __cplusplus >= 201103L
#define GNP_ASSERT(WHAT) static_assert(WHAT, #WHAT)
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define GNP_ASSERT(WHAT) _Static_assert(WHAT, #WHAT)
#else
#define GNP_ASSERT(WHAT) extern char gnp_layouts_are_asserted_under_c11[1]
#endif
#ifdef __CUDACC_RTC__ // has no offsetof; the sizes are asserted there too
#define GNP_AT(TYPE, FIELD, OFFSET) GNP_ASSERT(sizeof(((TYPE *)0)->FIELD) != 0)
#else
#define GNP_AT(TYPE, FIELD, OFFSET) GNP_ASSERT(offsetof(TYPE, FIELD) == (OFFSET))
#endif

#define GNP_BLOCK_BYTES 4096u
#define GNP_BLOCK_SHIFT 12u

// NVMe

// Keyed SGL data block descriptor. The key is at an odd offset; gnp_sgl_make and gnp_sgl_key write and read
// it.
typedef struct gnp_keyed_sgl {
  gnp_u64 address;
  gnp_u8 length[3]; // little-endian
  gnp_u8 key[4];    // little-endian
  gnp_u8 kind;      // GNP_SGL_KEYED
} gnp_keyed_sgl;
GNP_ASSERT(sizeof(gnp_keyed_sgl) == 16);
GNP_AT(gnp_keyed_sgl, length, 8);
GNP_AT(gnp_keyed_sgl, key, 11);
GNP_AT(gnp_keyed_sgl, kind, 15);

#define GNP_SGL_KEYED 0x40u
#define GNP_SGL_MAX_BYTES 0xFFFFFFu

// Submission queue entry; on fabrics the command capsule.
typedef struct gnp_sqe {
  gnp_u8 opcode;
  gnp_u8 flags; // GNP_FLAGS_SGL
  gnp_u16 cid;
  gnp_u32 nsid; // its first byte is the type of a Fabrics command
  gnp_u32 cdw2; // map epoch, in reads and writes
  gnp_u32 cdw3; // lease epoch, in reads and writes
  gnp_u64 mptr;
  gnp_keyed_sgl dptr;
  gnp_u32 cdw10; // SLBA, low half
  gnp_u32 cdw11; // SLBA, high half
  gnp_u32 cdw12; // blocks_z in 15:0, GNP_CDW12_FUA
  gnp_u32 cdw13;
  gnp_u32 cdw14; // write sequence, low half
  gnp_u32 cdw15; // write sequence, high half
} gnp_sqe;
GNP_ASSERT(sizeof(gnp_sqe) == 64);
GNP_AT(gnp_sqe, cid, 2);
GNP_AT(gnp_sqe, nsid, 4);
GNP_AT(gnp_sqe, cdw2, 8);
GNP_AT(gnp_sqe, mptr, 16);
GNP_AT(gnp_sqe, dptr, 24);
GNP_AT(gnp_sqe, cdw10, 40);
GNP_AT(gnp_sqe, cdw12, 48);
GNP_AT(gnp_sqe, cdw14, 56);

#define GNP_FLAGS_SGL 0x40u        // PSDT 01b
#define GNP_CDW12_FUA 0x40000000u

// Completion queue entry; on fabrics the response capsule.
typedef struct gnp_cqe {
  gnp_u32 dw0; // of a refused command: gnp_dw0_refusal, _ssd, _vid
  gnp_u32 dw1;
  gnp_u16 sqhd;
  gnp_u16 sqid;
  gnp_u16 cid;
  gnp_u16 status; // 15:1, gnp_cqe_status; bit 0 is the phase
} gnp_cqe;
GNP_ASSERT(sizeof(gnp_cqe) == 16);
GNP_AT(gnp_cqe, sqhd, 8);
GNP_AT(gnp_cqe, cid, 12);
GNP_AT(gnp_cqe, status, 14);

enum {
  GNP_ADMIN_GET_LOG_PAGE = 0x02,
  GNP_ADMIN_IDENTIFY = 0x06,
  GNP_ADMIN_ABORT = 0x08,
  GNP_ADMIN_SET_FEATURES = 0x09,
  GNP_ADMIN_GET_FEATURES = 0x0A,
  GNP_ADMIN_ASYNC_EVENT_REQUEST = 0x0C,
  GNP_ADMIN_KEEP_ALIVE = 0x18
};

enum {
  GNP_IO_FLUSH = 0x00,
  GNP_IO_WRITE = 0x01,
  GNP_IO_READ = 0x02,
  GNP_IO_COMPARE = 0x05,
  GNP_IO_WRITE_ZEROES = 0x08,
  GNP_IO_DATASET_MANAGEMENT = 0x09
};

enum { GNP_CNS_NAMESPACE = 0x00, GNP_CNS_CONTROLLER = 0x01, GNP_CNS_ACTIVE_NAMESPACES = 0x02 };

// Vendor admin commands. Only the daemon may send them, with two exceptions: any host may send MAP GET, and a
// peer SSD may send LEASE ASK and ACTIVATE.
enum {
  GNP_VOLUME_ADD = 0xC1,
  GNP_VOLUME_LIST = 0xC2,
  GNP_VOLUME_DELETE = 0xC4,
  GNP_VOLUME_CHMOD = 0xC5,
  GNP_LEASE_RENEW = 0xC8,
  GNP_MAP_SET = 0xC9,
  GNP_MAP_GET = 0xCA,
  GNP_MAP_HOLD = 0xD1,
  GNP_TERM_TAKE = 0xD2,
  GNP_ACTIVATE = 0xD5,
  GNP_LEASE_ASK = 0xD9,
  GNP_SETTLE = 0xDD
};

GNP_FN gnp_keyed_sgl gnp_sgl_make(gnp_u64 address, gnp_u32 bytes, gnp_u32 key) {
  gnp_keyed_sgl s;
  s.address = address;
  s.length[0] = (gnp_u8)bytes;
  s.length[1] = (gnp_u8)(bytes >> 8);
  s.length[2] = (gnp_u8)(bytes >> 16);
  s.key[0] = (gnp_u8)key;
  s.key[1] = (gnp_u8)(key >> 8);
  s.key[2] = (gnp_u8)(key >> 16);
  s.key[3] = (gnp_u8)(key >> 24);
  s.kind = GNP_SGL_KEYED;
  return s;
}
GNP_FN gnp_u32 gnp_sgl_bytes(const gnp_keyed_sgl *s) {
  return (gnp_u32)s->length[0] | (gnp_u32)s->length[1] << 8 | (gnp_u32)s->length[2] << 16;
}
GNP_FN gnp_u32 gnp_sgl_key(const gnp_keyed_sgl *s) {
  return (gnp_u32)s->key[0] | (gnp_u32)s->key[1] << 8 | (gnp_u32)s->key[2] << 16 | (gnp_u32)s->key[3] << 24;
}

// The starting LBA: VID in 63:48, client id in 47:32, block in 31:0

GNP_FN gnp_u64 gnp_slba_pack(gnp_u16 vid, gnp_u16 client, gnp_u32 vba) {
  return (gnp_u64)vid << 48 | (gnp_u64)client << 32 | vba;
}
GNP_FN gnp_u16 gnp_slba_vid(gnp_u64 slba) { return (gnp_u16)(slba >> 48); }
GNP_FN gnp_u16 gnp_slba_client(gnp_u64 slba) { return (gnp_u16)(slba >> 32); }
GNP_FN gnp_u32 gnp_slba_vba(gnp_u64 slba) { return (gnp_u32)slba; }
// 0 and FFFFh are neither volume nor client ids.
GNP_FN int gnp_id_is_valid(gnp_u16 id) { return id != 0 && id != 0xFFFFu; }

// NVMe over Fabrics

#define GNP_FABRICS_OPCODE 0x7Fu
enum {
  GNP_FCTYPE_PROPERTY_SET = 0x00,
  GNP_FCTYPE_CONNECT = 0x01,
  GNP_FCTYPE_PROPERTY_GET = 0x04,
  GNP_FCTYPE_DISCONNECT = 0x08
};
enum { GNP_PROPERTY_CAP = 0x00, GNP_PROPERTY_VS = 0x08, GNP_PROPERTY_CC = 0x14, GNP_PROPERTY_CSTS = 0x1C };
#define GNP_CC_ENABLE 1u
#define GNP_CSTS_READY 1u
#define GNP_CNTLID_ANY 0xFFFFu

// Bytes 40..64 of a Connect command.
typedef struct gnp_connect_fields {
  gnp_u16 recfmt;
  gnp_u16 qid;
  gnp_u16 sqsize_z;
  gnp_u8 cattr;
  gnp_u8 reserved;
  gnp_u32 kato_ms;
  gnp_u8 reserved2[12];
} gnp_connect_fields;
GNP_ASSERT(sizeof(gnp_connect_fields) == 24);
GNP_AT(gnp_connect_fields, kato_ms, 8);

// Bytes 40..64 of a property command.
typedef struct gnp_property_fields {
  gnp_u8 attrib; // 0: four bytes, 1: eight
  gnp_u8 reserved[3];
  gnp_u32 offset; // GNP_PROPERTY_*
  gnp_u64 value;
  gnp_u8 reserved2[8];
} gnp_property_fields;
GNP_ASSERT(sizeof(gnp_property_fields) == 24);
GNP_AT(gnp_property_fields, value, 8);

typedef struct gnp_connect_data {
  gnp_u8 host_id[16];
  gnp_u16 cntlid;
  gnp_u8 reserved[238];
  gnp_u8 subnqn[256];  // NUL-padded
  gnp_u8 hostnqn[256]; // NUL-padded
  gnp_u8 proof[40];    // of an I/O queue; zeros without one
  gnp_u8 reserved2[216];
} gnp_connect_data;
GNP_ASSERT(sizeof(gnp_connect_data) == 1024);
GNP_AT(gnp_connect_data, cntlid, 16);
GNP_AT(gnp_connect_data, subnqn, 256);
GNP_AT(gnp_connect_data, hostnqn, 512);
GNP_AT(gnp_connect_data, proof, 768);

// Private data of an RDMA connection request.
typedef struct gnp_cm_request {
  gnp_u16 recfmt;
  gnp_u16 qid;
  gnp_u16 hrqsize;
  gnp_u16 hsqsize_z;
  gnp_u16 cntlid;
  gnp_u8 reserved[22];
} gnp_cm_request;
GNP_ASSERT(sizeof(gnp_cm_request) == 32);
GNP_AT(gnp_cm_request, cntlid, 8);

enum {
  GNP_CM_INVALID_LENGTH = 1,
  GNP_CM_INVALID_RECFMT = 2,
  GNP_CM_INVALID_QID = 3,
  GNP_CM_INVALID_HSQSIZE = 4,
  GNP_CM_INVALID_HRQSIZE = 5,
  GNP_CM_NO_RESOURCES = 6,
  GNP_CM_INVALID_CNTLID = 8
};

// Statuses: SC in 7:0, SCT in 10:8, DNR in 14

#define GNP_STATUS_SUCCESS 0x0000u
#define GNP_STATUS_ABORTED 0x0008u
#define GNP_STATUS_DNR 0x4000u

GNP_FN gnp_u16 gnp_cqe_status(const gnp_cqe *cqe) { return (gnp_u16)(cqe->status >> 1); }
GNP_FN int gnp_status_is_success(gnp_u16 status) { return (status & 0x7FFu) == 0; }
GNP_FN int gnp_status_do_not_retry(gnp_u16 status) { return (status & GNP_STATUS_DNR) != 0; }

#include "refusals.h"
#include "volumes.h"

// The block sum adds one term for each of the 1,024 words of a block, wrapping, in any order.

GNP_FN gnp_u32 gnp_block_sum_term(gnp_u32 index, gnp_u32 word) {
  gnp_u32 x = word + (index + 1) * 0x9E3779B9u;
  x ^= x >> 16;
  x *= 0x85EBCA6Bu;
  x ^= x >> 13;
  x *= 0xC2B2AE35u;
  return x ^ x >> 16;
}
GNP_FN gnp_u32 gnp_block_sum(const gnp_u32 words[GNP_BLOCK_BYTES / 4]) {
  gnp_u32 sum = 0, i;
  for (i = 0; i < GNP_BLOCK_BYTES / 4; ++i) sum += gnp_block_sum_term(i, words[i]);
  return sum;
}

#undef GNP_AT
#undef GNP_ASSERT
#undef GNP_FN
#endif // GNPROTO_NVME_H

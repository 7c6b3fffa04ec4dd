// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes and contracts, and nothing else.
//!
//! Every structure that crosses a border of GNStor is defined here once: GPU to SSD, daemon to SSD, client
//! to daemon. The other crates only give it behaviour.
//!
//! ```text
//!   slba, stamp        what a command names and how a write is ordered
//!   nvme, fabrics      the 64-byte command, the 16-byte completion, capsules, Connect, properties, Identify
//!   log_page           SMART, counters of volumes and clients, the flash's page
//!   vendor             VOLUME ADD/LIST/DELETE/CHMOD, MAP SET/GET, the 4 KiB permission entry
//!   voting             TERM TAKE, MAP HOLD, ACTIVATE, LEASE ASK: what voters hear
//!   client_end         CLIENT END: earlier registrations of a client id are over
//!   labels             labels of volumes with a meaning of their own
//!   placement          [VID,VBA] -> placement group -> SSDs; the fleet map and its byte format
//!   status             one refusal -> NVMe status, errno, gRPC code, sentence
//!   checksum           the 32-bit block sum that the data mover computes
//!   grpc (feature)     the `gnstor.v1` services
//! ```
//!
//! The crate has no I/O, no clocks, no unsafe, no policy. Multi-byte NVMe fields are little-endian on the
//! wire; the structures use `zerocopy` little-endian types so that they mean the same on every host.
#![cfg_attr(not(feature = "grpc"), no_std)]

extern crate alloc;

pub mod checksum;
pub mod client_end;
pub mod fabrics;
pub mod labels;
pub mod log_page;
pub mod nvme;
pub mod placement;
pub mod pull;
pub mod repair;
pub mod scrub;
pub mod slba;
pub mod ssd_identity;
pub mod status;
pub mod vendor;
pub mod voting;

#[cfg(test)]
extern crate std;
#[cfg(test)]
#[path = "../testing/deadline.rs"]
mod deadline;

#[cfg(feature = "grpc")]
#[expect(
    missing_docs,
    clippy::allow_attributes,
    clippy::too_many_lines,
    reason = "generated from gnstor.proto, documented there"
)]
pub mod grpc {
    //! `gnstor.v1`: generated at build time by protox and tonic, no `protoc` needed.
    tonic::include_proto!("gnstor.v1");

    /// The definitions of all calls and messages, with their comments: an encoded `FileDescriptorSet`.
    pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/gnstor.descriptors"));

    impl core::fmt::Debug for RegisterResponse {
        fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
            let Self { client_id, serial, .. } = self;
            let mut shown = f.debug_struct("RegisterResponse");
            shown.field("client_id", client_id).field("serial", serial).finish_non_exhaustive()
        }
    }
}

/// Size of a block, the unit of addressing, of placement and of write atomicity: 4 KiB.
pub const BLOCK_BYTES: u32 = 4096;
/// log2 of [`BLOCK_BYTES`].
pub const BLOCK_SHIFT: u32 = 12;
const _: () = assert!(1 << BLOCK_SHIFT == BLOCK_BYTES);

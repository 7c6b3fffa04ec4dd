// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turns the bytes of a capsule into a well-formed request: the first step of the pipeline.

use gnstor_base::controller::Remote;
use gnstor_proto::fabrics::Identity;
use gnstor_proto::nvme::{FLAGS_SGL, KeyedSgl, ReadWrite, Sqe, io};
use gnstor_proto::slba::{Address, Slba, Stamp};
use gnstor_proto::status::Refusal;
use gnstor_proto::{BLOCK_BYTES, BLOCK_SHIFT};

/// log2 of the longest transfer in blocks: 1 MiB.
pub const MDTS: u8 = 8;
/// Most volumes an SSD knows at once.
pub const MAX_VOLUMES: usize = 4096;
/// The only namespace.
pub const NSID: u32 = 1;
const ALL_NAMESPACES: u32 = 0xFFFF_FFFF;
/// Keyed descriptor whose key the response may invalidate; this SSD leaves that to the host.
const KEYED_INVALIDATE: u8 = KeyedSgl::KEYED | 0x0F;

/// An I/O capsule, and the connection from which it came.
#[derive(Clone, Copy, Debug)]
pub struct Submission<'a> {
    /// The identity fixed at Connect.
    pub identity: Identity,
    /// The command.
    pub sqe: &'a Sqe,
}

/// A refusal on its way to the completion: DW0 and DW1 tell what the status cannot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Why.
    pub refusal: Refusal,
    /// The map or lease epoch that the refusal is about; 0 if there is none.
    pub epoch: u32,
}

impl Refused {
    pub(crate) const fn at(refusal: Refusal, epoch: u32) -> Self {
        Self { refusal, epoch }
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, epoch: 0 }
    }
}

/// The operation of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// Deliver the blocks.
    Read,
    /// Replace the blocks by the host's data.
    Write,
    /// Compare the blocks with the host's data.
    Compare,
    /// Unmap the blocks (Write Zeroes, or a range of Dataset Management): they read as zeros.
    Trim,
}

/// A well-formed request; nothing is known yet of whether it is allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The operation.
    pub verb: Verb,
    /// The volume, the client that the command names, and the first block.
    pub address: Address,
    /// Number of blocks, at least 1.
    pub blocks: u32,
    /// The fleet-map epoch it was placed by.
    pub map_epoch: u32,
    /// Stamp of the write; for a read the epoch of its grant.
    pub stamp: Stamp,
    /// The command completes only when its effect is durable without a dump.
    pub fua: bool,
    /// The host's memory; meaningless for [`Verb::Trim`].
    pub remote: Remote,
}

impl Request {
    /// Blocks that count for its volume's rate limit: a TRIM moves none.
    pub(crate) fn charged_blocks(&self) -> u32 {
        if self.verb == Verb::Trim { 0 } else { self.blocks }
    }

    /// Reads a Read, Write, Compare or Write Zeroes command.
    ///
    /// # Errors
    /// `InvalidField`, `InvalidNamespace` or `InvalidSgl`.
    pub fn parse(submission: &Submission<'_>) -> Result<Self, Refused> {
        let sqe = submission.sqe;
        check_frame(sqe)?;
        check_namespace(sqe)?;
        let fields = ReadWrite::decode(sqe);
        let verb = match sqe.opcode {
            io::READ => Verb::Read,
            io::WRITE => Verb::Write,
            io::COMPARE => Verb::Compare,
            io::WRITE_ZEROES => Verb::Trim,
            _ => return Err(Refusal::InvalidOpcode.into()),
        };
        let remote = if verb == Verb::Trim {
            Remote { address: 0, key: 0 }
        } else {
            if fields.blocks > 1 << MDTS {
                return Err(Refusal::InvalidField.into());
            }
            data_pointer(sqe, fields.blocks << BLOCK_SHIFT)?
        };
        Ok(Self {
            verb,
            address: fields.slba.unpack().ok_or(Refusal::InvalidField)?,
            blocks: fields.blocks,
            map_epoch: fields.map_epoch,
            stamp: fields.stamp,
            fua: fields.fua && verb != Verb::Read,
            remote,
        })
    }

    /// Reads one 16-byte range of a Dataset Management command; epochs and stamp are those of the command.
    ///
    /// # Errors
    /// `InvalidField` for a reserved volume or client id, or no blocks.
    pub fn parse_range(sqe: &Sqe, range: &[u8; RANGE_BYTES]) -> Result<Self, Refused> {
        let u32_at = |at: usize| u32::from_le_bytes([range[at], range[at + 1], range[at + 2], range[at + 3]]);
        let slba = u64::from(u32_at(8)) | u64::from(u32_at(12)) << 32;
        let fields = ReadWrite::decode(sqe);
        let blocks = u32_at(4);
        if blocks == 0 {
            return Err(Refusal::InvalidField.into());
        }
        Ok(Self {
            verb: Verb::Trim,
            address: Slba(slba).unpack().ok_or(Refusal::InvalidField)?,
            blocks,
            map_epoch: fields.map_epoch,
            stamp: fields.stamp,
            fua: false,
            remote: Remote { address: 0, key: 0 },
        })
    }

    /// The host's memory for block `index` of the request.
    pub fn remote_of(&self, index: u32) -> Remote {
        let offset = u64::from(index) * u64::from(BLOCK_BYTES);
        // An address near 2^64 is the host's to refuse; it must not stop the SSD.
        Remote { address: self.remote.address.wrapping_add(offset), key: self.remote.key }
    }
}

/// Bytes of a range of Dataset Management: context attributes, length in blocks, starting LBA.
pub const RANGE_BYTES: usize = 1 << RANGE_SHIFT;
pub(crate) const RANGE_SHIFT: u32 = 4;

/// Every command on fabrics uses an SGL and is not fused.
pub(crate) fn check_frame(sqe: &Sqe) -> Result<(), Refused> {
    if sqe.flags == FLAGS_SGL { Ok(()) } else { Err(Refusal::InvalidField.into()) }
}

pub(crate) fn check_namespace(sqe: &Sqe) -> Result<(), Refused> {
    if sqe.nsid.get() == NSID { Ok(()) } else { Err(Refusal::InvalidNamespace.into()) }
}

/// Flush may name every namespace at once.
pub(crate) fn check_any_namespace(sqe: &Sqe) -> Result<(), Refused> {
    if sqe.nsid.get() == ALL_NAMESPACES { Ok(()) } else { check_namespace(sqe) }
}

/// The data pointer must be one keyed descriptor of exactly this many bytes.
pub(crate) fn data_pointer(sqe: &Sqe, bytes: u32) -> Result<Remote, Refused> {
    let sgl = &sqe.dptr;
    if !matches!(sgl.kind, KeyedSgl::KEYED | KEYED_INVALIDATE) || sgl.bytes() != bytes {
        return Err(Refusal::InvalidSgl.into());
    }
    Ok(Remote { address: sgl.address.get(), key: sgl.key.get() })
}

/// The volume id as it stands in the command, for the detail word of a refusal.
pub(crate) fn raw_vid(sqe: &Sqe) -> u16 {
    (sqe.cdw11.get() >> 16) as u16
}

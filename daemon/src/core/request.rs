// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The requests of clients, checked once: behind these types every name and every client id is valid.
//!
//! The core makes the checks that need the state of the array: does it fit, is the name free.

mod fields;

use crate::core::failure::Failure;
use crate::core::page::Page;
use crate::core::rights::{OWNER_PREFIX, Right};
pub use fields::{Add, Found, Label, Rename, Resize};
use gnstor_proto::labels::REPLACES;
use gnstor_proto::scrub::Order;
use gnstor_proto::slba::{ClientId, Vid};
use gnstor_proto::status::GrpcCode;
use gnstor_proto::vendor::{LABEL_BYTES, Limits, MAX_REPLICAS, NAME_BYTES, WRITE_LEASE_MS};
use gnstor_proto::{BLOCK_BYTES, BLOCK_SHIFT, placement};
use std::sync::Arc;

/// Shortest write lease, ms. Shorter wishes get this.
pub const LEASE_MIN_MS: u32 = 1_000;
/// Longest write lease, ms. Longer wishes get this.
pub const LEASE_MAX_MS: u32 = 3_600_000;
/// The lease of a client that does not ask for one: the paper's 5 minutes.
pub const LEASE_DEFAULT_MS: u32 = 300_000;
/// Largest volume: 2^32 blocks, as many as a VBA can name.
pub const MAX_CAPACITY_BYTES: u64 = 1 << (32 + BLOCK_SHIFT);

const CHUNK_SHIFT_MAX: u8 = 12;
const _: () = assert!(LEASE_MIN_MS < LEASE_DEFAULT_MS && LEASE_DEFAULT_MS < LEASE_MAX_MS);
const _: () = assert!(LEASE_MIN_MS >= *WRITE_LEASE_MS.start() && LEASE_MAX_MS <= *WRITE_LEASE_MS.end());
const _: () = assert!(MAX_CAPACITY_BYTES == 16 << 40);

/// Sixteen bytes that identify a request, so that a retry is recognised.
pub type RequestId = [u8; 16];

/// A volume's name: 1 to 64 bytes of letters, digits, `.`, `_`, `-`, the first a letter or digit.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct VolumeName(String);

impl VolumeName {
    /// Checks a name.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` says which rule the name breaks.
    pub fn new(name: &str) -> Result<Self, Failure> {
        let first = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
        let rest = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
        if first && rest && name.len() <= NAME_BYTES {
            return Ok(Self(name.into()));
        }
        let shown: String = name.chars().take(NAME_BYTES).collect();
        Err(invalid(format!(
            "volume name {shown:?} is not valid: use 1 to {NAME_BYTES} letters, digits, '.', '_' or '-', \
             starting with a letter or digit"
        )))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for VolumeName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// The fields of [`Request::Create`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Create {
    /// Name of the new volume.
    pub name: VolumeName,
    /// Capacity in blocks, 1 to 2^32.
    pub capacity_blocks: u64,
    /// Number of copies; 0 = the array's default.
    pub replicas: u8,
    /// log2 of the chunk in blocks.
    pub chunk_shift: u8,
    /// The client that creates.
    pub client: ClientId,
    /// `key=value` lines, sorted by key.
    pub labels: String,
    /// Names the request, if the client wants to retry it.
    pub request_id: Option<RequestId>,
    /// Rate limits that each SSD applies.
    pub limits: Limits,
}

/// The fields of [`Request::Publish`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Publish {
    /// The volume that is whole.
    pub vid: Vid,
    /// Generation of the volume.
    pub generation: u32,
    /// The client that created it.
    pub client: ClientId,
    /// The name that it gets.
    pub name: VolumeName,
    /// `key=value` lines that are added to its labels.
    pub labels: String,
    /// If another volume has the name: whether to take the name and delete that volume.
    pub replace: bool,
}

/// Rights a client can open a volume with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rights {
    /// Read.
    Read,
    /// Read, and write under a lease of `lease_ms`.
    Write {
        /// Requested length of the lease, within the limits.
        lease_ms: u32,
    },
}

/// A checked request.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields are those of gnstor.proto, documented there")]
pub enum Request {
    Create(Create),
    List(Page),
    /// Asks how large a new volume can be.
    Room,
    Get {
        name: VolumeName,
    },
    Delete {
        name: VolumeName,
        client: ClientId,
        request_id: Option<RequestId>,
        force: bool,
        /// Id and generation: delete this volume only. `None`: the volume that has the name.
        only: Option<(Vid, u32)>,
    },
    Open {
        name: VolumeName,
        client: ClientId,
        rights: Rights,
        follows_drains: bool,
    },
    Renew {
        name: VolumeName,
        client: ClientId,
        lease_epoch: u32,
        lease_ms: u32,
        reaches: Option<u64>,
        /// A write of the holder failed.
        in_doubt: bool,
        follows_drains: bool,
    },
    Release {
        name: VolumeName,
        client: ClientId,
        all_acknowledged: bool,
        lease_epoch: Option<u32>,
    },
    Share {
        name: VolumeName,
        principal: Arc<str>,
        right: Right,
    },
    Revoke {
        name: VolumeName,
        principal: Arc<str>,
    },
    Publish(Publish),
    Rename(Rename),
    Label(Label),
    /// Gives a volume more blocks.
    Resize(Resize),
    ListLeases {
        name: Option<VolumeName>,
        page: Page,
    },
    RevokeLease {
        name: VolumeName,
        client: ClientId,
    },
    Register,
    Keep {
        client: ClientId,
    },
    GetMap,
    Fleet,
    Resume {
        ssd: u16,
        lose_data: bool,
    },
    Fail {
        ssd: u16,
        lose_data: bool,
    },
    Remove {
        ssd: u16,
    },
    /// The SSD leaves when others have its copies.
    Drain {
        ssd: u16,
    },
    /// An SSD joins.
    Add(Box<Add>),
    Replace {
        ssd: u16,
        lose_data: bool,
    },
    /// Copies that have all lost writes are merged.
    Salvage {
        /// Only say what would be merged.
        dry_run: bool,
        /// The time, in seconds since 1970.
        at_s: u32,
    },
    /// An order to the repairs of all SSDs; without an order it asks for their progress.
    Repair {
        order: Option<Order>,
    },
}

/// The client id in a request.
///
/// # Errors
/// `INVALID_ARGUMENT` for 0, FFFFh and everything above.
pub fn client_id(raw: u32) -> Result<ClientId, Failure> {
    u16::try_from(raw).ok().and_then(ClientId::new).ok_or_else(|| {
        invalid(format!(
            "client id {raw} is not valid: use the id that Register gave (1 to {})",
            ClientId::MAX
        ))
    })
}

/// The volume that a Delete means: its id and generation. Zeros: the one that has the name.
///
/// # Errors
/// `INVALID_ARGUMENT` for an id that no volume can have, or for one of the two alone.
pub fn only(vid: u32, generation: u32) -> Result<Option<(Vid, u32)>, Failure> {
    match (u16::try_from(vid).ok().and_then(Vid::new), vid, generation) {
        (_, 0, 0) => Ok(None),
        (Some(vid), _, 1..) => Ok(Some((vid, generation))),
        (Some(_) | None, ..) => Err(invalid(format!(
            "volume id {vid} with generation {generation} is not valid: use both as Get gave them, or neither"
        ))),
    }
}

/// The capacity in blocks.
///
/// # Errors
/// `INVALID_ARGUMENT` for 0, beyond 16 TiB, or not in whole blocks.
pub fn capacity_blocks(bytes: u64) -> Result<u64, Failure> {
    if bytes == 0 || bytes > MAX_CAPACITY_BYTES {
        return Err(invalid(format!(
            "a capacity of {bytes} bytes is not possible: use {BLOCK_BYTES} to {MAX_CAPACITY_BYTES} bytes \
             (16 TiB)"
        )));
    }
    if !bytes.is_multiple_of(u64::from(BLOCK_BYTES)) {
        let up = bytes.next_multiple_of(u64::from(BLOCK_BYTES));
        return Err(invalid(format!("a capacity of {bytes} bytes is not in whole blocks: use {up}")));
    }
    Ok(bytes >> BLOCK_SHIFT)
}

/// The number of copies; 0 stays 0, for the array's default.
///
/// # Errors
/// `INVALID_ARGUMENT` for more than [`MAX_REPLICAS`].
pub fn replicas(raw: u32) -> Result<u8, Failure> {
    u8::try_from(raw).ok().filter(|&n| n <= MAX_REPLICAS).ok_or_else(|| {
        invalid(format!("{raw} replicas are not possible: use 1 to {MAX_REPLICAS}, or 0 for the default"))
    })
}

/// log2 of the chunk in blocks; 0 bytes ask for the default.
///
/// # Errors
/// `INVALID_ARGUMENT` if it is not a power of two from 4 KiB to 16 MiB.
pub fn chunk_shift(bytes: u32) -> Result<u8, Failure> {
    if bytes == 0 {
        return Ok(placement::DEFAULT_CHUNK_SHIFT);
    }
    (0..=CHUNK_SHIFT_MAX).find(|shift| bytes == BLOCK_BYTES << shift).ok_or_else(|| {
        invalid(format!(
            "a chunk of {bytes} bytes is not possible: use a power of two from 4096 (4 KiB) to 16777216 \
             (16 MiB)"
        ))
    })
}

/// The requested lease, brought within the limits. The answer says how long the lease is, so a wish out of
/// the limits need not be refused.
pub fn lease_ms(raw: u32) -> u32 {
    if raw == 0 { LEASE_DEFAULT_MS } else { raw.clamp(LEASE_MIN_MS, LEASE_MAX_MS) }
}

/// The request id, if there is one.
///
/// # Errors
/// `INVALID_ARGUMENT` if it is not 16 bytes, or all zero, which means "none" in an entry.
pub fn request_id(bytes: &[u8]) -> Result<Option<RequestId>, Failure> {
    if bytes.is_empty() {
        return Ok(None);
    }
    match RequestId::try_from(bytes) {
        Ok(id) if id != [0; 16] => Ok(Some(id)),
        _ => Err(invalid(format!(
            "a request id of {} bytes is not valid: use 16 random bytes, or none at all",
            bytes.len()
        ))),
    }
}

/// Labels in the form of an entry: `key=value` lines, sorted, so that equal labels are equal bytes.
///
/// # Errors `INVALID_ARGUMENT` for an empty key, a key with `=`, a line break, or a label that only the
/// daemon may set. So too for more than [`LABEL_BYTES`] in all.
pub fn labels<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<String, Failure> {
    let mut pairs: Vec<_> = pairs.into_iter().collect();
    pairs.sort_unstable();
    let mut text = String::new();
    for (key, value) in pairs {
        if key.is_empty() || key.contains(['=', '\n']) || value.contains('\n') {
            return Err(invalid(format!(
                "label {key:?} is not valid: a key is not empty and has no '=', and neither key nor value \
                 has a line break"
            )));
        }
        if key.starts_with(OWNER_PREFIX) {
            return Err(invalid(format!(
                "label {key:?} is the daemon's own: gnstor volume share and revoke change the rights"
            )));
        }
        if key == REPLACES {
            return Err(invalid(format!("label {key:?} is not valid: only the daemon sets it")));
        }
        text.extend([key, "=", value, "\n"]);
    }
    if text.len() > LABEL_BYTES {
        return Err(invalid(format!(
            "the labels take {} bytes: {LABEL_BYTES} is the most a volume can hold",
            text.len()
        )));
    }
    Ok(text)
}

/// No volume has the name.
pub(super) fn no_volume(name: &VolumeName) -> Failure {
    Failure::new(
        GrpcCode::NotFound,
        format!("there is no volume {name}; gnstor volume list shows those there are"),
    )
}

fn invalid(message: String) -> Failure {
    Failure::new(GrpcCode::InvalidArgument, message)
}

#[cfg(test)]
mod tests;

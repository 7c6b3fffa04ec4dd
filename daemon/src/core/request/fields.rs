// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The fields of requests that have several: Rename, Label, Resize and Add.

use super::{RequestId, VolumeName};
use crate::core::failure::Failure;
use gnstor_proto::ssd_identity::SsdSays;
use gnstor_proto::status::GrpcCode::InvalidArgument;
use gnstor_proto::vendor::LABEL_BYTES;
use std::collections::BTreeMap;

/// Labels that begin so have a meaning of their own.
const RESERVED: &str = "gnstor.";

/// The fields of [`super::Request::Rename`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rename {
    /// The volume.
    pub name: VolumeName,
    /// The name that it gets.
    pub new_name: VolumeName,
    /// Names the request, if the client wants to retry it.
    pub request_id: Option<RequestId>,
}

/// The fields of [`super::Request::Label`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Label {
    /// The volume.
    pub name: VolumeName,
    /// `key=value` lines that are added.
    pub set: String,
    /// Keys that are removed first.
    pub remove: Vec<String>,
}

impl Label {
    /// Checks the labels.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: a label is the array's own.
    pub fn new(name: VolumeName, set: String, remove: Vec<String>) -> Result<Self, Failure> {
        let keys = set.lines().filter_map(|line| line.split_once('=')).map(|(key, _)| key);
        let mut keys = keys.chain(remove.iter().map(String::as_str));
        if let Some(key) = keys.find(|key| key.starts_with(RESERVED)) {
            let shown: String = key.chars().take(64).collect();
            return Err(Failure::new(
                InvalidArgument,
                format!(
                    "label {shown:?} is not changed: labels that begin with '{RESERVED}' are the array's own"
                ),
            ));
        }
        Ok(Self { name, set, remove })
    }

    /// The labels `there` after this change.
    pub(in crate::core) fn applied(&self, there: &str) -> Result<String, Failure> {
        let pairs = |lines| str::lines(lines).filter_map(|line| line.split_once('='));
        let mut labels: BTreeMap<&str, &str> = pairs(there).collect();
        labels.retain(|key, _| !self.remove.iter().any(|removed| removed == key));
        labels.extend(pairs(&self.set));
        let lines: String = labels.iter().map(|(key, value)| format!("{key}={value}\n")).collect();
        if lines.len() <= LABEL_BYTES {
            return Ok(lines);
        }
        let message = format!(
            "volume {} would have labels of {} bytes, with its owner and the principals that it is shared with: \
             {LABEL_BYTES} is the most; remove labels, or revoke rights",
            self.name,
            lines.len()
        );
        Err(Failure::new(InvalidArgument, message))
    }
}

/// The fields of [`super::Request::Resize`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resize {
    /// The volume.
    pub name: VolumeName,
    /// Its capacity from then on, in blocks.
    pub capacity_blocks: u64,
}

/// An SSD that is to join.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Add {
    /// `host:port` of the SSD.
    pub address: String,
    /// Whether the SSD is a spare: it gets no places until another SSD is lost or leaves.
    pub spare: bool,
    /// Node, a failure domain. None: one of its own.
    pub node: Option<u16>,
    /// Rack.
    pub rack: u16,
    /// Weight, 16.16 fixed point.
    pub weight: u32,
    /// The SSD's report from that address. None: the call only asks which number the SSD would have.
    pub found: Option<Found>,
}

/// What a joining SSD reports about itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// The number under which the daemon connected to the SSD to inspect it.
    pub ssd: u16,
    /// Identity. None: the SSD's version states none.
    pub says: Option<SsdSays>,
    /// The array of its fleet map, if it has a map. A map of format 2 names none.
    pub array: Option<[u8; 16]>,
    /// Name of a volume that the SSD already has.
    pub volume: Option<String>,
}

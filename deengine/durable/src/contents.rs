// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The contents of cells, as [`crate::changes`] writes them; [`crate::metadata`] has their layout.

use crate::metadata::{ENTRY_HEAD, HELD_HEAD, HeldMap, TOMBSTONE_BYTES, Tombstone};
use gnstor_proto::slba::Vid;
use gnstor_proto::vendor::ENTRY_BYTES;

pub(crate) fn entry_content(vid: Vid, generation: u32, bytes: &[u8]) -> Vec<u8> {
    let mut content = Vec::with_capacity(ENTRY_HEAD + ENTRY_BYTES);
    content.extend_from_slice(&vid.get().to_le_bytes());
    content.extend_from_slice(&[0; 2]);
    content.extend_from_slice(&generation.to_le_bytes());
    content.extend_from_slice(&[0; 8]);
    content.extend_from_slice(bytes);
    content
}

pub(crate) fn tombstone_content(vid: Vid, tombstone: &Tombstone) -> Vec<u8> {
    let count = u16::try_from(tombstone.ids.len()).expect("at most REQUEST_IDS");
    let mut content = Vec::with_capacity(TOMBSTONE_BYTES);
    content.extend_from_slice(&vid.get().to_le_bytes());
    content.extend_from_slice(&count.to_le_bytes());
    content.extend_from_slice(&tombstone.generation.to_le_bytes());
    content.extend_from_slice(&tombstone.buried_at.to_le_bytes());
    content.extend_from_slice(&tombstone.term.to_le_bytes());
    content.extend_from_slice(&tombstone.version.to_le_bytes());
    for (id, time) in &tombstone.ids {
        content.extend_from_slice(id);
        content.extend_from_slice(&time.to_le_bytes());
    }
    content.resize(TOMBSTONE_BYTES, 0);
    content
}

pub(crate) fn held_content(held: &HeldMap) -> Vec<u8> {
    let mut content = Vec::with_capacity(HELD_HEAD + held.map.len());
    content.extend_from_slice(&held.term.to_le_bytes());
    content.extend_from_slice(&held.map);
    content
}

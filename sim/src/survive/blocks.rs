// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The data of blocks: each block names its write by a tag.

use gnstor_proto::placement::mix64;

pub(super) const BLOCK: usize = gnstor_proto::BLOCK_BYTES as usize;

/// The content that a read of one block found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    Zeros,
    Tag(u64),
    Garbage,
}

/// The data of a block, from its tag.
pub(super) fn data_of(tag: u64) -> [u8; BLOCK] {
    let mut data = [0; BLOCK];
    for (at, word) in (0u64..).zip(data.chunks_exact_mut(8)) {
        let value = if at == 0 { tag } else { mix64(tag.wrapping_add(at)) };
        word.copy_from_slice(&value.to_le_bytes());
    }
    data
}

pub(super) fn found_in(data: &[u8]) -> Found {
    let tag = data.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    if data.iter().all(|byte| *byte == 0) {
        Found::Zeros
    } else if tag != 0 && data == data_of(tag) {
        Found::Tag(tag)
    } else {
        Found::Garbage
    }
}

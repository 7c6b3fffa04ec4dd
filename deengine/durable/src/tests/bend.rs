// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes that say something else than they did, under checksums that are right.

use super::{Dice, SIZES};
use crate::bytes::{CHUNK, PAGE, index, seal, set, u16_at, u32_at};
use crate::cell::HEAD;
use crate::checkpoint_head::TABLE_ENTRY;
use crate::dump::{COMMIT_MAGIC, GROUP_MAGIC, GROUP_RECORDS};
use crate::layout::{Layout, Twin};

fn below(dice: &mut Dice, end: usize) -> usize {
    index(dice.below(end as u64))
}

/// Changes one field: to a number near the old one, to an end of its range, or to any number.
pub(super) fn bend(dice: &mut Dice, bytes: &mut [u8]) {
    let width = [1, 2, 4, 8][below(dice, 4)];
    if bytes.len() < 8 {
        return bytes.iter_mut().for_each(|byte| *byte ^= 1 << dice.below(8));
    }
    let at = below(dice, bytes.len() / width) * width;
    let mut old = [0; 8];
    old[..width].copy_from_slice(&bytes[at..at + width]);
    let old = u64::from_le_bytes(old);
    let new = match dice.below(8) {
        0 => 0,
        1 => u64::MAX,
        2 => old.wrapping_add(1),
        3 => old.wrapping_sub(1),
        4 => old ^ 1 << dice.below(8 * width as u64),
        5 => 1 << dice.below(8 * width as u64),
        6 => dice.below(300),
        _ => dice.next(),
    };
    bytes[at..at + width].copy_from_slice(&new.to_le_bytes()[..width]);
}

/// As [`bend`], but no number reaches the end of its range: a counter at the end would overflow with the next
/// step.
fn bend_within(dice: &mut Dice, bytes: &mut [u8], ends: bool) {
    let before = bytes.to_vec();
    bend(dice, bytes);
    if ends {
        return;
    }
    let is_high = |bytes: &[u8]| bytes.iter().zip(&before).any(|(now, old)| now != old && *now >= 0x40);
    if is_high(bytes) {
        bytes.iter_mut().zip(&before).filter(|(now, old)| now != old).for_each(|(now, _)| *now &= 0x3F);
    }
}

/// Changes a field in the image of a store, and the checksums over it. Returns the kind of the field. With
/// `ends` numbers may reach the end of their range.
pub(super) fn bend_store(dice: &mut Dice, image: &mut [u8], ends: bool) -> &'static str {
    let layout = Layout::new(&SIZES);
    match dice.below(8) {
        0..3 => {
            let twins = [
                layout.header,
                layout.term,
                layout.map,
                layout.entries,
                layout.tombstones,
                layout.smart_counters,
            ];
            let twin = &twins[below(dice, 6)];
            bend_cell(dice, image, twin, ends);
            "cell"
        }
        3 | 4 => {
            let page = index(layout.ring) + below(dice, index(layout.ring_pages)) * PAGE;
            let page = &mut image[page..page + PAGE];
            if page.iter().any(|byte| *byte != 0) {
                // Bytes that no reader uses are seldom changed.
                let used = 64 + usize::from(u16_at(page, 46)).min(PAGE - 64);
                let front = if dice.below(2) == 0 { 64 } else { used };
                bend_within(dice, &mut page[4..front], ends);
                seal(page);
            }
            "journal page"
        }
        5 | 6 => {
            let at = index(layout.checkpoints[below(dice, 2)]);
            bend_checkpoint(dice, &mut image[at..], &layout, ends);
            "checkpoint"
        }
        _ => {
            let at = index(layout.dump);
            bend_dump(dice, &mut image[at..at + index(layout.dump_bytes)], ends);
            "dump"
        }
    }
}

/// Changes one copy of a cell, or both.
fn bend_cell(dice: &mut Dice, image: &mut [u8], twin: &Twin, ends: bool) {
    let (place, pitch) = (dice.below(twin.count.into()), index(twin.pitch));
    let at = |copy: usize| index(twin.copies[copy] + place * twin.pitch);
    let (first, other) = if dice.below(2) == 0 { (at(0), at(1)) } else { (at(1), at(0)) };
    let cell = &mut image[first..first + pitch];
    let used = HEAD + (u32_at(cell, 28) as usize).min(pitch - HEAD);
    let front = if dice.below(2) == 0 { 40 } else { used };
    bend_within(dice, &mut cell[..front], ends);
    let length = u32_at(cell, 28) as usize;
    if let Some(content) = cell[HEAD..].get(..length) {
        let crc = crc32c::crc32c_append(crc32c::crc32c(&cell[..32]), content);
        set(cell, 32, crc.to_le_bytes());
    }
    if dice.below(4) > 0 {
        image.copy_within(first..first + pitch, other);
    }
}

/// Head, table, meta or words.
fn bend_checkpoint(dice: &mut Dice, bytes: &mut [u8], layout: &Layout, ends: bool) {
    let meta_bytes = index(crate::bytes::u64_at(bytes, 56)).min(index(layout.meta_bytes));
    let (word_bytes, entries) = (index(SIZES.map_words * 8), u32_at(bytes, 64) as usize);
    let word_chunks = word_bytes.div_ceil(CHUNK);
    // For each chunk: its offset, and the offset of its checksum.
    let (table, meta, words) = (index(layout.table), index(layout.meta), index(layout.words));
    let mut chunk = |dice: &mut Dice, from: usize, length: usize, first: usize| {
        let nth = below(dice, length.div_ceil(CHUNK).max(1));
        let range = from + nth * CHUNK..from + (nth * CHUNK + CHUNK).min(length);
        let front = if dice.below(2) == 0 { range.len().min(64) } else { range.len() };
        bend_within(dice, &mut bytes[range.start..range.start + front], ends);
        let crc = crc32c::crc32c(&bytes[range]);
        set(bytes, table + (first + nth) * TABLE_ENTRY, crc.to_le_bytes());
    };
    match dice.below(4) {
        0 => bend_within(dice, &mut bytes[4..80], ends),
        1 => bend_within(dice, &mut bytes[table..table + (entries * TABLE_ENTRY).clamp(8, PAGE)], ends),
        2 => chunk(dice, meta, meta_bytes, word_chunks),
        _ => chunk(dice, words, word_bytes, 0),
    }
    if let Some(table) = bytes[table..].get(..entries * TABLE_ENTRY) {
        let crc = crc32c::crc32c(table);
        set(bytes, 68, crc.to_le_bytes());
    }
    seal(&mut bytes[..PAGE]);
}

/// Head, tail, a group or the commit page; all checksums after it follow.
fn bend_dump(dice: &mut Dice, bytes: &mut [u8], ends: bool) {
    let pages =
        bytes.chunks(PAGE).position(|page| u32_at(page, 4) == COMMIT_MAGIC).map_or(1, |commit| commit + 1);
    let page = below(dice, pages) * PAGE;
    let front = if dice.below(2) == 0 { 128 } else { PAGE };
    bend_within(dice, &mut bytes[page + 4..page + front], ends);
    let tail = index(crate::bytes::u64_at(bytes, 48).min(bytes.len() as u64));
    if let Some(tail) = bytes.get(PAGE..PAGE + tail) {
        let crc = crc32c::crc32c(tail);
        set(bytes, 56, crc.to_le_bytes());
    }
    seal(&mut bytes[..PAGE]);
    let mut chain = crc32c::crc32c(&bytes[..PAGE]);
    let mut at = PAGE + tail.next_multiple_of(PAGE);
    while at + PAGE <= bytes.len() && u32_at(bytes, at + 4) == GROUP_MAGIC {
        let data = usize::from(u16_at(bytes, at + 30)).min(GROUP_RECORDS) * PAGE;
        let Some(data) = bytes.get(at + PAGE..at + PAGE + data) else { return };
        let (crc, next) = (crc32c::crc32c(data), at + PAGE + data.len());
        set(bytes, at + 32, crc.to_le_bytes());
        seal(&mut bytes[at..at + PAGE]);
        chain = crc32c::crc32c_append(chain, &bytes[at..at + PAGE]);
        at = next;
    }
    if at + PAGE <= bytes.len() && u32_at(bytes, at + 4) == COMMIT_MAGIC {
        set(bytes, at + 36, chain.to_le_bytes());
        seal(&mut bytes[at..at + PAGE]);
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rebuilds the map from the out-of-band records, when checkpoint or journal cannot be read (protocol rule
//! 11).
//!
//! Linear in pages: several threads read and check records, one inserts them into the map. Of two pages for a
//! block the later one counts. Only volumes that exist come back, in their present generation. Changes that
//! only the journal had, such as a TRIM, are lost. So a rebuilt SSD is filling.

use crate::parts::Progress;
use crate::replay::Found;
use crate::space::State;
use gnstor_durable::COUNTER_MAX;
use gnstor_flash::{Flash, PageState, Ppa, Superblock};
use gnstor_map::MapWriter;
use gnstor_proto::slba::{Stamp, Vid};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc;

/// Most threads that read records.
const READERS: usize = 8;

struct Page {
    vid: Vid,
    vba: u32,
    page: Ppa,
    seq: u64,
    stamp: Stamp,
}

struct Scanned {
    superblock: Superblock,
    used: bool,
    pages: Vec<Page>,
}

pub(crate) fn rebuild(
    flash: &Flash,
    writer: &mut MapWriter,
    is_live: &(impl Fn(Vid, u32) -> bool + Sync),
    progress: Progress<'_>,
) -> Result<Found, String> {
    writer.clear();
    flash.factory_bad().into_iter().for_each(|block| flash.mark_bad(block));
    let mut found = Found::empty(flash);
    let geometry = flash.geometry();
    let (total, next, looked_at) = (geometry.superblocks(), AtomicU32::new(0), AtomicU64::new(0));
    let readers = std::thread::available_parallelism().map_or(1, |n| n.get().min(READERS));
    std::thread::scope(|scope| {
        let (send, receive) = mpsc::sync_channel::<Scanned>(2 * readers);
        for _ in 0..readers {
            let (send, next, looked_at) = (send.clone(), &next, &looked_at);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= total || send.send(scan(flash, Superblock(number), is_live)).is_err() {
                        return;
                    }
                    let pages = u64::from(geometry.superblock_pages());
                    progress(looked_at.fetch_add(pages, Ordering::Relaxed) + pages, geometry.pages());
                }
            });
        }
        drop(send);
        for scanned in receive {
            take(flash, writer, &mut found, scanned)?;
        }
        Ok::<(), String>(())
    })?;
    for (_, _, page) in writer.map().scan(0, writer.map().buckets()) {
        found.space.get_mut(geometry.superblock_of(Ppa(page))).valid += 1;
    }
    Ok(found)
}

/// The live pages of one superblock.
fn scan(flash: &Flash, superblock: Superblock, is_live: &impl Fn(Vid, u32) -> bool) -> Scanned {
    let geometry = flash.geometry();
    let first = superblock.0 * geometry.superblock_pages();
    let (mut used, mut pages) = (false, Vec::new());
    for page in (first..first + geometry.superblock_pages()).map(Ppa) {
        match flash.page(page) {
            PageState::Erased => {}
            PageState::Padding | PageState::Damaged | PageState::Buffered(_) => used = true,
            // Later writes are counted on from the highest sequence: none gets that far.
            PageState::Programmed(oob) if oob.seq > COUNTER_MAX => used = true,
            PageState::Programmed(oob) => {
                used = true;
                if let Some(vid) = Vid::new(oob.vid).filter(|vid| is_live(*vid, oob.generation)) {
                    pages.push(Page { vid, vba: oob.vba, page, seq: oob.seq, stamp: oob.stamp });
                }
            }
        }
    }
    Scanned { superblock, used, pages }
}

fn take(flash: &Flash, writer: &mut MapWriter, found: &mut Found, scanned: Scanned) -> Result<(), String> {
    if scanned.used && found.space.get(scanned.superblock).state == State::Free {
        found.space.close(scanned.superblock);
    }
    for Page { vid, vba, page, seq, stamp } in scanned.pages {
        found.page_seq = found.page_seq.max(seq);
        let newer_there = writer.map().get(vid, vba).is_some_and(|there| match flash.page(Ppa(there)) {
            PageState::Programmed(oob) => oob.seq >= seq,
            _ => false,
        });
        if newer_there {
            continue;
        }
        writer
            .insert(vid, vba, page.0, &mut |_, _| {})
            .map_err(|_| "there are more live pages than the SSD promises".to_owned())?;
        found.histories.record(vid, vba, stamp);
    }
    Ok(())
}

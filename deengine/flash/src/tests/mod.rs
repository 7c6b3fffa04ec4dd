// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the whole, on RAM and on files.

mod crash;
#[path = "../../../testing/deadline.rs"]
mod deadline;
mod decoders;
mod devices;
mod faults;
mod files;
mod frames;
mod fuzz;
mod geometry;
mod killed;
mod mirror;
#[path = "../../../testing/mounts.rs"]
mod mounts;
mod notes;
mod private;
mod readers;
mod rules;
mod slow;
#[path = "../../../testing/slow_folder.rs"]
mod slow_folder;
mod slow_records;
mod slow_retries;
mod space;
mod stores;
mod uring;

use crate::*;
pub(crate) use deadline::deadline;
use gnstor_proto::placement::mix64;
use gnstor_proto::slba::Stamp;
use std::path::Path;
use std::sync::Arc;
use std::task::Poll;

/// 2 channels x 2 dies, units of 4 pages, 3 rows: superblocks of 48 pages.
fn shape() -> Shape {
    Shape { channels: 2, dies_per_channel: 2, planes: 2, unit_pages: 4, sense_pages: 2, rows: 3 }
}

fn config(media: MediaConfig) -> FlashConfig {
    FlashConfig {
        geometry: Geometry::new(shape(), 5).unwrap(),
        spare_frames: 48,
        media,
        faults: Arc::new(Faults::none()),
        power: Arc::new(Power::steady()),
    }
}

fn ram() -> Flash {
    Flash::new(config(MediaConfig::Ram { shared: false })).unwrap()
}

fn new_file(path: &Path, io: IoMode) -> Arc<DataFile> {
    Arc::new(
        DataFile::create(path, &Geometry::new(shape(), 5).unwrap(), 100_000, "a test").unwrap().with_io(io),
    )
}

/// Opens the file. A parallel test may be about to start a process, which has our descriptors and the lock
/// with them until it runs another program.
fn open(path: &Path) -> Result<DataFile, DataFileError> {
    for _ in 0..1000 {
        match DataFile::open(path) {
            Err(DataFileError::Locked(_)) => std::thread::sleep(std::time::Duration::from_millis(10)),
            other => return other,
        }
    }
    DataFile::open(path)
}

fn on_file(file: &Arc<DataFile>) -> Flash {
    Flash::new(config(MediaConfig::File(Arc::clone(file)))).unwrap()
}

/// A record that is a function of a number.
fn oob(number: u64) -> Oob {
    let dice = |salt: u64| mix64(number ^ mix64(salt));
    let small = |salt: u64| u32::try_from(dice(salt) >> 32).unwrap();
    Oob {
        vid: u16::try_from(dice(1) >> 48).unwrap(),
        generation: small(2),
        vba: small(3),
        stamp: Stamp { lease_epoch: small(4), sequence: dice(5) },
        sum: small(6),
        seq: number,
    }
}

/// 4 KiB that are a function of a number.
fn data(number: u64) -> [u8; 4096] {
    let mut bytes = [0; 4096];
    for (at, chunk) in (0..).zip(bytes.chunks_exact_mut(8)) {
        chunk.copy_from_slice(&mix64(number.wrapping_mul(1000) ^ at).to_le_bytes());
    }
    bytes
}

/// Places the record and the data of a number on a page.
fn put(flash: &Flash, page: Ppa, number: u64) {
    let frame = flash.take_frame().expect("a free frame");
    flash.write_frame(frame, &data(number));
    flash.place(page, frame, &oob(number));
}

fn finish(flash: &Flash, unit: Unit) -> Result<(), ProgramFailed> {
    loop {
        if let Poll::Ready(result) = flash.finish_program(unit) {
            return result;
        }
    }
}

/// Fills and programs a unit with numbers from `first` on.
fn program(flash: &Flash, unit: Unit, first: u64) {
    for (page, number) in flash.geometry().pages_of(unit).zip(first..) {
        put(flash, page, number);
    }
    flash.start_program(unit);
    finish(flash, unit).unwrap();
}

/// The data of a page, as the mover would see it.
fn read(flash: &Flash, page: Ppa) -> Result<[u8; 4096], Unreadable> {
    let mut bytes = [0; 4096];
    flash.pin(page);
    let (local, ticket) = match flash.fetch(page) {
        Fetch::Here(local) => (Ok(local), None),
        Fetch::Unreadable => (Err(Unreadable(page)), None),
        Fetch::Loading(ticket) => loop {
            if let Some(loaded) = flash.poll_loaded() {
                assert_eq!(loaded.ticket, ticket);
                break (loaded.result, Some(ticket));
            }
        },
    };
    if let Ok(local) = local {
        let regions = flash.regions();
        regions.iter().find(|region| region.id() == local.region).unwrap().read(local.offset, &mut bytes);
    }
    if let Some(ticket) = ticket {
        flash.release(ticket);
    }
    flash.unpin(page);
    local.map(|_| bytes)
}

fn copied(flash: &Flash, page: Ppa) -> Result<[u8; 4096], Unreadable> {
    let frame = flash.take_frame().expect("a free frame");
    let mut bytes = [0; 4096];
    let result = match flash.start_copy(page, frame) {
        Copying::Ended(result) => result,
        Copying::Running(ticket) => loop {
            if let Poll::Ready(result) = flash.poll_copy(ticket) {
                break result;
            }
        },
    };
    flash.read_frame(frame, &mut bytes);
    if result.is_ok() {
        let (mut waited, was) = ([0; 4096], flash.copy(page, frame));
        flash.read_frame(frame, &mut waited);
        assert!(was.is_ok() && waited == bytes, "both ways to copy {page:?} give the same");
    }
    flash.give_frame(frame);
    result.map(|()| bytes)
}

/// Every query about a page that holds the record of a number agrees.
fn assert_holds(flash: &Flash, page: Ppa, number: u64, durable: bool) {
    let oob = oob(number);
    assert_eq!(flash.page(page), if durable { PageState::Programmed(oob) } else { PageState::Buffered(oob) });
    assert_eq!(flash.key(page), Some((oob.vid, oob.generation, oob.vba, oob.sum)));
    assert_eq!(flash.oob(page), Some(oob));
    assert!(read(flash, page).unwrap() == data(number), "{page:?} does not hold the data of {number}");
    if flash.free_frames() > 0 {
        assert!(
            copied(flash, page).unwrap() == data(number),
            "a copy of {page:?} is not the data of {number}"
        );
    }
}

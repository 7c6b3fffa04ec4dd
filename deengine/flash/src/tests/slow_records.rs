// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records of pages on a disk where each read, write and sync takes a second. No call of an engine waits for
//! it.
#![expect(clippy::disallowed_methods, reason = "the test is about real time")]

use super::slow_folder::{SlowFolder, Word};
use super::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What a request to the slow disk takes.
const SLOW_MS: u64 = 1000;
/// A call that takes longer has waited for the disk. Other programs may keep the processor for a while.
const STILL: Duration = Duration::from_millis(SLOW_MS / 2);

/// A superblock has 2,304 pages, whose records fill 36 pages of the file.
fn large() -> FlashConfig {
    let shape =
        Shape { channels: 2, dies_per_channel: 2, planes: 2, unit_pages: 8, sense_pages: 2, rows: 72 };
    let media = MediaConfig::Ram { shared: false };
    FlashConfig { geometry: Geometry::new(shape, 4).unwrap(), spare_frames: 512, ..config(media) }
}

fn over(file: &Arc<DataFile>) -> Flash {
    Flash::new(FlashConfig { media: MediaConfig::File(Arc::clone(file)), ..large() }).unwrap()
}

/// Times calls, and keeps the longest.
#[derive(Default)]
struct Clock {
    longest: (Duration, &'static str),
}

impl Clock {
    fn time<T>(&mut self, what: &'static str, call: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let result = call();
        self.longest = self.longest.max((begin.elapsed(), what));
        result
    }
}

/// Fills and programs a unit as an engine does: it polls, and times each call.
fn program_timed(flash: &Flash, clock: &mut Clock, unit: Unit, first: u64) {
    for (page, number) in flash.geometry().pages_of(unit).zip(first..) {
        let frame = flash.take_frame().expect("a free frame");
        flash.write_frame(frame, &data(number));
        clock.time("place", || flash.place(page, frame, &oob(number)));
    }
    clock.time("start_program", || flash.start_program(unit));
    loop {
        match clock.time("finish_program", || flash.finish_program(unit)) {
            Poll::Ready(result) => return result.unwrap(),
            Poll::Pending => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// The folder, unless this machine mounts none.
fn slow_folder() -> Option<SlowFolder> {
    SlowFolder::mount().inspect_err(|error| mounts::left_out("a FUSE mount", error)).ok()
}

#[test]
fn no_call_of_an_engine_waits_for_the_records_of_a_slow_disk() {
    let _deadline = crate::tests::deadline();
    let Some(folder) = slow_folder() else { return };
    let path = folder.path().join("ssd");
    let geometry = large().geometry;
    let file = Arc::new(DataFile::create(&path, &geometry, 100_000, "a test").unwrap());
    let flash = over(&file);
    (0..288).for_each(|unit| program(&flash, Unit(unit), u64::from(unit) * 8));
    drop(flash);
    drop(file);

    // A new open has no page of the file in the cache. The start itself may wait for the disk.
    let file = Arc::new(open(&path).unwrap());
    let flash = over(&file);
    let store = Arc::new(FileStore::new(Arc::clone(&file), Arc::new(Power::steady())));
    [Word::ReadMs, Word::WriteMs, Word::SyncMs].into_iter().for_each(|ms| folder.set(ms, SLOW_MS));
    let mut clock = Clock::default();
    for page in (0..2304).step_by(331).map(Ppa) {
        let state = clock.time("page", || flash.page(page));
        assert_eq!(state, PageState::Programmed(oob(page.0.into())));
    }
    eprintln!("records that were not in memory: longest {:?}", clock.longest);
    let cold = std::mem::take(&mut clock).longest;

    let stop = Arc::new(AtomicBool::new(false));
    let syncs = std::thread::spawn({
        let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
        move || {
            let mut syncs = 0;
            while !stop.load(Ordering::Relaxed) {
                if let Started::Running(ticket) = store.start_barrier().unwrap() {
                    store.wait_sync(ticket).unwrap();
                    syncs += 1;
                }
            }
            syncs
        }
    });
    let begin = Instant::now();
    let mut units = 288;
    while begin.elapsed() < Duration::from_secs(12) {
        program_timed(&flash, &mut clock, Unit(units), u64::from(units) * 8);
        if units % 8 == 0 {
            let block = Block((units - 288) / 8);
            clock.time("erase", || flash.erase(block)).unwrap();
        }
        units += 1;
    }
    stop.store(true, Ordering::Relaxed);
    let syncs = syncs.join().unwrap();
    eprintln!(
        "{} units and {syncs} syncs, {} writes: longest {:?}",
        units - 288,
        folder.get(Word::Writes),
        clock.longest,
    );
    [Word::ReadMs, Word::WriteMs, Word::SyncMs].into_iter().for_each(|ms| folder.set(ms, 0));
    assert!(syncs > 1 && folder.get(Word::Writes) > 4, "the disk was slow");
    assert!(cold.0 < STILL, "a record that was not in memory: {cold:?}");
    assert!(clock.longest.0 < STILL, "records under way to the disk: {:?}", clock.longest);
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The client's calls: one thread writes and reads back, another reads what nothing changes.

use gnstor_tests::{Guest, assert_same, pattern, read_copy, volume};
use libgnstor::{Error, File, Rights};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const BYTES: usize = 16 << 20;
const PART: usize = 64 << 10;
const REPLICAS: u32 = 2;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Writes,
    Reads,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        if self == Self::Writes { "writes" } else { "reads" }
    }
}

/// When calls began and ended since the last look, and how many there were in all.
#[derive(Default)]
struct Log {
    calls: Vec<(Instant, Instant)>,
    count: usize,
}

pub(super) struct Calls {
    stop: Arc<AtomicBool>,
    log: Arc<Mutex<Log>>,
    writer: JoinHandle<Vec<u8>>,
    reader: JoinHandle<usize>,
}

fn timed<R>(log: &Mutex<Log>, call: impl FnOnce() -> Result<R, Error>) -> R {
    let begun = Instant::now();
    let result = call().unwrap_or_else(|error| panic!("a call failed after {:?}: {error}", begun.elapsed()));
    let mut log = log.lock().expect("no panic while held");
    log.calls.push((begun, Instant::now()));
    log.count += 1;
    result
}

/// Writes parts in a drawn order and reads each back; what the volume holds then.
fn write(file: &File, log: &Mutex<Log>, stop: &AtomicBool) -> Vec<u8> {
    let mut data = pattern(7, BYTES);
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let drawn = gnstor_proto::placement::mix64(number) % (BYTES / PART) as u64;
        let at = usize::try_from(drawn).expect("small") * PART;
        let part = pattern(1000 + number, PART);
        timed(log, || file.write_at(at as u64, &part));
        let mut read = vec![0; PART];
        timed(log, || file.read_at(at as u64, &mut read));
        assert_same("just written", &read, &part);
        data[at..at + PART].copy_from_slice(&part);
        number += 1;
        std::thread::sleep(Duration::from_millis(2));
    }
    data
}

/// Reads a volume that nothing changes; how often.
fn read(file: &File, log: &Mutex<Log>, stop: &AtomicBool) -> usize {
    let data = pattern(7, BYTES);
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        let at = count % (BYTES / PART) * PART;
        let mut read = vec![0; PART];
        timed(log, || file.read_at(at as u64, &mut read));
        assert_same("a volume that nothing changes", &read, &data[at..at + PART]);
        count += 1;
        std::thread::sleep(Duration::from_millis(2));
    }
    count
}

impl Calls {
    pub(super) fn start(guest: &Guest) -> Self {
        for name in ["busy", "still"] {
            volume(&guest.client, name, BYTES as u64, REPLICAS);
            guest.client.open(name, Rights::Write).unwrap().write_at(0, &pattern(7, BYTES)).unwrap();
        }
        let (stop, log) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Log::default())));
        let busy = guest.client.open("busy", Rights::Write).unwrap();
        let still = guest.client.open("still", Rights::Read).unwrap();
        let (told, to) = (Arc::clone(&stop), Arc::clone(&log));
        let writer = std::thread::spawn(move || write(&busy, &to, &told));
        let (told, to) = (Arc::clone(&stop), Arc::clone(&log));
        let reader = std::thread::spawn(move || read(&still, &to, &told));
        Self { stop, log, writer, reader }
    }

    /// The longest call that ended since then. Earlier ones are forgotten.
    pub(super) fn longest_since(&self, at: Instant) -> Duration {
        assert!(!self.writer.is_finished() && !self.reader.is_finished(), "a call failed");
        let calls = std::mem::take(&mut self.log.lock().expect("no call failed").calls);
        let since = calls.iter().filter(|(_, ended)| *ended >= at);
        since.map(|(begun, ended)| *ended - *begun).max().expect("calls go on")
    }

    /// Ends the calls, and looks at each copy. How many calls there were.
    pub(super) fn end(self, other: &Guest) -> Vec<(Kind, usize)> {
        self.stop.store(true, Ordering::Relaxed);
        let busy = self.writer.join().expect("no call of the writer failed");
        let reads = self.reader.join().expect("no call of the reader failed");
        let count = self.log.lock().expect("no panic while held").count;
        for (name, data) in [("busy", busy), ("still", pattern(7, BYTES))] {
            let file = other.client.open(name, Rights::Read).unwrap();
            for replica in 0..REPLICAS {
                let mut read = vec![0; BYTES];
                read_copy(&file, replica, 0, &mut read);
                assert_same(&format!("copy {replica} of {name}"), &read, &data);
            }
        }
        // Each write is read back.
        let writes = (count - reads) / 2;
        vec![(Kind::Writes, writes), (Kind::Reads, reads + writes)]
    }
}

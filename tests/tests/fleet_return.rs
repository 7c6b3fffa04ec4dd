// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SSDs in processes of their own that are killed and start again, one after the other, beside clients. Each
//! fills its places and serves before the next one is killed.
#![expect(clippy::disallowed_methods, reason = "processes and pauses in real time")]

mod all_killed;
mod drain;
mod lose_data;
mod replace;
mod salvage;
mod trim;
mod waits;

use crate::fleet_daemon::Array;
use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::placement::group_of;
use gnstor_proto::placement::map3::FleetMap3;
use gnstor_proto::slba::Vid;
use gnstor_tests::command::{BUILD_LIMIT, gnstor};
use gnstor_tests::{BLOCK, Guest, IO_TIMEOUT, assert_same, pattern, volume, within};
use libgnstor::{File, Rights, VolumeInfo};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use trim::Trimmer;

/// Bytes of each volume.
pub(crate) const BYTES: usize = 12 << 20;
/// Bytes of a write.
const PART: usize = 64 << 10;
const REPLICAS: u32 = 2;
/// From a fault until the array is healthy, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A write that was acknowledged: when it began and ended, and where.
pub(crate) type Written = (Instant, Instant, usize);

/// Result of a load.
pub(crate) struct Left {
    pub(crate) data: Vec<u8>,
    writes: Vec<Written>,
    longest: Duration,
}

/// A client that works until it is told to stop. No call of it may fail.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Left>,
}

impl Load {
    pub(crate) fn start(work: impl FnOnce(&AtomicBool) -> Left + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        Self { stop, thread: std::thread::spawn(move || work(&told)) }
    }

    pub(crate) fn end(self, who: &str) -> Left {
        self.stop.store(true, Ordering::Relaxed);
        let left = self.thread.join().unwrap_or_else(|_| panic!("a call of the {who} failed"));
        eprintln!("{who}: {} calls, of which the longest took {:?}", left.writes.len(), left.longest);
        left
    }
}

/// Writes parts in a drawn order and reads each back.
pub(crate) fn write_and_read(file: &File, mut data: Vec<u8>, stop: &AtomicBool) -> Left {
    let (mut writes, mut longest) = (Vec::new(), Duration::ZERO);
    while !stop.load(Ordering::Relaxed) {
        let round = writes.len() as u64;
        let drawn = gnstor_proto::placement::mix64(round) % (BYTES / PART) as u64;
        let at = usize::try_from(drawn).expect("small") * PART;
        let part = pattern(1000 + round, PART);
        let begun = Instant::now();
        file.write_at(at as u64, &part).expect("a write goes on");
        let ended = Instant::now();
        let mut read = vec![0; PART];
        file.read_at(at as u64, &mut read).expect("a read goes on");
        longest = longest.max(begun.elapsed());
        assert_same("just written", &read, &part);
        data[at..at + PART].copy_from_slice(&part);
        writes.push((begun, ended, at));
        // Not all blocks are to change while an SSD is away.
        std::thread::sleep(Duration::from_millis(20));
    }
    Left { data, writes, longest }
}

/// Reads parts of a volume that has no writer.
pub(crate) fn read_all(file: &File, data: Vec<u8>, stop: &AtomicBool) -> Left {
    let (mut writes, mut longest) = (Vec::new(), Duration::ZERO);
    while !stop.load(Ordering::Relaxed) {
        let at = writes.len() % (BYTES / PART) * PART;
        let mut read = vec![0; PART];
        let begun = Instant::now();
        file.read_at(at as u64, &mut read).expect("a read goes on");
        let ended = Instant::now();
        longest = longest.max(ended - begun);
        assert_same("a volume that nothing changes", &read, &data[at..at + PART]);
        writes.push((begun, ended, at));
        std::thread::sleep(Duration::from_millis(20));
    }
    Left { data, writes, longest }
}

/// Output of `gnstor fleet show --json`, whatever its exit code.
fn fleet(array: &Array) -> Value {
    let shown = gnstor(&["fleet", "show", "--array", &array.daemon(), "--json"]);
    serde_json::from_str(&shown.stdout).unwrap_or_else(|e| panic!("{e}: {} {}", shown.stdout, shown.stderr))
}

/// Waits until the condition holds for the fleet.
fn until(array: &Array, what: &str, mut is_so: impl FnMut(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let now = fleet(array);
        if is_so(&now) {
            return now;
        }
        assert!(begun.elapsed() < LIMIT, "{what}: {now:#}");
        // Each look is a process. Without a pause they take a core from what they look at.
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The placement group of a block.
fn group(map: &FleetMap3, info: &VolumeInfo, block: u32) -> u32 {
    let vid = Vid::new(u16::try_from(info.vid).expect("an id")).expect("an id");
    let shift = u8::try_from((info.chunk_bytes / BLOCK_BYTES).trailing_zeros()).expect("small");
    group_of(vid, block, shift, info.factor, u32::try_from(map.rows.len()).expect("few"))
}

/// The SSD has a place for a volume in the group of this block.
fn has_block(map: &FleetMap3, info: &VolumeInfo, ssd: u16, block: u32) -> bool {
    let row = map.rows[group(map, info, block) as usize];
    row.places.iter().take(REPLICAS as usize).flatten().any(|place| place.ssd == ssd)
}

/// One SSD was away.
struct Away {
    ssd: u16,
    killed: Instant,
    back: Instant,
    /// A map gives it places.
    placed: Instant,
    served: Instant,
    copied_bytes: u64,
}

impl Away {
    /// Bytes of the SSD's places that were changed while it had none.
    fn changed_bytes(&self, map: &FleetMap3, info: &VolumeInfo, writes: &[Written]) -> u64 {
        let was_away = |&&(begun, ended, _): &&Written| ended >= self.killed && begun <= self.placed;
        let parts: BTreeSet<usize> = writes.iter().filter(was_away).map(|&(_, _, at)| at).collect();
        let blocks = parts.into_iter().flat_map(|at| at / BLOCK..(at + PART) / BLOCK);
        let own = blocks.filter(|&block| has_block(map, info, self.ssd, u32::try_from(block).expect("few")));
        own.count() as u64 * u64::from(BLOCK_BYTES)
    }
}

/// Three volumes that clients use: "busy" is written and read back, "still" is read, and of "holes" parts are
/// trimmed, one after the other.
struct Use {
    writer: Guest,
    _reader: Guest,
    writes: Load,
    reads: Load,
    trimmer: Trimmer,
    trims: Vec<Written>,
}

impl Use {
    fn start(array: &Array) -> Self {
        Self::start_for(array, IO_TIMEOUT)
    }

    /// As [`Self::start`], with this deadline for each I/O.
    fn start_for(array: &Array, io_timeout: Duration) -> Self {
        let guest = |name| Guest::connect_for(&array.daemon(), name, io_timeout);
        let (writer, reader) = (guest("writer"), guest("reader"));
        let data = pattern(7, BYTES);
        for name in ["still", "busy", "holes"] {
            volume(&writer.client, name, BYTES as u64, REPLICAS);
            writer.client.open(name, Rights::Write).unwrap().write_at(0, &data).unwrap();
        }
        let (file, copy) = (writer.client.open("busy", Rights::Write).unwrap(), data.clone());
        let writes = Load::start(move |stop| write_and_read(&file, copy, stop));
        let (file, copy) = (reader.client.open("still", Rights::Read).unwrap(), data);
        let reads = Load::start(move |stop| read_all(&file, copy, stop));
        let trimmer = Trimmer::new(array, writer.client.get("holes").unwrap());
        Self { writer, _reader: reader, writes, reads, trimmer, trims: Vec::new() }
    }

    /// Trims the next part.
    fn trim(&mut self, array: &Array) {
        let (at, begun) = (self.trims.len() * PART, Instant::now());
        assert!(at < BYTES, "all is trimmed");
        let (first, blocks) = (u32::try_from(at / BLOCK), u32::try_from(PART / BLOCK));
        self.trimmer.trim(array, first.expect("few"), blocks.expect("few"));
        self.trims.push((begun, Instant::now(), at));
    }

    /// The SSD is killed, stays away for a while, comes back, and serves.
    fn away(&mut self, array: &mut Array, ssd: u16, pause: Duration) -> Away {
        let killed = Instant::now();
        array.kill(ssd.into());
        let is_state = |now: &Value, word: &str| now["ssds"][usize::from(ssd)]["state"] == word;
        until(array, "the SSD is dropped", |now| is_state(now, "out"));
        eprintln!("SSD {ssd} was seen to be out {:?} after it was killed", killed.elapsed());
        (0..20).for_each(|_| self.trim(array));
        std::thread::sleep(pause);
        array.restart(ssd);
        let back = Instant::now();
        // On a busy machine the daemon may lose it once more: what was said before says nothing then.
        until(array, "the SSD has places", |now| {
            self.trimmer.renew();
            !is_state(now, "out")
        });
        let placed = Instant::now();
        eprintln!("SSD {ssd} had places {:?} after it was back", placed - back);
        (0..20).for_each(|_| self.trim(array));
        let healthy = until(array, "all copies serve", |now| now["state"] == "healthy");
        let served = Instant::now();
        let copied_bytes = healthy["ssds"][usize::from(ssd)]["fill"]["copied_bytes"].as_u64();
        let copied_bytes = copied_bytes.unwrap_or_else(|| panic!("a fill: {healthy:#}"));
        eprintln!("SSD {ssd} served {:?} after it was back; {copied_bytes} bytes copied", served - back);
        (0..5).for_each(|_| self.trim(array));
        Away { ssd, killed, back, placed, served, copied_bytes }
    }

    /// Ends, and looks at each copy. `aways`: the SSDs that were away, and the map after that.
    fn end(self, array: &Array, aways: &[(Away, FleetMap3)]) {
        let (written, still) = (self.writes.end("writer"), self.reads.end("reader"));
        let longest = self.trims.iter().map(|(begun, ended, _)| *ended - *begun).max();
        eprintln!("trimmer: {} calls, of which the longest took {longest:?}", self.trims.len());
        let (busy, holes) = (self.writer.client.get("busy").unwrap(), self.trimmer.info());
        for (away, map) in aways {
            let changed =
                away.changed_bytes(map, &busy, &written.writes) + away.changed_bytes(map, holes, &self.trims);
            let moved = away.copied_bytes;
            eprintln!(
                "SSD {}: {changed} bytes changed in {:?}, {moved} moved: {:.2}; served after {:?}",
                away.ssd,
                away.placed - away.killed,
                moved as f64 / changed as f64,
                away.served - away.back
            );
            assert!(changed > 0 && moved * 10 <= changed * 12, "{moved} bytes moved");
        }
        let mut trimmed = pattern(7, BYTES);
        trimmed[..self.trims.len() * PART].fill(0);
        let other = Guest::connect(&array.daemon(), "other");
        self.trimmer.end();
        each_copy_is(&open_to_read(&other, "holes"), &trimmed);
        each_copy_is(&open_to_read(&other, "busy"), &written.data);
        each_copy_is(&open_to_read(&other, "still"), &still.data);
    }
}

/// The daemon refuses an open where it has just lost SSDs, as it may on a machine that starves them.
fn open_to_read(guest: &Guest, name: &str) -> File {
    let mut opened = None;
    gnstor_tests::command::until("the volume is opened", || {
        match guest.client.open(name, Rights::Read) {
            Ok(file) => opened = Some(file),
            Err(libgnstor::Error::Daemon(status)) if status.code() == tonic::Code::Unavailable => {}
            Err(other) => panic!("{name}: {other}"),
        }
        opened.is_some()
    });
    opened.expect("opened")
}

/// A read of one copy goes to no other and is not sent again. So it fails where an SSD that is starved has no
/// serving lease at the moment.
fn each_copy_is(file: &File, data: &[u8]) {
    for replica in 0..REPLICAS {
        let mut read = vec![0; data.len()];
        gnstor_tests::command::until("a copy is read", || {
            match file.read_replica_at(replica, 0, &mut read) {
                Ok(()) => true,
                Err(libgnstor::Error::Io(_)) => false,
                Err(other) => panic!("copy {replica} of {}: {other}", file.info().name),
            }
        });
        assert_same(&format!("copy {replica} of {}", file.info().name), &read, data);
    }
}

#[test]
fn two_ssds_are_killed_in_turn_and_each_serves_again_and_no_call_fails() {
    within(BUILD_LIMIT, || {
        let mut array = Array::start();
        let mut clients = Use::start(&array);
        std::thread::sleep(Duration::from_millis(300));
        let mut aways = Vec::new();
        for ssd in [3, 0] {
            let away = clients.away(&mut array, ssd, Duration::from_secs(2));
            aways.push((away, array.map()));
        }
        std::thread::sleep(Duration::from_secs(1));
        clients.end(&array, &aways);
        array.end();
    });
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One SSD of four after the other is stopped in order or killed, beside clients that read and write all the
//! time. Who says goodbye needs no wait (rule 2b), so their calls pause for less than a lease.
//! `GNSTOR_GOODBYES` is the number of rounds of each kind.
#![expect(clippy::disallowed_methods, reason = "processes and pauses in real time")]

use crate::fleet_daemon::{Array, BYTES};
use gnstor_proto::placement::map3::State3;
use gnstor_tests::command::{BUILD_LIMIT, gnstor};
use gnstor_tests::{Guest, assert_same, pattern, volume, within};
use libgnstor::Rights;
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// From the end of an SSD until its copies serve again.
const LIMIT: Duration = Duration::from_secs(60);

/// Lease and drift bound: a map that takes a place from an SSD without a goodbye waits for so long.
const LEASE: Duration = Duration::from_millis(310);

/// When calls began and ended.
type Log = Arc<Mutex<Vec<(Instant, Instant)>>>;

/// Calls again and again, until it is told to stop.
fn calls(log: &Log, stop: &AtomicBool, call: impl Fn()) {
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        call();
        log.lock().unwrap().push((begun, Instant::now()));
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A client that writes the whole file, and so to each SSD, and another one that reads it. Beside a writer it
/// asks the first SSD of each group (rule 7). The data stays the same.
struct Load {
    stop: Arc<AtomicBool>,
    /// Reads and writes.
    logs: [Log; 2],
    threads: [JoinHandle<()>; 2],
}

impl Load {
    fn start(writer: &Guest, reader: &Guest) -> Self {
        volume(&writer.client, "v", BYTES as u64, 2);
        let busy = writer.client.open("v", Rights::Write).unwrap();
        busy.write_at(0, &pattern(7, BYTES)).unwrap();
        let file = reader.client.open("v", Rights::Read).unwrap();
        let read = move || {
            let mut back = vec![0; BYTES];
            file.read_at(0, &mut back).expect("no read fails");
            assert_same("the data stays the same", &back, &pattern(7, BYTES));
        };
        let write = move || busy.write_at(0, &pattern(7, BYTES)).expect("no write fails");
        let (stop, logs) = (Arc::new(AtomicBool::new(false)), [Log::default(), Log::default()]);
        let [told_read, told_write] = [(); 2].map(|()| Arc::clone(&stop));
        let [reads, writes] = logs.clone();
        let threads = [
            std::thread::spawn(move || calls(&reads, &told_read, read)),
            std::thread::spawn(move || calls(&writes, &told_write, write)),
        ];
        Self { stop, logs, threads }
    }

    /// The longest read and write that ended since then, once later ones have ended, too.
    fn longest_since(&self, at: Instant) -> [Duration; 2] {
        let now = Instant::now();
        self.logs.each_ref().map(|log| {
            while log.lock().unwrap().last().is_none_or(|(began, _)| *began < now) {
                assert!(now.elapsed() < LIMIT, "calls go on");
                std::thread::sleep(Duration::from_millis(10));
            }
            let calls = std::mem::take(&mut *log.lock().unwrap());
            let since = calls.iter().filter(|(_, ended)| *ended >= at);
            since.map(|(began, ended)| *ended - *began).max().expect("calls went on")
        })
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().expect("no call failed"));
    }
}

fn until(array: &Array, what: &str, ssd: u16, is_so: impl Fn(State3) -> bool) {
    let begun = Instant::now();
    while !is_so(array.map().ssds[usize::from(ssd)].state) {
        assert!(begun.elapsed() < LIMIT, "{what}: {:?}", array.map().ssds);
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What happened while an SSD was away.
struct Round {
    /// The longest read and write.
    longest: [Duration; 2],
    /// The daemon waited so long for the SSD's lease. None: it had heard the SSD's goodbye.
    waited: Option<Duration>,
}

/// What the daemon says of the fleet.
fn shown(array: &Array) -> Value {
    let shown = gnstor(&["fleet", "show", "--array", &array.daemon(), "--json"]);
    serde_json::from_str(&shown.stdout).unwrap_or_default()
}

/// How the daemon took the SSD's places.
fn waited(array: &Array, ssd: u16) -> Option<Duration> {
    let shown = shown(array);
    let is_in = |change: &Value, what: &str| change[what].as_array().unwrap().contains(&ssd.into());
    let changes = shown["changes"].as_array().expect("changes").iter();
    let change = changes.rev().find(|change| is_in(change, "deprived")).expect("it lost places");
    let waited = Duration::from_millis(change["waited_ms"].as_u64().expect("a number"));
    (!is_in(change, "stopped_in_order")).then_some(waited)
}

/// The SSD ends in this way, and comes back.
fn round(array: &mut Array, load: &Load, ssd: u16, end: fn(&mut Array, usize)) -> Round {
    let begun = Instant::now();
    end(array, ssd.into());
    until(array, "the map leaves it out", ssd, |state| state == State3::Out);
    let round = Round { longest: load.longest_since(begun), waited: waited(array, ssd) };
    array.restart(ssd);
    let begun = Instant::now();
    while shown(array)["state"] != "healthy" {
        assert!(begun.elapsed() < LIMIT, "it serves again: {:?}", array.map().ssds);
        std::thread::sleep(Duration::from_millis(10));
    }
    // An SSD that is back for the third time in ten minutes stays out, unless the operator takes it back. Of
    // one that is back for the first time there may be nothing to take back.
    drop(gnstor(&["fleet", "resume", &ssd.to_string(), "--array", &array.daemon()]));
    round
}

/// In order, for reads and for writes.
fn sorted(rounds: &[Round]) -> [Vec<Duration>; 2] {
    [0, 1].map(|kind| {
        let mut of: Vec<Duration> = rounds.iter().map(|round| round.longest[kind]).collect();
        of.sort();
        of
    })
}

#[test]
fn the_map_waits_for_no_lease_where_an_ssd_is_stopped_in_order() {
    let rounds = std::env::var("GNSTOR_GOODBYES").map_or(3, |text| text.parse().expect("a number"));
    within(BUILD_LIMIT + 4 * rounds * LIMIT, move || {
        let mut array = Array::start();
        let (writer, reader) =
            (Guest::connect(&array.daemon(), "writer"), Guest::connect(&array.daemon(), "reader"));
        let load = Load::start(&writer, &reader);
        let (mut stopped, mut killed) = (Vec::new(), Vec::new());
        // An SSD that comes back is the first of no group. So each one is lost again only after all others.
        for nth in 0..2 * rounds {
            let ssd = [3, 1, 2, 0][nth as usize % 4];
            if (nth + nth / 4) % 2 == 0 {
                stopped.push(round(&mut array, &load, ssd, Array::shut_down));
            } else {
                killed.push(round(&mut array, &load, ssd, Array::kill));
            }
        }
        load.end();
        let waits = |rounds: &[Round]| rounds.iter().map(|round| round.waited).collect::<Vec<_>>();
        let (after_goodbyes, after_kills) = (waits(&stopped), waits(&killed));
        let (stopped, killed) = (sorted(&stopped), sorted(&killed));
        for (kind, what) in ["read", "write"].into_iter().enumerate() {
            let middle = |of: &[Vec<Duration>; 2]| of[kind][of[kind].len() / 2];
            println!(
                "the longest {what}, median of {rounds} rounds: stopped in order {:.0?}, killed {:.0?}; all \
                 {:.0?}, {:.0?}",
                middle(&stopped),
                middle(&killed),
                stopped[kind],
                killed[kind]
            );
        }
        // An SSD that a busy machine kept from answering may have been taken for dead before it ended.
        assert!(after_goodbyes.contains(&None), "no goodbye was heard: {after_goodbyes:?}");
        assert!(
            after_kills.iter().all(|waited| waited.is_some_and(|waited| waited >= LEASE)),
            "a map was made during the lease of an SSD that was killed: {after_kills:?}"
        );
        assert!(killed[1][0] >= LEASE, "writes wait for the lease of an SSD that was killed: {killed:?}");
        drop((writer, reader));
        array.end();
    });
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor ssd` starts with an older image of its data file, or with a damaged one. Where the array's map
//! names voters they detect an older image, no SSD serves stale data, and the SSD fills. Elsewhere the daemon
//! detects it, by the numbers that it keeps in its folder.
#![expect(clippy::disallowed_methods, reason = "processes and pauses in real time")]

use gnstor_tests::command::{BUILD_LIMIT, Ended, SsdProcess, Up, gnstor};
use gnstor_tests::folder::Folder;
use gnstor_tests::{BLOCK, CHUNK, Guest, assert_same, pattern, volume, within};
use libgnstor::{File, Rights};
use serde_json::Value;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const BYTES: usize = 1 << 20;
const REPLICAS: u32 = 2;
/// The SSD of four whose file is replaced.
const VICTIM: usize = 3;
/// Longest wait on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// SSDs with data files.
struct Processes {
    folder: Folder,
    ssds: Vec<Option<SsdProcess>>,
    addresses: Vec<String>,
}

impl Processes {
    fn start(count: usize) -> Self {
        let folder = Folder::new();
        let addresses = vec!["127.0.0.1:0".into(); count];
        let mut all = Self { folder, ssds: (0..count).map(|_| None).collect(), addresses };
        (0..count).for_each(|ssd| all.start_ssd(ssd));
        all
    }

    fn file(&self, ssd: usize) -> PathBuf {
        self.folder.path().join(format!("{ssd}.gns"))
    }

    fn start_ssd(&mut self, ssd: usize) {
        let (file, index) = (self.file(ssd).display().to_string(), ssd.to_string());
        let args = ["--preset", "null", "--size", "64MiB", "--data", &file, "--index", &index];
        let process = SsdProcess::start(&self.addresses[ssd], &args);
        self.addresses[ssd] = process.address();
        self.ssds[ssd] = Some(process);
    }

    /// Shuts an SSD down in order.
    fn end_ssd(&mut self, ssd: usize) {
        drop(self.ssds[ssd].take().expect("it runs").end("-TERM"));
    }

    fn daemon(&self) -> Up {
        Up::start_as(&["--ssd-at", &self.addresses.join(",")])
    }

    /// A daemon that keeps the numbers of openings in a folder.
    fn daemon_with_state(&self) -> Up {
        let state = self.folder.path().join("state").display().to_string();
        Up::start_as(&["--ssd-at", &self.addresses.join(","), "--state", &state])
    }

    fn keep(&self, ssd: usize, name: &str) {
        std::fs::copy(self.file(ssd), self.folder.path().join(name)).expect("a copy");
    }

    fn put(&self, name: &str, ssd: usize) {
        std::fs::copy(self.folder.path().join(name), self.file(ssd)).expect("a copy");
    }

    fn complaints(&self, ssd: usize) -> String {
        self.ssds[ssd].as_ref().expect("it runs").complaints().join("\n")
    }
}

fn status(up: &Up) -> Value {
    gnstor(&["status", "--json", "--array", &up.daemon]).state()
}

fn create(up: &Up, name: &str) -> Ended {
    up.volume(&["create", name, "--size", "1MiB", "--replicas", "2"])
}

fn fleet(up: &Up) -> Value {
    let shown = gnstor(&["fleet", "show", "--array", &up.daemon, "--json"]);
    serde_json::from_str(&shown.stdout).unwrap_or_else(|e| panic!("{e}: {} {}", shown.stdout, shown.stderr))
}

/// Whether SSD 3 serves all its places.
fn serves(shown: &Value) -> bool {
    let ssd = &shown["ssds"][VICTIM];
    ssd["state"] == "in" && ssd["filling_groups"] == 0 && ssd["serving_groups"].as_u64() > Some(0)
}

/// Waits until the condition holds. Returns the time that it took.
fn until(what: &str, mut is_so: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
    begun.elapsed()
}

/// Writes until the write is acknowledged. The client connects again to an SSD that came back.
fn write(file: &File, data: &[u8]) {
    until("the write is acknowledged", || file.write_at(0, data).inspect_err(|e| eprintln!("{e}")).is_ok());
}

/// Reads a block of each chunk from each copy. The SSDs must serve `data` or refuse. Returns the number of
/// refusals.
fn copies_serve_only(file: &File, data: &[u8], when: &str) -> usize {
    let mut refused = 0;
    for at in (0..BYTES).step_by(CHUNK) {
        for replica in 0..REPLICAS {
            let mut read = vec![0; BLOCK];
            match file.read_replica_at(replica, at as u64, &mut read) {
                Ok(()) => {
                    let what = format!("{when}: copy {replica} of byte {at}");
                    assert_same(&what, &read, &data[at..at + BLOCK]);
                }
                Err(_) => refused += 1,
            }
        }
    }
    refused
}

#[test]
fn an_older_image_behind_an_ssd_process_is_found_by_the_voters_serves_nothing_and_fills() {
    within(BUILD_LIMIT, || {
        let mut four = Processes::start(4);
        let mut up = four.daemon();
        let guest = Guest::connect_for(&up.daemon, "writer", Duration::from_secs(2));
        volume(&guest.client, "v", BYTES as u64, REPLICAS);
        let file = guest.client.open("v", Rights::Write).unwrap();
        let (old, new) = (pattern(1, BYTES), pattern(2, BYTES));
        write(&file, &old);
        four.end_ssd(VICTIM);
        std::fs::copy(four.file(VICTIM), four.folder.path().join("older")).expect("a copy");
        four.start_ssd(VICTIM);
        until("SSD 3 serves again", || serves(&fleet(&up)));
        write(&file, &new);
        // From here on no daemon changes the map, and by the map SSD 3 has its places all the time. Only the
        // voters can know that its content is older. A busy machine may lose the SSD just before.
        let mut tries = 0..5;
        let before = loop {
            until("each copy is served", || copies_serve_only(&file, &new, "before") == 0);
            let before = fleet(&up);
            up.end("-TERM");
            copies_serve_only(&file, &new, "the daemon has ended");
            if serves(&before) && before["epoch"] == guest.client.map_epoch() {
                break before;
            }
            tries.next().expect("the map has SSD 3 in one of five tries");
            up = four.daemon();
        };
        four.end_ssd(VICTIM);
        std::fs::copy(four.folder.path().join("older"), four.file(VICTIM)).expect("a copy");
        four.start_ssd(VICTIM);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(10) {
            let refused = copies_serve_only(&file, &new, "rolled back");
            assert!(refused > 0, "SSD {VICTIM} has copies, and serves them");
            std::thread::sleep(Duration::from_millis(50));
        }
        let told = four.ssds[VICTIM].as_ref().expect("it runs").complaints().join("\n");
        assert!(told.contains("its content is an older image"), "{told}");

        // A daemon gives the new incarnation its places back, and they fill.
        let up = four.daemon();
        // The map still has the incarnation that the older image has counted up to.
        let incarnation = |shown: &Value| shown["ssds"][VICTIM]["incarnation"].as_u64().expect("a number");
        let filled = until("SSD 3 serves again", || {
            copies_serve_only(&file, &new, "a daemon has started");
            let shown = fleet(&up);
            incarnation(&shown) > incarnation(&before) && serves(&shown)
        });
        eprintln!("it served again {filled:?} after the daemon's start: {:#}", fleet(&up)["ssds"][VICTIM]);
        until("each copy is served again", || copies_serve_only(&file, &new, "filled") == 0);
        let reader = Guest::connect(&up.daemon, "reader");
        let mut read = vec![0; BYTES];
        reader.client.open("v", Rights::Read).unwrap().read_at(0, &mut read).unwrap();
        assert_same("another client", &read, &new);
        drop((file, guest, reader));
        up.end("-TERM");
        (0..4).for_each(|ssd| four.end_ssd(ssd));
    });
}

/// Two SSDs do not vote. The daemon ends before the file is replaced, so the number must be in its folder.
#[test]
#[ignore = ".ci/run runs it: it waits for most of its time"]
fn an_older_image_behind_an_ssd_process_without_voters_is_found_by_the_daemon_and_gives_out_no_byte() {
    within(BUILD_LIMIT, || {
        let mut two = Processes::start(2);
        let up = two.daemon_with_state();
        let guest = Guest::connect_for(&up.daemon, "writer", Duration::from_secs(2));
        volume(&guest.client, "v", BYTES as u64, REPLICAS);
        let file = guest.client.open("v", Rights::Write).unwrap();
        let (old, new) = (pattern(1, BYTES), pattern(2, BYTES));
        write(&file, &old);
        two.end_ssd(1);
        two.keep(1, "older");
        two.start_ssd(1);
        until("each copy is served again", || copies_serve_only(&file, &old, "started again") == 0);
        write(&file, &new);
        // Beside a writer a reader would need the first SSD of each group.
        drop(file);
        let file = guest.client.open("v", Rights::Read).unwrap();
        up.end("-TERM");
        two.end_ssd(1);
        two.keep(1, "newest");
        two.put("older", 1);
        // Twice: what the image lacks must not be forgotten by starting often.
        for when in ["rolled back", "rolled back, started again"] {
            two.start_ssd(1);
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(2) {
                assert!(copies_serve_only(&file, &new, when) > 0, "no daemon has proven SSD 1");
                std::thread::sleep(Duration::from_millis(50));
            }
            let up = two.daemon_with_state();
            until("SSD 1 is called lossy", || status(&up)["ssds"][1]["state"] == "lossy");
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(3) {
                assert!(copies_serve_only(&file, &new, when) > 0, "SSD 1 has copies, and serves them");
                std::thread::sleep(Duration::from_millis(50));
            }
            let reader = Guest::connect(&up.daemon, "reader");
            let mut read = vec![0; BYTES];
            reader.client.open("v", Rights::Read).unwrap().read_at(0, &mut read).unwrap();
            assert_same(when, &read, &new);
            up.end("-TERM");
            let told = two.complaints(1);
            let is_first = when == "rolled back";
            assert_eq!(told.contains("its content is an older image"), is_first, "{told}");
            two.end_ssd(1);
        }
        two.put("newest", 1);
        two.start_ssd(1);
        let up = two.daemon_with_state();
        until("each copy is served", || copies_serve_only(&file, &new, "the right file") == 0);
        drop((file, guest));
        up.end("-TERM");
        (0..2).for_each(|ssd| two.end_ssd(ssd));
    });
}

/// One SSD votes alone, and has forgotten what it counted.
#[test]
fn an_older_image_of_the_only_ssd_process_is_found_by_the_daemon() {
    within(BUILD_LIMIT, || {
        let mut one = Processes::start(1);
        let fill = |up: &Up, seed| {
            let guest = Guest::connect(&up.daemon, "writer");
            let file = guest.client.open("v", Rights::Write).unwrap();
            write(&file, &pattern(seed, BYTES));
        };
        let up = one.daemon_with_state();
        up.volume(&["create", "v", "--size", "1MiB", "--replicas", "1"]).worked();
        fill(&up, 1);
        up.end("-TERM");
        one.end_ssd(0);
        one.keep(0, "older");
        one.start_ssd(0);
        let up = one.daemon_with_state();
        fill(&up, 2);
        up.end("-TERM");
        one.end_ssd(0);
        one.put("older", 0);
        one.start_ssd(0);
        let up = one.daemon_with_state();
        until("the daemon tells it", || one.complaints(0).contains("its content is an older image"));
        until("it serves nothing", || {
            let guest = Guest::connect_for(&up.daemon, "reader", Duration::from_secs(1));
            let mut read = vec![0; BLOCK];
            guest.client.open("v", Rights::Read).is_ok_and(|file| file.read_at(0, &mut read).is_err())
        });
        up.end("-TERM");
        one.end_ssd(0);
    });
}

/// The process of an SSD with a damaged file does not start. In its place one with an empty file may.
#[test]
#[ignore = ".ci/run runs it: it waits for most of its time"]
fn without_voters_an_array_starts_beside_a_damaged_ssd_process_and_serves_the_other_copies() {
    within(BUILD_LIMIT, || {
        let mut two = Processes::start(2);
        let up = two.daemon();
        create(&up, "v").worked();
        let data = pattern(1, BYTES);
        {
            let guest = Guest::connect(&up.daemon, "writer");
            write(&guest.client.open("v", Rights::Write).unwrap(), &data);
        }
        up.end("-TERM");
        two.end_ssd(1);
        two.keep(1, "right");
        let is_degraded = |two: &Processes, why: &str| {
            let up = two.daemon();
            let shown = status(&up);
            assert_eq!((&shown["state"], &shown["ssds"][1]["state"]), (&"degraded".into(), &"down".into()));
            let list = up.volume(&["list"]);
            assert!(list.stderr.contains("SSD 1 is down") && list.stderr.contains(why), "{}", list.stderr);
            let reader = Guest::connect(&up.daemon, "reader");
            let mut read = vec![0; BYTES];
            reader.client.open("v", Rights::Read).unwrap().read_at(0, &mut read).unwrap();
            assert_same(why, &read, &data);
            create(&up, "w").failed(&["SSD 1 is down"]);
            up
        };
        // Damaged.
        std::fs::write(two.file(1), vec![0x5A; 1 << 20]).expect("it is spoilt");
        let file = two.file(1).display().to_string();
        let at = two.addresses[1].clone();
        gnstor(&["ssd", "--data", &file, "--index", "1", "--listen", &at, "--no-auth"]).failed(&["1.gns"]);
        is_degraded(&two, "refused").end("-TERM");
        // Another, empty SSD.
        std::fs::remove_file(two.file(1)).expect("it is there");
        two.start_ssd(1);
        let up = is_degraded(&two, "without a fleet map");
        two.end_ssd(1);
        // The right file is back, and the daemon runs on.
        two.put("right", 1);
        two.start_ssd(1);
        until("SSD 1 is back", || status(&up)["ssds"][1]["state"] == "online");
        create(&up, "w").worked();
        let writer = Guest::connect(&up.daemon, "writer");
        let file = writer.client.open("v", Rights::Write).unwrap();
        write(&file, &pattern(2, BYTES));
        until("each copy is served", || copies_serve_only(&file, &pattern(2, BYTES), "at the end") == 0);
        drop((file, writer));
        up.end("-TERM");
        (0..2).for_each(|ssd| two.end_ssd(ssd));
    });
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor ssd` starts with an older image of its data file, where the array's map names voters. The voters
//! detect it, no SSD serves stale data, and the SSD fills.
#![expect(clippy::disallowed_methods, reason = "processes and pauses in real time")]

use gnstor_tests::command::{BUILD_LIMIT, SsdProcess, Up, gnstor};
use gnstor_tests::folder::Folder;
use gnstor_tests::{BLOCK, CHUNK, Guest, assert_same, pattern, volume, within};
use libgnstor::{File, Rights};
use serde_json::Value;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const BYTES: usize = 1 << 20;
const REPLICAS: u32 = 2;
/// The SSD whose file is replaced.
const VICTIM: usize = 3;
/// Longest wait on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Four SSDs with data files.
struct Four {
    folder: Folder,
    ssds: Vec<Option<SsdProcess>>,
    addresses: Vec<String>,
}

impl Four {
    fn start() -> Self {
        let folder = Folder::new();
        let mut four =
            Self { folder, ssds: (0..4).map(|_| None).collect(), addresses: vec!["127.0.0.1:0".into(); 4] };
        (0..4).for_each(|ssd| four.start_ssd(ssd));
        four
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
        let mut four = Four::start();
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

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two SSDs in processes of their own and a witness: what two SSDs alone cannot have (rule 3a). One of them
//! is killed, has a damaged file, an older image of its file, or a file of another array.

use gnstor_tests::command::{BUILD_LIMIT, SsdProcess, Up, gnstor, until};
use gnstor_tests::folder::Folder;
use gnstor_tests::{Guest, assert_same, pattern, read_copy, volume, within};
use libgnstor::Rights;
use serde_json::Value;
use std::path::PathBuf;

const BYTES: usize = 2 << 20;

/// Where the witness runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Runs {
    /// In the daemon's process.
    WithDaemon,
    /// In a process of its own.
    Alone,
}

/// Two SSDs, a witness and their daemon.
struct Two {
    ssds: Vec<Option<SsdProcess>>,
    addresses: Vec<String>,
    witness: Option<SsdProcess>,
    /// Address of a witness that runs alone.
    witness_at: Option<String>,
    up: Option<Up>,
    // Dropped after the processes that use it, since dropping removes it.
    folder: Folder,
}

impl Two {
    fn start(runs: Runs) -> Self {
        Self::start_in(Folder::new(), runs)
    }

    /// Starts with the manager key in this folder, if there is one.
    fn start_in(folder: Folder, runs: Runs) -> Self {
        let ssds = vec![None, None];
        let mut two = Self { ssds, addresses: Vec::new(), witness: None, witness_at: None, up: None, folder };
        for index in 0..2 {
            let number = index.to_string();
            let sizes = ["--preset", "null", "--size", "64MiB", "--index", &number];
            let ssd = two.ssd(index, "127.0.0.1:0", &sizes);
            two.addresses.push(ssd.address());
            two.ssds[index] = Some(ssd);
        }
        if runs == Runs::Alone {
            two.start_witness("127.0.0.1:0", &["--witness", "--index", "2"]);
        }
        two.start_daemon();
        two
    }

    fn text(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn file(&self, index: usize) -> PathBuf {
        self.folder.path().join(format!("{index}.gns"))
    }

    fn ssd(&self, index: usize, address: &str, more: &[&str]) -> SsdProcess {
        let (file, key) = (self.file(index).display().to_string(), self.text("array.key"));
        let args = ["--data", &file, "--manager-key", &key];
        SsdProcess::start(address, &[&args[..], more].concat())
    }

    fn start_ssd(&mut self, index: usize) {
        self.ssds[index] = Some(self.ssd(index, &self.addresses[index], &[]));
    }

    fn start_witness(&mut self, address: &str, more: &[&str]) {
        let (file, key) = (self.text("witness.gns"), self.text("array.key"));
        let args = ["--data", &file, "--manager-key", &key];
        let witness = SsdProcess::start(address, &[&args[..], more].concat());
        self.witness_at = Some(witness.address());
        self.witness = Some(witness);
    }

    fn start_daemon(&mut self) {
        let (at, key, folder) = (self.addresses.join(","), self.text("array.key"), self.text("vote"));
        let witness = match &self.witness_at {
            Some(at) => ["--witness-at".to_owned(), at.clone()],
            None => ["--witness".to_owned(), folder],
        };
        let args = ["--ssd-at", &at, "--manager-key", &key, &witness[0], &witness[1]];
        self.up = Some(Up::start_as(&args));
    }

    fn end_daemon(&mut self) {
        self.up.take().expect("it runs").end("-TERM");
    }

    fn end_ssd(&mut self, index: usize) {
        self.ssds[index].take().expect("it runs").end("-TERM");
    }

    fn daemon(&self) -> &Up {
        self.up.as_ref().expect("it runs")
    }

    fn fleet(&self) -> Value {
        let shown = gnstor(&["fleet", "show", "--array", &self.daemon().daemon, "--json"]);
        serde_json::from_str(&shown.stdout)
            .unwrap_or_else(|e| panic!("{e}: {} {}", shown.stdout, shown.stderr))
    }

    fn until_healthy(&self) {
        until("the array is healthy", || self.fleet()["state"] == "healthy");
        let fleet = self.fleet();
        assert_eq!((&fleet["map_format"], &fleet["changes_itself"]), (&3.into(), &true.into()), "{fleet:#}");
        let states = [0, 1, 2].map(|ssd| fleet["ssds"][ssd]["state"].as_str().unwrap_or("").to_owned());
        assert_eq!(states, ["in", "in", "witness"], "{fleet:#}");
        assert_eq!(fleet["voters"], serde_json::json!([0, 1, 2]));
    }

    fn until_out(&self, index: usize) {
        until("the SSD is dropped", || self.fleet()["ssds"][index]["state"] == "out");
    }

    fn write(&self, seed: u64) {
        let guest = Guest::connect(&self.daemon().daemon, "writer");
        let file = guest.client.open("v", Rights::Write).expect("a writer may open it");
        file.write_at(0, &pattern(seed, BYTES)).expect("it is written");
    }

    fn make(&self) {
        volume(&Guest::connect(&self.daemon().daemon, "maker").client, "v", BYTES as u64, 2);
        self.write(1);
    }

    fn holds(&self, seed: u64) {
        let guest = Guest::connect(&self.daemon().daemon, "reader");
        let file = guest.client.open("v", Rights::Read).expect("a reader may open it");
        let mut read = vec![0; BYTES];
        file.read_at(0, &mut read).expect("it is read");
        assert_same("the volume", &read, &pattern(seed, BYTES));
    }

    /// Checks each copy for itself.
    fn copies_hold(&self, seed: u64) {
        self.until_healthy();
        for replica in 0..2 {
            let guest = Guest::connect(&self.daemon().daemon, "reader");
            // The daemon refuses it where an SSD has just gone or come.
            let mut opened = None;
            until("a reader opens it", || {
                opened = guest.client.open("v", Rights::Read).ok();
                opened.is_some()
            });
            let file = opened.expect("opened");
            let mut read = vec![0; BYTES];
            read_copy(&file, replica, 0, &mut read);
            assert_same(&format!("copy {replica}"), &read, &pattern(seed, BYTES));
        }
    }
}

#[test]
fn two_ssds_and_a_witness_go_on_without_one_of_them_and_it_is_filled_when_it_is_back() {
    within(BUILD_LIMIT, || {
        for runs in [Runs::WithDaemon, Runs::Alone] {
            let mut two = Two::start(runs);
            two.until_healthy();
            two.make();
            for lost in 0..2 {
                let seed = 2 + lost as u64;
                let ssd = two.ssds[lost].take().expect("it runs");
                // Clients that open while an SSD goes do not notice.
                std::thread::scope(|scope| {
                    scope.spawn(|| (0..30).for_each(|_| two.holds(seed - 1)));
                    std::thread::sleep(std::time::Duration::from_millis(100));
                    ssd.kill();
                });
                two.until_out(lost);
                two.holds(seed - 1);
                two.write(seed);
                two.start_ssd(lost);
                two.copies_hold(seed);
            }
            let status = gnstor(&["status", "--array", &two.daemon().daemon, "--json"]).state();
            assert_eq!(
                (&status["state"], &status["ssds"][2]["state"]),
                (&"online".into(), &"witness".into())
            );
            assert_eq!(status["capacity_bytes"], 2 * (64 << 20), "the witness holds no blocks");
            let shown = gnstor(&["fleet", "show", "--array", &two.daemon().daemon]);
            assert!(shown.stdout.contains("votes, and holds no blocks"), "{}", shown.stdout);
            two.end_daemon();
            two.start_daemon();
            two.copies_hold(3);
            two.end_daemon();
        }
    });
}

#[test]
fn a_witness_that_is_killed_is_named_and_votes_again_when_it_is_back() {
    within(BUILD_LIMIT, || {
        let mut two = Two::start(Runs::Alone);
        two.until_healthy();
        two.make();
        let witness = two.witness.take().expect("it runs");
        let at = witness.address();
        witness.kill();
        until("the witness is missed", || two.fleet()["state"] == "degraded");
        let why = two.fleet()["why"].as_str().unwrap_or("").to_owned();
        assert!(why.contains("SSD 2 is down, the witness"), "{why}");
        two.write(2);
        two.start_witness(&at, &[]);
        two.copies_hold(2);
        two.ssds[1].take().expect("it runs").kill();
        two.until_out(1);
        two.holds(2);
    });
}

#[test]
#[ignore = ".ci/run runs it: it waits for most of its time"]
fn what_was_down_when_the_daemon_started_takes_its_part_again_when_it_is_back() {
    within(BUILD_LIMIT, || {
        let mut two = Two::start(Runs::Alone);
        two.until_healthy();
        two.make();
        // More than a witness has room for. Each SSD counted as large as the smallest that was there.
        volume(&Guest::connect(&two.daemon().daemon, "maker").client, "large", 32 << 20, 2);
        two.end_daemon();
        two.end_ssd(1);
        two.start_daemon();
        two.until_out(1);
        two.write(2);
        two.start_ssd(1);
        two.copies_hold(2);
        two.end_daemon();
        let at = two.witness_at.clone().expect("it runs alone");
        two.witness.take().expect("it runs").end("-TERM");
        two.start_daemon();
        two.start_witness(&at, &[]);
        two.until_healthy();
        two.ssds[1].take().expect("it runs").kill();
        two.until_out(1);
        two.holds(2);
    });
}

#[test]
#[ignore = ".ci/run runs it: it waits for most of its time"]
fn a_damaged_file_does_not_hold_up_the_start() {
    within(BUILD_LIMIT, || {
        let mut two = Two::start(Runs::WithDaemon);
        two.make();
        two.end_daemon();
        two.end_ssd(1);
        std::fs::write(two.file(1), b"no SSD").expect("a file");
        let key = two.text("array.key");
        let file = two.file(1).display().to_string();
        let broken = gnstor(&["ssd", "--data", &file, "--manager-key", &key, "--listen", "127.0.0.1:0"]);
        assert_eq!(broken.code, 1, "it says what the file is: {}", broken.stderr);
        two.start_daemon();
        two.until_out(1);
        two.holds(1);
        two.write(2);
        two.holds(2);
    });
}

#[test]
fn an_older_image_of_an_ssd_serves_nothing_until_it_is_filled() {
    within(BUILD_LIMIT, || {
        let mut two = Two::start(Runs::WithDaemon);
        two.make();
        two.end_daemon();
        (0..2).for_each(|index| two.end_ssd(index));
        let older = two.folder.path().join("older");
        std::fs::copy(two.file(1), &older).expect("a copy");
        (0..2).for_each(|index| two.start_ssd(index));
        two.start_daemon();
        two.until_healthy();
        two.write(2);
        two.end_daemon();
        (0..2).for_each(|index| two.end_ssd(index));
        std::fs::copy(&older, two.file(1)).expect("a copy");
        (0..2).for_each(|index| two.start_ssd(index));
        two.start_daemon();
        // Whichever SSD serves, no reader sees the older content. At the end both have the newer one.
        for _ in 0..10 {
            two.holds(2);
        }
        two.copies_hold(2);
    });
}

#[test]
fn an_ssd_of_another_array_with_the_same_key_is_named_and_gives_out_no_byte() {
    within(BUILD_LIMIT, || {
        let mut two = Two::start(Runs::WithDaemon);
        let folder = Folder::new();
        std::fs::copy(two.text("array.key"), folder.path().join("array.key")).expect("a copy");
        let mut other = Two::start_in(folder, Runs::WithDaemon);
        two.make();
        other.make();
        other.write(7);
        for array in [&mut two, &mut other] {
            array.end_daemon();
            (0..2).for_each(|index| array.end_ssd(index));
        }
        let own = two.folder.path().join("own");
        std::fs::rename(two.file(1), &own).expect("a rename");
        std::fs::copy(other.file(1), two.file(1)).expect("a copy");
        (0..2).for_each(|index| two.start_ssd(index));
        two.start_daemon();
        two.until_out(1);
        let is_named = || {
            let fleet = two.fleet();
            fleet["ssds"][1]["why"].as_str().is_some_and(|why| why.contains("another SSD than the map names"))
        };
        until("the foreign SSD is named", is_named);
        two.holds(1);
        two.write(2);
        two.holds(2);
        // The right file is back, and lacks the last write.
        two.end_ssd(1);
        std::fs::rename(&own, two.file(1)).expect("a rename");
        two.start_ssd(1);
        two.copies_hold(2);
    });
}

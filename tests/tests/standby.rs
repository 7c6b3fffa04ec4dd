// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two daemons of one array (`gnstor up --standby-of`). The one that serves is killed, or stands still, and
//! the other one takes over. A client that knows both goes on, and no call of it fails.
#![expect(clippy::disallowed_methods, reason = "processes and pauses in real time")]

use crate::deadline::{Deadline, LIMIT};
use crate::fleet_daemon::{BYTES, write_and_read};
use gnstor_tests::command::{BUILD_LIMIT, Running, SsdProcess, gnstor, until};
use gnstor_tests::folder::Folder;
use gnstor_tests::{Guest, assert_same, volume, within};
use libgnstor::{CreateOptions, Rights};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Three SSDs, and the addresses of two daemons.
struct Fleet {
    at: String,
    daemons: [String; 2],
    ssds: Vec<SsdProcess>,
    // Dropped after the processes that use it, since dropping removes it.
    folder: Folder,
}

impl Fleet {
    fn start() -> Self {
        let folder = Folder::new();
        let key = folder.path().join("array.key").display().to_string();
        let ssd = |index: u16| {
            let args = ["--preset", "null", "--size", "64MiB", "--manager-key", &key];
            SsdProcess::start("127.0.0.1:0", &[&args[..], &["--index", &index.to_string()]].concat())
        };
        let ssds: Vec<SsdProcess> = (0..3).map(ssd).collect();
        let at = ssds.iter().map(SsdProcess::address).collect::<Vec<_>>().join(",");
        let ports = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
        let daemons = ports.map(|port| port.local_addr().expect("an address").to_string());
        Self { at, daemons, ssds, folder }
    }

    /// Starts a daemon, which stands by first.
    fn daemon(&self, which: usize) -> Running {
        let key = self.folder.path().join("array.key").display().to_string();
        let (own, other) = (&self.daemons[which], &self.daemons[1 - which]);
        let args = ["up", "--json", "--groups", "256", "--listen", own, "--standby-of", other];
        let daemon = Running::start(&[&args[..], &["--ssd-at", &self.at, "--manager-key", &key]].concat());
        stands_by(&daemon);
        daemon
    }

    fn both(&self) -> String {
        self.daemons.join(",")
    }
}

/// The daemon's next object says that it stands by.
fn stands_by(daemon: &Running) {
    until("a daemon that stands by", || daemon.object()["standby_of"].is_array());
}

/// The daemon's next object says that it serves.
fn serves(daemon: &Running) {
    until("a daemon that serves", || daemon.object()["daemon"].is_string());
}

fn list(fleet: &Fleet) -> usize {
    let list = gnstor(&["volume", "list", "--json", "--array", &fleet.both()]).json();
    list.as_array().expect("a list").len()
}

#[test]
fn a_daemon_that_stands_by_takes_over_and_no_call_of_a_client_that_knows_both_fails() {
    within(BUILD_LIMIT, || {
        let fleet = Fleet::start();
        let first = fleet.daemon(0);
        serves(&first);
        let second = fleet.daemon(1);
        let guest = Guest::connect(&fleet.both(), "a user");
        let made = volume(&guest.client, "v", BYTES as u64, 2);
        let file = guest.client.open(&made.name, Rights::Write).expect("it opens");
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let writer = std::thread::spawn(move || {
            let ended = write_and_read(&file, &told);
            (file, ended)
        });
        let create = |name: &str| {
            let begun = Instant::now();
            let options =
                CreateOptions { capacity_bytes: BYTES as u64, replicas: 2, ..CreateOptions::default() };
            guest.client.create(name, &options).expect("a call goes on");
            begun.elapsed()
        };
        // The one that serves is killed.
        drop(first);
        let pause = create("a");
        serves(&second);
        assert_eq!(list(&fleet), 2);
        // It stands still, with all its connections. Another one stands by meanwhile.
        let third = fleet.daemon(0);
        second.signal("-STOP");
        let longer = create("b");
        serves(&third);
        println!("a call took {pause:?} where the daemon was killed, and {longer:?} where it stood still");
        assert_eq!(list(&fleet), 3);
        second.signal("-CONT");
        stands_by(&second);
        create("c");
        stop.store(true, Ordering::Relaxed);
        let (file, (data, rounds, longest)) = writer.join().expect("no call failed");
        println!("{rounds} rounds of the writer, the longest took {longest:?}");
        let mut read = vec![0; BYTES];
        file.read_at(0, &mut read).expect("it reads");
        assert_same("at the end", &read, &data);
        drop(file);
        let mut daemons = [second, third];
        let codes = daemons.each_mut().map(|daemon| daemon.end("-INT"));
        assert_eq!(codes, [0, 0], "Ctrl-C ends the one that serves and the one that stands by");
        drop(fleet.ssds);
    });
}

#[test]
fn what_cannot_stand_by_is_refused_in_words() {
    let _deadline = Deadline::after(LIMIT);
    let at = ["up", "--standby-of", "127.0.0.1:7117"];
    gnstor(&at).not_understood(&["--ssd-at"]);
    let args = [&at[..], &["--ssd-at", "127.0.0.1:4421", "--no-auth", "--witness", "/tmp/w"]].concat();
    gnstor(&args).not_understood(&["--witness", "--standby-of"]);
    let args = [&at[..], &["--ssd-at", "127.0.0.1:4421", "--no-auth", "--daemon-ca", "/nowhere"]].concat();
    gnstor(&args).failed(&["--daemon-ca", "/nowhere"]);
    let error = gnstor(&["volume", "list", "--array", "127.0.0.1:1,here"]);
    error.not_understood(&["'here' is not an address"]);
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SSDs that come back beside a kernel that runs: their queue pairs are made anew, and its requests go on.
#![expect(clippy::disallowed_methods, reason = "processes, threads and pauses in real time")]

use crate::follow::{REPLICAS, Running, every_copy_is_there};
use crate::told::Recorder;
use gnstor_tests::command::{BUILD_LIMIT, SsdProcess, Up, gnstor, until};
use gnstor_tests::folder::Folder;
use gnstor_tests::{Guest, long, volume, within};
use libgnstor::Rights;
use std::time::{Duration, Instant};

/// Longer than the client's heartbeat and silence.
const STOPPED: Duration = Duration::from_secs(5);
/// Of each request.
const PATIENCE: Duration = Duration::from_secs(30);

/// The map stays as it is: requests wait for the SSD that is away.
#[test]
fn a_kernel_that_runs_reaches_ssds_that_were_killed_or_stopped_and_are_back() {
    beside_a_kernel("2");
}

/// Maps drop the SSD that is away, and fill it when it is back.
#[test]
fn a_kernel_that_runs_goes_by_maps_that_drop_ssds_and_take_them_in_again() {
    beside_a_kernel("3");
}

fn beside_a_kernel(map_format: &'static str) {
    within(BUILD_LIMIT, move || {
        let folder = Folder::new();
        let file_of = |index: usize| folder.path().join(format!("{index}.gns")).display().to_string();
        // The new queue pairs prove who asks for them, as the first ones did.
        let key = folder.path().join("array.key").display().to_string();
        let keyed = ["--manager-key", key.as_str()];
        let start = |index: usize| {
            let (file, number) = (file_of(index), index.to_string());
            let sizes = ["--preset", "null", "--size", "64MiB", "--data", &file, "--index", &number];
            SsdProcess::start("127.0.0.1:0", &[&sizes[..], &keyed].concat())
        };
        let mut ssds: Vec<_> = (0..4).map(start).map(Some).collect();
        let addresses: Vec<_> = ssds.iter().flatten().map(SsdProcess::address).collect();
        let at = addresses.join(",");
        let up = Up::start_as(&[&["--map-format", map_format, "--ssd-at", at.as_str()], &keyed[..]].concat());
        let recorder = Recorder::start(&up.daemon);
        let guest = Guest::connect_for(&recorder.at, "writer", PATIENCE);
        let client = &guest.client;
        volume(client, "v", 8 << 20, REPLICAS);
        let file = client.open("v", Rights::Write).unwrap();
        let (running, epoch) = (Running::new(&file), client.map_epoch());
        let goes_on = |what: &str| {
            let then = running.look().rounds;
            until(what, || running.look().rounds > then + 300);
        };
        let told = || recorder.renewals_with(0b1111);
        let is_whole = || {
            until("each group has all copies", || gnstor(&["fleet", "show", "--array", &up.daemon]).code == 0)
        };
        std::thread::scope(|scope| {
            let kernel = scope.spawn(|| running.run(&file));
            goes_on("it writes");
            // The same one twice: its queue pair is made anew from one that was.
            for dead in [2, 2, 0, 1].into_iter().take(if long() { 4 } else { 2 }) {
                let before = told();
                ssds[dead].take().expect("it runs").kill();
                until("the SSD is missed", || !client.unreached().is_empty());
                std::thread::sleep(Duration::from_millis(200));
                ssds[dead] = Some(SsdProcess::start(
                    &addresses[dead],
                    &[&["--data", file_of(dead).as_str()], &keyed[..]].concat(),
                ));
                let back = Instant::now();
                until("the SSD is reached", || client.unreached().is_empty());
                println!("SSD {dead} is reached {:?} after it serves again", back.elapsed());
                until("the daemon is told at once", || told() > before);
                goes_on("it goes on");
                if map_format == "3" {
                    is_whole();
                }
            }
            let before = told();
            let stopped = ssds[3].as_ref().expect("it runs");
            stopped.signal("-STOP");
            std::thread::sleep(STOPPED);
            assert!(!client.unreached().is_empty(), "it is missed");
            stopped.signal("-CONT");
            let back = Instant::now();
            until("the SSD is reached", || client.unreached().is_empty());
            println!("SSD 3 is reached {:?} after it goes on", back.elapsed());
            until("the daemon is told at once", || told() > before);
            goes_on("it goes on");
            if map_format == "3" {
                is_whole();
            }
            running.stop();
            kernel.join().unwrap();
        });
        let end = running.look();
        let pause = Duration::from_nanos(end.longest_write_ns.max(end.longest_read_ns));
        println!("{} writes and reads, the longest {pause:?}", end.rounds);
        assert_eq!((end.failed, end.status), (0, 0), "no request fails");
        assert_eq!(client.map_epoch() > epoch, map_format == "3", "maps were made where SSDs vote on them");
        assert_eq!(client.channel_stats().unwrap().protocol_errors, 0);
        // One stamp each, whatever was sent again.
        assert_eq!(file.next_sequence().unwrap(), u64::from(end.rounds) + 1);
        let copies = every_copy_is_there(&file, &client.fleet_map(), &running.versions());
        assert_eq!(copies, REPLICAS as usize * running.versions().len());
        file.write_at(0, &vec![7; 4 << 20]).unwrap();
        file.flush().unwrap();
        drop((file, running, guest));
        up.end("-TERM");
    });
}

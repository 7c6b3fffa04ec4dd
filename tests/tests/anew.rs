// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SSDs come back while a kernel runs: the client makes their queue pairs anew, and the kernel's requests go
//! on.
#![expect(clippy::disallowed_methods, reason = "processes, threads and pauses in real time")]

use crate::client_reports::Recorder;
use crate::follow::{REPLICAS, Running, every_copy_is_there};
use gnstor_tests::command::{BUILD_LIMIT, SsdProcess, Up, gnstor, until};
use gnstor_tests::folder::Folder;
use gnstor_tests::{Guest, long, volume, within};
use libgnstor::{Client, Rights};
use std::time::{Duration, Instant};

/// Longer than the client waits for answers to its heartbeat.
const STOPPED: Duration = Duration::from_secs(5);
/// Deadline of each request.
const PATIENCE: Duration = Duration::from_secs(30);

/// The map does not change, so requests wait for the SSD that is away.
#[test]
fn a_kernel_that_runs_reaches_ssds_that_were_killed_or_stopped_and_are_back() {
    beside_a_kernel("2");
}

/// A map drops the SSD that is away, and a later one fills it when it is back.
#[test]
#[ignore = ".ci/run runs it: it takes long"]
fn a_kernel_that_runs_goes_by_maps_that_drop_ssds_and_take_them_in_again() {
    beside_a_kernel("3");
}

/// Four SSDs in processes of their own, and an array of them with a manager key.
pub(crate) struct Four {
    ssds: Vec<Option<SsdProcess>>,
    pub(crate) addresses: Vec<String>,
    pub(crate) up: Up,
    map_format: &'static str,
    // Dropped after the processes that use it, since dropping removes it.
    pub(crate) folder: Folder,
}

impl Four {
    pub(crate) fn start(map_format: &'static str) -> Self {
        let folder = Folder::new();
        // The client proves its identity on the new queue pairs, too.
        let key = Self::key(&folder);
        let keyed = ["--manager-key", key.as_str()];
        let start = |index: usize| {
            let (file, number) = (Self::file(&folder, index), index.to_string());
            let sizes = ["--preset", "null", "--size", "64MiB", "--data", &file, "--index", &number];
            SsdProcess::start("127.0.0.1:0", &[&sizes[..], &keyed].concat())
        };
        let ssds: Vec<_> = (0..4).map(start).map(Some).collect();
        let addresses: Vec<_> = ssds.iter().flatten().map(SsdProcess::address).collect();
        let at = addresses.join(",");
        let up = Up::start_as(&[&["--map-format", map_format, "--ssd-at", at.as_str()], &keyed[..]].concat());
        Self { ssds, addresses, up, map_format, folder }
    }

    pub(crate) fn key(folder: &Folder) -> String {
        folder.path().join("array.key").display().to_string()
    }

    fn file(folder: &Folder, index: usize) -> String {
        folder.path().join(format!("{index}.gns")).display().to_string()
    }

    fn votes(&self) -> bool {
        self.map_format == "3"
    }

    pub(crate) fn kill(&mut self, index: usize) {
        self.ssds[index].take().expect("it runs").kill();
    }

    pub(crate) fn start_again(&mut self, index: usize) {
        let (file, key) = (Self::file(&self.folder, index), Self::key(&self.folder));
        let args = ["--data", &file, "--manager-key", &key];
        self.ssds[index] = Some(SsdProcess::start(&self.addresses[index], &args));
    }

    /// Waits until the SSD that was away has been filled, if SSDs vote on maps.
    fn until_whole(&self) {
        if self.votes() {
            let is_whole = || gnstor(&["fleet", "show", "--array", &self.up.daemon]).code == 0;
            until("each group has all copies", is_whole);
        }
    }
}

/// A client whose kernel writes and reads all the time.
struct Writer<'a> {
    client: &'a Client,
    running: &'a Running,
    recorder: &'a Recorder,
}

impl Writer<'_> {
    fn goes_on(&self) {
        let then = self.running.look().rounds;
        until("it goes on", || self.running.look().rounds > then + 300);
    }

    /// Waits until the SSD serves again: the client has reached it and told the daemon, and its kernel goes
    /// on.
    fn until_reached(&self, ssd: usize, reports_before: usize) {
        let back = Instant::now();
        until("the SSD is reached", || self.client.unreached().is_empty());
        println!("SSD {ssd} is reached {:?} after it serves again", back.elapsed());
        until("the daemon is told at once", || self.reports() > reports_before);
        self.goes_on();
    }

    /// Number of times that the client told the daemon that it reaches all SSDs.
    fn reports(&self) -> usize {
        self.recorder.renewals_with(0b1111)
    }
}

/// Kills SSDs and starts them again.
fn killed(four: &mut Four, writer: &Writer<'_>) {
    // The first SSD twice: its queue pair is then made anew from one that was made anew.
    for dead in [2, 2, 0, 1].into_iter().take(if long() { 4 } else { 2 }) {
        let before = writer.reports();
        four.kill(dead);
        until("the SSD is missed", || !writer.client.unreached().is_empty());
        std::thread::sleep(Duration::from_millis(200));
        four.start_again(dead);
        writer.until_reached(dead, before);
        four.until_whole();
    }
}

/// Stops an SSD and lets it go on.
fn stopped(four: &Four, writer: &Writer<'_>) {
    let before = writer.reports();
    let ssd = four.ssds[3].as_ref().expect("it runs");
    ssd.signal("-STOP");
    std::thread::sleep(STOPPED);
    assert!(!writer.client.unreached().is_empty(), "it is missed");
    ssd.signal("-CONT");
    writer.until_reached(3, before);
    four.until_whole();
}

fn beside_a_kernel(map_format: &'static str) {
    within(BUILD_LIMIT, move || {
        let mut four = Four::start(map_format);
        let recorder = Recorder::start(&four.up.daemon);
        let guest = Guest::connect_for(&recorder.at, "writer", PATIENCE);
        let client = &guest.client;
        volume(client, "v", 8 << 20, REPLICAS);
        let file = client.open("v", Rights::Write).unwrap();
        let (running, epoch) = (Running::new(&file), client.map_epoch());
        std::thread::scope(|scope| {
            let kernel = scope.spawn(|| running.run(&file));
            let writer = Writer { client, running: &running, recorder: &recorder };
            writer.goes_on();
            killed(&mut four, &writer);
            stopped(&four, &writer);
            running.stop();
            kernel.join().unwrap();
        });
        let end = running.look();
        let pause = Duration::from_nanos(end.longest_write_ns.max(end.longest_read_ns));
        println!("{} writes and reads, the longest {pause:?}", end.rounds);
        assert_eq!((end.failed, end.status), (0, 0), "no request fails");
        assert_eq!(client.map_epoch() > epoch, four.votes(), "maps were made where SSDs vote on them");
        assert_eq!(client.channel_stats().unwrap().protocol_errors, 0);
        // Each write used one stamp, however often the client sent it.
        assert_eq!(file.next_sequence().unwrap(), u64::from(end.rounds) + 1);
        let copies = every_copy_is_there(&file, &client.fleet_map(), &running.versions());
        assert_eq!(copies, REPLICAS as usize * running.versions().len());
        file.write_at(0, &vec![7; 4 << 20]).unwrap();
        file.flush().unwrap();
        drop((file, running, guest));
        four.up.end("-TERM");
    });
}

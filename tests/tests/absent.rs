// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client connects to the SSDs that answer. Its channel leaves out an SSD that is dead or silent, and the
//! client connects it when it is back.
#![expect(clippy::disallowed_methods, reason = "processes, threads and pauses in real time")]

use gnstor_tests::folder::Folder;
use gnstor_tests::command::{BUILD_LIMIT, SsdProcess, Up, until};
use gnstor_tests::{Guest, assert_same, pattern, volume, within};
use libgnstor::{Client, Rights};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const ANY: &str = "127.0.0.1:0";
const BYTES: usize = 4 << 20;

/// Four SSDs with files in processes of their own, their array, and a volume with two replicas.
struct Four {
    folder: Folder,
    ssds: Vec<Option<SsdProcess>>,
    addresses: Vec<String>,
    up: Up,
    data: Vec<u8>,
}

impl Four {
    fn new() -> Self {
        let folder = Folder::new();
        let start = |index: usize| {
            let file = folder.path().join(format!("{index}.gns")).display().to_string();
            let number = index.to_string();
            let sizes = ["--preset", "null", "--size", "64MiB", "--data", &file, "--index", &number];
            SsdProcess::start(ANY, &sizes)
        };
        let ssds: Vec<_> = (0..4).map(start).collect();
        let addresses: Vec<_> = ssds.iter().map(SsdProcess::address).collect();
        let up = Up::start_as(&["--ssd-at", &addresses.join(",")]);
        let data = pattern(7, BYTES);
        let writer = Guest::connect(&up.daemon, "writer");
        volume(&writer.client, "v", BYTES as u64, 2);
        let file = writer.client.open("v", Rights::Write).unwrap();
        file.write_at(0, &data).unwrap();
        file.flush().unwrap();
        drop((file, writer));
        Self { folder, ssds: ssds.into_iter().map(Some).collect(), addresses, up, data }
    }

    fn ssd(&mut self, index: usize) -> SsdProcess {
        self.ssds[index].take().expect("it runs")
    }

    fn is_missed(&self, index: u64) {
        self.up.until_down(|down| down == [index]);
    }

    fn comes_back(&mut self, index: usize) {
        let file = self.folder.path().join(format!("{index}.gns")).display().to_string();
        let ssd = SsdProcess::start(&self.addresses[index], &["--data", &file]);
        self.ssds[index] = Some(ssd);
    }

    fn end(self) {
        self.up.end("-TERM");
        for ssd in self.ssds.into_iter().flatten() {
            ssd.end("-TERM");
        }
    }
}

#[test]
fn a_new_client_reads_all_of_a_volume_while_one_ssd_of_four_is_dead() {
    within(BUILD_LIMIT, || {
        for dead in 0..4 {
            let mut four = Four::new();
            four.ssd(dead).kill();
            four.is_missed(dead as u64);
            let begun = Instant::now();
            let reader = Guest::connect(&four.up.daemon, "reader");
            assert!(
                begun.elapsed() < Duration::from_secs(4),
                "it is refused, not silent: {:?}",
                begun.elapsed()
            );
            let view = reader.client.open("v", Rights::Read).unwrap();
            let mut back = vec![0; BYTES];
            view.read_at(0, &mut back).unwrap();
            assert_same("with one SSD dead", &back, &four.data);
            let away: Vec<_> = reader.client.unreached().into_iter().map(|away| away.ssd).collect();
            assert_eq!(away, [dead]);

            four.comes_back(dead);
            until("the client reaches it again", || {
                view.read_at(0, &mut back).unwrap();
                assert_same("while it comes back", &back, &four.data);
                reader.client.unreached().is_empty()
            });
            four.up.until_down(<[u64]>::is_empty);
            for replica in 0..2 {
                view.read_replica_at(replica, 0, &mut back).unwrap();
                assert_same("from each replica", &back, &four.data);
            }
            drop((view, reader));
            four.end();
        }
    });
}

#[test]
fn a_new_client_waits_for_a_silent_ssd_only_for_a_while() {
    within(BUILD_LIMIT, || {
        let mut four = Four::new();
        let silent = four.ssd(1);
        silent.signal("-STOP");
        four.is_missed(1);
        let begun = Instant::now();
        let reader = Guest::connect(&four.up.daemon, "reader");
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(9), "{took:?}");
        let view = reader.client.open("v", Rights::Read).unwrap();
        let mut back = vec![0; BYTES];
        view.read_at(0, &mut back).unwrap();
        assert_same("with one SSD silent", &back, &four.data);
        let away = reader.client.unreached();
        assert!(away.len() == 1 && away[0].ssd == 1 && away[0].why.contains("5s"), "{away:?}");
        silent.signal("-CONT");
        until("the client reaches it again", || {
            view.read_at(0, &mut back).unwrap();
            reader.client.unreached().is_empty()
        });
        assert_same("when it goes on", &back, &four.data);
        drop((view, reader));
        silent.end("-TERM");
        four.end();
    });
}

/// Reads one block after the other and checks it, until `over` is set. Returns the longest read.
fn longest_read(client: &Arc<Client>, data: &[u8], over: &AtomicBool) -> (usize, Duration) {
    const PIECE: usize = 64 << 10;
    let view = client.open("v", Rights::Read).unwrap();
    let (mut back, mut reads, mut longest) = (vec![0; PIECE], 0, Duration::ZERO);
    while !over.load(Ordering::Relaxed) {
        let at = reads * 7 * PIECE % data.len();
        let begun = Instant::now();
        view.read_at(at as u64, &mut back).unwrap();
        longest = longest.max(begun.elapsed());
        assert_same("under load", &back, &data[at..][..PIECE]);
        reads += 1;
    }
    (reads, longest)
}

/// A fault of one SSD fails no read, and the test prints the longest read. The connections of a killed SSD
/// break at once. The client gives up a stopped SSD that has answered no heartbeat for 2.5 s.
#[test]
fn readers_go_on_when_an_ssd_is_killed_or_stopped() {
    within(BUILD_LIMIT, || {
        for (how, most) in [("-KILL", Duration::from_secs(5)), ("-STOP", Duration::from_secs(10))] {
            let mut four = Four::new();
            let reader = Guest::connect_for(&four.up.daemon, "reader", Duration::from_secs(30));
            let over = AtomicBool::new(false);
            let ssd = four.ssd(2);
            std::thread::scope(|scope| {
                let read = scope.spawn(|| longest_read(&reader.client, &four.data, &over));
                std::thread::sleep(Duration::from_secs(1));
                ssd.signal(how);
                std::thread::sleep(Duration::from_secs(if how == "-STOP" { 8 } else { 3 }));
                over.store(true, Ordering::Relaxed);
                let (reads, longest) = read.join().expect("no read fails");
                println!("{how} of one SSD of four: {reads} reads, the longest {longest:?}");
                assert!(reads > 100 && longest < most, "{reads} reads, the longest {longest:?}");
            });
            drop(ssd);
            drop(reader);
            four.end();
        }
    });
}

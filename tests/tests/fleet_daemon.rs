// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A daemon that makes maps with voters, and SSDs in processes of their own: one that is killed is dropped,
//! and the array goes on.
#![expect(clippy::disallowed_methods, reason = "processes and pauses in real time")]

use gnstor_daemon::core::{CoreConfig, MapFormat};
use gnstor_daemon::{Daemon, DaemonConfig, SsdPort};
use gnstor_fabric::admin::{AdminQueue, ChannelError};
use gnstor_fabric::host_queue::{HostQueue, SsdPath};
use gnstor_fabric::runtime::{TransportHandle, TransportThreads};
use gnstor_fabric::tcp::Wire;
use gnstor_fabric::transport::{ExecutorId, Port, RcTransport, TransportConfig};
use gnstor_proto::fabrics::{Identity, ssd_subnqn};
use gnstor_tests::command::{BUILD_LIMIT, SsdProcess};
use gnstor_tests::{Guest, assert_same, pattern, volume, within};
use libgnstor::{CreateOptions, File, Rights};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const WAIT: Duration = Duration::from_secs(5);
pub(crate) const BYTES: usize = 1 << 20;
/// What is written at once: all placement groups of some chunks, and so each SSD.
const PART: usize = 256 << 10;

fn connect(
    engine: &TransportHandle,
    soft: ExecutorId,
    ssd: u16,
    address: &str,
) -> Result<HostQueue, ChannelError> {
    let broken = |cause: String| ChannelError::Broken { peer: ssd_subnqn(ssd), cause };
    let stream = TcpStream::connect(address).map_err(|error| broken(error.to_string()))?;
    let wire = Wire::client(stream, None, "127.0.0.1", WAIT).map_err(|error| broken(error.to_string()))?;
    let remote = engine.call(move |engine, _| engine.add_remote(wire)).expect("it runs");
    let remote = remote.map_err(|error| broken(error.to_string()))?;
    let (port, subnqn) = (Port::Remote { remote, ssd }, ssd_subnqn(ssd));
    let path = SsdPath { transport: engine, executor: soft, port, subnqn: &subnqn };
    HostQueue::connect(&path, Identity::Daemon, Duration::ZERO, WAIT)
}

pub(crate) fn port(engine: &TransportHandle, soft: ExecutorId, ssd: u16, address: &str) -> SsdPort {
    let mut queue = connect(engine, soft, ssd, address).expect("it is there");
    let capacity_bytes = queue.capacity_bytes(WAIT).expect("an answer");
    let (engine, at) = (engine.clone(), address.to_owned());
    SsdPort {
        index: ssd,
        subnqn: ssd_subnqn(ssd),
        transport: "tcp".into(),
        address: address.into(),
        capacity_bytes,
        model: "an SSD".into(),
        queue: Box::new(queue),
        reconnect: Some(Box::new(move || {
            connect(&engine, soft, ssd, &at).map(|queue| Box::new(queue) as Box<dyn AdminQueue>)
        })),
    }
}

/// Writes a part of the file and reads it back, until it is told to stop: what the file holds then, the
/// rounds, and the longest. No call may fail.
pub(crate) fn write_and_read(file: &File, stop: &AtomicBool) -> (Vec<u8>, u64, Duration) {
    let (mut data, mut rounds, mut longest) = (pattern(7, BYTES), 0, Duration::ZERO);
    while !stop.load(Ordering::Relaxed) {
        let at = usize::try_from(rounds).expect("few rounds") % (BYTES / PART) * PART;
        let part = pattern(rounds, PART);
        let begun = Instant::now();
        file.write_at(at as u64, &part).expect("a write goes on");
        let mut read = vec![0; PART];
        file.read_at(at as u64, &mut read).expect("a read goes on");
        longest = longest.max(begun.elapsed());
        assert_same("just written", &read, &part);
        data[at..at + PART].copy_from_slice(&part);
        rounds += 1;
    }
    (data, rounds, longest)
}

#[test]
fn a_killed_ssd_of_four_is_dropped_and_the_array_goes_on() {
    within(BUILD_LIMIT, || {
        let folder = tempfile::tempdir().expect("a folder");
        let start = |index: u16| {
            let file = folder.path().join(format!("{index}.gns")).display().to_string();
            let number = index.to_string();
            let sizes = ["--preset", "null", "--size", "64MiB", "--data", &file, "--index", &number];
            SsdProcess::start("127.0.0.1:0", &sizes)
        };
        let mut ssds: Vec<_> = (0..4).map(|index| Some(start(index))).collect();
        let addresses: Vec<String> = ssds.iter().flatten().map(SsdProcess::address).collect();
        let threads = TransportThreads::start(vec![RcTransport::new(TransportConfig::default())]);
        let threads = threads.expect("a thread");
        let engine = threads.handle();
        let soft = engine.call(|engine, _| engine.add_soft()).expect("an executor");
        let ports = (0u16..4).zip(&addresses).map(|(ssd, address)| port(&engine, soft, ssd, address));
        let core = CoreConfig { groups: 64, map_format: MapFormat::Three, ..CoreConfig::default() };
        let config = DaemonConfig { core, ..DaemonConfig::default() };
        let daemon =
            Daemon::start("127.0.0.1:0".parse().unwrap(), ports.collect(), config).expect("it serves");
        let at = format!("http://{}", daemon.local_addr());

        let guest = Guest::connect(&at, "writer");
        volume(&guest.client, "v", BYTES as u64, 2);
        let data = pattern(7, BYTES);
        let file = guest.client.open("v", Rights::Write).unwrap();
        file.write_at(0, &data).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let writer = std::thread::spawn({
            let stop = Arc::clone(&stop);
            move || write_and_read(&file, &stop)
        });
        std::thread::sleep(Duration::from_millis(500));

        ssds[3].take().expect("it runs").kill();
        let killed = Instant::now();
        let options = CreateOptions { capacity_bytes: BYTES as u64, replicas: 2, ..CreateOptions::default() };
        let mut tries = 0;
        while let Err(error) = guest.client.create("w", &options) {
            tries += 1;
            assert!(killed.elapsed() < Duration::from_secs(20), "{error}");
            std::thread::sleep(Duration::from_millis(20));
        }
        eprintln!("a volume could be made {:?} after the kill, at try {tries}", killed.elapsed());
        std::thread::sleep(Duration::from_secs(1));
        stop.store(true, Ordering::Relaxed);
        let (data, rounds, longest) = writer.join().expect("no call failed");
        eprintln!("{rounds} rounds of a write and a read, of which the longest took {longest:?}");
        let reader = Guest::connect(&at, "reader");
        for name in ["v", "w"] {
            let file = reader.client.open(name, Rights::Read).unwrap();
            if name == "v" {
                let mut read = vec![0; BYTES];
                file.read_at(0, &mut read).unwrap();
                assert_same("after the loss", &read, &data);
            }
        }
        let file = reader.client.open("w", Rights::Write).unwrap();
        file.write_at(0, &data).unwrap();
        drop((file, reader, guest));
        daemon.stop().expect("it served until now");
        ssds.into_iter().flatten().for_each(|ssd| drop(ssd.end("-TERM")));
    });
}

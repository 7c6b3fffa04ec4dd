// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SSD processes whose fleet map names them as voters. They grant each other serving leases without a daemon
//! (rule 2a of the fleet).
#![expect(clippy::disallowed_methods, reason = "leases run in real time")]

use gnstor_fabric::admin::{AdminChannel, Payload};
use gnstor_fabric::host_queue::{HostQueue, SsdPath};
use gnstor_fabric::runtime::{TransportHandle, TransportThreads};
use gnstor_fabric::tcp::Wire;
use gnstor_fabric::transport::{ExecutorId, Port, RcTransport, TransportConfig};
use gnstor_proto::fabrics::{Identity, ssd_subnqn};
use gnstor_proto::nvme::{self, ReadWrite, Sqe};
use gnstor_proto::placement::FleetMap;
use gnstor_proto::placement::map3::{FleetMap3, Vote};
use gnstor_proto::slba::{Address, ClientId, Slba, Stamp, Vid};
use gnstor_proto::status::{Detail, Refusal, Status};
use gnstor_proto::vendor::opcode;
use gnstor_tests::command::{BUILD_LIMIT, SsdProcess, until};
use gnstor_tests::folder::Folder;
use gnstor_tests::raw_queue::RawQueue;
use gnstor_tests::within;
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

const WAIT: Duration = Duration::from_secs(5);
/// A lease and the drift bound.
const LEASE: Duration = Duration::from_millis(310);

/// This process as the host of SSDs in other processes.
struct Hosts {
    engine: TransportHandle,
    soft: ExecutorId,
    _threads: TransportThreads,
}

impl Hosts {
    fn new() -> Self {
        let engines = vec![RcTransport::new(TransportConfig::default())];
        let threads = TransportThreads::start(engines).expect("a thread");
        let engine = threads.handle();
        let soft = engine.call(|engine, _| engine.add_soft()).expect("an executor");
        Self { engine, soft, _threads: threads }
    }

    fn port(&self, ssd: u16, address: &str) -> Port {
        let stream = TcpStream::connect(address).expect("it listens");
        let wire = Wire::client(stream, None, "127.0.0.1", WAIT).expect("a wire");
        let link =
            self.engine.call(move |engine, _| engine.add_remote(wire)).expect("it runs").expect("a link");
        Port::Remote { remote: link, ssd }
    }

    fn admin(&self, ssd: u16, port: Port, identity: Identity) -> HostQueue {
        let path = SsdPath { transport: &self.engine, executor: self.soft, port, subnqn: &ssd_subnqn(ssd) };
        HostQueue::connect(&path, identity, Duration::ZERO, WAIT).expect("it is there")
    }

    fn set_map(&self, ssd: u16, address: &str, map: &FleetMap3) {
        let bytes = map.encode().expect("a map");
        let dwords = u32::try_from(bytes.len() / 4).expect("few");
        let sqe = Sqe { opcode: opcode::MAP_SET, nsid: 1.into(), cdw10: dwords.into(), ..Sqe::default() };
        let mut daemon = self.admin(ssd, self.port(ssd, address), Identity::Daemon);
        let answer = daemon.execute(sqe, Payload::Out(&bytes), WAIT).expect("an answer");
        assert!(Status(answer.status_word()).is_success());
    }

    fn reader(&self, ssd: u16, address: &str) -> Reader {
        let (port, client) = (self.port(ssd, address), Identity::Client(ClientId::new(7).expect("an id")));
        let mut admin = self.admin(ssd, port, client);
        let mut queue = RawQueue::open(&self.engine, self.soft, port, 1).expect("a queue pair");
        let data = admin.connect_data(1);
        assert!(queue.connect_with(1, &data).expect("an answer").is_success());
        Reader { queue, _admin: admin }
    }
}

/// Checks whether an SSD serves.
struct Reader {
    queue: RawQueue,
    _admin: HostQueue,
}

impl Reader {
    /// Reads from a volume that does not exist: an SSD that serves looks for it.
    fn serves(&mut self) -> bool {
        let client = ClientId::new(7).expect("an id");
        let address = Address { vid: Vid::new(9).expect("an id"), client, vba: 0 };
        let mut sqe =
            Sqe { opcode: nvme::io::READ, flags: nvme::FLAGS_SGL, nsid: 1.into(), ..Sqe::default() };
        let stamp = Stamp { lease_epoch: 0, sequence: 0 };
        ReadWrite { slba: Slba::pack(address), blocks: 1, fua: false, map_epoch: 1, stamp }.encode(&mut sqe);
        sqe.dptr = self.queue.data(4096);
        let answer = self.queue.exchange(&sqe, WAIT).expect("an answer");
        match Detail::from_dw0(answer.dw0.get()).refusal() {
            Some(Refusal::UnknownVolume) => true,
            Some(Refusal::NotServing) => false,
            other => panic!("{other:?}"),
        }
    }
}

fn start(folder: &Path, index: u16, at: &str) -> SsdProcess {
    let (file, number) = (folder.join(format!("{index}.gns")), index.to_string());
    let file = file.to_str().expect("a plain path");
    let size: &[&str] = if Path::new(file).exists() { &[] } else { &["--preset", "null", "--size", "64MiB"] };
    SsdProcess::start(at, &[&["--data", file, "--index", &number], size].concat())
}

#[test]
fn three_processes_give_each_other_leases_and_one_alone_stops_until_another_is_back() {
    within(BUILD_LIMIT, || {
        let folder = Folder::new();
        let mut ssds: Vec<_> = (0..3).map(|index| Some(start(folder.path(), index, "127.0.0.1:0"))).collect();
        let addresses: Vec<String> = ssds.iter().flatten().map(SsdProcess::address).collect();
        let mut map = FleetMap3::of(&FleetMap::equal(3, 64, 7, 1).expect("a map"), [5; 16]);
        for (ssd, address) in map.ssds.iter_mut().zip(&addresses) {
            (ssd.vote, ssd.address) = (Vote::Voter, address.clone());
        }
        let hosts = Hosts::new();
        (0u16..3).zip(&addresses).for_each(|(ssd, address)| hosts.set_map(ssd, address, &map));
        let mut readers: Vec<Reader> =
            (0u16..3).zip(&addresses).map(|(ssd, address)| hosts.reader(ssd, address)).collect();
        readers.iter_mut().for_each(|reader| until("each serves", || reader.serves()));
        readers.truncate(1);

        // The test kills one SSD and stops another.
        ssds[1].take().expect("it runs").kill();
        std::thread::sleep(2 * LEASE);
        until("it serves with one of two others", || readers[0].serves());
        ssds[2].as_ref().expect("it runs").signal("-STOP");
        let stopped = Instant::now();
        while readers[0].serves() {
            assert!(stopped.elapsed() < WAIT, "it serves without a majority");
        }
        eprintln!("SSD 0 stopped serving {:?} after the second of three had stopped", stopped.elapsed());
        std::thread::sleep(2 * LEASE);
        assert!(!readers[0].serves());

        ssds[2].as_ref().expect("it runs").signal("-CONT");
        let back = Instant::now();
        until("it serves again", || readers[0].serves());
        eprintln!("SSD 0 served again {:?} after the second of three went on", back.elapsed());
        // The killed SSD has its map and asks for leases by itself.
        ssds[1] = Some(start(folder.path(), 1, &addresses[1]));
        let mut again = hosts.reader(1, &addresses[1]);
        until("the one that came back serves", || again.serves());
        ssds.into_iter().flatten().for_each(|ssd| drop(ssd.end("-TERM")));
    });
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Three SSDs whose map names them as voters give each other leases: in one process, and over TCP with
//! proofs.
#![expect(clippy::disallowed_methods, reason = "leases run in real time")]

mod tls;

use super::*;
use crate::listener::Listener;
use crate::media::{Plan, in_memory, make_ssd, preset};
use crate::power::{Powered, Threads};
use gnstor_base::testing::deadline;
use gnstor_fabric::admin::{AdminChannel, Payload};
use gnstor_fabric::host_queue::{Completion, HostQp};
use gnstor_fabric::link::LinkConfig;
use gnstor_fabric::tcp::ServerTls;
use gnstor_proto::fabrics::{self, ConnectFields, Identity, fctype};
use gnstor_proto::nvme::{self, ReadWrite, Sqe};
use gnstor_proto::placement::FleetMap;
use gnstor_proto::placement::map3::{FleetMap3, Vote};
use gnstor_proto::slba::{Address, ClientId, Slba, Stamp, Vid};
use gnstor_proto::status::{Detail, Refusal, Status};
use gnstor_proto::vendor::opcode;
use std::net::TcpListener;
use std::path::Path;
use std::time::Instant;
use zerocopy::IntoBytes;

/// A lease and the drift bound.
const LEASE: Duration = Duration::from_millis(310);
/// How late a test may see that a lease is over, on a machine under load.
const SLACK: Duration = Duration::from_secs(2);
/// Longest wait for a lease.
const PATIENCE: Duration = Duration::from_secs(20);
const WAIT: Duration = Duration::from_secs(5);

/// The map of three voters at these addresses.
fn voted(addresses: &[String]) -> FleetMap3 {
    let mut map = FleetMap3::of(&FleetMap::equal(3, 64, 7, 1).expect("a map"), [5; 16]);
    for (ssd, address) in map.ssds.iter_mut().zip(addresses) {
        (ssd.vote, ssd.address) = (Vote::Voter, address.clone());
    }
    map
}

/// How an SSD process speaks TLS: with peers that connect to it, and with peers that it connects to.
#[derive(Clone, Default)]
struct BothTls {
    server: Option<ServerTls>,
    client: Option<ClientTls>,
}

/// SSDs with their engines, as the daemon and a client reach them.
struct Shelf {
    peers: Option<Peers>,
    listener: Option<Listener>,
    powered: Option<Powered>,
    first: u16,
    soft: ExecutorId,
    key: Option<Secret>,
}

impl Shelf {
    fn new(plans: &[Plan], key: Option<&Secret>, at: Option<&str>) -> Self {
        Self::with_tls(plans, key, at, BothTls::default())
    }

    fn with_tls(plans: &[Plan], key: Option<&Secret>, at: Option<&str>, tls: BothTls) -> Self {
        let mut made: Vec<_> = plans.iter().map(|plan| make_ssd(plan).expect("an SSD")).collect();
        if let Some(key) = key {
            made.iter_mut().for_each(|made| made.ask_proof(key));
        }
        let (first, count) = (made[0].about.index, u16::try_from(made.len()).expect("few"));
        let powered =
            Powered::on(made, first, LinkConfig::UNLIMITED, Threads { engines: 2 }).expect("engines");
        let engine = powered.transport();
        let listener = at.map(|at| {
            let listener = TcpListener::bind(at).expect("a port");
            Listener::open(listener, engine.clone(), tls.server).expect("a listener")
        });
        let config = PeersConfig { first, count, manager_key: key.cloned(), tls: tls.client };
        let peers = Some(Peers::start(&engine, config).expect("a thread"));
        let soft = engine.call(|engine, _| engine.add_soft()).expect("an executor");
        Self { peers, listener, powered: Some(powered), first, soft, key: key.cloned() }
    }

    fn engine(&self) -> TransportHandle {
        self.powered.as_ref().expect("it runs").transport()
    }

    fn address(&self) -> String {
        self.listener.as_ref().expect("one").address().to_string()
    }

    fn connect(&self, ssd: u16, identity: Identity) -> HostQueue {
        let (engine, subnqn) = (self.engine(), ssd_subnqn(ssd));
        let port = Port::Local(ssd - self.first);
        let path = SsdPath { transport: &engine, executor: self.soft, port, subnqn: &subnqn };
        let host = fabrics::Host::from(identity);
        let secret = self.key.as_ref().map(|key| key.of_host(&host.nqn()));
        HostQueue::connect(&path, Credentials { host, secret }, Duration::ZERO, WAIT).expect("it is there")
    }

    fn set_map(&self, ssd: u16, map: &FleetMap3) {
        let bytes = map.encode().expect("a map");
        let dwords = u32::try_from(bytes.len() / 4).expect("few");
        let sqe = Sqe { opcode: opcode::MAP_SET, nsid: 1.into(), cdw10: dwords.into(), ..Sqe::default() };
        let answer = self.connect(ssd, Identity::Daemon).execute(sqe, Payload::Out(&bytes), WAIT);
        let status = Status(answer.expect("an answer").status_word());
        assert!(status.is_success(), "{status}");
    }

    fn reader(&self, ssd: u16) -> Reader {
        let (engine, subnqn) = (self.engine(), ssd_subnqn(ssd));
        let client = Identity::Client(ClientId::new(7).expect("an id"));
        let mut admin = self.connect(ssd, client);
        let port = Port::Local(ssd - self.first);
        let path = SsdPath { transport: &engine, executor: self.soft, port, subnqn: &subnqn };
        let queue = HostQp::connect(&path, 1, WAIT).expect("a queue pair");
        queue.write_data(admin.connect_data(1).as_bytes());
        let fields = ConnectFields { qid: 1.into(), sqsize_z: 15.into(), ..ConnectFields::default() };
        let mut sqe = fabrics::command(fctype::CONNECT, &fields);
        (sqe.flags, sqe.dptr) = (nvme::FLAGS_SGL, queue.data(1024));
        let mut reader = Reader { queue, _admin: admin };
        assert!(Status(reader.exchange(sqe).status_word()).is_success());
        reader
    }

    /// Cuts an SSD off, or back on.
    fn set_silent(&self, ssd: u16, silent: bool) {
        let target = ssd - self.first;
        self.engine().each(move |engine, _| engine.set_silent(target, silent)).expect("it runs");
    }

    fn stop(&mut self) {
        self.peers = None;
        self.listener = None;
        self.powered.take().map(Powered::shut_down).transpose().expect("it is shut down");
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        self.peers = None;
        self.listener = None;
    }
}

/// An I/O queue that finds out whether an SSD serves.
struct Reader {
    queue: HostQp,
    _admin: HostQueue,
}

impl Reader {
    fn exchange(&mut self, mut sqe: Sqe) -> nvme::Cqe {
        sqe.cid = self.queue.next_index().into();
        self.queue.send(&sqe);
        let start = Instant::now();
        loop {
            match self.queue.poll() {
                Some(Completion::Response(cqe)) => return cqe,
                Some(Completion::Failed(why)) => panic!("{why}"),
                Some(Completion::Sent) => {}
                None => std::thread::sleep(Duration::from_micros(100)),
            }
            assert!(start.elapsed() < PATIENCE, "no answer");
        }
    }

    /// A read of a volume that does not exist: an SSD that serves looks for it.
    fn serves(&mut self, map: &FleetMap3) -> bool {
        let address =
            Address { vid: Vid::new(9).expect("an id"), client: ClientId::new(7).expect("an id"), vba: 0 };
        let mut sqe =
            Sqe { opcode: nvme::io::READ, flags: nvme::FLAGS_SGL, nsid: 1.into(), ..Sqe::default() };
        #[expect(clippy::cast_possible_truncation, reason = "a small epoch")]
        let map_epoch = map.epoch as u32;
        let stamp = Stamp { lease_epoch: 0, sequence: 0 };
        ReadWrite { slba: Slba::pack(address), blocks: 1, fua: false, map_epoch, stamp }.encode(&mut sqe);
        sqe.dptr = self.queue.data(4096);
        match Detail::from_dw0(self.exchange(sqe).dw0.get()).refusal() {
            Some(Refusal::UnknownVolume) => true,
            Some(Refusal::NotServing) => false,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until it serves, or does not any more; how long that took.
    fn until(&mut self, map: &FleetMap3, serves: bool) -> Duration {
        let start = Instant::now();
        while self.serves(map) != serves {
            assert!(start.elapsed() < PATIENCE, "it never came to serve: {serves}");
            std::thread::sleep(Duration::from_millis(1));
        }
        start.elapsed()
    }

    /// Checks that it serves most of this time: renewals come in time on a machine that is not too busy.
    fn goes_on(&mut self, map: &FleetMap3, span: Duration) {
        let (start, mut served, mut looks) = (Instant::now(), 0u32, 0u32);
        while start.elapsed() < span {
            served += u32::from(self.serves(map));
            looks += 1;
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(served * 2 > looks, "it served {served} of {looks} times");
    }
}

#[test]
fn three_ssds_of_one_process_give_each_other_leases_and_one_alone_stops() {
    let _deadline = deadline();
    let plans = in_memory(3, &preset("null").expect("a preset"), 4 << 20);
    let shelf = Shelf::new(&plans, None, None);
    let map = voted(&[String::new(), String::new(), String::new()]);
    let mut readers = [0, 1, 2].map(|ssd| shelf.reader(ssd));
    (0..3).for_each(|ssd| shelf.set_map(ssd, &map));
    readers.iter_mut().for_each(|reader| _ = reader.until(&map, true));
    readers[0].goes_on(&map, 3 * LEASE);
    shelf.set_silent(1, true);
    readers[0].goes_on(&map, 3 * LEASE);
    shelf.set_silent(2, true);
    let took = readers[0].until(&map, false);
    eprintln!("SSD 0 stopped serving {took:?} after it was alone");
    assert!(took < LEASE + SLACK, "{took:?}");
    std::thread::sleep(LEASE);
    assert!(!readers[0].serves(&map), "it has no majority");
    shelf.set_silent(1, false);
    let took = readers[0].until(&map, true);
    eprintln!("SSD 0 served again after {took:?}");
    shelf.set_silent(2, false);
}

/// A plan for an SSD with an engine of its own, reached over TCP as in another process.
fn at_home(folder: &Path, index: u16) -> Plan {
    Plan {
        index: Some(index),
        preset: Some(preset("null").expect("a preset")),
        bytes: Some(4 << 20),
        file: Some(folder.join(format!("{index}.gns"))),
        ..Plan::default()
    }
}

#[test]
fn ssds_that_prove_who_they_are_over_tcp_give_leases_and_come_back_after_a_stop() {
    let _deadline = deadline();
    leases_end_and_come_back(&BothTls::default());
}

fn leases_end_and_come_back(tls: &BothTls) {
    let folder = tempfile::tempdir().expect("a folder");
    let key = Secret::random();
    let start = |index: u16, at: &str| {
        Shelf::with_tls(&[at_home(folder.path(), index)], Some(&key), Some(at), tls.clone())
    };
    let mut shelves: Vec<Shelf> = (0..3).map(|index| start(index, "127.0.0.1:0")).collect();
    let addresses: Vec<String> = shelves.iter().map(Shelf::address).collect();
    let map = voted(&addresses);
    (0u16..3).zip(&shelves).for_each(|(ssd, shelf)| shelf.set_map(ssd, &map));
    let mut readers: Vec<Reader> = (0u16..3).zip(&shelves).map(|(ssd, shelf)| shelf.reader(ssd)).collect();
    readers.iter_mut().for_each(|reader| _ = reader.until(&map, true));
    readers.truncate(1);
    for shelf in &mut shelves[1..] {
        shelf.stop();
    }
    let took = readers[0].until(&map, false);
    eprintln!("SSD 0 stopped serving {took:?} after the others had ended");
    assert!(took < LEASE + SLACK, "{took:?}");
    std::thread::sleep(LEASE);
    assert!(!readers[0].serves(&map), "it has no majority");
    shelves[1] = start(1, &addresses[1]);
    let took = readers[0].until(&map, true);
    eprintln!("SSD 0 served again {took:?} after SSD 1 was back");
    let mut back = shelves[1].reader(1);
    back.until(&map, true);
}

#[test]
fn an_ssd_of_another_key_gets_no_lease() {
    let _deadline = deadline();
    let plans = in_memory(3, &preset("null").expect("a preset"), 4 << 20);
    let [home, stranger] =
        [0, 1].map(|n| Shelf::new(&plans[n..=n], Some(&Secret::random()), Some("127.0.0.1:0")));
    let map = voted(&[home.address(), stranger.address(), "127.0.0.1:1".into()]);
    home.set_map(0, &map);
    stranger.set_map(1, &map);
    let mut reader = home.reader(0);
    let start = Instant::now();
    while start.elapsed() < 4 * LEASE {
        assert!(!reader.serves(&map));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A listener that says nothing delays no other connection.
#[test]
fn a_voter_that_accepts_and_says_nothing_holds_up_no_other() {
    let _deadline = deadline();
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let plans = in_memory(2, &preset("null").expect("a preset"), 4 << 20);
    let shelf = Shelf::new(&plans, None, None);
    let map = voted(&[String::new(), String::new(), silent.local_addr().expect("one").to_string()]);
    (0..2).for_each(|ssd| shelf.set_map(ssd, &map));
    let mut readers = [0, 1].map(|ssd| shelf.reader(ssd));
    readers.iter_mut().for_each(|reader| _ = reader.until(&map, true));
    readers[1].goes_on(&map, 4 * LEASE);
}

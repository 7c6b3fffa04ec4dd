// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A daemon that makes maps with voters, and SSDs in their own processes. An SSD that is killed is dropped,
//! and the array goes on.
#![expect(clippy::disallowed_methods, reason = "processes and pauses in real time")]

use gnstor_daemon::core::{CoreConfig, MapFormat};
use gnstor_daemon::{Daemon, DaemonConfig, SsdPort};
use gnstor_fabric::admin::{AdminChannel, AdminQueue, ChannelError, Payload};
use gnstor_fabric::host_queue::{HostQueue, SsdPath};
use gnstor_fabric::runtime::{TransportHandle, TransportThreads};
use gnstor_fabric::tcp::Wire;
use gnstor_fabric::transport::{ExecutorId, Port, RcTransport, TransportConfig};
use gnstor_proto::fabrics::{Identity, ssd_subnqn};
use gnstor_proto::nvme::Sqe;
use gnstor_proto::placement::AnyMap;
use gnstor_proto::placement::map3::{FleetMap3, State3};
use gnstor_proto::status::Status;
use gnstor_proto::vendor::opcode;
use gnstor_tests::command::{BUILD_LIMIT, SsdProcess};
use gnstor_tests::folder::Folder;
use gnstor_tests::{Guest, assert_same, pattern, volume, within};
use libgnstor::{CreateOptions, File, Rights};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub(crate) const WAIT: Duration = Duration::from_secs(5);
pub(crate) const BYTES: usize = 1 << 20;
/// What is written at once: all placement groups of some chunks, and so each SSD.
const PART: usize = 256 << 10;

/// A way to an SSD, and an admin queue on it.
pub(crate) fn path_to(
    engine: &TransportHandle,
    soft: ExecutorId,
    ssd: u16,
    address: &str,
    identity: Identity,
) -> Result<(Port, HostQueue), ChannelError> {
    let broken = |cause: String| ChannelError::Broken { peer: ssd_subnqn(ssd), cause };
    let stream = TcpStream::connect(address).map_err(|error| broken(error.to_string()))?;
    let wire = Wire::client(stream, None, "127.0.0.1", WAIT).map_err(|error| broken(error.to_string()))?;
    let remote = engine.call(move |engine, _| engine.add_remote(wire)).expect("it runs");
    let remote = remote.map_err(|error| broken(error.to_string()))?;
    let (port, subnqn) = (Port::Remote { remote, ssd }, ssd_subnqn(ssd));
    let path = SsdPath { transport: engine, executor: soft, port, subnqn: &subnqn };
    Ok((port, HostQueue::connect(&path, identity, Duration::ZERO, WAIT)?))
}

fn connect(
    engine: &TransportHandle,
    soft: ExecutorId,
    ssd: u16,
    address: &str,
) -> Result<HostQueue, ChannelError> {
    Ok(path_to(engine, soft, ssd, address, Identity::Daemon)?.1)
}

pub(crate) fn port(engine: &TransportHandle, soft: ExecutorId, ssd: u16, address: &str) -> SsdPort {
    let (engine, at) = (engine.clone(), address.to_owned());
    port_by(ssd, address, move || connect(&engine, soft, ssd, &at))
}

/// The daemon's way to an SSD that `connect` reaches.
pub(crate) fn port_by(
    ssd: u16,
    address: &str,
    connect: impl Fn() -> Result<HostQueue, ChannelError> + Send + 'static,
) -> SsdPort {
    let mut queue = connect().expect("it is there");
    let capacity_bytes = queue.capacity_bytes(WAIT).expect("an answer");
    SsdPort {
        index: ssd,
        subnqn: ssd_subnqn(ssd),
        transport: "tcp".into(),
        address: address.into(),
        capacity_bytes,
        model: "an SSD".into(),
        queue: Box::new(queue),
        reconnect: Some(Box::new(move || connect().map(|queue| Box::new(queue) as Box<dyn AdminQueue>))),
    }
}

/// Writes a part of the file and reads it back, until it is told to stop. Returns what the file holds then,
/// the rounds, and the longest. No call may fail.
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

/// Where SSD processes run and listen.
pub(crate) trait Place: Send {
    /// The command that becomes the SSD's process.
    fn through(&self, _ssd: u16) -> Vec<String> {
        Vec::new()
    }

    /// Where the SSD listens when it starts for the first time, and what that takes.
    fn listens(&self, _ssd: u16) -> Vec<String> {
        vec!["127.0.0.1:0".into()]
    }
}

/// Processes of this machine.
struct Loopback;

impl Place for Loopback {}

/// SSD processes, and a daemon that makes maps of format 3.
pub(crate) struct Array {
    place: Box<dyn Place>,
    ssds: Vec<Option<SsdProcess>>,
    pub(crate) addresses: Vec<String>,
    daemon: Option<Daemon>,
    pub(crate) engine: TransportHandle,
    pub(crate) soft: ExecutorId,
    _threads: TransportThreads,
    pub(crate) folder: Folder,
}

fn ssd_process(place: &dyn Place, folder: &Path, index: u16, listen: Option<&str>) -> SsdProcess {
    let file = folder.join(format!("{index}.gns")).display().to_string();
    let number = index.to_string();
    let (through, listens) = (place.through(index), place.listens(index));
    let through: Vec<&str> = through.iter().map(String::as_str).collect();
    let (first, more) = listens.split_first().expect("an address");
    let mut args = vec!["--preset", "null", "--size", "64MiB", "--data", &file, "--index", &number];
    args.extend(more.iter().map(String::as_str));
    SsdProcess::start_through(&through, listen.unwrap_or(first), &args)
}

fn daemon(engine: &TransportHandle, soft: ExecutorId, addresses: &[String], at: SocketAddr) -> Daemon {
    let ports = (0u16..4).zip(addresses).map(|(ssd, address)| port(engine, soft, ssd, address));
    let core = CoreConfig { groups: 64, map_format: MapFormat::Three, ..CoreConfig::default() };
    let config = DaemonConfig { core, ..DaemonConfig::default() };
    Daemon::start(at, ports.collect(), config).expect("it serves")
}

impl Array {
    pub(crate) fn start() -> Self {
        Self::start_in(Box::new(Loopback))
    }

    pub(crate) fn start_in(place: Box<dyn Place>) -> Self {
        let folder = Folder::new();
        let start = |index| Some(ssd_process(&*place, folder.path(), index, None));
        let ssds: Vec<_> = (0..4).map(start).collect();
        let addresses: Vec<String> = ssds.iter().flatten().map(SsdProcess::address).collect();
        let threads = TransportThreads::start(vec![RcTransport::new(TransportConfig::default())]);
        let threads = threads.expect("a thread");
        let engine = threads.handle();
        let soft = engine.call(|engine, _| engine.add_soft()).expect("an executor");
        let daemon = daemon(&engine, soft, &addresses, "127.0.0.1:0".parse().unwrap());
        Self { place, ssds, addresses, daemon: Some(daemon), engine, soft, _threads: threads, folder }
    }

    fn runs(&self) -> &Daemon {
        self.daemon.as_ref().expect("it runs")
    }

    /// The daemon ends, and another one starts where it was.
    pub(crate) fn restart_daemon(&mut self) {
        let at = self.stop_daemon();
        self.start_daemon(at);
    }

    /// The daemon ends. Returns where it was.
    pub(crate) fn stop_daemon(&mut self) -> SocketAddr {
        let at = self.runs().local_addr();
        self.daemon.take().expect("it runs").stop().expect("it served until now");
        at
    }

    pub(crate) fn start_daemon(&mut self, at: SocketAddr) {
        self.daemon = Some(daemon(&self.engine, self.soft, &self.addresses, at));
    }

    /// The SSD shuts down in order.
    pub(crate) fn shut_down(&mut self, ssd: usize) {
        drop(self.ssds[ssd].take().expect("it runs").end("-TERM"));
    }

    /// Address of the daemon.
    pub(crate) fn daemon(&self) -> String {
        format!("http://{}", self.runs().local_addr())
    }

    pub(crate) fn kill(&mut self, ssd: usize) {
        self.ssds[ssd].take().expect("it runs").kill();
    }

    /// The SSD starts again, with its file and where it was.
    pub(crate) fn restart(&mut self, ssd: u16) {
        let address = &self.addresses[usize::from(ssd)];
        let process = ssd_process(&*self.place, self.folder.path(), ssd, Some(address));
        self.ssds[usize::from(ssd)] = Some(process);
    }

    /// Sends the SSD's process a signal that does not end it.
    pub(crate) fn signal(&self, ssd: u16, how: &str) {
        self.ssds[usize::from(ssd)].as_ref().expect("it runs").signal(how);
    }

    /// The map that the first SSD which runs has.
    pub(crate) fn map(&self) -> FleetMap3 {
        let runs = self.ssds.iter().position(Option::is_some).expect("one runs");
        let number = u16::try_from(runs).expect("few");
        let mut queue = connect(&self.engine, self.soft, number, &self.addresses[runs]).expect("it is there");
        let mut data = vec![0; 64 << 10];
        let cdw10 = (16u32 << 10).into();
        let sqe = Sqe { opcode: opcode::MAP_GET, nsid: 1.into(), cdw10, ..Sqe::default() };
        let cqe = queue.execute(sqe, Payload::In(&mut data), WAIT).expect("an answer");
        assert!(Status(cqe.status_word()).is_success(), "{cqe:?}");
        let map = AnyMap::decode(&data[..cqe.dw0.get() as usize]).expect("a map");
        let AnyMap::Three(map) = map else { panic!("a map of format 3") };
        map
    }

    /// Waits until the map is so, and says how long that took.
    fn until(&self, what: &str, is_so: impl Fn(&FleetMap3) -> bool) -> Duration {
        let begun = Instant::now();
        while !is_so(&self.map()) {
            assert!(begun.elapsed() < Duration::from_secs(30), "{what}: {:?}", self.map().ssds);
            std::thread::sleep(Duration::from_millis(20));
        }
        begun.elapsed()
    }

    pub(crate) fn end(self) {
        self.daemon.expect("it runs").stop().expect("it served until now");
        self.ssds.into_iter().flatten().for_each(|ssd| drop(ssd.end("-TERM")));
    }
}

fn has_place(map: &FleetMap3, ssd: u16, filling: bool) -> bool {
    map.rows
        .iter()
        .flat_map(|row| row.places)
        .flatten()
        .any(|place| place.ssd == ssd && place.filling == filling)
}

/// A client that writes and reads volume v all the time, until it is told to stop.
struct Load {
    stop: Arc<AtomicBool>,
    writer: JoinHandle<(Vec<u8>, u64, Duration)>,
}

impl Load {
    fn start(guest: &Guest) -> Self {
        volume(&guest.client, "v", BYTES as u64, 2);
        let file = guest.client.open("v", Rights::Write).unwrap();
        file.write_at(0, &pattern(7, BYTES)).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        Self { stop, writer: std::thread::spawn(move || write_and_read(&file, &told)) }
    }

    /// Ends the load. Returns the content that the volume must have.
    fn end(self) -> Vec<u8> {
        self.stop.store(true, Ordering::Relaxed);
        let (data, rounds, longest) = self.writer.join().expect("no call failed");
        eprintln!("{rounds} rounds of a write and a read, of which the longest took {longest:?}");
        data
    }
}

fn holds(guest: &Guest, name: &str, data: &[u8]) {
    let file = guest.client.open(name, Rights::Read).unwrap();
    let mut read = vec![0; BYTES];
    file.read_at(0, &mut read).unwrap();
    assert_same("after the faults", &read, data);
}

#[test]
fn a_killed_ssd_of_four_is_dropped_and_the_array_goes_on() {
    within(BUILD_LIMIT, || {
        let mut array = Array::start();
        let guest = Guest::connect(&array.daemon(), "writer");
        let load = Load::start(&guest);
        std::thread::sleep(Duration::from_millis(500));

        array.kill(3);
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
        let data = load.end();
        let reader = Guest::connect(&array.daemon(), "reader");
        holds(&reader, "v", &data);
        let file = reader.client.open("w", Rights::Write).unwrap();
        file.write_at(0, &data).unwrap();
        drop((file, reader, guest));
        array.end();
    });
}

/// The lease is over long before the daemon is back. An SSD that was restarted has its entry from its file.
#[test]
fn writes_go_on_without_a_daemon_for_longer_than_their_lease_and_beside_an_ssd_that_is_restarted() {
    within(BUILD_LIMIT, || {
        let mut array = Array::start();
        let guest = Guest::connect(&array.daemon(), "writer");
        volume(&guest.client, "v", BYTES as u64, 2);
        let file = guest.client.open_for("v", Rights::Write, Duration::from_secs(1)).unwrap();
        file.write_at(0, &pattern(7, BYTES)).unwrap();
        let at = array.stop_daemon();
        let gone = Instant::now();
        let mut data = Vec::new();
        let write = |data: &mut Vec<u8>, round| {
            *data = pattern(round, BYTES);
            file.write_at(0, data).expect("a write without a daemon");
        };
        for round in 0.. {
            write(&mut data, round);
            if gone.elapsed() > Duration::from_secs(3) {
                break;
            }
        }
        array.kill(3);
        array.restart(3);
        (100..110).for_each(|round| write(&mut data, round));
        array.start_daemon(at);
        // It has seen nothing of all this.
        write(&mut data, 110);
        let reader = Guest::connect(&array.daemon(), "reader");
        holds(&reader, "v", &data);
        drop((file, reader, guest));
        array.end();
    });
}

/// The SSD that is back takes part in each write, under a new incarnation, and no call fails meanwhile.
#[test]
fn a_killed_ssd_that_starts_again_gets_its_places_while_a_client_writes() {
    within(BUILD_LIMIT, || {
        let mut array = Array::start();
        let before = array.map();
        let guest = Guest::connect(&array.daemon(), "writer");
        let load = Load::start(&guest);
        std::thread::sleep(Duration::from_millis(300));
        array.kill(3);
        let took = array.until("SSD 3 is dropped", |map| map.ssds[3].state == State3::Out);
        eprintln!("dropped {took:?} after the kill");
        // The SSDs have the map a moment before the daemon goes by it.
        let options = CreateOptions { capacity_bytes: BYTES as u64, replicas: 2, ..CreateOptions::default() };
        gnstor_tests::command::until("a volume is made", || guest.client.create("w", &options).is_ok());
        array.restart(3);
        let took = array.until("SSD 3 has places", |map| map.ssds[3].state == State3::In);
        eprintln!("given places {took:?} after it served");
        std::thread::sleep(Duration::from_secs(1));
        let (map, data) = (array.map(), load.end());
        assert!(map.ssds[3].incarnation > before.ssds[3].incarnation);
        assert!(has_place(&map, 3, true) || has_place(&map, 3, false));
        let reader = Guest::connect(&array.daemon(), "reader");
        holds(&reader, "v", &data);
        let file = reader.client.open("w", Rights::Write).unwrap();
        file.write_at(0, &data).unwrap();
        drop((file, reader, guest));
        array.end();
    });
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client id that is given again while its earlier holder keeps queues at SSDs, which run in processes of
//! their own. The present holder never connects to any of them.
#![expect(clippy::disallowed_methods, reason = "processes in real time")]

use crate::fleet_daemon::{WAIT, port_by};
use gnstor_array::Secret;
use gnstor_daemon::core::{CoreConfig, Quotas};
use gnstor_daemon::{Daemon, DaemonConfig, SsdPort};
use gnstor_fabric::admin::ChannelError;
use gnstor_fabric::host_queue::{Credentials, HostQueue, SsdPath};
use gnstor_fabric::runtime::{TransportHandle, TransportThreads};
use gnstor_fabric::tcp::Wire;
use gnstor_fabric::transport::{ExecutorId, Port, RcTransport, TransportConfig};
use gnstor_proto::fabrics::{Host, Identity, ssd_subnqn};
use gnstor_proto::grpc::fleet_client::FleetClient;
use gnstor_proto::grpc::volumes_client::VolumesClient;
use gnstor_proto::grpc::{CreateRequest, OpenRequest, RegisterRequest, RegisterResponse, Rights};
use gnstor_proto::nvme::{Sqe, io};
use gnstor_proto::slba::ClientId;
use gnstor_proto::status::{Refusal, Status};
use gnstor_tests::command::{BUILD_LIMIT, SsdProcess};
use gnstor_tests::folder::Folder;
use gnstor_tests::raw_queue::RawQueue;
use gnstor_tests::within;
use std::io::Write as _;
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::{Duration, Instant};
use tonic::transport::Channel;

/// Longest wait for what follows an answer.
const SOON: Duration = Duration::from_secs(30);

fn key() -> Secret {
    Secret::new([0x5A; 32])
}

/// The way to SSDs over TCP.
#[derive(Clone)]
struct Engine {
    handle: TransportHandle,
    soft: ExecutorId,
}

impl Engine {
    /// Connects an admin queue, on a connection of its own.
    fn connect(&self, ssd: u16, address: &str, who: Credentials) -> Result<(Port, HostQueue), ChannelError> {
        let subnqn = ssd_subnqn(ssd);
        let broken = |cause: String| ChannelError::Broken { peer: ssd_subnqn(ssd), cause };
        let stream = TcpStream::connect(address).map_err(|error| broken(error.to_string()))?;
        let wire =
            Wire::client(stream, None, "127.0.0.1", WAIT).map_err(|error| broken(error.to_string()))?;
        let remote = self.handle.call(move |engine, _| engine.add_remote(wire)).expect("it runs");
        let port = Port::Remote { remote: remote.map_err(|error| broken(error.to_string()))?, ssd };
        let path = SsdPath { transport: &self.handle, executor: self.soft, port, subnqn: &subnqn };
        Ok((port, HostQueue::connect(&path, who, Duration::ZERO, WAIT)?))
    }

    /// The daemon's way to an SSD.
    fn port(&self, ssd: u16, address: &str) -> SsdPort {
        let host = Host::from(Identity::Daemon);
        let who = move || Credentials { host, secret: Some(key().of_host(&host.nqn())) };
        let (engine, at) = (self.clone(), address.to_owned());
        port_by(ssd, address, move || engine.connect(ssd, &at, who()).map(|(_, queue)| queue))
    }
}

/// A registration of a client id.
struct Holder {
    id: u16,
    host: Host,
    secret: Secret,
    calls: Channel,
}

impl Holder {
    async fn register(daemon: &str) -> Self {
        let endpoint = Channel::from_shared(format!("http://{daemon}")).expect("an address");
        let calls = endpoint.connect().await.expect("a connection");
        let request = RegisterRequest { name: "x".into() };
        let given = FleetClient::new(calls.clone()).register(request).await.expect("an id").into_inner();
        let RegisterResponse { client_id, serial, secret, .. } = given;
        let id = u16::try_from(client_id).expect("an id");
        let identity = Identity::Client(ClientId::new(id).expect("an id"));
        let secret = Secret::parse(&secret).expect("a secret");
        Self { id, host: Host { serial, ..Host::from(identity) }, secret, calls }
    }

    fn credentials(&self) -> Credentials {
        Credentials { host: self.host, secret: Some(self.secret.clone()) }
    }
}

/// An admin and an I/O queue of a holder at an SSD.
struct Queues {
    admin: HostQueue,
    io: RawQueue,
}

impl Queues {
    fn open(world: &World, ssd: u16, holder: &Holder) -> Self {
        let (port, mut admin) = world.connect(ssd, holder.credentials()).expect("proven");
        let Engine { handle, soft } = &world.engine;
        let mut io = RawQueue::open(handle, *soft, port, 1).expect("an RDMA connection");
        let data = admin.connect_data(1);
        assert_eq!(io.connect_with(1, &data).expect("an answer"), Status::SUCCESS);
        Self { admin, io }
    }

    /// Whether the two queues serve.
    fn serve(&mut self) -> [bool; 2] {
        let flush = Sqe { opcode: io::FLUSH, nsid: 1.into(), cid: 9.into(), flags: 0x40, ..Sqe::default() };
        let flushed = self.io.exchange(&flush, Duration::from_millis(500));
        let is_served = flushed.is_ok_and(|cqe| Status(cqe.status_word()).is_success());
        [self.admin.keep_alive(WAIT).is_ok(), is_served]
    }
}

/// What is checked comes true.
fn soon(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < SOON, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Two SSDs with a manager key in processes of their own, and a daemon with two ids to give.
struct World {
    folder: Folder,
    ssds: Vec<SsdProcess>,
    addresses: Vec<String>,
    engine: Engine,
    daemon: Daemon,
    at: String,
    runtime: tokio::runtime::Runtime,
    _threads: TransportThreads,
}

/// Starts the SSD of this number.
fn start(folder: &Folder, ssd: u16, listen: &str) -> SsdProcess {
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (data, key, index) = (path(&format!("ssd{ssd}")), path("manager.key"), ssd.to_string());
    let what = ["--preset", "null", "--size", "64MiB", "--index", &index, "--data", &data];
    SsdProcess::start(listen, &[&what[..], &["--manager-key", &key]].concat())
}

impl World {
    fn new() -> Self {
        let folder = Folder::new();
        let mut own = std::fs::OpenOptions::new();
        let file = own.write(true).create_new(true).mode(0o600).open(folder.path().join("manager.key"));
        file.expect("a file").write_all(key().to_text().as_bytes()).expect("it is written");
        let ssds: Vec<_> = (0..2).map(|ssd| start(&folder, ssd, "127.0.0.1:0")).collect();
        let threads = TransportThreads::start(vec![RcTransport::new(TransportConfig::default())]);
        let threads = threads.expect("a thread");
        let handle = threads.handle();
        let soft = handle.call(|engine, _| engine.add_soft()).expect("an executor");
        let engine = Engine { handle, soft };
        let addresses: Vec<_> = ssds.iter().map(SsdProcess::address).collect();
        let ports = (0..).zip(&addresses).map(|(ssd, address)| engine.port(ssd, address)).collect();
        let quotas = Quotas { ids: ClientId::new(2).expect("an id"), ..Quotas::default() };
        let core = CoreConfig { groups: 64, quotas, ..CoreConfig::default() };
        let config = DaemonConfig { core, manager_key: Some(key()), ..DaemonConfig::default() };
        let daemon = Daemon::start("127.0.0.1:0".parse().expect("an address"), ports, config);
        let daemon = daemon.expect("it serves");
        let at = daemon.local_addr().to_string();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        Self { folder, ssds, addresses, engine, daemon, at, runtime, _threads: threads }
    }

    fn register(&self) -> Holder {
        self.runtime.block_on(Holder::register(&self.at))
    }

    fn create(&self, owner: &Holder) {
        let (name, client_id) = ("v".into(), owner.id.into());
        let request =
            CreateRequest { name, client_id, capacity_bytes: 1 << 20, replicas: 2, ..Default::default() };
        let mut volumes = VolumesClient::new(owner.calls.clone());
        self.runtime.block_on(volumes.create(request)).expect("a volume");
    }

    fn open(&self, reader: &Holder) {
        let (name, client_id, rights) = ("v".into(), reader.id.into(), Rights::Read.into());
        let request = OpenRequest { name, client_id, rights, ..OpenRequest::default() };
        let mut volumes = VolumesClient::new(reader.calls.clone());
        self.runtime.block_on(volumes.open(request)).expect("it opens");
    }

    /// Connects an admin queue to an SSD.
    fn connect(&self, ssd: u16, who: Credentials) -> Result<(Port, HostQueue), ChannelError> {
        self.engine.connect(ssd, &self.addresses[usize::from(ssd)], who)
    }
}

#[test]
fn an_earlier_holder_of_an_id_loses_its_queues_everywhere_before_another_holder_opens_a_volume() {
    within(BUILD_LIMIT, || {
        let mut world = World::new();
        // One of the two ids is the owner's, and the other one is given again at once.
        let owner = world.register();
        world.create(&owner);
        let earlier = world.register();
        let mut queues = [0, 1].map(|ssd| Queues::open(&world, ssd, &earlier));
        let Holder { id, host, secret, calls } = earlier;
        drop(calls);
        let present = loop {
            let next = world.register();
            if next.id == id {
                break next;
            }
        };
        assert!(present.host.serial > host.serial);
        assert_eq!(queues.each_mut().map(Queues::serve), [[true; 2]; 2], "nothing names the id yet");
        world.open(&present);
        assert_eq!(queues.each_mut().map(Queues::serve), [[false; 2]; 2], "the earlier holder's queues");
        let older = || Credentials { host, secret: Some(secret.clone()) };
        for ssd in [0, 1] {
            assert!(world.connect(ssd, older()).is_err(), "SSD {ssd} believes the older secret");
        }

        // An SSD that starts again has forgotten it. The daemon says it again, and the holder need not.
        world.ssds.pop().expect("two").kill();
        world.ssds.push(start(&world.folder, 1, &world.addresses[1]));
        let sentence = Refusal::ConnectRefused.sentence();
        soon("the older secret is refused after a restart", || {
            world.connect(1, older()).is_err_and(|error| error.to_string().contains(sentence))
        });
        world.connect(1, present.credentials()).expect("the present holder is let in");
        world.daemon.stop().expect("it served until then");
    });
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A running kernel follows the fleet map. The test kills or stops one of four SSDs, and the next map leaves
//! it out. The kernel's reads and writes go on.
#![expect(clippy::disallowed_methods, reason = "processes, threads and pauses in real time")]

use gnstor_fabric::admin::{AdminChannel, Payload};
use gnstor_fabric::host_queue::{Credentials as HostCredentials, HostQueue, SsdPath};
use gnstor_fabric::transport::Port;
use gnstor_proto::fabrics::{Host, Identity, ssd_subnqn};
use gnstor_proto::nvme::Sqe;
use gnstor_proto::placement::{AnyMap, Rows, group_of};
use gnstor_proto::slba::Vid;
use gnstor_proto::status::Status;
use gnstor_proto::vendor::opcode;
use gnstor_tests::command::{BUILD_LIMIT, SsdProcess, Up, until};
use gnstor_tests::{BLOCK, Guest, kernels, long, read_copy, volume, within};
use libgnstor::{
    Client, Credentials, Device, DeviceFile, DeviceMem, File, RcTransport, Rights, Shape, TransportConfig,
    TransportThreads,
};
use std::mem::offset_of;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const ANY: &str = "127.0.0.1:0";
const DEADLINE: Duration = Duration::from_secs(5);
const THREADS: u32 = 64;
const BLOCKS_EACH: u32 = 4;
pub(crate) const REPLICAS: u32 = 3;
/// About the time in which an array finds an SSD dead and makes the next map.
const NEXT_MAP: Duration = Duration::from_millis(600);

/// Mirror of the fields after the file in `follow_args` of `device/follow.cu`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Follow {
    buffer: u64,
    versions: u64,
    key: u32,
    blocks: u32,
    stop: u32,
    pub(crate) rounds: u32,
    pub(crate) failed: u32,
    pub(crate) status: u32,
    pub(crate) longest_write_ns: u64,
    pub(crate) longest_read_ns: u64,
}

/// Admin queues to SSDs with the rights of the daemon.
struct Master {
    queues: Vec<(usize, HostQueue)>,
    _engine: TransportThreads,
}

impl Master {
    /// Connects to all SSDs but one.
    fn connect(client: &Client, daemon: &str, dead: usize) -> Self {
        let engine = TransportThreads::start(vec![RcTransport::new(TransportConfig::default())]).unwrap();
        let transport = engine.handle();
        let executor = transport.call(|e, _| e.add_soft()).unwrap();
        let connect = |ssd: usize| {
            let info = &client.ssds()[ssd];
            let wire = libgnstor::connect_to_ssd(info, daemon, &Credentials::default(), DEADLINE).unwrap();
            let remote = transport.call(move |e, _| e.add_remote(wire)).unwrap().unwrap();
            let index = u16::try_from(ssd).unwrap();
            let port = Port::Remote { remote, ssd: index };
            let subnqn = ssd_subnqn(index);
            let path = SsdPath { transport: &transport, executor, port, subnqn: &subnqn };
            let who = HostCredentials { host: Host::from(Identity::Daemon), secret: None };
            (ssd, HostQueue::connect(&path, who, Duration::ZERO, DEADLINE).unwrap())
        };
        let queues = (0..client.ssds().len()).filter(|&ssd| ssd != dead).map(connect).collect();
        Self { queues, _engine: engine }
    }

    /// Sends the next map, which leaves this SSD out, to all the others by MAP SET.
    fn drop_ssd(&mut self, known: &AnyMap, dead: u16) -> AnyMap {
        let AnyMap::Two(known) = known else { panic!("this test makes maps of format 2") };
        let next = AnyMap::from(known.without(dead));
        let mut bytes = next.encode().unwrap();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        let cdw10 = u32::try_from(bytes.len() / 4).unwrap().into();
        for (ssd, queue) in &mut self.queues {
            let sqe = Sqe { opcode: opcode::MAP_SET, nsid: 1.into(), cdw10, ..Sqe::default() };
            let cqe = queue.execute(sqe, Payload::Out(&bytes), DEADLINE).unwrap();
            assert!(Status(cqe.status_word()).is_success(), "SSD {ssd} takes the map: {cqe:?}");
        }
        next
    }
}

/// A kernel's arguments in device memory.
pub(crate) struct Running {
    args: DeviceMem,
    buffer: DeviceMem,
    versions: DeviceMem,
}

impl Running {
    const AT: usize = size_of::<DeviceFile>();

    pub(crate) fn new(file: &File) -> Self {
        let device = file.client().node().device();
        let buffer = Device::alloc(device, THREADS as usize * 2 * BLOCK).unwrap();
        let versions = Device::alloc(device, (THREADS * BLOCKS_EACH) as usize * 4).unwrap();
        let key = file.client().register_buffer(buffer.address(), buffer.len()).unwrap();
        let follow = Follow {
            buffer: buffer.address(),
            versions: versions.address(),
            key,
            blocks: BLOCKS_EACH,
            stop: 0,
            rounds: 0,
            failed: 0,
            status: 0,
            longest_write_ns: 0,
            longest_read_ns: 0,
        };
        let args = Device::alloc(device, Self::AT + size_of::<Follow>()).unwrap();
        args.write(0, file.device_file().as_bytes()).unwrap();
        args.write(Self::AT, follow.as_bytes()).unwrap();
        Self { args, buffer, versions }
    }

    pub(crate) fn run(&self, file: &File) {
        let shape = Shape { blocks: 1, threads: THREADS, smem_bytes: 0 };
        file.launch(kernels::gn_test_follow(), shape, self.args.address(), Duration::from_secs(120)).unwrap();
    }

    /// The kernel's arguments as they are now.
    pub(crate) fn look(&self) -> Follow {
        let mut raw = vec![0; size_of::<Follow>()];
        self.args.read(Self::AT, &mut raw).unwrap();
        Follow::read_from_bytes(&raw).unwrap()
    }

    pub(crate) fn stop(&self) {
        self.args.write(Self::AT + offset_of!(Follow, stop), &1u32.to_le_bytes()).unwrap();
    }

    pub(crate) fn versions(&self) -> Vec<u32> {
        let mut raw = vec![0; self.versions.len()];
        self.versions.read(0, &mut raw).unwrap();
        raw.chunks_exact(4).map(|raw| u32::from_le_bytes(*raw.first_chunk().unwrap())).collect()
    }
}

/// Checks that each acknowledged block is on every serving member of the map. Returns the number of copies
/// that were checked.
pub(crate) fn every_copy_is_there(file: &File, map: &AnyMap, versions: &[u32]) -> usize {
    let info = file.info();
    let vid = Vid::new(u16::try_from(info.vid).unwrap()).unwrap();
    let shift = u8::try_from((info.chunk_bytes as usize / BLOCK).trailing_zeros()).unwrap();
    let mut copies = 0;
    for (vba, &version) in (0..).zip(versions) {
        let group = group_of(vid, vba, shift, info.factor, map.groups());
        let serving = map.row(group).take(REPLICAS as usize).flatten().filter(|place| !place.filling).count();
        for replica in 0..u32::try_from(serving).unwrap() {
            let mut block = vec![0; BLOCK];
            read_copy(file, replica, u64::from(vba) * BLOCK as u64, &mut block);
            let found = u32::from_le_bytes(*block.first_chunk().unwrap());
            assert_eq!(found, version, "block {vba}, serving replica {replica} of {serving}");
            copies += 1;
        }
    }
    copies
}

/// Four SSDs in processes of their own, their array, and a client with a volume.
fn four() -> (Vec<SsdProcess>, Up, Guest) {
    let start = |index: usize| {
        let number = index.to_string();
        SsdProcess::start(ANY, &["--preset", "null", "--size", "64MiB", "--index", &number])
    };
    let ssds: Vec<_> = (0..4).map(start).collect();
    let addresses: Vec<_> = ssds.iter().map(SsdProcess::address).collect();
    // The test makes the next map itself.
    let up = Up::start_as(&["--map-format", "2", "--ssd-at", &addresses.join(",")]);
    let guest = Guest::connect_for(&up.daemon, "writer", Duration::from_secs(30));
    (ssds, up, guest)
}

#[test]
fn a_kernel_that_runs_goes_on_without_an_ssd_that_was_killed_or_stopped() {
    within(BUILD_LIMIT, || {
        let faults = [(0, "-KILL"), (1, "-STOP"), (2, "-KILL")];
        for (dead, how) in faults.into_iter().take(if long() { 3 } else { 2 }) {
            let (ssds, up, guest) = four();
            let client: &Arc<Client> = &guest.client;
            volume(client, "v", 8 << 20, REPLICAS);
            let file = client.open_for("v", Rights::Write, Duration::from_secs(60)).unwrap();
            let mut master = Master::connect(client, &up.daemon, dead);
            // From here on the test makes the maps.
            up.kill();
            let (running, known) = (Running::new(&file), client.fleet_map());
            let waited = std::thread::scope(|scope| {
                let kernel = scope.spawn(|| running.run(&file));
                until("it writes", || running.look().rounds > 300);
                ssds[dead].signal(how);
                let begun = Instant::now();
                std::thread::sleep(NEXT_MAP);
                master.drop_ssd(&known, u16::try_from(dead).unwrap());
                let made = begun.elapsed();
                until("the client goes by the next map", || client.map_epoch() > known.epoch());
                let learned = begun.elapsed() - made;
                let then = running.look().rounds;
                until("it goes on", || running.look().rounds > then + 300);
                running.stop();
                kernel.join().unwrap();
                println!("SSD {dead} gets {how}: map after {made:?}, followed after another {learned:?}");
                made
            });
            let end = running.look();
            let pause = Duration::from_nanos(end.longest_write_ns.max(end.longest_read_ns));
            println!("{} writes and reads, the longest {pause:?}; {end:?}", end.rounds);
            assert_eq!((end.failed, end.status), (0, 0), "no request fails");
            // A stopped SSD breaks no connection, so the client gives its queue pairs up because of the map.
            assert!(pause < waited + Duration::from_millis(1700), "{pause:?}");
            // Each write used one stamp, however often the client sent it.
            assert_eq!(file.next_sequence().unwrap(), u64::from(end.rounds) + 1);
            let copies = every_copy_is_there(&file, &client.fleet_map(), &running.versions());
            assert!(copies >= 2 * (THREADS * BLOCKS_EACH) as usize, "{copies} copies");
            // Host calls go by the next map, too; Flush leaves the dead SSD out.
            file.write_at(0, &vec![7; 4 << 20]).unwrap();
            file.flush().unwrap();
            drop((file, running.buffer, master, guest));
            drop(ssds);
        }
    });
}

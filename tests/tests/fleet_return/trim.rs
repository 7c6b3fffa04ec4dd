// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client that trims by commands of its own: the library has no call for it.

use crate::fleet_daemon::{Array, WAIT, path_to};
use gnstor_fabric::host_queue::HostQueue;
use gnstor_proto::fabrics::Identity;
use gnstor_proto::grpc::volumes_client::VolumesClient;
use gnstor_proto::grpc::{OpenRequest, ReleaseRequest, RenewRequest, Rights};
use gnstor_proto::nvme::{FLAGS_SGL, ReadWrite, Sqe, io};
use gnstor_proto::placement::Rows;
use gnstor_proto::placement::map3::FleetMap3;
use gnstor_proto::slba::{Address, ClientId, Slba, Stamp, Vid};
use gnstor_proto::status::{Detail, Refusal, Status};
use gnstor_tests::raw_queue::RawQueue;
use libgnstor::VolumeInfo;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tonic::transport::Channel;

/// No other client has this id.
const CLIENT: u32 = 0x7171;
const LEASE_MS: u32 = 120_000;

/// Queues to the SSDs of an array, as the client that holds a volume's write lease.
pub(super) struct Trimmer {
    client: ClientId,
    info: VolumeInfo,
    queues: BTreeMap<u16, (RawQueue, HostQueue)>,
    sequence: u64,
    cid: u16,
    runtime: Runtime,
    calls: VolumesClient<Channel>,
}

impl Trimmer {
    /// Takes the volume's write lease.
    pub(super) fn new(array: &Array, mut info: VolumeInfo) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let request = OpenRequest {
            name: info.name.clone(),
            client_id: CLIENT,
            rights: Rights::Write.into(),
            lease_ms: LEASE_MS,
            follows_drains: true,
        };
        let daemon = Channel::from_shared(array.daemon()).expect("an address");
        let (calls, opened) = runtime.block_on(async {
            let mut calls = VolumesClient::new(daemon.connect().await.expect("it listens"));
            let opened = calls.open(request).await.expect("a lease");
            (calls, opened.into_inner().volume.expect("a volume"))
        });
        info.lease_epoch = opened.lease_epoch;
        let client = ClientId::new(u16::try_from(CLIENT).expect("an id")).expect("an id");
        Self { client, info, queues: BTreeMap::new(), sequence: 0, cid: 0, runtime, calls }
    }

    pub(super) fn info(&self) -> &VolumeInfo {
        &self.info
    }

    /// Renews the lease, and says that it reaches all SSDs: it connects when it has something to say.
    pub(super) fn renew(&mut self) {
        let request = || RenewRequest {
            name: self.info.name.clone(),
            client_id: CLIENT,
            lease_epoch: self.info.lease_epoch,
            lease_ms: LEASE_MS,
            reaches: Some(0b1111),
            in_doubt: false,
            follows_drains: true,
        };
        let (runtime, calls) = (&self.runtime, &mut self.calls);
        // A daemon that starts does not answer yet.
        gnstor_tests::command::until("the lease goes on", || {
            runtime.block_on(calls.renew(request())).is_ok()
        });
    }

    /// Gives the lease back; all has been acknowledged.
    pub(super) fn end(mut self) {
        let name = self.info.name.clone();
        let request = ReleaseRequest { name, client_id: CLIENT, all_acknowledged: true, lease_epoch: None };
        self.runtime.block_on(self.calls.release(request)).expect("it ends");
    }

    /// Unmaps blocks of one chunk on all its SSDs in one epoch, within the deadline of a call.
    pub(super) fn trim(&mut self, array: &Array, first: u32, blocks: u32) -> Duration {
        let begun = Instant::now();
        self.sequence += 1;
        let mut trouble = String::new();
        loop {
            assert!(begun.elapsed() < WAIT, "TRIM of block {first}: {trouble}");
            let map = array.map();
            match self.try_all(array, &map, first, blocks) {
                Ok(()) => return begun.elapsed(),
                Err(why) => trouble = why,
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn try_all(&mut self, array: &Array, map: &FleetMap3, first: u32, blocks: u32) -> Result<(), String> {
        let group = super::group(map, &self.info, first);
        let replicas = u8::try_from(self.info.replicas).expect("few");
        for member in map.replicas(group, replicas) {
            if let Err(why) = self.try_one(array, map, member.ssd, (first, blocks)) {
                self.queues.remove(&member.ssd);
                return Err(format!("SSD {}: {why}", member.ssd));
            }
        }
        Ok(())
    }

    fn try_one(
        &mut self,
        array: &Array,
        map: &FleetMap3,
        ssd: u16,
        (first, blocks): (u32, u32),
    ) -> Result<(), String> {
        if !self.queues.contains_key(&ssd) {
            let queues = self.connect(array, ssd)?;
            self.queues.insert(ssd, queues);
        }
        let (queue, _) = self.queues.get_mut(&ssd).expect("it was just made");
        let vid = Vid::new(u16::try_from(self.info.vid).expect("an id")).expect("an id");
        let slba = Slba::pack(Address { vid, client: self.client, vba: first });
        let stamp = Stamp { lease_epoch: self.info.lease_epoch, sequence: self.sequence };
        self.cid = self.cid.wrapping_add(1);
        let mut sqe = Sqe {
            opcode: io::WRITE_ZEROES,
            flags: FLAGS_SGL,
            nsid: 1.into(),
            cid: self.cid.into(),
            ..Sqe::default()
        };
        ReadWrite { slba, blocks, fua: false, map_epoch: map.wire_epoch(), stamp }.encode(&mut sqe);
        let answer = queue.exchange(&sqe, Duration::from_millis(500)).map_err(|error| error.to_string())?;
        if Status(answer.status_word()).is_success() {
            return Ok(());
        }
        match Detail::from_dw0(answer.dw0.get()).refusal() {
            Some(
                refusal @ (Refusal::StaleMap
                | Refusal::MapBehind
                | Refusal::WrongTarget
                | Refusal::NotServing
                // On a busy machine the map may name an SSD absent, or drop it to one copy.
                | Refusal::GroupWaits),
            ) => Err(refusal.sentence().into()),
            other => panic!("TRIM of block {first} at SSD {ssd}: {other:?}, {answer:?}"),
        }
    }

    fn connect(&self, array: &Array, ssd: u16) -> Result<(RawQueue, HostQueue), String> {
        let identity = Identity::Client(self.client);
        let address = &array.addresses[usize::from(ssd)];
        let (port, mut admin) =
            path_to(&array.engine, array.soft, ssd, address, identity).map_err(|error| error.to_string())?;
        let mut queue =
            RawQueue::open(&array.engine, array.soft, port, 1).map_err(|error| error.to_string())?;
        let data = admin.connect_data(1);
        let status = queue.connect_with(1, &data).map_err(|error| error.to_string())?;
        if status.is_success() { Ok((queue, admin)) } else { Err(format!("{status:?}")) }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client that trims by commands of its own: the library has no call for it.

use crate::fleet_daemon::{Array, WAIT, path_to};
use gnstor_fabric::host_queue::HostQueue;
use gnstor_proto::fabrics::Identity;
use gnstor_proto::nvme::{FLAGS_SGL, ReadWrite, Sqe, io};
use gnstor_proto::placement::Rows;
use gnstor_proto::placement::map3::FleetMap3;
use gnstor_proto::slba::{Address, ClientId, Slba, Stamp, Vid};
use gnstor_proto::status::{Detail, Refusal, Status};
use gnstor_tests::raw_queue::RawQueue;
use libgnstor::VolumeInfo;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Queues to the SSDs of an array, as the client that holds a volume's write lease.
pub(super) struct Trimmer {
    client: ClientId,
    info: VolumeInfo,
    queues: BTreeMap<u16, (RawQueue, HostQueue)>,
    sequence: u64,
    cid: u16,
}

impl Trimmer {
    pub(super) fn new(client: u16, info: VolumeInfo) -> Self {
        let client = ClientId::new(client).expect("an id");
        Self { client, info, queues: BTreeMap::new(), sequence: 0, cid: 0 }
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
                | Refusal::NotServing),
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

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Write Zeroes, by commands of this program: the library has no call for it. A turn of these commands makes
//! no write of the library's, so each stamp is used once.

use crate::history::now;
use gnstor_fabric::host_queue::{Completion, HostQp, HostQueue, SsdPath};
use gnstor_fabric::tcp::Wire;
use gnstor_fabric::transport::{ExecutorId, Port};
use gnstor_proto::fabrics::{ConnectData, ConnectFields, Identity, command, fctype, ssd_subnqn};
use gnstor_proto::nvme::{Cqe, FLAGS_SGL, ReadWrite, Sqe, io};
use gnstor_proto::placement::map3::FleetMap3;
use gnstor_proto::placement::{AnyMap, Rows as _, group_of};
use gnstor_proto::slba::{Address, Slba, Stamp, Vid};
use gnstor_proto::status::{Detail, Refusal, Status};
use gnstor_proto::{BLOCK_BYTES, slba::ClientId};
use libgnstor::{Error, File, TransportHandle, VolumeInfo};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use zerocopy::IntoBytes as _;

/// Deadline of a command on one SSD, and of a connection.
const ANSWER: Duration = Duration::from_millis(500);
/// Deadline of a call.
const CALL_NS: u64 = 10_000_000_000;
const REST: Duration = Duration::from_millis(10);

/// Queues of a client to the SSDs of its array.
pub(super) struct Zeroes {
    engine: TransportHandle,
    soft: ExecutorId,
    client: ClientId,
    info: VolumeInfo,
    queues: BTreeMap<u16, (HostQp, HostQueue)>,
    cid: u16,
}

fn vid(info: &VolumeInfo) -> Vid {
    Vid::new(u16::try_from(info.vid).expect("an id")).expect("an id")
}

fn group(map: &FleetMap3, info: &VolumeInfo, block: u32) -> u32 {
    let shift = u8::try_from((info.chunk_bytes / BLOCK_BYTES).trailing_zeros()).expect("small");
    let groups = u32::try_from(map.rows.len()).expect("few");
    group_of(vid(info), block, shift, info.factor, groups)
}

/// The SSD that serves a block to readers beside a writer, by the client's map.
pub(super) fn first_of(file: &File, block: u32) -> Option<u16> {
    let AnyMap::Three(map) = &*file.client().fleet_map() else { return None };
    let mut serve = map.replicas(group(map, file.info(), block), 1).filter(|place| !place.filling);
    serve.next().map(|place| place.ssd)
}

fn failed(why: impl ToString) -> String {
    why.to_string()
}

impl Zeroes {
    /// Queues for the file's volume, under its lease.
    pub(super) fn new(engine: &TransportHandle, file: &File) -> Result<Self, Error> {
        let soft = engine.call(|engine, _| engine.add_soft()).map_err(|e| Error::Protocol(e.to_string()))?;
        let client = ClientId::new(file.client().id()).expect("an id of the daemon");
        let (engine, info) = (engine.clone(), file.info().clone());
        Ok(Self { engine, soft, client, info, queues: BTreeMap::new(), cid: 0 })
    }

    /// Unmaps blocks of one chunk on all its SSDs in one epoch. Starts over by a newer map, with the same
    /// stamp.
    ///
    /// # Errors
    /// After the deadline, or where an SSD refuses for good.
    pub(super) fn zero(
        &mut self,
        file: &File,
        (first, blocks): (u32, u32),
        sequence: u64,
    ) -> Result<(), Error> {
        let end = now() + CALL_NS;
        loop {
            let AnyMap::Three(map) = &*file.client().fleet_map() else {
                return Err(Error::Protocol("a map without voters".into()));
            };
            match self.try_all(map, (first, blocks), sequence) {
                Ok(()) => return Ok(()),
                Err((why, is_final)) if is_final || now() > end => return Err(Error::Protocol(why)),
                Err(_) => std::thread::sleep(REST),
            }
        }
    }

    fn vid(&self) -> Vid {
        vid(&self.info)
    }

    fn try_all(&mut self, map: &FleetMap3, at: (u32, u32), sequence: u64) -> Result<(), (String, bool)> {
        let group = group(map, &self.info, at.0);
        let replicas = u8::try_from(self.info.replicas).expect("few");
        let mut count = 0;
        for member in map.replicas(group, replicas) {
            count += 1;
            self.try_one(map, member.ssd, at, sequence).inspect_err(|_| {
                self.queues.remove(&member.ssd);
            })?;
        }
        if count == 0 { Err(("no SSD has this group".into(), false)) } else { Ok(()) }
    }

    fn try_one(
        &mut self,
        map: &FleetMap3,
        ssd: u16,
        (first, blocks): (u32, u32),
        sequence: u64,
    ) -> Result<(), (String, bool)> {
        if !self.queues.contains_key(&ssd) {
            let address = &map.ssds[usize::from(ssd)].address;
            let queues = self.connect(ssd, address).map_err(|why| (why, false))?;
            self.queues.insert(ssd, queues);
        }
        self.cid = self.cid.wrapping_add(1);
        let slba = Slba::pack(Address { vid: self.vid(), client: self.client, vba: first });
        let stamp = Stamp { lease_epoch: self.info.lease_epoch, sequence };
        let mut sqe = Sqe {
            opcode: io::WRITE_ZEROES,
            flags: FLAGS_SGL,
            nsid: 1.into(),
            cid: self.cid.into(),
            ..Sqe::default()
        };
        ReadWrite { slba, blocks, fua: false, map_epoch: map.wire_epoch(), stamp }.encode(&mut sqe);
        let (queue, _) = self.queues.get_mut(&ssd).expect("it is there");
        let answer = exchange(queue, &sqe).map_err(|why| (why, false))?;
        if Status(answer.status_word()).is_success() {
            return Ok(());
        }
        let refusal = Detail::from_dw0(answer.dw0.get()).refusal();
        let is_final = !matches!(
            refusal,
            Some(
                Refusal::StaleMap
                    | Refusal::MapBehind
                    | Refusal::WrongTarget
                    | Refusal::NotServing
                    | Refusal::GroupWaits
            )
        );
        Err((format!("SSD {ssd}: {refusal:?}, status {:x}h", answer.status_word()), is_final))
    }

    fn connect(&self, ssd: u16, address: &str) -> Result<(HostQp, HostQueue), String> {
        let target: SocketAddr = address.parse().map_err(failed)?;
        let stream = TcpStream::connect_timeout(&target, ANSWER).map_err(failed)?;
        let wire = Wire::client(stream, None, "ssd", ANSWER).map_err(failed)?;
        let remote = self.engine.call(move |engine, _| engine.add_remote(wire)).map_err(failed)?;
        let (port, subnqn) = (Port::Remote { remote: remote.map_err(failed)?, ssd }, ssd_subnqn(ssd));
        let path = SsdPath { transport: &self.engine, executor: self.soft, port, subnqn: &subnqn };
        let identity = Identity::Client(self.client);
        let mut admin = HostQueue::connect(&path, identity, Duration::ZERO, ANSWER).map_err(failed)?;
        let mut queue = HostQp::connect(&path, 1, ANSWER).map_err(failed)?;
        let data: ConnectData = admin.connect_data(1);
        queue.write_data(data.as_bytes());
        let fields = ConnectFields { qid: 1.into(), sqsize_z: 15.into(), ..ConnectFields::default() };
        let mut sqe = command(fctype::CONNECT, &fields);
        sqe.flags = FLAGS_SGL;
        sqe.dptr = queue.data(1024);
        let answer = exchange(&mut queue, &sqe)?;
        let status = Status(answer.status_word());
        if status.is_success() { Ok((queue, admin)) } else { Err(format!("Connect: {status:?}")) }
    }
}

/// Sends a capsule and waits for its response.
fn exchange(queue: &mut HostQp, capsule: &Sqe) -> Result<Cqe, String> {
    queue.send(capsule);
    let end = now() + u64::try_from(ANSWER.as_nanos()).expect("short");
    loop {
        match queue.poll() {
            Some(Completion::Sent) => {}
            Some(Completion::Response(cqe)) if cqe.cid == capsule.cid => return Ok(cqe),
            Some(Completion::Response(_)) => return Err("the response is for another command".into()),
            Some(Completion::Failed(cause)) => return Err(format!("the connection broke: {cause}")),
            None if now() > end => return Err("no answer before the deadline".into()),
            None => std::thread::sleep(Duration::from_micros(100)),
        }
    }
}

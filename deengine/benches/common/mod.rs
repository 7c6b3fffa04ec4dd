// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands and entries that the benchmarks of an SSD need before they can begin.

use gnstor_proto::fabrics::{self, ConnectData, ConnectFields, Identity, PropertyFields, fctype, property};
use gnstor_proto::nvme::{self, KeyedSgl, ReadWrite, Sqe};
use gnstor_proto::placement::FleetMap;
use gnstor_proto::slba::{Address, ClientId, Slba, Stamp, Vid};
use gnstor_proto::vendor::{Limits, VolumeEntry};

/// The client whose I/O is measured.
pub(crate) fn client() -> ClientId {
    ClientId::new(7).expect("valid")
}

/// Entries of a queue, less one: an admin queue may have fewer.
fn size_z(qid: u16) -> u16 {
    if qid == 0 { 31 } else { 127 }
}

/// Connect for a queue, with its data.
pub(crate) fn connect(qid: u16, identity: Identity, cntlid: u16) -> (Sqe, ConnectData) {
    let sqsize_z = size_z(qid).into();
    let fields = ConnectFields { qid: qid.into(), sqsize_z, ..ConnectFields::default() };
    (fabrics::command(fctype::CONNECT, &fields), ConnectData::new(identity, cntlid, &fabrics::ssd_subnqn(0)))
}

/// The request for such a queue.
pub(crate) fn queue_request(qid: u16) -> fabrics::CmRequest {
    let (hrqsize, hsqsize_z) = ((size_z(qid) + 1).into(), size_z(qid).into());
    fabrics::CmRequest { qid: qid.into(), hrqsize, hsqsize_z, ..Default::default() }
}

/// Property Set of CC: enabled, with the entry sizes of I/O queues.
pub(crate) fn enable() -> Sqe {
    let value = (1 | 6 << 16 | 4 << 20).into();
    let fields = PropertyFields { offset: property::CC.into(), value, ..Default::default() };
    fabrics::command(fctype::PROPERTY_SET, &fields)
}

/// A command of the daemon's with `bytes` of data.
pub(crate) fn vendor(opcode: u8, bytes: usize) -> Sqe {
    Sqe { opcode, nsid: 1.into(), cdw10: u32::try_from(bytes / 4).expect("small").into(), ..Sqe::default() }
}

/// The map of an array of one SSD.
pub(crate) fn map() -> Vec<u8> {
    let mut map = FleetMap::equal(1, 1024, 1, 1).expect("a map").encode();
    map.resize(map.len().next_multiple_of(4), 0);
    map
}

/// Volume 1, with [`client`] as its writer.
pub(crate) fn volume(capacity_blocks: u64) -> VolumeEntry {
    VolumeEntry {
        vid: Vid::MIN,
        generation: 1,
        version: 1,
        term: 1,
        deleting: false,
        name: "bench".into(),
        labels: String::new(),
        capacity_blocks,
        replicas: 1,
        chunk_shift: 4,
        factor: 1,
        owner: client(),
        any_reader: false,
        readers: vec![client()],
        writer: Some(client()),
        unsettled: false,
        lease_epoch: 1,
        lease_ms: 3_600_000,
        request_ids: Vec::new(),
        limits: Limits::default(),
        salvaged_s: 0,
    }
}

/// A command for block `vba` of that volume.
pub(crate) fn io(verb: u8, vba: u64, cid: usize, sequence: u64) -> Sqe {
    let mut sqe = Sqe { opcode: verb, flags: nvme::FLAGS_SGL, nsid: 1.into(), ..Sqe::default() };
    sqe.cid = u16::try_from(cid).expect("small").into();
    sqe.dptr = KeyedSgl::keyed(4096, 4096, 1);
    let address = Address { vid: Vid::MIN, client: client(), vba: u32::try_from(vba).expect("small") };
    let stamp = Stamp { lease_epoch: 1, sequence };
    ReadWrite { slba: Slba::pack(address), blocks: 1, fua: false, map_epoch: 1, stamp }.encode(&mut sqe);
    sqe
}

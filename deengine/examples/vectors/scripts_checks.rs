// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scripts of the checks: who asks, when, by which map, for which volume and blocks.

use crate::file::Script;
use crate::script::{Io, LEASE, MS, READER, STRANGER, VERBS, VOLUME, WRITER, Writing, client, entry};
use crate::scripts::verb;
use gnstor_proto::nvme::io;
use gnstor_proto::placement::{FleetMap, Rows};
use gnstor_proto::slba::ClientId;
use gnstor_proto::vendor::{VolumeEntry, WRITE_LEASE_MS};

pub(crate) fn checks(scripts: &mut Vec<Script>) {
    for opcode in VERBS {
        let name = verb(opcode);
        let own = Io::new(opcode, WRITER, 0, 1);
        serving(scripts, name, own);
        volumes(scripts, name, own);
        rights(scripts, name, own);
    }
    epochs(scripts);
    readers(scripts);
}

/// Identity, map and serving lease.
fn serving(scripts: &mut Vec<Script>, name: &str, own: Io) {
    let mut s = Writing::new();
    s.run(own);
    s.run(Io { from: READER, ..own });
    s.run(Io { from: STRANGER, ..own });
    // Ranges name their client in the data, so a queue of no client has no player there.
    if own.opcode != io::DATASET_MANAGEMENT {
        s.run(Io { from: 0, ..own });
    }
    scripts.push(
        s.finish(format!("identity-{name}"), format!("identity: {name} names its connection's client")),
    );

    let mut s = Writing::bare();
    s.run(own);
    s.add(&entry(VOLUME));
    s.run(own);
    s.set_map(&FleetMap::equal(1, 64, 7, 1).expect("a map"));
    s.run(own);
    scripts.push(s.finish(format!("no-map-{name}"), format!("serving: no {name} before there is a map")));

    let mut s = Writing::new();
    s.run(own);
    s.renew(100, 1, 1);
    s.now_ns += 100 * MS - 1;
    s.run(own);
    let late = s.begin(own);
    s.now_ns += 1;
    s.end(own, late);
    s.run(own);
    s.renew(100, 2, 1);
    s.run(own);
    s.renew(0, 3, 1);
    s.run(own);
    scripts.push(
        s.finish(format!("serving-lease-{name}"), format!("serving lease: {name} to its last nanosecond")),
    );
}

/// Volume, deleting, range.
fn volumes(scripts: &mut Vec<Script>, name: &str, own: Io) {
    let mut s = Writing::new();
    for (vid, who) in
        [(0, WRITER), (1, WRITER), (0xFFFE, WRITER), (0xFFFF, WRITER), (VOLUME, 0), (VOLUME, 0xFFFF)]
    {
        s.run(Io { vid, client: who, ..own });
    }
    for vid in [1, 0xFFFE] {
        s.add(&entry(vid));
        s.run(Io { vid, ..own });
    }
    let ends = VolumeEntry { writer: ClientId::new(0xFFFE), readers: vec![client(1)], ..entry(6) };
    s.add(&ends);
    for who in [1, 0xFFFE] {
        s.run(Io { vid: 6, from: who, client: who, ..own });
    }
    scripts.push(
        s.finish(format!("ids-{name}"), format!("ids: {name} with the first and last volume and client")),
    );

    // The second volume is not deleted.
    let mut s = Writing::new();
    s.add(&entry(6));
    let other = Io { vid: 6, ..own };
    s.run(other);
    let delete = s.begin(Io::new(io::READ, READER, 3, 1));
    s.delete(VOLUME, 1, 2, 1);
    s.run(own);
    s.run(other);
    s.end(Io::new(io::READ, READER, 3, 1), delete);
    s.wait_for_sweeps();
    s.run(own);
    s.run(other);
    scripts.push(s.finish(
        format!("deleting-{name}"),
        format!("deleting: no {name} of a volume that is being deleted"),
    ));
    ranges(scripts, name, own);
}

fn ranges(scripts: &mut Vec<Script>, name: &str, own: Io) {
    let mut s = Writing::new();
    for (vba, blocks) in
        [(511, 1), (512, 1), (510, 2), (511, 2), (496, 16), (0xFFFF_FFFF, 1), (0xFFFF_FFF0, 16)]
    {
        s.run(Io { vba, blocks, ..own });
    }
    s.add(&VolumeEntry { capacity_blocks: 1 << 32, chunk_shift: 12, ..entry(6) });
    for (vba, blocks) in [(0xFFFF_FFFF, 1), (0xFFFF_FFFE, 1), (0xFFFF_FFFE, 2), (0xFFFF_FFFF, 2)] {
        s.run(Io { vid: 6, vba, blocks, ..own });
    }
    s.add(&VolumeEntry { capacity_blocks: (1 << 32) - 1, chunk_shift: 12, ..entry(4) });
    for (vba, blocks) in [(0xFFFF_FFFE, 1), (0xFFFF_FFFF, 1), (0xFFFF_FFFD, 2)] {
        s.run(Io { vid: 4, vba, blocks, ..own });
    }
    s.add(&VolumeEntry { capacity_blocks: 1, ..entry(3) });
    for (vba, blocks) in [(0, 1), (1, 1), (0, 2)] {
        s.run(Io { vid: 3, vba, blocks, ..own });
    }
    scripts.push(s.finish(
        format!("range-{name}"),
        format!("range: {name} up to the last block of 1, 512, 2^32 - 1 and 2^32"),
    ));
}

/// Rights and write lease.
fn rights(scripts: &mut Vec<Script>, name: &str, own: Io) {
    let mut s = Writing::new();
    for who in [WRITER, READER, STRANGER, 1, 0xFFFE] {
        s.run(Io { from: who, client: who, ..own });
    }
    s.chmod(&VolumeEntry { version: 2, any_reader: true, ..entry(VOLUME) });
    for who in [WRITER, READER, STRANGER] {
        s.run(Io { from: who, client: who, ..own });
    }
    s.chmod(&VolumeEntry {
        version: 3,
        writer: ClientId::new(READER),
        lease_epoch: LEASE + 1,
        ..entry(VOLUME)
    });
    for who in [WRITER, READER, STRANGER] {
        s.run(Io { from: who, client: who, ..own });
        s.run(Io { from: who, client: who, lease_epoch: LEASE + 1, ..own });
    }
    s.now_ns += 10_000 * MS;
    for who in [WRITER, READER, STRANGER] {
        s.run(Io { from: who, client: who, lease_epoch: LEASE + 1, ..own });
    }
    s.chmod(&VolumeEntry {
        version: 4,
        writer: None,
        readers: vec![],
        lease_epoch: LEASE + 1,
        ..entry(VOLUME)
    });
    for who in [WRITER, READER, STRANGER] {
        s.run(Io { from: who, client: who, lease_epoch: LEASE + 1, ..own });
    }
    scripts.push(s.finish(
        format!("rights-{name}"),
        format!("rights: {name} by writer, reader, former writer, stranger"),
    ));

    let mut s = Writing::new();
    for lease_epoch in [LEASE - 1, LEASE, LEASE + 1, 0, u32::MAX] {
        s.run(Io { lease_epoch, ..own });
    }
    s.now_ns += 10_000 * MS - 1 - s.now_ns + 1000;
    s.run(own);
    let late = s.begin(own);
    s.now_ns += 1;
    s.end(own, late);
    s.run(own);
    s.chmod(&VolumeEntry { version: 2, lease_ms: 0, ..entry(VOLUME) });
    s.run(own);
    s.chmod(&VolumeEntry { version: 3, lease_ms: *WRITE_LEASE_MS.end(), ..entry(VOLUME) });
    s.run(own);
    scripts.push(s.finish(
        format!("write-lease-{name}"),
        format!("write lease: {name} by its epoch, to its last nanosecond"),
    ));
}

fn epochs(scripts: &mut Vec<Script>) {
    for ours in
        [1u64, 2, 0x7FFF_FFFF, 0x8000_0000, 0x8000_0001, 0xFFFF_FFFF, 1 << 32, (1 << 32) + 5, u64::MAX]
    {
        let mut s = Writing::bare();
        let mut map = FleetMap::equal(1, 64, 7, 1).expect("a map");
        map.epoch = ours;
        s.set_map(&map);
        s.add(&entry(VOLUME));
        let wire = map.wire_epoch();
        for ahead in [0, 1, 2, 0x7FFF_FFFF, 0x8000_0000, 0x8000_0001, 0xFFFF_FFFF] {
            s.run_verbs(Io { map_epoch: wire.wrapping_add(ahead), ..Io::new(io::READ, WRITER, 0, 1) });
        }
        scripts.push(s.finish(
            format!("epoch-{ours:x}"),
            format!("map epoch: {ours:x}h, older and newer ones, wrapped"),
        ));
    }
}

fn readers(scripts: &mut Vec<Script>) {
    for (count, step) in [(1u16, 1u16), (2, 0x7FFF), (16, 4093), (511, 127), (512, 113)] {
        let mut s = Writing::new();
        // The values are in no order, and some occur twice.
        let of = |at: u16| at.wrapping_mul(step).wrapping_mul(7) % 0xFFFD + 1;
        let list: Vec<ClientId> = (0..count).map(|at| client(of(at))).collect();
        s.add(&VolumeEntry { readers: list, ..entry(6) });
        for at in (0..count).step_by(usize::from(count / 8 + 1)).chain([count - 1]) {
            for who in [of(at), of(at) % 0xFFFD + 1] {
                s.run(Io { vid: 6, from: 0, client: who, ..Io::new(io::READ, who, 0, 1) });
            }
        }
        s.run(Io { vid: 6, ..Io::new(io::READ, WRITER, 0, 1) });
        scripts.push(s.finish(
            format!("readers-{count}"),
            format!("readers: {count} of them in no order, and their neighbours"),
        ));
    }
}

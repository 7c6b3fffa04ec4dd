// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All golden scripts, each named by the property that it shows. A refusal comes with the neighbours that
//! must not be refused.

use crate::file::Script;
use crate::script::{Io, LEASE, MS, READER, STRANGER, VERBS, VOLUME, WRITER, Writing, client, entry};
use crate::scripts_admin;
use crate::scripts_map;
use gnstor_proto::nvme::{KeyedSgl, io};
use gnstor_proto::placement::FleetMap;
use gnstor_proto::slba::ClientId;
use gnstor_proto::vendor::VolumeEntry;

fn verb(opcode: u8) -> &'static str {
    match opcode {
        io::READ => "read",
        io::WRITE => "write",
        io::COMPARE => "compare",
        io::WRITE_ZEROES => "zeroes",
        _ => "ranges",
    }
}

pub(crate) fn all() -> Vec<Script> {
    let mut scripts = Vec::new();
    checks(&mut scripts);
    formats(&mut scripts);
    places(&mut scripts);
    stamps(&mut scripts);
    fences(&mut scripts);
    data(&mut scripts);
    scripts_admin::entries(&mut scripts);
    scripts_admin::lists(&mut scripts);
    scripts_admin::terms(&mut scripts);
    scripts_admin::sweeps(&mut scripts);
    scripts_map::maps(&mut scripts);
    scripts
}

/// Who asks, when, by which map, for which volume and blocks.
fn checks(scripts: &mut Vec<Script>) {
    for opcode in VERBS {
        let name = verb(opcode);
        let own = Io::new(opcode, WRITER, 0, 1);

        let mut s = Writing::new();
        s.run(own);
        s.run(Io { from: READER, ..own });
        s.run(Io { from: STRANGER, ..own });
        // Ranges name their client in the data, so a queue of no client has no player there.
        if opcode != io::DATASET_MANAGEMENT {
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
        scripts.push(s.finish(
            format!("serving-lease-{name}"),
            format!("serving lease: {name} to its last nanosecond"),
        ));

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

        let mut s = Writing::new();
        let delete = s.begin(Io::new(io::READ, READER, 3, 1));
        s.delete(VOLUME, 1, 2, 1);
        s.run(own);
        s.end(Io::new(io::READ, READER, 3, 1), delete);
        s.settle();
        s.run(own);
        scripts.push(s.finish(
            format!("deleting-{name}"),
            format!("deleting: no {name} of a volume that is being deleted"),
        ));

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
        s.chmod(&VolumeEntry { version: 3, lease_ms: u32::MAX, ..entry(VOLUME) });
        s.run(own);
        scripts.push(s.finish(
            format!("write-lease-{name}"),
            format!("write lease: {name} by its epoch, to its last nanosecond"),
        ));
    }
    epochs(scripts);
    readers(scripts);
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
        // In no order, and not without repeats.
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

/// The 64 bytes of a command.
fn formats(scripts: &mut Vec<Script>) {
    for opcode in VERBS {
        let name = verb(opcode);
        let own = Io::new(opcode, WRITER, 0, 1);
        let mut s = Writing::new();
        for flags in [0u8, 0x40, 0x41, 0x42, 0x80, 0xC0] {
            let mut sqe = own.sqe(100);
            sqe.flags = flags;
            s.send(WRITER, sqe);
        }
        for nsid in [0, 1, 2, 0xFFFF_FFFE, 0xFFFF_FFFF] {
            let mut sqe = own.sqe(101);
            sqe.nsid = nsid.into();
            s.send(WRITER, sqe);
        }
        scripts.push(s.finish(format!("frame-{name}"), format!("frame: flags and namespaces of a {name}")));

        let mut s = Writing::new();
        let right = own.sqe(102).dptr.bytes();
        for bytes in [0, right - 1, right, right + 1, 2 * right, 0xFF_FFFF] {
            let mut sqe = own.sqe(102);
            sqe.dptr = KeyedSgl::keyed(0, bytes, 1);
            s.send(WRITER, sqe);
        }
        for kind in [0x00, 0x10, 0x40, 0x41, 0x4F, 0x50, 0xFF] {
            let mut sqe = own.sqe(103);
            sqe.dptr.kind = kind;
            s.send(WRITER, sqe);
        }
        scripts.push(s.finish(
            format!("pointer-{name}"),
            format!("data pointer: one keyed descriptor of the length of a {name}"),
        ));

        let mut s = Writing::bare();
        s.set_map(&FleetMap::equal(1, 64, 7, 1).expect("a map"));
        s.add(&VolumeEntry { capacity_blocks: 1 << 20, chunk_shift: 12, ..entry(VOLUME) });
        for blocks in [255, 256, 257, 512] {
            let token = s.begin(Io { blocks, ..own });
            if blocks <= 256 {
                s.end(Io { blocks, ..own }, token);
            }
        }
        scripts.push(s.finish(format!("mdts-{name}"), format!("MDTS: a {name} of 255 to 512 blocks")));
    }
    let mut s = Writing::new();
    for opcode in (0..=255u8).filter(|&opcode| opcode != 0x7F) {
        let sqe = Io::new(opcode, WRITER, 0, 1).sqe(200 + u64::from(opcode));
        s.send(WRITER, sqe);
    }
    scripts.push(s.finish("opcodes", "opcodes: each of 255, most of them unknown"));
    let mut s = Writing::new();
    for (flags, nsid) in [(0x40, 1), (0x40, u32::MAX), (0x40, 2), (0x40, 0), (0, 1), (0xC0, u32::MAX)] {
        let mut sqe = Io::new(io::FLUSH, WRITER, 0, 1).sqe(1);
        (sqe.flags, sqe.nsid) = (flags, nsid.into());
        s.send(WRITER, sqe);
    }
    scripts.push(s.finish("flush", "flush: of this namespace and of all"));
    for shift in 0..=12u8 {
        let mut s = Writing::bare();
        s.set_map(&FleetMap::equal(1, 64, 7, 1).expect("a map"));
        s.add(&VolumeEntry { capacity_blocks: 1 << 20, chunk_shift: shift, ..entry(VOLUME) });
        let chunk = 1u32 << shift;
        for (vba, blocks) in [
            (0, 1),
            (chunk - 1, 1),
            (chunk - 1, 2),
            (0, chunk.min(256)),
            (0, (chunk + 1).min(256)),
            (chunk, 1),
        ] {
            s.run_verbs(Io::new(io::READ, WRITER, vba, blocks));
        }
        scripts.push(s.finish(
            format!("chunk-{shift}"),
            format!("chunk: commands within chunks of {chunk} blocks, and across"),
        ));
    }
}

/// Which SSD of the map this is.
fn places(scripts: &mut Vec<Script>) {
    for (count, groups) in
        [(1usize, 1u32), (1, 64), (2, 64), (3, 128), (4, 64), (5, 256), (16, 64), (64, 64), (4096, 32)]
    {
        for id in [0usize, count / 2, count - 1].into_iter().take(count.min(3)) {
            let mut s = Writing::sized(1024, u16::try_from(id).expect("below 4,096"));
            let mut map = FleetMap::equal(count, groups, 7 + count as u64, 1).expect("a map");
            s.set_map(&map);
            for replicas in 1..=4u8 {
                s.add(&VolumeEntry { replicas, ..entry(u16::from(replicas)) });
            }
            let losses = [None, Some(1), Some(0), Some(3)];
            for lost in losses.into_iter().take(if count == 4096 { 2 } else { 4 }) {
                if let Some(lost) = lost {
                    map = map.without(lost);
                    s.set_map(&map);
                }
                for vid in 1..=4 {
                    for chunk in 0..8 {
                        let own = Io {
                            vid,
                            map_epoch: map.wire_epoch(),
                            ..Io::new(io::READ, WRITER, chunk * 48 % 512, 1)
                        };
                        s.run(own);
                        s.run(Io { opcode: io::WRITE, ..own });
                        s.run(Io { from: READER, client: READER, ..own });
                    }
                }
            }
            s.now_ns += 10_000 * MS;
            for chunk in 0..8 {
                s.run(Io {
                    vid: 3,
                    map_epoch: map.wire_epoch(),
                    ..Io::new(io::READ, READER, chunk * 48 % 512, 1)
                });
            }
            scripts.push(s.finish(
                format!("place-{count}-{groups}-{id}"),
                format!(
                    "place: SSD {id} of {count} in {groups} groups, with losses, holes and filling places"
                ),
            ));
        }
    }
    let mut s = Writing::sized(1024, 9);
    s.set_map(&FleetMap::equal(4, 64, 7, 1).expect("a map"));
    s.add(&entry(VOLUME));
    s.run_verbs(Io::new(io::READ, WRITER, 0, 1));
    scripts.push(s.finish("place-none", "place: an SSD that is not in the map"));
}

/// Rule 6: what a stamp at, below and above the one held does.
fn stamps(scripts: &mut Vec<Script>) {
    for opcode in [io::WRITE, io::WRITE_ZEROES, io::DATASET_MANAGEMENT] {
        let name = verb(opcode);
        let mut s = Writing::new();
        for sequence in [10u64, 9, 10, 11, 11, 0, 12, u64::MAX, u64::MAX - 1, u64::MAX] {
            s.sequence = sequence.wrapping_sub(1);
            let io = Io::new(opcode, WRITER, 4, 1);
            let token = s.send(WRITER, io.sqe(sequence));
            s.end(io, token);
            s.look([4]);
        }
        scripts.push(
            s.finish(format!("stamp-{name}"), format!("stamp: a {name} at, below and above the stamp held")),
        );

        let mut s = Writing::new();
        s.run(Io::new(io::WRITE, WRITER, 4, 2));
        s.chmod(&VolumeEntry { version: 2, lease_epoch: LEASE + 1, ..entry(VOLUME) });
        for sequence in [0u64, 1, 0] {
            let io = Io { lease_epoch: LEASE + 1, ..Io::new(opcode, WRITER, 4, 1) };
            let token = s.send(WRITER, io.sqe(sequence));
            s.end(io, token);
            s.look([4, 5]);
        }
        scripts.push(s.finish(
            format!("stamp-epoch-{name}"),
            format!("stamp: a higher lease epoch goes before any sequence ({name})"),
        ));
    }
    for between in [4094u32, 4095, 4096, 4097, 8192] {
        let mut s = Writing::bare();
        s.set_map(&FleetMap::equal(1, 64, 7, 1).expect("a map"));
        s.add(&VolumeEntry { capacity_blocks: 1 << 20, chunk_shift: 12, ..entry(VOLUME) });
        s.sequence = 99;
        s.run(Io::new(io::WRITE_ZEROES, WRITER, 0, 1));
        let mut left = between;
        let mut vba = 4096;
        while left > 0 {
            // Of many blocks at once the firmware waits for room in its journal.
            let blocks = left.min(256);
            s.run(Io::new(io::WRITE_ZEROES, WRITER, vba, blocks));
            (left, vba) = (left - blocks, vba + 4096);
            s.advance(1000);
        }
        // Below the stamp of block 0, which may be forgotten by now.
        let old = Io::new(io::WRITE, WRITER, 0, 1);
        let token = s.send(WRITER, old.sqe(50));
        s.end(old, token);
        s.look([0]);
        scripts.push(s.finish(
            format!("window-{between}"),
            format!("stamp window: {between} blocks after a tombstone"),
        ));
    }
    let mut s = Writing::new();
    for (vba, blocks) in [(0, 4), (2, 4), (1, 1)] {
        s.run(Io::new(io::WRITE, WRITER, vba, blocks));
    }
    let wide = Io::new(io::WRITE, WRITER, 0, 8);
    let token = s.send(WRITER, wide.sqe(2));
    s.end(wide, token);
    s.look(0..8);
    scripts.push(s.finish("stamp-part", "stamp: a write that is newer for some of its blocks"));
}

/// Rule 8: commands in flight, and changes of what allowed them.
fn fences(scripts: &mut Vec<Script>) {
    for opcode in [io::READ, io::WRITE, io::COMPARE, io::DATASET_MANAGEMENT] {
        let name = verb(opcode);
        let own = Io::new(opcode, WRITER, 4, 1);
        for delete in [false, true] {
            let what = if delete { "delete" } else { "chmod" };
            let mut s = Writing::new();
            s.run(Io::new(io::WRITE, WRITER, 4, 1));
            let (first, second) = (s.begin(own), s.begin(own));
            if delete {
                s.delete(VOLUME, 1, 2, 1);
            } else {
                s.chmod(&VolumeEntry { version: 2, lease_epoch: LEASE + 1, ..entry(VOLUME) });
            }
            let later = Io { lease_epoch: LEASE + 1, ..own };
            let third = s.begin(later);
            s.end(own, second);
            s.advance(1000);
            if !delete {
                s.chmod(&VolumeEntry {
                    version: 3,
                    lease_epoch: LEASE + 1,
                    readers: vec![],
                    ..entry(VOLUME)
                });
            }
            s.end(own, first);
            s.end(later, third);
            s.settle();
            s.look([4]);
            scripts.push(s.finish(
                format!("fence-{what}-{name}"),
                format!("fence: a {what} waits for each {name} judged before it"),
            ));
        }
        let mut s = Writing::new();
        let held = s.begin(own);
        let other = s.begin(Io::new(io::READ, READER, 0, 1));
        s.chmod(&VolumeEntry { version: 2, ..entry(VOLUME) });
        s.now_ns += 1_999 * MS;
        s.advance(0);
        s.now_ns += MS;
        s.advance(0);
        s.end(own, held);
        s.end(Io::new(io::READ, READER, 0, 1), other);
        s.run(own);
        scripts.push(s.finish(
            format!("fence-late-{name}"),
            format!("fence: after 2 s the queues of a late {name} are closed"),
        ));
    }
    late_deletes(scripts);
    let mut s = Writing::new();
    s.add(&entry(6));
    let held = s.begin(Io::new(io::READ, READER, 0, 1));
    s.chmod(&VolumeEntry { version: 2, ..entry(6) });
    s.chmod(&VolumeEntry { version: 2, ..entry(VOLUME) });
    s.chmod(&VolumeEntry { version: 3, ..entry(VOLUME) });
    s.end(Io::new(io::READ, READER, 0, 1), held);
    scripts.push(s.finish("fence-other", "fence: a command of another volume holds up no fence"));
    let mut s = Writing::new();
    let held = s.begin(Io::new(io::WRITE, WRITER, 0, 1));
    s.delete(VOLUME, 1, 2, 1);
    s.settle();
    s.add(&VolumeEntry { generation: 2, version: 3, ..entry(VOLUME) });
    s.end(Io::new(io::WRITE, WRITER, 0, 1), held);
    s.settle();
    s.add(&VolumeEntry { generation: 2, version: 3, ..entry(VOLUME) });
    s.look([0]);
    scripts.push(
        s.finish("fence-life", "fence: a volume is not reborn while a write of its last life is under way"),
    );
}

/// The fence of a DELETE is overdue when its sweep has long ended: whether the volume is buried in that step
/// or in the next one depends on what was late.
fn late_deletes(scripts: &mut Vec<Script>) {
    for (name, late) in [
        ("read", &[io::READ][..]),
        ("write", &[io::WRITE]),
        ("compare", &[io::COMPARE]),
        ("both", &[io::COMPARE, io::READ]),
    ] {
        let mut s = Writing::new();
        s.add(&entry(6));
        s.run(Io::new(io::WRITE, WRITER, 0, 2));
        for &opcode in late {
            s.begin(Io::new(opcode, WRITER, 0, 1));
        }
        let other = Io { vid: 6, ..Io::new(io::WRITE, WRITER, 0, 1) };
        let neighbour = s.begin(other);
        s.delete(VOLUME, 1, 2, 1);
        s.settle();
        let deadline = s.now_ns + 2_000 * MS;
        while s.now_ns < deadline {
            s.advance(100 * MS);
        }
        for _ in 0..4 {
            s.add(&VolumeEntry { generation: 2, version: 3, ..entry(VOLUME) });
            s.advance(40_000);
        }
        s.end(other, neighbour);
        s.look([0, 1]);
        scripts.push(s.finish(
            format!("fence-late-delete-{name}"),
            format!("fence: when the volume of a DELETE with a late {name} is buried"),
        ));
    }
}

/// Contents: what is read is what was written last.
fn data(scripts: &mut Vec<Script>) {
    let mut s = Writing::new();
    s.look(0..4);
    s.run(Io::new(io::WRITE, WRITER, 0, 3));
    s.look(0..4);
    let held = s.begin(Io::new(io::READ, READER, 0, 4));
    s.run(Io::new(io::WRITE, WRITER, 1, 2));
    s.run(Io::new(io::WRITE_ZEROES, WRITER, 0, 1));
    s.run(Io::new(io::READ, READER, 0, 4));
    s.end(Io::new(io::READ, READER, 0, 4), held);
    scripts.push(s.finish("data-order", "data: a read has the pages of the moment at which it was judged"));

    let mut s = Writing::new();
    let (a, b) = (Io::new(io::WRITE, WRITER, 0, 2), Io::new(io::WRITE, WRITER, 1, 2));
    let (first, second) = (s.begin(a), s.begin(b));
    s.look(0..3);
    s.end(b, second);
    s.look(0..3);
    s.end(a, first);
    s.look(0..3);
    scripts.push(s.finish("data-overtaken", "data: writes that end in the other order leave the later one"));

    for opcode in VERBS {
        let own = Io::new(opcode, WRITER, 0, 2);
        let mut s = Writing::new();
        s.run(Io::new(io::WRITE, WRITER, 0, 2));
        let token = s.begin(own);
        s.end_as(own, token, true);
        s.look(0..2);
        let name = verb(opcode);
        scripts.push(s.finish(
            format!("failed-{name}"),
            format!("transfer: a {name} whose data does not come changes nothing"),
        ));
    }

    let mut s = Writing::sized(64, 0);
    s.set_map(&FleetMap::equal(1, 64, 7, 1).expect("a map"));
    s.add(&entry(VOLUME));
    for vba in (0..64).step_by(16) {
        s.run(Io::new(io::WRITE, WRITER, vba, 15));
    }
    for (vba, blocks) in [(64, 4), (68, 1), (72, 2), (0, 2), (15, 1)] {
        s.run(Io::new(io::WRITE, WRITER, vba, blocks));
    }
    s.run(Io::new(io::WRITE_ZEROES, WRITER, 0, 4));
    s.run(Io::new(io::WRITE, WRITER, 80, 4));
    s.run(Io::new(io::WRITE, WRITER, 84, 1));
    s.look((0..96).step_by(5));
    scripts.push(s.finish("capacity", "capacity: a full SSD takes overwrites, and no new block"));

    let mut s = Writing::new();
    s.run(Io::new(io::WRITE, WRITER, 0, 16));
    for turn in 0..4 {
        s.push(crate::op::Op::Move { count: 4000, seed: turn });
        s.run(Io::new(io::READ, READER, 0, 16));
    }
    scripts.push(s.finish("moves", "moves: a collector changes nothing that a host sees"));

    let mut s = Writing::new();
    s.run(Io::new(io::WRITE, WRITER, 0, 4));
    for vid in [VOLUME, 6] {
        for (blocks, count) in [(1u32, 1usize), (4, 3), (0, 2), (16, 256)] {
            let own = Io { vid, blocks: blocks.max(1), ..Io::new(io::DATASET_MANAGEMENT, WRITER, 0, 1) };
            let mut sqe = own.sqe(500 + u64::from(blocks));
            sqe.cdw10 = u32::try_from(count - 1).expect("few").into();
            sqe.dptr = KeyedSgl::keyed(0, u32::try_from(count * 16).expect("few"), 1);
            let token = s.send(WRITER, sqe);
            let range = |at: usize| {
                let vba = u32::try_from(at * 16 % 512).expect("small");
                let mut bytes = Io { vba, ..own }.range();
                bytes[4..8].copy_from_slice(&blocks.to_le_bytes());
                bytes
            };
            let bytes = (0..count).flat_map(range).collect();
            s.push(crate::op::Op::Data { now_ns: s.now_ns, token, failed: false, bytes });
            s.look([0, 1, 3]);
        }
    }
    scripts.push(s.finish("ranges", "ranges: every range is judged before any is unmapped"));
}

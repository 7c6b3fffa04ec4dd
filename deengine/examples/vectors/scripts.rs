// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All golden scripts. The name of each is the property that it shows. Beside each refusal are similar
//! commands that must succeed.

use crate::file::Script;
use crate::script::{Io, LEASE, MS, READER, VERBS, VOLUME, WRITER, Writing, entry};
use crate::scripts_admin;
use crate::scripts_checks;
use crate::scripts_data;
use crate::scripts_edges;
use crate::scripts_fences;
use crate::scripts_map;
use crate::scripts_map3;
use crate::scripts_prp;
use gnstor_proto::nvme::{KeyedSgl, io};
use gnstor_proto::placement::{FleetMap, Rows, group_of};
use gnstor_proto::vendor::VolumeEntry;

pub(crate) fn verb(opcode: u8) -> &'static str {
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
    scripts_checks::checks(&mut scripts);
    formats(&mut scripts);
    places(&mut scripts);
    stamps(&mut scripts);
    scripts_fences::fences(&mut scripts);
    scripts_data::data(&mut scripts);
    scripts_admin::entries(&mut scripts);
    scripts_admin::lists(&mut scripts);
    scripts_admin::terms(&mut scripts);
    scripts_admin::sweeps(&mut scripts);
    scripts_map::maps(&mut scripts);
    scripts_map3::maps(&mut scripts);
    scripts_edges::edges(&mut scripts);
    scripts_prp::twins(&mut scripts);
    scripts
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
    chunks(scripts);
}

fn chunks(scripts: &mut Vec<Script>) {
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

/// Scripts for each SSD of a map.
fn places(scripts: &mut Vec<Script>) {
    for (count, groups) in [
        (1usize, 1u32),
        (1, 64),
        (2, 64),
        (3, 128),
        (4, 64),
        (5, 256),
        (16, 64),
        (64, 64),
        (300, 512),
        (4096, 2048),
    ] {
        for id in [0usize, count / 2, count - 1].into_iter().take(count.min(3)) {
            scripts.push(place(count, groups, id));
        }
    }
    filling(scripts);
    let mut s = Writing::sized(1024, 9);
    s.set_map(&FleetMap::equal(4, 64, 7, 1).expect("a map"));
    s.add(&entry(VOLUME));
    s.run_verbs(Io::new(io::READ, WRITER, 0, 1));
    scripts.push(s.finish("place-none", "place: an SSD that is not in the map"));
}

/// SSD `id` of `count`, with a map that loses the others in turn.
fn place(count: usize, groups: u32, id: usize) -> Script {
    // As many replicas as its number says, and more chunks than a map has groups.
    let volume = |vid: u16| VolumeEntry {
        replicas: u8::try_from(vid).expect("at most 4"),
        capacity_blocks: 1 << 17,
        ..entry(vid)
    };
    let mut s = Writing::sized(1024, u16::try_from(id).expect("below 4,096"));
    let mut map = FleetMap::equal(count, groups, 7 + count as u64, 1).expect("a map");
    s.set_map(&map);
    for replicas in 1..=4u8 {
        s.add(&volume(replicas.into()));
    }
    let losses = [None, Some(1), Some(0), Some(3)];
    for lost in losses.into_iter().take(if count == 4096 { 2 } else { 4 }) {
        if let Some(lost) = lost {
            map = map.without(lost);
            s.set_map(&map);
        }
        for vid in 1..=4u16 {
            let held = held_by(&map, &volume(vid), id).into_iter().take(if count > 64 { 2 } else { 0 });
            for vba in (0..8).map(|chunk| chunk * 48 % 512).chain(held) {
                let own = Io { vid, map_epoch: map.wire_epoch(), ..Io::new(io::READ, WRITER, vba, 1) };
                s.run(own);
                s.run(Io { opcode: io::WRITE, ..own });
                s.run(Io { from: READER, client: READER, ..own });
            }
        }
    }
    s.now_ns += 10_000 * MS;
    for chunk in 0..8 {
        let map_epoch = map.wire_epoch();
        s.run(Io { vid: 3, map_epoch, ..Io::new(io::READ, READER, chunk * 48 % 512, 1) });
    }
    s.finish(
        format!("place-{count}-{groups}-{id}"),
        format!("place: SSD {id} of {count} in {groups} groups, and after losses"),
    )
}

/// Blocks of which an SSD holds a copy.
fn held_by(map: &FleetMap, volume: &VolumeEntry, id: usize) -> Vec<u32> {
    let group = |vba| group_of(volume.vid, vba, volume.chunk_shift, volume.factor, map.groups());
    let is_held = |vba: &u32| map.replicas(group(*vba), volume.replicas).any(|m| usize::from(m.ssd) == id);
    (0..4096u32).map(|chunk| chunk << volume.chunk_shift).filter(is_held).collect()
}

/// An SSD that fills a place, in maps of any size; beside it the place that it already has.
fn filling(scripts: &mut Vec<Script>) {
    for (count, groups) in [(5usize, 64u32), (64, 64), (300, 512), (4096, 2048)] {
        let map = FleetMap::equal(count, groups, 7, 1).expect("a map").without(1);
        let fills = (0..groups).flat_map(|group| map.row(group).flatten().collect::<Vec<_>>());
        let id = fills.filter(|member| member.filling).map(|member| member.ssd).next().expect("a new place");
        let volume = VolumeEntry { replicas: 4, capacity_blocks: 1 << 17, ..entry(VOLUME) };
        let mut s = Writing::sized(1024, id);
        s.set_map(&map);
        s.add(&volume);
        for vba in held_by(&map, &volume, id.into()).into_iter().take(24) {
            for (opcode, who) in [(io::READ, WRITER), (io::WRITE, WRITER), (io::READ, READER)] {
                s.run(Io { map_epoch: map.wire_epoch(), ..Io::new(opcode, who, vba, 1) });
            }
        }
        scripts.push(s.finish(
            format!("place-filling-{count}"),
            format!("place: SSD {id} of {count} fills a place, and serves others"),
        ));
    }
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
    stamp_histories(scripts);
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

/// Writes with a stamp below one that the stamp history may have dropped.
fn stamp_histories(scripts: &mut Vec<Script>) {
    for between in [4094u32, 4095, 4096, 4097, 8192] {
        let mut s = Writing::bare();
        s.set_map(&FleetMap::equal(1, 64, 7, 1).expect("a map"));
        s.add(&VolumeEntry { capacity_blocks: 1 << 20, chunk_shift: 12, ..entry(VOLUME) });
        s.sequence = 99;
        s.run(Io::new(io::WRITE_ZEROES, WRITER, 0, 1));
        let mut left = between;
        let mut vba = 4096;
        while left > 0 {
            // A trim of many blocks at once makes the firmware wait for room in its journal.
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
            format!("history-{between}"),
            format!("stamp history: {between} blocks after a tombstone"),
        ));
    }
}

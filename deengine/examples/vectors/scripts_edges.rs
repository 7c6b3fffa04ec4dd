// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scripts of first and last values: ids, epochs, generations, blocks, sizes of maps, times.

use crate::device::VENDOR;
use crate::file::Script;
use crate::op::{DAEMON, Op};
use crate::script::{Io, LEASE, MS, READER, VERBS, VOLUME, WRITER, Writing, client, entry, vendor};
use crate::scripts::verb;
use gnstor_proto::nvme::io;
use gnstor_proto::placement::FleetMap;
use gnstor_proto::slba::ClientId;
use gnstor_proto::vendor::{SERVING_LEASE_MS, VolumeEntry, WRITE_LEASE_MS, opcode};
use std::ops::RangeInclusive;

pub(crate) fn edges(scripts: &mut Vec<Script>) {
    ids(scripts);
    lease_epochs(scripts);
    lease_lengths(scripts);
    generations(scripts);
    last_blocks(scripts);
    maps(scripts);
    lengths(scripts);
    attributes(scripts);
    stale_terms(scripts);
    end_of_time(scripts);
    unbound(scripts);
}

/// Clients 1 and FFFEh, volumes 1 and FFFEh.
fn ids(scripts: &mut Vec<Script>) {
    let mut s = Writing::new();
    for who in [1, 0xFFFE, DAEMON] {
        for code in VENDOR {
            let bytes = if matches!(code, opcode::VOLUME_DELETE | opcode::LEASE_RENEW) { 0 } else { 4096 };
            s.admin(who, vendor(code, bytes), &[]);
        }
    }
    let readers = vec![client(1), client(0xFFFE)];
    s.chmod(&VolumeEntry { version: 2, term: 2, any_reader: true, readers, ..entry(VOLUME) });
    for who in [WRITER, 1, 0xFFFE, DAEMON] {
        s.run_verbs(Io { from: DAEMON, ..Io::new(io::READ, who, 0, 1) });
    }
    scripts.push(s.finish(
        "edge-admin-clients",
        "ids: the first and last client with the daemon's commands, the daemon with theirs",
    ));

    let mut s = Writing::new();
    for vid in [1, 0xFFFE] {
        let first = VolumeEntry { readers: vec![client(1), client(0xFFFE)], ..entry(vid) };
        let own = Io { vid, ..Io::new(io::WRITE, WRITER, 0, 1) };
        s.chmod(&first);
        s.add(&first);
        s.run(own);
        let next = VolumeEntry { version: 2, writer: ClientId::new(0xFFFE), lease_epoch: LEASE + 1, ..first };
        s.chmod(&next);
        s.chmod(&next);
        s.run(own);
        for who in [1, 0xFFFE, 2, 0xFFFD] {
            s.run_verbs(Io { vid, lease_epoch: LEASE + 1, ..Io::new(io::READ, who, 0, 1) });
        }
        s.chmod(&VolumeEntry {
            version: 3,
            writer: ClientId::new(1),
            lease_epoch: LEASE + 2,
            ..next.clone()
        });
        for who in [1, 0xFFFE] {
            s.run_verbs(Io { vid, lease_epoch: LEASE + 2, ..Io::new(io::READ, who, 0, 1) });
        }
        s.list(0, 1 << 14, false);
        s.delete(vid, 1, 4, 1);
        s.chmod(&VolumeEntry { version: 5, ..next });
        s.wait_for_sweeps();
        s.list(0, 1 << 14, true);
    }
    scripts.push(s.finish("edge-chmod-vids", "ids: CHMOD of the first and the last volume"));
}

/// The lease epoch of an entry and of its commands is compared as it is, and does not wrap.
fn lease_epochs(scripts: &mut Vec<Script>) {
    for first in [0u32, 1, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFE, 0xFFFF_FFFF] {
        let mut s = Writing::bare();
        s.set_map(&FleetMap::equal(1, 64, 7, 1).expect("a map"));
        s.add(&VolumeEntry { lease_epoch: first, ..entry(VOLUME) });
        let steps = [0u32, 1, 0xFFFF_FFFF, 0x8000_0000];
        let tries = |s: &mut Writing, of: u32| {
            for step in steps {
                s.run(Io { lease_epoch: of.wrapping_add(step), ..Io::new(io::WRITE, WRITER, 0, 1) });
                s.run(Io { lease_epoch: of.wrapping_add(step), ..Io::new(io::WRITE_ZEROES, WRITER, 1, 1) });
            }
            s.look([0]);
        };
        tries(&mut s, first);
        for (version, step) in (2..).zip([1u32, 0xFFFF_FFFE, 0x8000_0000]) {
            // One of them is lower, as it wraps. It is refused, and the previous epoch stays.
            s.chmod(&VolumeEntry { version, lease_epoch: first.wrapping_add(step), ..entry(VOLUME) });
            tries(&mut s, first.wrapping_add(step));
            tries(&mut s, first);
        }
        scripts.push(s.finish(
            format!("edge-lease-epoch-{first:x}"),
            format!("lease epoch: {first:x}h, and epochs that wrap"),
        ));
    }
}

/// Leases that are shorter or longer than an SSD takes are refused before anything is taken.
fn lease_lengths(scripts: &mut Vec<Script>) {
    let around = |lengths: RangeInclusive<u32>| {
        let (least, most) = lengths.into_inner();
        [0, 1, least - 1, least, least + 1, most - 1, most, most + 1, u32::MAX]
    };
    let own = Io::new(io::WRITE, WRITER, 0, 1);
    let mut s = Writing::new();
    for (version, ms) in (2..).zip(around(WRITE_LEASE_MS)) {
        s.add(&VolumeEntry { lease_ms: ms, ..entry(6) });
        s.run(Io { vid: 6, ..own });
        s.delete(6, 1, 2, 1);
        s.wait_for_sweeps();
        s.delete(6, 1, 2, 1);
        s.chmod(&VolumeEntry { version, lease_ms: ms, ..entry(VOLUME) });
        s.run(own);
        s.advance(100 * MS);
        s.run(own);
    }
    for (version, ms) in (1..).zip(around(SERVING_LEASE_MS)) {
        // A refused command does not change the term: the next one has a lower term.
        let term = if ms == 0 || SERVING_LEASE_MS.contains(&ms) { 1 } else { 2 };
        s.renew(ms, version, term);
        s.run(own);
        s.advance(10 * MS);
        s.run(own);
    }
    scripts.push(s.finish("edge-lease-lengths", "leases: shorter or longer than an SSD takes"));
}

fn generations(scripts: &mut Vec<Script>) {
    let mut s = Writing::new();
    for generation in [0u32, 1, 0x7FFF_FFFF, 0x8000_0000, u32::MAX - 1, u32::MAX, 0, 1, u32::MAX] {
        let own = Io { vid: 6, ..Io::new(io::WRITE, WRITER, 0, 2) };
        s.add(&VolumeEntry { generation, ..entry(6) });
        s.run(own);
        s.run(Io { opcode: io::READ, ..own });
        s.delete(6, generation.wrapping_add(1), 9, 1);
        s.delete(6, generation.wrapping_sub(1), 9, 1);
        s.delete(6, generation, 9, 1);
        s.wait_for_sweeps();
        s.delete(6, generation, 9, 1);
        s.list(0, 4096, true);
    }
    scripts.push(s.finish("edge-generation", "generation: 0 to 2^32 - 1, and no life behind the last one"));
}

/// The last blocks of the largest volume hold data.
fn last_blocks(scripts: &mut Vec<Script>) {
    for capacity in [1u64 << 32, (1 << 32) - 1] {
        let mut s = Writing::bare();
        s.set_map(&FleetMap::equal(1, 64, 7, 1).expect("a map"));
        s.add(&VolumeEntry { capacity_blocks: capacity, ..entry(VOLUME) });
        for (vba, blocks) in [
            (0xFFFF_FFFEu32, 1u32),
            (0xFFFF_FFFF, 1),
            (0xFFFF_FFFE, 2),
            (0xFFFF_FFF0, 15),
            (0xFFFF_FFF0, 16),
            (0, 1),
        ] {
            s.run(Io::new(io::WRITE, WRITER, vba, blocks));
            s.look([0xFFFF_FFFD, 0xFFFF_FFFE, 0xFFFF_FFFF, 0]);
        }
        for opcode in VERBS {
            s.run(Io::new(opcode, WRITER, 0xFFFF_FFFE, 1));
            s.run(Io::new(opcode, WRITER, 0xFFFF_FFFF, 1));
            s.look([0xFFFF_FFFE, 0xFFFF_FFFF]);
        }
        scripts.push(s.finish(
            format!("edge-last-block-{capacity:x}"),
            format!("range: the last blocks of {capacity:x}h are written and read"),
        ));
    }
}

/// A map of `ssds` SSDs in which every group names the first one.
fn raw_map(width: u16, ssds: u16, groups: u32, epoch: u64) -> Vec<u8> {
    let mut bytes = FleetMap::equal(1, 1, 7, 1).expect("a map").encode();
    bytes.truncate(44);
    bytes[6..8].copy_from_slice(&width.to_le_bytes());
    bytes[16..24].copy_from_slice(&epoch.to_le_bytes());
    bytes[24..28].copy_from_slice(&groups.to_le_bytes());
    bytes[28..30].copy_from_slice(&ssds.to_le_bytes());
    for id in 0..ssds {
        let [low, high] = id.to_le_bytes();
        bytes.extend_from_slice(&[low, high, 1, 0, 1, 0, 0, 0]);
    }
    for _ in 0..groups {
        (0..width).for_each(|place| bytes.extend_from_slice(&place.to_le_bytes()));
    }
    bytes[40..44].fill(0);
    let crc = crc32c::crc32c(&bytes);
    bytes[40..44].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn maps(scripts: &mut Vec<Script>) {
    let mut s = Writing::bare();
    s.add(&entry(VOLUME));
    for (epoch, ssds) in (1..).zip([1u16, 4095, 4096, 4097, 8192, u16::MAX, 0, 2]) {
        s.set_map_bytes(&raw_map(1, ssds, 64, epoch));
        s.get_map(4);
        for map_epoch in [1, 2, 3, 8] {
            s.run(Io { map_epoch, ..Io::new(io::READ, WRITER, 0, 1) });
        }
    }
    scripts.push(s.finish("edge-map-ssds", "MAP SET: 4,096 SSDs, and no more"));

    let mut s = Writing::bare();
    s.add(&VolumeEntry { replicas: 4, ..entry(VOLUME) });
    for (epoch, (width, ssds)) in
        (1..).zip([(0u16, 1u16), (1, 1), (0, 4), (4, 4), (5, 8), (2, 1), (4, 3), (3, 3)])
    {
        s.set_map_bytes(&raw_map(width, ssds, 16, epoch));
        s.get_map(4096);
        let map_epoch = u32::try_from(epoch).expect("small");
        s.run_verbs(Io { map_epoch, ..Io::new(io::READ, WRITER, 0, 1) });
    }
    scripts
        .push(s.finish("edge-map-width", "MAP SET: a map of width 0 serves no block; wider than 4 is none"));
}

/// Write Zeroes has no data, so only the chunk limits it.
fn lengths(scripts: &mut Vec<Script>) {
    // A small SSD has a short journal, and waits for it.
    let mut s = Writing::sized(1 << 20, 0);
    s.set_map(&FleetMap::equal(1, 64, 7, 1).expect("a map"));
    s.add(&VolumeEntry { capacity_blocks: 1 << 20, chunk_shift: 12, ..entry(VOLUME) });
    s.run(Io::new(io::WRITE, WRITER, 4095, 1));
    s.run(Io::new(io::WRITE, WRITER, 4096, 2));
    for (vba, blocks) in
        [(0u32, 4097u32), (1, 4096), (0, 4095), (0, 4096), (4096, 4096), (0, 65_536), (8191, 1)]
    {
        s.run(Io::new(io::WRITE_ZEROES, WRITER, vba, blocks));
        s.advance(1_000_000);
        s.look([4095, 4096, 4097]);
    }
    scripts.push(s.finish("edge-zeroes", "length: Write Zeroes of 4,096 blocks, and not of 4,097"));
}

/// Ranges without the bit that unmaps are judged, and change nothing.
fn attributes(scripts: &mut Vec<Script>) {
    let mut s = Writing::new();
    for attributes in [0u32, 1, 2, 3, 8, 0xFFFF_FFFB, 4, 7, 0xFFFF_FFFF] {
        s.run(Io::new(io::WRITE, WRITER, 0, 2));
        for (who, blocks) in [(WRITER, 1u32), (READER, 1), (WRITER, 17)] {
            let own = Io::new(io::DATASET_MANAGEMENT, who, 0, blocks);
            s.sequence += 1;
            let mut sqe = own.sqe(s.sequence);
            sqe.cdw11 = attributes.into();
            let token = s.send(who, sqe);
            s.end(own, token);
            s.look([0, 1]);
        }
    }
    scripts.push(s.finish("edge-attributes", "ranges: only the deallocate bit unmaps, and all are judged"));
}

/// Each command of the daemon's that carries a term, after each that has raised it.
fn stale_terms(scripts: &mut Vec<Script>) {
    type Order = (&'static str, fn(&mut Writing, u64));
    let orders: [Order; 5] = [
        ("add", |s, term| {
            let vid = 20 + u16::try_from(s.token % 40).expect("small");
            s.add(&VolumeEntry { term, ..entry(vid) });
        }),
        ("chmod", |s, term| {
            s.chmod(&VolumeEntry { term, version: 100 + u64::from(s.token), ..entry(VOLUME) });
        }),
        ("delete", |s, term| {
            s.delete(99, 1, 9, term);
        }),
        ("renew", |s, term| {
            s.renew(60_000, u64::from(s.token), term);
        }),
        ("map", |s, term| {
            let mut map = FleetMap::equal(1, 64, 7, 1).expect("a map");
            map.term = term;
            s.set_map(&map);
        }),
    ];
    for (name, raise) in orders {
        let mut s = Writing::new();
        for term in [5u64, 1 << 20, (1 << 21) - 1] {
            raise(&mut s, term);
            for (_, order) in orders {
                for other in [term - 1, term, 0, term - 2] {
                    order(&mut s, other);
                }
            }
            s.run(Io::new(io::READ, WRITER, 0, 1));
        }
        scripts.push(s.finish(
            format!("term-stale-{name}"),
            format!("terms: behind one that {name} has raised, a lower one is stale in every command"),
        ));
    }
}

/// The firmware counts picoseconds in 64 bits: the last days before they end.
fn end_of_time(scripts: &mut Vec<Script>) {
    let mut s = Writing::new();
    s.now_ns = u64::MAX / 1000 - 20_000 * MS;
    s.chmod(&VolumeEntry { version: 2, lease_ms: *WRITE_LEASE_MS.end(), ..entry(VOLUME) });
    s.renew(60_000, 1, 1);
    s.run_verbs(Io::new(io::READ, WRITER, 0, 2));
    let own = Io::new(io::READ, READER, 0, 1);
    let held = s.begin(own);
    s.chmod(&VolumeEntry { version: 3, lease_ms: *WRITE_LEASE_MS.end(), ..entry(VOLUME) });
    s.advance(1_999 * MS);
    s.advance(MS);
    s.end(own, held);
    s.add(&entry(6));
    s.delete(6, 1, 2, 1);
    s.wait_for_sweeps();
    s.list(0, 4096, true);
    s.chmod(&VolumeEntry { version: 4, lease_ms: 100, ..entry(VOLUME) });
    s.renew(50, 2, 1);
    for _ in 0..3 {
        s.run(Io::new(io::WRITE, WRITER, 0, 1));
        s.run(Io::new(io::READ, WRITER, 0, 1));
        s.advance(50 * MS);
    }
    scripts.push(s.finish("edge-time", "times: leases, fences and sweeps in the last seconds of 2^64 ps"));
}

/// Queues without a client. A fence past its deadline closes them as one.
fn unbound(scripts: &mut Vec<Script>) {
    for opcode in [io::READ, io::WRITE, io::COMPARE] {
        let mut s = Writing::new();
        s.chmod(&VolumeEntry { version: 2, any_reader: true, ..entry(VOLUME) });
        let own = Io { from: 0, ..Io::new(opcode, WRITER, 0, 1) };
        let other = Io { from: 0, ..Io::new(io::READ, 0xFFFE, 0, 1) };
        let bound = Io::new(io::READ, READER, 0, 1);
        let late = s.begin(own);
        s.chmod(&VolumeEntry { version: 3, any_reader: true, ..entry(VOLUME) });
        let (second, third) = (s.begin(other), s.begin(bound));
        s.advance(1_999 * MS);
        s.advance(MS);
        s.end(own, late);
        s.end(other, second);
        s.end(bound, third);
        s.run(own);
        s.run(other);
        s.push(Op::State);
        let name = verb(opcode);
        scripts.push(s.finish(
            format!("fence-unbound-{name}"),
            format!("fence: a late {name} of a queue without a client closes all such queues"),
        ));
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scripts of the daemon's commands.

use crate::device::VENDOR;
use crate::file::Script;
use crate::op::DAEMON;
use crate::script::{Io, LEASE, VOLUME, WRITER, Writing, bent, client, entry, vendor};
use gnstor_proto::nvme::{KeyedSgl, Sqe, io};
use gnstor_proto::placement::FleetMap;
use gnstor_proto::slba::ClientId;
use gnstor_proto::vendor::{RawEntry, VolumeEntry, opcode};
use zerocopy::IntoBytes;

type Bend = (&'static str, fn(&mut RawEntry));

const BENDS: [Bend; 29] = [
    ("magic", |raw| raw.magic = *b"GNVF"),
    ("format", |raw| raw.format = 2.into()),
    ("vid-0", |raw| raw.vid = 0.into()),
    ("vid-ffff", |raw| raw.vid = 0xFFFF.into()),
    ("state-0", |raw| raw.state = 0),
    ("state-2", |raw| raw.state = 2),
    ("state-3", |raw| raw.state = 3),
    ("replicas-0", |raw| raw.replicas = 0),
    ("replicas-5", |raw| raw.replicas = 5),
    ("chunk-13", |raw| raw.chunk_shift = 13),
    ("any-2", |raw| raw.any_reader = 2),
    ("flags-2", |raw| raw.flags = 2),
    ("unsettled-writer", |raw| (raw.flags, raw.writer) = (1, 5.into())),
    ("capacity-0", |raw| raw.capacity_blocks = 0.into()),
    ("capacity-more", |raw| raw.capacity_blocks = ((1 << 32) + 1).into()),
    ("reserved", |raw| raw.reserved[4] = 1),
    ("reserved2", |raw| raw.reserved2[1763] = 1),
    ("name-0", |raw| raw.name_len = 0.into()),
    ("name-65", |raw| raw.name_len = 65.into()),
    ("labels-1025", |raw| raw.labels_len = 1025.into()),
    ("readers-513", |raw| raw.reader_count = 513.into()),
    ("reader-0", |raw| raw.readers[0] = 0.into()),
    ("reader-ffff", |raw| raw.readers[0] = 0xFFFF.into()),
    ("owner-0", |raw| raw.owner = 0.into()),
    ("writer-ffff", |raw| raw.writer = 0xFFFF.into()),
    ("behind-name", |raw| raw.name[40] = 9),
    ("behind-labels", |raw| raw.labels[1000] = 9),
    ("behind-readers", |raw| raw.readers[500] = 77.into()),
    ("gap-in-ids", |raw| (raw.request_ids[5], raw.request_ids[0]) = ([3; 16], [0; 16])),
];

/// Bytes that a name may and may not have.
const TEXTS: [&[u8]; 12] = [
    b"plain",
    "\u{e4}\u{20ac}\u{1f600}".as_bytes(),
    "\u{7ff}\u{800}\u{ffff}\u{10000}\u{10ffff}".as_bytes(),
    &[0x80],
    &[0xC1, 0xBF],
    &[0xC3],
    &[0xE0, 0x9F, 0xBF],
    &[0xED, 0xA0, 0x80],
    &[0xEF, 0xBF],
    &[0xF0, 0x8F, 0xBF, 0xBF],
    &[0xF4, 0x90, 0x80, 0x80],
    &[0xF5, 0x80, 0x80, 0x80],
];

pub(crate) fn entries(scripts: &mut Vec<Script>) {
    for (name, bend) in BENDS {
        let mut s = Writing::new();
        s.send_entry(opcode::VOLUME_ADD, &bent(&entry(6), bend));
        s.send_entry(opcode::VOLUME_CHMOD, &bent(&VolumeEntry { version: 2, ..entry(VOLUME) }, bend));
        s.list(0, 4 * 4096, false);
        scripts.push(s.finish(format!("entry-{name}"), format!("entry: {name}, under a right checksum")));
    }
    let mut s = Writing::new();
    for bit in [0usize, 77, 32 * 8, 4000 * 8 + 5, 4091 * 8 + 7, 4092 * 8, 4095 * 8 + 7] {
        let mut raw = entry(6).encode();
        raw.as_mut_bytes()[bit / 8] ^= 1 << (bit % 8);
        s.send_entry(opcode::VOLUME_ADD, &raw);
    }
    s.list(0, 4 * 4096, false);
    scripts.push(s.finish("entry-checksum", "entry: a flipped bit changes nothing"));
    let mut s = Writing::new();
    for (vid, text) in (10u16..).zip(TEXTS) {
        s.send_entry(
            opcode::VOLUME_ADD,
            &bent(&entry(vid), |raw| {
                raw.name[..text.len()].copy_from_slice(text);
                raw.name_len = u16::try_from(text.len()).expect("short").into();
            }),
        );
    }
    s.list(0, 32 * 4096, false);
    scripts.push(s.finish("entry-utf8", "entry: names are UTF-8"));
    changes(scripts);
    frames(scripts);
    let mut s = Writing::bare();
    for vid in 1..=70 {
        s.add(&VolumeEntry { name: "v".into(), labels: String::new(), request_ids: vec![], ..entry(vid) });
    }
    s.delete(3, 1, 2, 1);
    s.wait_for_sweeps();
    s.add(&entry(69));
    s.add(&entry(70));
    scripts.push(s.finish("table-full", "ADD: 64 volumes fit into a small SSD"));
}

fn changes(scripts: &mut Vec<Script>) {
    let mut s = Writing::new();
    let next = VolumeEntry { version: 2, ..entry(VOLUME) };
    for (number, wrong) in [
        VolumeEntry { version: 1, ..next.clone() },
        VolumeEntry { generation: 2, ..next.clone() },
        VolumeEntry { replicas: 2, ..next.clone() },
        VolumeEntry { chunk_shift: 5, ..next.clone() },
        VolumeEntry { factor: 43, ..next.clone() },
        VolumeEntry { capacity_blocks: 511, ..next.clone() },
        VolumeEntry { lease_epoch: LEASE - 1, ..next.clone() },
        VolumeEntry { deleting: true, ..next.clone() },
        VolumeEntry { vid: entry(6).vid, ..next.clone() },
        VolumeEntry { capacity_blocks: 513, ..next.clone() },
        next.clone(),
        VolumeEntry { version: u64::MAX, term: 9, ..next.clone() },
        next,
    ]
    .iter()
    .enumerate()
    {
        s.chmod(wrong);
        s.list(0, 4096, false);
        s.run(Io::new(io::WRITE, WRITER, u32::try_from(number).expect("few"), 1));
    }
    scripts.push(s.finish("chmod", "CHMOD: versions rise, and what placement is computed from stays"));
}

/// Who may send the daemon's commands, and which form of the entry they need.
fn frames(scripts: &mut Vec<Script>) {
    let mut s = Writing::new();
    for who in [WRITER, 8, 9, DAEMON] {
        for code in VENDOR {
            let bytes = if matches!(code, opcode::VOLUME_DELETE | opcode::LEASE_RENEW) { 0 } else { 4096 };
            s.admin(who, vendor(code, bytes), &[]);
        }
    }
    scripts.push(s.finish("daemon-only", "identity: only the daemon may use its commands"));
    for code in VENDOR {
        let mut s = Writing::new();
        for (flags, nsid, dwords, bytes, kind) in [
            (0u8, 1u32, 1024u32, 4096u32, 0x40u8),
            (0x40, 0, 1024, 4096, 0x40),
            (0x40, 2, 1024, 4096, 0x40),
            (0x40, u32::MAX, 1024, 4096, 0x40),
            (0x40, 1, 0, 0, 0x40),
            (0x40, 1, 1023, 4092, 0x40),
            (0x40, 1, 1025, 4100, 0x40),
            (0x40, 1, 1024, 4092, 0x40),
            (0x40, 1, 1024, 4096, 0x50),
            (0x40, 1, 1024, 4096, 0x4F),
            (0x40, 1, 1 << 18, 1 << 20, 0x40),
            (0x40, 1, (1 << 18) + 1, (1 << 20) + 4, 0x40),
            (0x40, 1, 0x4000_0001, 4, 0x40),
        ] {
            let mut sqe = Sqe { flags, nsid: nsid.into(), cdw10: dwords.into(), ..vendor(code, 0) };
            sqe.dptr = KeyedSgl::keyed(0, bytes, 1);
            sqe.dptr.kind = kind;
            s.admin(DAEMON, sqe, &[]);
        }
        scripts.push(s.finish(
            format!("admin-frame-{code:x}"),
            format!("frame: flags, namespace, length and pointer of {code:x}h"),
        ));
    }
}

pub(crate) fn lists(scripts: &mut Vec<Script>) {
    let mut s = Writing::new();
    for vid in [1, 2, 0x0101, 0xFFFE] {
        s.add(&VolumeEntry { readers: (1..300).map(client).collect(), ..entry(vid) });
    }
    s.delete(2, 1, 5, 1);
    for first in [0u32, 1, 2, 3, 6, 0x0102, 0xFFFE, 0xFFFF, 0x0007_0000] {
        for bytes in [4, 4092, 4096, 8192, 1 << 16] {
            s.list(first, bytes, false);
        }
    }
    scripts.push(s.finish("list", "LIST: entries from a volume id on, as many as fit"));

    let mut s = Writing::new();
    let ids: Vec<[u8; 16]> = (1..=8).map(|byte| [byte; 16]).collect();
    for turn in 0..4u32 {
        for vid in [6, 4, 0xFFFE] {
            s.add(&VolumeEntry { generation: turn + 1, request_ids: ids.clone(), ..entry(vid) });
            s.delete(vid, turn + 1, 2 + u64::from(turn), 1);
            s.wait_for_sweeps();
        }
        s.now_ns += 3_600_000_000_000;
    }
    for first in
        [0u32, 4, 5, 6, 7, 0xFFFE, 0xFFFF, 4 | 1 << 16, 4 | 3 << 16, 4 | 4 << 16, 4 | 9 << 16, 5 | 1 << 16]
    {
        for bytes in [4, 188, 192, 384, 4096] {
            s.list(first, bytes, true);
        }
    }
    s.now_ns += 20 * 3_600_000_000_000 - 2_000_000;
    for _ in 0..6 {
        s.now_ns += 500_000;
        s.list(0, 4096, true);
    }
    for hours in [1u64, 1, 1, 1] {
        s.now_ns += hours * 3_600_000_000_000;
        s.list(0, 4096, true);
    }
    scripts.push(s.finish("tombstones", "tombstones: in order, by pages, for 24 hours"));

    let mut s = Writing::bare();
    for bytes in [4, 4096] {
        s.get_map(bytes);
    }
    let map = FleetMap::equal(5, 64, 3, 1).expect("a map").without(2);
    s.set_map(&map);
    for bytes in [4, 44, 4096, 1 << 20] {
        s.get_map(bytes);
    }
    scripts.push(s.finish("map-get", "MAP GET: as much as fits, and the whole length"));
}

pub(crate) fn terms(scripts: &mut Vec<Script>) {
    let mut s = Writing::new();
    for (ms, version, term) in [
        (1000, 1, 1),
        (1000, 1, 1),
        (1000, 0, 1),
        (1000, 9, 2),
        (1000, 1, 2),
        (1000, 0, 3),
        (1000, 99, 2),
        (u32::MAX, 5, 3),
    ] {
        s.renew(ms, version, term);
        s.run(Io::new(io::READ, WRITER, 0, 1));
    }
    scripts.push(s.finish("term-lease", "terms: LEASE RENEW by term, then version"));
    let mut s = Writing::new();
    for term in [2u64, 1, 2, (1 << 20) + 2, (1 << 21) + 3, (1 << 21) + 2, 1 << 32, u64::MAX] {
        s.add(&VolumeEntry { term, ..entry(6) });
        s.chmod(&VolumeEntry { term, version: term, ..entry(VOLUME) });
        s.delete(77, 1, 1, term);
        s.renew(1000, term, term);
    }
    scripts
        .push(s.finish("term-jump", "terms: a lower one is refused, and one that jumps by more than 2^20"));
    let mut s = Writing::bare();
    let fresh = FleetMap::equal(1, 64, 7, 5).expect("a map");
    for (term, epoch) in [(5u64, 7u64), (5, 6), (5, 7), (6, 7), (5, 8), (6, 8), (7, 1), (7, u64::MAX), (7, 9)]
    {
        let mut map = fresh.clone();
        (map.term, map.epoch) = (term, epoch);
        s.set_map(&map);
        s.get_map(4096);
    }
    scripts.push(s.finish("term-map", "terms: MAP SET by term, then epoch"));
    bent_maps(scripts);
}

fn bent_maps(scripts: &mut Vec<Script>) {
    let mut s = Writing::bare();
    let bytes = FleetMap::equal(4, 16, 7, 1).expect("a map").without(3).encode();
    for (at, value) in [
        (0usize, b'X'),
        (4, 3),
        (6, 5),
        (24, 3),
        (28, 0),
        (30, 1),
        (46, 3),
        (46, 2),
        (41, 9),
        (76, 7),
        (80, 0xFF),
    ] {
        let mut wrong = bytes.clone();
        wrong[at] = value;
        s.set_map_bytes(&wrong);
        // The same with a correct checksum.
        wrong[40..44].fill(0);
        let crc = crc32c::crc32c(&wrong);
        wrong[40..44].copy_from_slice(&crc.to_le_bytes());
        s.set_map_bytes(&wrong);
        s.get_map(4096);
    }
    s.set_map_bytes(&bytes[..bytes.len() - 4]);
    s.set_map_bytes(&bytes[..40]);
    let mut longer = bytes;
    longer.extend_from_slice(&[7; 100]);
    s.set_map_bytes(&longer);
    s.get_map(4096);
    scripts.push(s.finish("map-bent", "MAP SET: a map that is none changes nothing"));
}

pub(crate) fn sweeps(scripts: &mut Vec<Script>) {
    let mut s = Writing::new();
    s.run(Io::new(io::WRITE, WRITER, 0, 16));
    for (vid, generation, version, term) in [
        (VOLUME, 0, 9, 1),
        (VOLUME, 2, 9, 1),
        (VOLUME, 1, 1, 1),
        (6, 1, 9, 1),
        (0, 1, 9, 1),
        (0xFFFF, 1, 9, 1),
        (VOLUME, 1, 9, 1),
        (VOLUME, 1, 9, 1),
        (VOLUME, 1, 3, 1),
    ] {
        s.delete(vid, generation, version, term);
    }
    s.wait_for_sweeps();
    for generation in [1, 0, 2] {
        s.delete(VOLUME, generation, 10, 1);
        s.add(&VolumeEntry { generation, version: 11, ..entry(VOLUME) });
    }
    s.look(0..16);
    scripts.push(s.finish("delete", "DELETE: by generation and version, and again"));
    for blocks in [1024u64, 1 << 16] {
        let mut s = Writing::sized(blocks, 0);
        s.set_map(&FleetMap::equal(1, 64, 7, 1).expect("a map"));
        s.add(&VolumeEntry { chunk_shift: 8, ..entry(VOLUME) });
        s.add(&VolumeEntry { chunk_shift: 8, capacity_blocks: 1 << 20, ..entry(6) });
        s.run(Io::new(io::WRITE, WRITER, 0, 256));
        s.run(Io { vid: 6, ..Io::new(io::WRITE, WRITER, 0, 256) });
        s.delete(VOLUME, 1, 2, 1);
        for turn in 0..8u32 {
            s.push(crate::op::Op::State);
            s.add(&VolumeEntry { generation: 2, version: 3, ..entry(VOLUME) });
            s.run(Io { vid: 6, ..Io::new(io::WRITE, WRITER, turn * 256 + 256, 64) });
            s.advance(50_000);
            s.list(0, 1 << 16, true);
        }
        s.look([0, 255]);
        scripts.push(s.finish(
            format!("sweep-{blocks}"),
            format!("sweep: in steps, beside writes, on {blocks} blocks"),
        ));
    }
    let mut s = Writing::new();
    s.add(&VolumeEntry { writer: ClientId::new(WRITER), ..entry(6) });
    for turn in 1..6u32 {
        s.run(Io::new(io::WRITE, WRITER, 0, 8));
        s.delete(VOLUME, turn, u64::from(turn) + 1, 1);
        s.wait_for_sweeps();
        s.add(&VolumeEntry { generation: turn + 1, version: u64::from(turn) + 1, ..entry(VOLUME) });
        s.look([0, 7]);
        s.sequence = 0;
        s.run(Io::new(io::WRITE, WRITER, 0, 1));
        s.look([0, 7]);
    }
    scripts.push(s.finish("lives", "sweep: a new life knows no block and no stamp of the last"));
}

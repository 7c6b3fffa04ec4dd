// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scripts of contents: what is read is what was written last.

use crate::file::Script;
use crate::script::{Io, READER, VERBS, VOLUME, WRITER, Writing, entry};
use crate::scripts::verb;
use gnstor_proto::nvme::{KeyedSgl, io};
use gnstor_proto::placement::FleetMap;

pub(crate) fn data(scripts: &mut Vec<Script>) {
    order(scripts);
    room(scripts);
    ranges(scripts);
}

/// Commands that overtake each other, and data that never comes.
fn order(scripts: &mut Vec<Script>) {
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
}

/// A full SSD, and a collector.
fn room(scripts: &mut Vec<Script>) {
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
}

/// Every range is judged before any is unmapped.
fn ranges(scripts: &mut Vec<Script>) {
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

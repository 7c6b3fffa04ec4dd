// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scripts whose device has a twin. The emulator plays the same commands with PRP to the twin, and its
//! answers must be the same. The firmware itself only accepts keyed descriptors.

use crate::device::VENDOR;
use crate::file::Script;
use crate::op::{DAEMON, Op};
use crate::script::{Io, LEASE, MS, READER, VERBS, VOLUME, WRITER, Writing, entry, vendor};
use crate::scripts::verb;
use gnstor_proto::nvme::{KeyedSgl, io};
use gnstor_proto::vendor::{VolumeEntry, opcode};

pub(crate) fn twins(scripts: &mut Vec<Script>) {
    for opcode in VERBS {
        let name = verb(opcode);
        let own = Io { vid: 6, ..Io::new(opcode, WRITER, 0, 1) };
        let mut s = Writing::twins();
        s.add(&VolumeEntry { capacity_blocks: 1 << 20, chunk_shift: 12, ..entry(6) });
        for flags in 0..=255u8 {
            let mut sqe = own.sqe(100);
            sqe.flags = flags;
            let token = s.send(WRITER, sqe);
            s.end(own, token);
        }
        for blocks in [1, 2, 255, 256, 257, 511, 512, 65_536] {
            let wide = Io { blocks, ..own };
            let token = s.begin(wide);
            s.end(wide, token);
            s.advance(1_000_000);
        }
        for (bytes, kind) in
            [(0u32, 0x40u8), (4095, 0x40), (4097, 0x40), (4096, 0x00), (4096, 0x41), (16, 0x40)]
        {
            let mut sqe = own.sqe(103);
            sqe.dptr = KeyedSgl::keyed(0, bytes, 1);
            sqe.dptr.kind = kind;
            s.send(WRITER, sqe);
        }
        scripts.push(
            s.finish(format!("prp-{name}"), format!("PRP: flags, lengths by blocks, and MDTS of a {name}")),
        );
    }
    orders(scripts);
    life(scripts);
}

fn orders(scripts: &mut Vec<Script>) {
    let mut s = Writing::twins();
    for code in VENDOR {
        for (flags, nsid, bytes) in [
            (0x40u8, 1u32, 4096u32),
            (0, 1, 4096),
            (0x80, 1, 4096),
            (0x40, 2, 4096),
            (0x40, 1, 0),
            (0x40, 1, 4),
            (0x40, 1, 8192),
            (0x40, 1, 1 << 20),
            (0x40, 1, (1 << 20) + 4),
        ] {
            for who in [DAEMON, WRITER] {
                let mut sqe = vendor(code, bytes.min(0xFF_FFFF));
                (sqe.flags, sqe.nsid) = (flags, nsid.into());
                s.admin(who, sqe, &[]);
            }
        }
        let mut sqe = vendor(code, 4096);
        sqe.dptr = KeyedSgl::keyed(0, 4095, 1);
        s.admin(DAEMON, sqe, &[]);
    }
    s.send_entry(opcode::VOLUME_ADD, &entry(6).encode());
    s.list(0, 1 << 14, false);
    scripts.push(s.finish("prp-admin", "PRP: the daemon's commands, by the length in CDW10"));
}

/// Reads, writes, fences, a sweep and a collector, with the same answers from both.
fn life(scripts: &mut Vec<Script>) {
    let mut s = Writing::twins();
    let own = Io::new(io::READ, WRITER, 0, 4);
    s.run(Io { opcode: io::WRITE, ..own });
    s.run_verbs(own);
    s.push(Op::Move { count: 100, seed: 3 });
    let (read, write) = (s.begin(own), s.begin(Io { opcode: io::WRITE, ..own }));
    s.chmod(&VolumeEntry { version: 2, lease_epoch: LEASE + 1, ..entry(VOLUME) });
    s.end(own, read);
    s.end(Io { opcode: io::WRITE, ..own }, write);
    let late = s.begin(Io::new(io::COMPARE, READER, 0, 1));
    s.delete(VOLUME, 1, 3, 1);
    s.advance(2_000 * MS);
    s.end(Io::new(io::COMPARE, READER, 0, 1), late);
    s.wait_for_sweeps();
    s.add(&VolumeEntry { generation: 2, version: 4, ..entry(VOLUME) });
    s.look(0..4);
    scripts.push(s.finish("prp-life", "PRP: fences, a sweep, a late command, a new life"));
}

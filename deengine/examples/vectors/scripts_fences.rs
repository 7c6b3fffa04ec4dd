// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scripts of rule 8: commands in flight, and changes of what allowed them.

use crate::file::Script;
use crate::script::{Io, LEASE, MS, READER, VOLUME, WRITER, Writing, entry};
use crate::scripts::verb;
use gnstor_proto::nvme::io;
use gnstor_proto::vendor::VolumeEntry;

pub(crate) fn fences(scripts: &mut Vec<Script>) {
    for opcode in [io::READ, io::WRITE, io::COMPARE, io::DATASET_MANAGEMENT] {
        let (name, own) = (verb(opcode), Io::new(opcode, WRITER, 4, 1));
        waiting(scripts, name, own);
        late(scripts, name, own);
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
    s.wait_for_sweeps();
    s.add(&VolumeEntry { generation: 2, version: 3, ..entry(VOLUME) });
    s.end(Io::new(io::WRITE, WRITER, 0, 1), held);
    s.wait_for_sweeps();
    s.add(&VolumeEntry { generation: 2, version: 3, ..entry(VOLUME) });
    s.look([0]);
    scripts.push(
        s.finish("fence-life", "fence: a volume is not reborn while a write of its last life is under way"),
    );
}

/// A change waits for commands that were judged before it.
fn waiting(scripts: &mut Vec<Script>, name: &str, own: Io) {
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
            s.chmod(&VolumeEntry { version: 3, lease_epoch: LEASE + 1, readers: vec![], ..entry(VOLUME) });
        }
        s.end(own, first);
        s.end(later, third);
        s.wait_for_sweeps();
        s.look([4]);
        scripts.push(s.finish(
            format!("fence-{what}-{name}"),
            format!("fence: a {what} waits for each {name} judged before it"),
        ));
    }
}

/// After 2 s the queues of commands that are late are closed.
fn late(scripts: &mut Vec<Script>, name: &str, own: Io) {
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

/// The fence of a DELETE is overdue when its sweep has long ended. Whether the volume is buried in that step
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
        s.wait_for_sweeps();
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

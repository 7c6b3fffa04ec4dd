// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A slow disk: commands that change the metadata wait for its barriers, and nothing else does. Some of these
//! tests wait in real time. Tests begin in the order of their names, so that others use the cores meanwhile.
mod cold_reads;
pub(super) mod on_file;
mod on_slow_disk;

use super::*;
use gnstor_flash::{Power, RamStore};
use gnstor_ftl::{DUMP_BYTES, FtlConfig};

/// Number of polls until a sync ends.
const POLLS: u32 = 7;
const MORE: u16 = VOLUME + 1;

/// An SSD in memory, with volumes, whose metadata is on a slow disk.
fn slow() -> Harness {
    let config = SsdConfig {
        index: 0,
        preset: Preset::by_name("null").unwrap(),
        capacity_bytes: 1024 * 4096,
        serial: "GN0001".into(),
        media: SsdMedia::Ram,
    };
    let bytes = FtlConfig::store_bytes(&config.preset, 1024, DUMP_BYTES).unwrap();
    let power = Arc::new(Power::steady());
    let store = RamStore::new(bytes, Arc::clone(&power)).with_slow_syncs(POLLS);
    let bench = Bench { power, store: Some(Arc::new(store)), ..Bench::default() };
    let mut harness = Harness::around(Ssd::format_with(config, &bench).unwrap(), bench.faults).with_clients();
    let mut map = FleetMap::equal(1, 64, 7, 1).unwrap().encode();
    map.resize(map.len().next_multiple_of(4), 0);
    let sqe = harness.daemon_sqe(opcode::MAP_SET, &map);
    assert_eq!(harness.later(sqe), None);
    let sqe = harness.daemon_sqe(opcode::VOLUME_ADD, entry(VOLUME).encode().as_bytes());
    assert_eq!(harness.later(sqe), None);
    harness
}

impl Harness {
    /// A command of the daemon that waits for the disk; its refusal.
    fn later(&mut self, sqe: Sqe) -> Option<Refusal> {
        let cid = self.submit(DAEMON, sqe);
        assert!(self.take(DAEMON, cid).is_none(), "it is acknowledged before it is durable");
        self.awaited(cid)
    }

    fn awaited(&mut self, cid: u16) -> Option<Refusal> {
        let end = self.now + Span::from_ms(100);
        while self.now < end {
            self.advance(Span::from_ns(100_000));
            if let Some(cqe) = self.take(DAEMON, cid) {
                return refusal(&cqe);
            }
        }
        panic!("it never completes")
    }
}

#[test]
fn commands_of_volumes_wait_for_the_disk_and_others_do_not() {
    let mut harness = slow();
    let sqe = harness.daemon_sqe(opcode::VOLUME_ADD, entry(MORE).encode().as_bytes());
    let added = harness.submit(DAEMON, sqe);
    // Meanwhile: keep-alive, I/O, and further changes.
    assert_eq!(refusal(&harness.run(DAEMON, sqe_of_keep_alive())), None);
    assert_eq!(refusal(&harness.write(3, &[1])), None);
    assert_eq!(harness.read(3), block(1));
    let sqe = harness.daemon_sqe(opcode::VOLUME_ADD, entry(MORE).encode().as_bytes());
    let again = harness.submit(DAEMON, sqe);
    let deleted = harness.submit(DAEMON, Harness::delete_sqe(1, 2));
    assert!(harness.completions.is_empty(), "a change is acknowledged before it is durable");
    assert_eq!(refusal(&harness.write(4, &[2])), None, "not deleted yet");
    assert_eq!(harness.awaited(added), None);
    assert_eq!(harness.awaited(again), Some(Refusal::VolumeExists), "judged after the first one");
    assert_eq!(harness.awaited(deleted), None);
    let sqe = harness.io(io::READ, READER, 3, 1);
    assert_eq!(harness.refused(READER, sqe), Some(Refusal::Deleting));
    // The tombstone is also written while other commands go on.
    harness.advance(Span::from_ms(5));
    for _ in 0..100 {
        harness.advance(Span::from_ms(1));
    }
    assert!(harness.ssd().admin.volumes().metadata().contents().tombstones.contains_key(&vid(VOLUME)));
    assert!(harness.ssd().table.volume(vid(VOLUME)).is_none());
    assert_eq!(harness.in_flight(), 0);
}

/// Rule 2: an SSD serves while its lease is renewed in time, however long a change takes that is under way.
#[test]
fn a_renewal_waits_for_the_disk_once_a_term_and_for_no_other_change() {
    let mut harness = slow();
    let renewal = |term: u32, ms: u32| Sqe {
        cdw2: 1u32.into(),
        cdw12: ms.into(),
        cdw14: term.into(),
        ..sqe(opcode::LEASE_RENEW)
    };
    for term in [1, 2] {
        assert_eq!(harness.later(renewal(term, 500)), None, "that there is a lease is noted durably first");
        let new = VolumeEntry { term: term.into(), ..entry(MORE + u16::try_from(term).unwrap()) };
        let sqe = harness.daemon_sqe(opcode::VOLUME_ADD, new.encode().as_bytes());
        let added = harness.submit(DAEMON, sqe);
        assert_eq!(harness.refused(DAEMON, renewal(term, 60_000)), None, "beside a change");
        assert!(harness.take(DAEMON, added).is_none(), "the change waits");
        assert_eq!(harness.awaited(added), None);
        harness.advance(Span::from_ms(1000));
        assert_eq!(refusal(&harness.write(1, &[1])), None, "the lease was renewed");
    }
    let sqe = renewal(1, 60_000);
    assert_eq!(harness.refused(DAEMON, sqe), Some(Refusal::StaleTerm));
}

pub(super) fn sqe_of_keep_alive() -> Sqe {
    sqe(admin::KEEP_ALIVE)
}

#[test]
fn a_change_whose_queue_is_gone_takes_effect_where_it_has_begun_and_not_where_it_waits() {
    let mut harness = slow();
    let sqe = harness.daemon_sqe(opcode::VOLUME_ADD, entry(MORE).encode().as_bytes());
    harness.submit(DAEMON, sqe);
    harness.submit(DAEMON, Harness::delete_sqe(1, 2));
    harness.close_queue(harness.now, DAEMON);
    assert_eq!(harness.in_flight(), 0);
    for _ in 0..100 {
        harness.advance(Span::from_ms(1));
    }
    let ssd = harness.ssd();
    assert!(ssd.table.volume(vid(MORE)).is_some(), "what is durable is in the table");
    assert!(!ssd.table.volume(vid(VOLUME)).unwrap().entry().deleting, "no command asks for that");
}

#[test]
fn counters_of_smart_hold_nothing_up() {
    let mut harness = slow();
    harness.write(1, &[1]);
    let before = harness.ssd().admin.volumes().metadata().contents().smart_counters;
    harness.advance(Span::from_ms(61_000));
    // Both copies are written in the next milliseconds, not at the next save.
    for _ in 0..3 * POLLS {
        harness.advance(Span::from_ms(1));
    }
    let mut ssd = harness.ssd();
    assert!(!ssd.admin.volumes_mut().metadata_mut().poll_smart_counters().unwrap());
    assert_ne!(ssd.admin.volumes().metadata().contents().smart_counters, before);
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Features: an SSD keeps the values that a host sets, and refuses values that it may not set.

use super::voting::PEER;
use super::*;

const ADMIN: QueueKey = QueueKey(80);

fn set(harness: &mut Harness, feature: u32, value: u32) -> Option<Refusal> {
    set_by(harness, ADMIN, feature, value)
}

fn set_by(harness: &mut Harness, admin: QueueKey, feature: u32, value: u32) -> Option<Refusal> {
    harness.refused(admin, Sqe { cdw10: feature.into(), cdw11: value.into(), ..sqe(admin::SET_FEATURES) })
}

fn get(harness: &mut Harness, feature: u32, select: u32, cdw11: u32) -> Result<u32, Refusal> {
    let command =
        Sqe { cdw10: (feature | select << 8).into(), cdw11: cdw11.into(), ..sqe(admin::GET_FEATURES) };
    let cqe = harness.run(ADMIN, command);
    refusal(&cqe).map_or(Ok(cqe.dw0.get()), Err)
}

#[test]
fn values_are_kept_and_defaults_and_capabilities_told() {
    let mut harness = Harness::new();
    // Feature, value set, default, capabilities.
    let cases = [
        (0x01, 0x0A05_0203, 0x0703_0100, 4),
        (0x02, 0, 0, 4),
        (0x04, 400, 343, 4),
        (0x05, 1 << 16 | 7, 0, 6),
        (0x0B, 0x302, 0x1F, 4),
        (0x0F, 5000, 120_000, 4),
    ];
    for (feature, value, default, capabilities) in cases {
        assert_eq!(get(&mut harness, feature, 0, 0), Ok(default), "{feature:02x}h");
        assert_eq!(set(&mut harness, feature, value), None, "{feature:02x}h");
        assert_eq!(get(&mut harness, feature, 0, 0), Ok(value), "{feature:02x}h");
        assert_eq!(get(&mut harness, feature, 1, 0), Ok(default));
        assert_eq!(get(&mut harness, feature, 2, 0), Ok(default), "nothing is saved");
        assert_eq!(get(&mut harness, feature, 3, 0), Ok(capabilities));
        assert_eq!(get(&mut harness, feature, 4, 0), Err(Refusal::InvalidField));
        assert_eq!(set(&mut harness, feature | 1 << 31, value), Some(Refusal::FeatureNotSaveable));
    }
    for feature in [0x00, 0x03, 0x06, 0x08, 0x0C, 0x80, 0xC0, 0xFF] {
        for select in 0..4 {
            assert_eq!(get(&mut harness, feature, select, 0), Err(Refusal::InvalidField), "{feature:02x}h");
        }
        assert_eq!(set(&mut harness, feature, 0), Some(Refusal::InvalidField));
    }
}

#[test]
fn values_without_a_meaning_are_refused() {
    let mut harness = Harness::new();
    let cases =
        [(0x02, 1), (0x04, 1 << 16), (0x04, 2 << 20), (0x07, 0xFFFF), (0x07, 0xFFFF << 16), (0x0B, 1 << 10)];
    for (feature, value) in cases {
        assert_eq!(
            set(&mut harness, feature, value),
            Some(Refusal::InvalidField),
            "{feature:02x}h {value:x}h"
        );
    }
    for (nsid, want) in
        [(0, Some(Refusal::InvalidNamespace)), (2, Some(Refusal::InvalidNamespace)), (u32::MAX, None)]
    {
        let command = Sqe { nsid: nsid.into(), cdw10: 5.into(), ..sqe(admin::SET_FEATURES) };
        assert_eq!(harness.refused(ADMIN, command), want);
    }
    assert_eq!(get(&mut harness, 0x04, 0, 1 << 16), Err(Refusal::InvalidField), "there is no second sensor");
}

#[test]
fn features_are_a_hosts_own() {
    let mut harness = Harness::new();
    assert_eq!(set(&mut harness, 0x01, 0), None);
    let other = harness.run(QueueKey(70), Sqe { cdw10: 1.into(), ..sqe(admin::GET_FEATURES) });
    assert_eq!(other.dw0.get(), 0x0703_0100);
}

#[test]
fn the_host_identifier_is_that_of_connect() {
    let mut harness = Harness::new();
    let command = Sqe {
        cdw10: 0x81.into(),
        cdw11: 1.into(),
        dptr: KeyedSgl::keyed(0, 16, KEY),
        ..sqe(admin::GET_FEATURES)
    };
    assert_eq!(harness.refused(ADMIN, command), None);
    assert_eq!(harness.peek(ADMIN, 0)[..16], ConnectData::new(Identity::Client(client(8)), 0, "").host_id);
    assert_eq!(
        harness.refused(ADMIN, Sqe { cdw11: 0.into(), ..command }),
        Some(Refusal::InvalidField),
        "8 bytes are too few"
    );
    assert_eq!(set(&mut harness, 0x81, 1), Some(Refusal::SequenceError), "it comes with Connect");
    assert_eq!(get(&mut harness, 0x81, 3, 0), Ok(0), "not changeable");
}

#[test]
fn a_write_cache_can_be_switched_off_where_there_is_one() {
    let mut harness = Harness::new();
    assert!(harness.ssd().write_cache_enabled(), "protected: as good as durable");
    harness.ssd().set_write_cache(true);
    assert_eq!((get(&mut harness, 0x06, 0, 0), get(&mut harness, 0x06, 3, 0)), (Ok(1), Ok(4)));
    assert_eq!(set_by(&mut harness, DAEMON, 0x06, 0), None);
    assert_eq!((get(&mut harness, 0x06, 0, 0), get(&mut harness, 0x06, 1, 0)), (Ok(0), Ok(1)));
    assert!(!harness.ssd().write_cache_enabled());
    let durable = |harness: &Harness| harness.ssd().ftl().durable();
    let before = durable(&harness);
    harness.write(0, &[1]);
    let written = durable(&harness);
    let zeroes = harness.io(io::WRITE_ZEROES, WRITER, 0, 1);
    assert_eq!(harness.refused(WRITER, zeroes), None);
    assert!(written > before && durable(&harness) > written, "each is durable when it is acknowledged");
    assert_eq!(set_by(&mut harness, DAEMON, 0x06, 1), None);
    let written = durable(&harness);
    harness.write(1, &[1]);
    assert_eq!(durable(&harness), written, "with the cache on, it need not be");
    assert_eq!(set_by(&mut harness, DAEMON, 0x06, 0), None);
    let identify = Sqe { dptr: KeyedSgl::keyed(0, 4096, KEY), cdw10: 1.into(), ..sqe(admin::IDENTIFY) };
    assert_eq!(harness.refused(ADMIN, identify), None);
    assert_eq!(harness.peek(ADMIN, 0)[525], 1);
}

/// The write cache is all clients': one of them would take the durability that another was promised.
#[test]
fn only_the_daemon_switches_the_write_cache() {
    let mut harness = Harness::new();
    harness.connect(PEER, 0, Identity::Peer(1), CNTLID_ANY);
    harness.ssd().set_write_cache(true);
    for enabled in [1, 0] {
        assert_eq!(set_by(&mut harness, DAEMON, 0x06, enabled), None);
        for (admin, value) in
            [(70, 1), (70, 0), (80, 1), (80, 0), (90, 1), (90, 0)].map(|(key, value)| (QueueKey(key), value))
        {
            let refused = set_by(&mut harness, admin, 0x06, value);
            assert_eq!(refused, Some(Refusal::NotTheDaemon), "{admin:?} {value}");
        }
        assert_eq!(set_by(&mut harness, PEER, 0x06, 1 - enabled), Some(Refusal::NotTheDaemon));
        assert_eq!(harness.ssd().write_cache_enabled(), enabled == 1);
        assert_eq!(get(&mut harness, 0x06, 0, 0), Ok(enabled), "every host may ask");
    }
}

/// A new version of the rules makes every worker judge all writes in flight again.
#[test]
fn a_feature_that_is_set_to_what_it_is_changes_no_version_of_the_rules() {
    let mut harness = Harness::new();
    let version = |harness: &Harness| harness.ssd().workers().version();
    let before = version(&harness);
    for retry_limit in 0..10 {
        assert_eq!(set(&mut harness, 0x05, retry_limit), None);
    }
    assert_eq!(version(&harness), before);
    assert_eq!(set(&mut harness, 0x05, 1 << 16), None);
    assert!(version(&harness) > before, "the workers have to hear of it");
}

#[test]
fn unwritten_blocks_are_refused_to_the_host_that_asks_for_it() {
    let mut harness = Harness::new();
    harness.write(0, &[1, 2]);
    assert_eq!(set(&mut harness, 0x05, 1 << 16), None);
    for (blocks, want) in [(2, None), (3, Some(Refusal::Deallocated))] {
        let sqe = harness.io(io::READ, READER, 0, blocks);
        assert_eq!(harness.refused(READER, sqe), want);
        let sqe = harness.io(io::READ, WRITER, 0, blocks);
        assert_eq!(harness.refused(WRITER, sqe), None, "the other host has not asked");
    }
    assert_eq!(set(&mut harness, 0x05, 0), None);
    let sqe = harness.io(io::READ, READER, 0, 3);
    assert_eq!(harness.refused(READER, sqe), None);
    assert_eq!(harness.in_flight(), 0);
}

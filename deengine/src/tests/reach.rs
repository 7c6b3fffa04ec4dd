// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every refusal of the table is reached through a capsule. The list in `reach` is a `match` without a last
//! arm. So a refusal that is added to the table needs a case here before the tests compile.

use super::map3::{At, one_group};
use super::*;
use gnstor_proto::placement::map3::State3;
use gnstor_proto::placement::{Rows, group_of};
use gnstor_proto::voting::Ask;

/// A block of which SSD 0 has this part in the map.
fn vba_where(map: &FleetMap, volume: &VolumeEntry, wanted: impl Fn(&FleetMap, u32) -> bool) -> u32 {
    (0..32u32)
        .map(|chunk| chunk << 4)
        .find(|&vba| wanted(map, group_of(volume.vid, vba, 4, volume.factor, map.groups())))
        .expect("32 chunks hold every kind")
}

/// SSD 0 of this map, with a volume of two replicas.
fn in_map(map: &FleetMap) -> (Harness, VolumeEntry) {
    let mut harness = Harness::connected(0);
    harness.set_map(map);
    let volume = VolumeEntry { replicas: 2, ..entry(VOLUME) };
    assert_eq!(refusal(&harness.volume_command(opcode::VOLUME_ADD, &volume)), None);
    (harness, volume)
}

fn attempt(harness: &mut Harness, opcode: u8, key: QueueKey, vba: u32) -> Cqe {
    let sqe = harness.io(opcode, key, vba, 1);
    harness.run(key, sqe)
}

fn connect(harness: &mut Harness, ssd: u16, hostnqn: Option<&[u8]>) -> Cqe {
    harness.open(QueueKey(500), 0, 32);
    let mut data = ConnectData::new(Identity::Client(client(10)), CNTLID_ANY, &ssd_subnqn(ssd));
    if let Some(name) = hostnqn {
        data.hostnqn = [0; 256];
        data.hostnqn[..name.len()].copy_from_slice(name);
    }
    harness.connect_with(QueueKey(500), ConnectFields { sqsize_z: 31.into(), ..Default::default() }, &data)
}

/// A command that its caller may not send.
fn by_caller(harness: &mut Harness, wanted: Refusal) -> Cqe {
    match wanted {
        Refusal::UnknownVolume => {
            let sqe = harness.io(io::READ, READER, 0, 1);
            harness.run(READER, Sqe { cdw11: (99 << 16 | 8).into(), ..sqe })
        }
        Refusal::NotAReader => attempt(harness, io::READ, STRANGER, 0),
        Refusal::ReadOnly => attempt(harness, io::WRITE, READER, 0),
        Refusal::LeaseHeldByOther => {
            harness.chmod(|entry| (entry.writer, entry.lease_epoch) = (Some(client(9)), LEASE + 1));
            attempt(harness, io::WRITE, WRITER, 0)
        }
        Refusal::LeaseExpired => {
            harness.advance(Span::from_ms(10_000));
            attempt(harness, io::WRITE, WRITER, 0)
        }
        Refusal::WrongIdentity => {
            let sqe = harness.io(io::READ, WRITER, 0, 1);
            harness.run(READER, sqe)
        }
        Refusal::NotTheDaemon => harness.run(QueueKey(70), sqe(opcode::LEASE_RENEW)),
        other => unreachable!("{other:?} is reached elsewhere"),
    }
}

/// A command that the fleet map sends elsewhere, or that this SSD does not serve yet.
fn by_map(harness: &mut Harness, wanted: Refusal) -> Cqe {
    let four = FleetMap::equal(4, 64, 7, 1).unwrap();
    match wanted {
        Refusal::WrongTarget | Refusal::AskTheFirst => {
            let (other, volume) = in_map(&four);
            *harness = other;
            let place = |map: &FleetMap, group| map.replicas(group, 2).position(|member| member.ssd == 0);
            let want = if wanted == Refusal::WrongTarget { None } else { Some(1) };
            let vba = vba_where(&four, &volume, |map, group| place(map, group) == want);
            attempt(harness, io::READ, READER, vba)
        }
        Refusal::StaleMap => {
            harness.map_epoch = 0;
            attempt(harness, io::READ, READER, 0)
        }
        Refusal::MapBehind => {
            harness.map_epoch = 2;
            attempt(harness, io::READ, READER, 0)
        }
        Refusal::NotHereYet => {
            let map = FleetMap::equal(6, 64, 7, 1).unwrap().without(1);
            let (other, volume) = in_map(&map);
            *harness = other;
            let fills = |map: &FleetMap, group| map.replicas(group, 2).any(|m| m.ssd == 0 && m.filling);
            let vba = vba_where(&map, &volume, fills);
            attempt(harness, io::READ, WRITER, vba)
        }
        Refusal::CopyUnusable => {
            let map = harness.ssd().fleet_map().expect("a map").encode().expect("it was decoded");
            harness.ssd().stand_in(&map).unwrap();
            attempt(harness, io::READ, READER, 0)
        }
        Refusal::GroupWaits | Refusal::GroupFull => {
            let mut map = one_group([At::Serves(0), At::Serves(1), At::Hole], Some(0));
            let is_full = wanted == Refusal::GroupFull;
            map.ssds[1].state = if is_full { State3::Full } else { State3::Absent };
            *harness = Harness::connected(0);
            harness.set_map(&map);
            let volume = VolumeEntry { replicas: 2, ..entry(VOLUME) };
            assert_eq!(refusal(&harness.volume_command(opcode::VOLUME_ADD, &volume)), None);
            attempt(harness, io::WRITE, WRITER, 0)
        }
        Refusal::NeedsSalvage => {
            // The map drops it, so it counts up. The next one names the content before.
            let mut map = one_group([At::Serves(0), At::Serves(1), At::Hole], Some(0));
            (map.ssds[0].state, map.rows[0].places[0], map.rows[0].first) = (State3::Out, None, Some(1));
            *harness = Harness::connected(0);
            harness.set_map(&map);
            let mut map = one_group([At::Serves(0), At::Serves(1), At::Hole], Some(0));
            (map.ssds[0].state, map.epoch) = (State3::Absent, map.epoch + 1);
            harness.set_map(&map);
            harness.map_epoch = map.wire_epoch();
            attempt(harness, io::READ, READER, 0)
        }
        Refusal::NotServing => {
            assert_eq!(harness.refused(DAEMON, Sqe { cdw14: 1.into(), ..sqe(opcode::LEASE_RENEW) }), None);
            attempt(harness, io::READ, READER, 0)
        }
        other => unreachable!("{other:?} is reached elsewhere"),
    }
}

/// Commands that a voter refuses.
fn by_voter(harness: &mut Harness, wanted: Refusal) -> Cqe {
    let mut map = one_group([At::Serves(0), At::Serves(1), At::Hole], Some(0));
    if wanted == Refusal::Deprived {
        map.ssds[1].shrunk_at = map.epoch;
    }
    let array = if wanted == Refusal::OtherArray { [9; 16] } else { map.array };
    *harness = Harness::connected(0);
    harness.connect(QueueKey(40), 0, Identity::Peer(1), CNTLID_ANY);
    harness.set_map(&map);
    let sqe = Sqe { dptr: KeyedSgl::keyed(0, 64, KEY), flags: sqe(0).flags, ..Ask::command() };
    let ask = Ask { ssd: 1, array, epoch: 0, incarnation: 1, opening: 2, uuid: [0; 16], is_goodbye: false };
    if wanted == Refusal::OlderImage {
        harness.poke(QueueKey(40), 0, &Ask { opening: 3, ..ask }.encode());
        assert_eq!(harness.refused(QueueKey(40), sqe), None);
    }
    harness.poke(QueueKey(40), 0, &ask.encode());
    harness.run(QueueKey(40), sqe)
}

/// Blocks that cannot be had.
fn by_data(harness: &mut Harness, wanted: Refusal) -> Cqe {
    match wanted {
        Refusal::OutOfRange => attempt(harness, io::READ, READER, 512),
        Refusal::CapacityExceeded => {
            *harness = Harness::bare(0, 16).with_clients().with_volume();
            for vba in 0..16 {
                harness.write(vba, &[1]);
            }
            attempt(harness, io::WRITE, WRITER, 16)
        }
        Refusal::NotReady => {
            harness.ssd().set_recovering(true);
            assert_eq!(harness.refused(DAEMON, sqe(opcode::LEASE_RENEW)), Some(Refusal::NotReady));
            assert_eq!(harness.refused(DAEMON, sqe(admin::KEEP_ALIVE)), None);
            attempt(harness, io::READ, READER, 0)
        }
        Refusal::WrongKey => {
            harness.write(0, &[1, 2]);
            harness.ssd().ftl().misdirect(vid(VOLUME), 0, 1);
            attempt(harness, io::READ, READER, 0)
        }
        Refusal::BadChecksum => {
            harness.write(0, &[1]);
            harness.damage(0);
            attempt(harness, io::READ, READER, 0)
        }
        Refusal::Unreadable => {
            harness.write(0, &[1]);
            // What is in the write buffer is read from there: on flash it must be.
            assert_eq!(harness.refused(WRITER, sqe(io::FLUSH)), None);
            harness.faults.unreadable(harness.page(0), false);
            attempt(harness, io::READ, READER, 0)
        }
        Refusal::Deleting => {
            assert_eq!(refusal(&harness.run(DAEMON, Harness::delete_sqe(1, 2))), None);
            attempt(harness, io::READ, READER, 0)
        }
        Refusal::AuthenticationRequired => {
            harness.ssd().require_authentication(crate::Authentication {
                manager_key: gnstor_auth::Secret::new([7; 32]),
                group: gnstor_auth::Group::Null,
                random: Box::new(|bytes| bytes.fill(1)),
            });
            connect(harness, 0, None);
            harness.run(QueueKey(500), sqe(admin::KEEP_ALIVE))
        }
        other => unreachable!("{other:?} is reached elsewhere"),
    }
}

/// A change of the permission table that is not possible.
fn by_entry(harness: &mut Harness, wanted: Refusal) -> Cqe {
    match wanted {
        Refusal::VolumeExists => harness.volume_command(opcode::VOLUME_ADD, &entry(VOLUME)),
        Refusal::VolumeAbsent => harness.volume_command(opcode::VOLUME_CHMOD, &entry(77)),
        Refusal::TableFull => {
            for raw in 0..4095 {
                harness.ssd().table.add(harness.now, entry(raw + 100)).unwrap();
            }
            harness.volume_command(opcode::VOLUME_ADD, &entry(9999))
        }
        Refusal::StaleTerm => {
            harness.volume_command(opcode::VOLUME_ADD, &VolumeEntry { term: 0, ..entry(77) })
        }
        Refusal::StaleVersion => harness.volume_command(opcode::VOLUME_CHMOD, &entry(VOLUME)),
        Refusal::SweepPending => {
            assert_eq!(refusal(&harness.run(DAEMON, Harness::delete_sqe(1, 2))), None);
            harness.volume_command(opcode::VOLUME_ADD, &VolumeEntry { generation: 2, ..entry(VOLUME) })
        }
        other => unreachable!("{other:?} is reached elsewhere"),
    }
}

/// A queue that may not be opened or used.
fn by_connection(harness: &mut Harness, wanted: Refusal) -> Cqe {
    match wanted {
        Refusal::ConnectRefused => connect(harness, 0, Some(b"nqn.2014-08.org.nvmexpress:stranger")),
        Refusal::ConnectInvalid => connect(harness, 1, None),
        Refusal::HostsFull => {
            harness.ssd().hosts.take_all_ids();
            connect(harness, 0, None)
        }
        Refusal::SequenceError => {
            harness.open(QueueKey(500), 0, 32);
            harness.run(QueueKey(500), sqe(admin::IDENTIFY))
        }
        other => unreachable!("{other:?} is reached elsewhere"),
    }
}

/// A command that is not well formed, or asks for too much.
fn by_form(harness: &mut Harness, wanted: Refusal) -> Cqe {
    match wanted {
        Refusal::InvalidField => harness.run(READER, Sqe { flags: 0, ..sqe(io::FLUSH) }),
        Refusal::InvalidOpcode => harness.run(READER, sqe(0x80)),
        Refusal::InvalidSgl => {
            let sqe = harness.io(io::READ, READER, 0, 1);
            harness.run(READER, Sqe { dptr: KeyedSgl::keyed(0, 4095, KEY), ..sqe })
        }
        Refusal::TransferError => {
            let sqe = harness.io(io::READ, READER, 0, 1);
            harness.run(READER, Sqe { dptr: KeyedSgl::keyed(0, 4096, KEY + 1), ..sqe })
        }
        Refusal::InvalidNamespace => harness.run(READER, Sqe { nsid: 2.into(), ..sqe(io::FLUSH) }),
        Refusal::InvalidLogPage => harness.run(QueueKey(80), log_sqe(0x7F, 0, 1, false)),
        Refusal::FeatureNotSaveable => {
            harness.run(QueueKey(80), Sqe { cdw10: (1 << 31 | 1).into(), ..sqe(admin::SET_FEATURES) })
        }
        Refusal::EventLimit => {
            for _ in 0..4 {
                harness.submit(QueueKey(80), sqe(admin::ASYNC_EVENT_REQUEST));
            }
            harness.run(QueueKey(80), sqe(admin::ASYNC_EVENT_REQUEST))
        }
        Refusal::AbortRequested => {
            let cid = harness.submit(QueueKey(80), sqe(admin::ASYNC_EVENT_REQUEST));
            harness.run(QueueKey(80), Sqe { cdw10: (u32::from(cid) << 16).into(), ..sqe(admin::ABORT) });
            harness.take(QueueKey(80), cid).unwrap()
        }
        Refusal::CompareFailed => {
            harness.poke(READER, 0, &block(1));
            attempt(harness, io::COMPARE, READER, 0)
        }
        Refusal::Deallocated => {
            let ask = Sqe { cdw10: 5.into(), cdw11: (1 << 16).into(), ..sqe(admin::SET_FEATURES) };
            assert_eq!(harness.refused(QueueKey(80), ask), None);
            attempt(harness, io::READ, READER, 0)
        }
        other => unreachable!("{other:?} is reached elsewhere"),
    }
}

/// A harness and the completion that carries the refusal.
fn reach(wanted: Refusal) -> (Harness, Cqe) {
    let mut harness = Harness::new();
    let cqe = match wanted {
        Refusal::UnknownVolume
        | Refusal::NotAReader
        | Refusal::ReadOnly
        | Refusal::LeaseHeldByOther
        | Refusal::LeaseExpired
        | Refusal::WrongIdentity
        | Refusal::NotTheDaemon => by_caller(&mut harness, wanted),
        Refusal::WrongTarget
        | Refusal::AskTheFirst
        | Refusal::StaleMap
        | Refusal::MapBehind
        | Refusal::NotHereYet
        | Refusal::NotServing
        | Refusal::GroupWaits
        | Refusal::NeedsSalvage
        | Refusal::GroupFull
        | Refusal::CopyUnusable => by_map(&mut harness, wanted),
        Refusal::OutOfRange
        | Refusal::CapacityExceeded
        | Refusal::NotReady
        | Refusal::WrongKey
        | Refusal::BadChecksum
        | Refusal::Unreadable
        | Refusal::Deleting
        | Refusal::AuthenticationRequired => by_data(&mut harness, wanted),
        Refusal::VolumeExists
        | Refusal::VolumeAbsent
        | Refusal::TableFull
        | Refusal::StaleTerm
        | Refusal::StaleVersion
        | Refusal::SweepPending => by_entry(&mut harness, wanted),
        Refusal::ConnectRefused | Refusal::ConnectInvalid | Refusal::HostsFull | Refusal::SequenceError => {
            by_connection(&mut harness, wanted)
        }
        Refusal::InvalidField
        | Refusal::InvalidOpcode
        | Refusal::InvalidSgl
        | Refusal::TransferError
        | Refusal::InvalidNamespace
        | Refusal::InvalidLogPage
        | Refusal::FeatureNotSaveable
        | Refusal::EventLimit
        | Refusal::AbortRequested
        | Refusal::CompareFailed
        | Refusal::Deallocated => by_form(&mut harness, wanted),
        Refusal::OtherArray | Refusal::Deprived | Refusal::OlderImage => by_voter(&mut harness, wanted),
    };
    (harness, cqe)
}

#[test]
fn every_refusal_of_the_table_is_reached_counted_and_logged() {
    for &wanted in Refusal::ALL {
        let (mut harness, cqe) = reach(wanted);
        assert_eq!(refusal(&cqe), Some(wanted));
        assert_eq!(Status(cqe.status_word()), wanted.status());
        assert!(harness.stats().refusals(wanted) >= 1, "{wanted:?}");
        let log = harness.log(DAEMON, start_of(1, 1024)).unwrap();
        let logged = log.chunks(64).any(|entry| {
            entry[32] == wanted as u8
                && entry[12..14] == (wanted.status().0 << 1).to_le_bytes()
                && entry[0] != 0
        });
        assert!(logged, "{wanted:?}");
    }
}

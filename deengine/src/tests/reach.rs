// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every refusal of the table is reached through a capsule. The list is a `match` without a last arm: a refusal that is
//! added to the table needs a case here before the tests compile.

use super::*;
use gnstor_proto::placement::group_of;

/// A block of which SSD 0 has this part in the map.
fn vba_where(map: &FleetMap, volume: &VolumeEntry, wanted: impl Fn(&FleetMap, u32) -> bool) -> u32 {
    (0..32u32)
        .map(|chunk| chunk << 4)
        .find(|&vba| wanted(map, group_of(volume.vid, vba, 4, volume.factor, map.groups())))
        .expect("32 chunks hold every kind")
}

/// SSD 0 of this map, with a volume of two replicas.
fn in_map(map: &FleetMap) -> (Rig, VolumeEntry) {
    let mut rig = Rig::connected(0);
    rig.set_map(map);
    let volume = VolumeEntry { replicas: 2, ..entry(VOLUME) };
    assert_eq!(refusal(&rig.volume_command(opcode::VOLUME_ADD, &volume)), None);
    (rig, volume)
}

fn attempt(rig: &mut Rig, opcode: u8, key: QueueKey, vba: u32) -> Cqe {
    let sqe = rig.io(opcode, key, vba, 1);
    rig.run(key, sqe)
}

fn connect(rig: &mut Rig, ssd: u16, hostnqn: Option<&[u8]>) -> Cqe {
    rig.open(QueueKey(500), 0, 32);
    let mut data = ConnectData::new(Identity::Client(client(10)), CNTLID_ANY, &ssd_subnqn(ssd));
    if let Some(name) = hostnqn {
        data.hostnqn = [0; 256];
        data.hostnqn[..name.len()].copy_from_slice(name);
    }
    rig.connect_with(QueueKey(500), ConnectFields { sqsize_z: 31.into(), ..Default::default() }, &data)
}

/// A rig and the completion that carries the refusal.
fn reach(wanted: Refusal) -> (Rig, Cqe) {
    let mut rig = Rig::new();
    let four = FleetMap::equal(4, 64, 7, 1).unwrap();
    let cqe = match wanted {
        Refusal::UnknownVolume => {
            let sqe = rig.io(io::READ, READER, 0, 1);
            rig.run(READER, Sqe { cdw11: (99 << 16 | 8).into(), ..sqe })
        }
        Refusal::NotAReader => attempt(&mut rig, io::READ, STRANGER, 0),
        Refusal::ReadOnly => attempt(&mut rig, io::WRITE, READER, 0),
        Refusal::LeaseHeldByOther => {
            rig.chmod(|entry| (entry.writer, entry.lease_epoch) = (Some(client(9)), LEASE + 1));
            attempt(&mut rig, io::WRITE, WRITER, 0)
        }
        Refusal::LeaseExpired => {
            rig.advance(Span::from_ms(10_000));
            attempt(&mut rig, io::WRITE, WRITER, 0)
        }
        Refusal::WrongIdentity => {
            let sqe = rig.io(io::READ, WRITER, 0, 1);
            rig.run(READER, sqe)
        }
        Refusal::NotTheDaemon => rig.run(QueueKey(70), sqe(opcode::LEASE_RENEW)),
        Refusal::WrongTarget | Refusal::AskTheFirst => {
            let (other, volume) = in_map(&four);
            rig = other;
            let place = |map: &FleetMap, group| map.replicas(group, 2).position(|member| member.ssd == 0);
            let want = if wanted == Refusal::WrongTarget { None } else { Some(1) };
            let vba = vba_where(&four, &volume, |map, group| place(map, group) == want);
            attempt(&mut rig, io::READ, READER, vba)
        }
        Refusal::StaleMap => {
            rig.map_epoch = 0;
            attempt(&mut rig, io::READ, READER, 0)
        }
        Refusal::MapBehind => {
            rig.map_epoch = 2;
            attempt(&mut rig, io::READ, READER, 0)
        }
        Refusal::NotHereYet => {
            let map = FleetMap::equal(6, 64, 7, 1).unwrap().without(1);
            let (other, volume) = in_map(&map);
            rig = other;
            let fills = |map: &FleetMap, group| map.replicas(group, 2).any(|m| m.ssd == 0 && m.filling);
            let vba = vba_where(&map, &volume, fills);
            attempt(&mut rig, io::READ, WRITER, vba)
        }
        Refusal::NotServing => {
            assert_eq!(rig.refused(DAEMON, Sqe { cdw14: 1.into(), ..sqe(opcode::LEASE_RENEW) }), None);
            attempt(&mut rig, io::READ, READER, 0)
        }
        Refusal::OutOfRange => attempt(&mut rig, io::READ, READER, 512),
        Refusal::CapacityExceeded => {
            rig = Rig::bare(0, 16).with_clients().with_volume();
            for vba in 0..16 {
                rig.write(vba, &[1]);
            }
            attempt(&mut rig, io::WRITE, WRITER, 16)
        }
        Refusal::NotReady => {
            rig.ssd().set_recovering(true);
            assert_eq!(rig.refused(DAEMON, sqe(opcode::LEASE_RENEW)), Some(Refusal::NotReady));
            assert_eq!(rig.refused(DAEMON, sqe(admin::KEEP_ALIVE)), None);
            attempt(&mut rig, io::READ, READER, 0)
        }
        Refusal::WrongKey => {
            rig.write(0, &[1, 2]);
            rig.ssd().ftl.misdirect(vid(VOLUME), 0, 1);
            attempt(&mut rig, io::READ, READER, 0)
        }
        Refusal::BadChecksum => {
            rig.write(0, &[1]);
            rig.damage(0);
            attempt(&mut rig, io::READ, READER, 0)
        }
        Refusal::Unreadable => {
            rig.write(0, &[1]);
            // What is in the write buffer is read from there: on flash it must be.
            assert_eq!(rig.refused(WRITER, sqe(io::FLUSH)), None);
            rig.faults.unreadable(rig.page(0), false);
            attempt(&mut rig, io::READ, READER, 0)
        }
        Refusal::Deleting => {
            assert_eq!(refusal(&rig.run(DAEMON, Rig::delete_sqe(1, 2))), None);
            attempt(&mut rig, io::READ, READER, 0)
        }
        Refusal::InvalidField => rig.run(READER, Sqe { flags: 0, ..sqe(io::FLUSH) }),
        Refusal::InvalidOpcode => rig.run(READER, sqe(0x80)),
        Refusal::InvalidSgl => {
            let sqe = rig.io(io::READ, READER, 0, 1);
            rig.run(READER, Sqe { dptr: KeyedSgl::keyed(0, 4095, KEY), ..sqe })
        }
        Refusal::TransferError => {
            let sqe = rig.io(io::READ, READER, 0, 1);
            rig.run(READER, Sqe { dptr: KeyedSgl::keyed(0, 4096, KEY + 1), ..sqe })
        }
        Refusal::VolumeExists => rig.volume_command(opcode::VOLUME_ADD, &entry(VOLUME)),
        Refusal::VolumeAbsent => rig.volume_command(opcode::VOLUME_CHMOD, &entry(77)),
        Refusal::TableFull => {
            for raw in 0..4095 {
                rig.ssd().table.add(rig.now, entry(raw + 100)).unwrap();
            }
            rig.volume_command(opcode::VOLUME_ADD, &entry(9999))
        }
        Refusal::StaleTerm => rig.volume_command(opcode::VOLUME_ADD, &VolumeEntry { term: 0, ..entry(77) }),
        Refusal::StaleVersion => rig.volume_command(opcode::VOLUME_CHMOD, &entry(VOLUME)),
        Refusal::SweepPending => {
            assert_eq!(refusal(&rig.run(DAEMON, Rig::delete_sqe(1, 2))), None);
            rig.volume_command(opcode::VOLUME_ADD, &VolumeEntry { generation: 2, ..entry(VOLUME) })
        }
        Refusal::ConnectRefused => connect(&mut rig, 0, Some(b"nqn.2014-08.org.nvmexpress:stranger")),
        Refusal::ConnectInvalid => connect(&mut rig, 1, None),
        Refusal::SequenceError => {
            rig.open(QueueKey(500), 0, 32);
            rig.run(QueueKey(500), sqe(admin::IDENTIFY))
        }
        Refusal::InvalidNamespace => rig.run(READER, Sqe { nsid: 2.into(), ..sqe(io::FLUSH) }),
        Refusal::InvalidLogPage => rig.run(QueueKey(80), log_sqe(0x7F, 0, 1, false)),
        Refusal::FeatureNotSaveable => {
            rig.run(QueueKey(80), Sqe { cdw10: (1 << 31 | 1).into(), ..sqe(admin::SET_FEATURES) })
        }
        Refusal::EventLimit => {
            for _ in 0..4 {
                rig.submit(QueueKey(80), sqe(admin::ASYNC_EVENT_REQUEST));
            }
            rig.run(QueueKey(80), sqe(admin::ASYNC_EVENT_REQUEST))
        }
        Refusal::AbortRequested => {
            let cid = rig.submit(QueueKey(80), sqe(admin::ASYNC_EVENT_REQUEST));
            rig.run(QueueKey(80), Sqe { cdw10: (u32::from(cid) << 16).into(), ..sqe(admin::ABORT) });
            rig.take(QueueKey(80), cid).unwrap()
        }
        Refusal::CompareFailed => {
            rig.poke(READER, 0, &block(1));
            attempt(&mut rig, io::COMPARE, READER, 0)
        }
        Refusal::Deallocated => {
            let ask = Sqe { cdw10: 5.into(), cdw11: (1 << 16).into(), ..sqe(admin::SET_FEATURES) };
            assert_eq!(rig.refused(QueueKey(80), ask), None);
            attempt(&mut rig, io::READ, READER, 0)
        }
    };
    (rig, cqe)
}

#[test]
fn every_refusal_of_the_table_is_reached_counted_and_logged() {
    for &wanted in Refusal::ALL {
        let (mut rig, cqe) = reach(wanted);
        assert_eq!(refusal(&cqe), Some(wanted));
        assert_eq!(Status(cqe.status_word()), wanted.status());
        assert!(rig.stats().refusals(wanted) >= 1, "{wanted:?}");
        let log = rig.log(DAEMON, 1, 0, 1024, false).unwrap();
        let logged = log.chunks(64).any(|entry| {
            entry[32] == wanted as u8 && entry[12..14] == (wanted.status().0 << 1).to_le_bytes() && entry[0] != 0
        });
        assert!(logged, "{wanted:?}");
    }
}

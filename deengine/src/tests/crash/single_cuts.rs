// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Single power cuts and failed changes. Each test tells its whole story.

use super::*;

/// Whether the SSD reports that it may have lost writes.
fn is_filling(campaign: &mut Campaign) -> bool {
    campaign.check_table();
    campaign.check_map();
    campaign.read_now(VOLUMES[0], 0, 1).1 == Some(Refusal::NotHereYet)
}

#[test]
fn an_ssd_that_lost_writes_is_filling_until_a_newer_map() {
    for dump in [true, false] {
        let mut campaign = Campaign::new(1, Faults::default());
        campaign.power_cycle();
        let reopen = |campaign: &Campaign| Ssd::reopen(campaign.config.clone(), &campaign.bench).unwrap();
        let ssd = reopen(&campaign);
        assert!(ssd.boot().is_lossy());
        campaign.connect_to(ssd);
        assert!(is_filling(&mut campaign));
        campaign.harness.hold = false;
        let smart = campaign.harness.log(DAEMON, start_of(2, 128)).unwrap();
        assert_eq!(
            (smart[0], smart[144]),
            (1 << 2 | 1 << 4, 1),
            "degraded, after one unsafe shutdown without a dump"
        );
        campaign.harness.hold = true;
        if dump {
            campaign.harness.ssd().power_fail().unwrap();
        } else {
            campaign.harness.ssd().shut_down().unwrap();
        }
        campaign.power_cycle();
        let ssd = reopen(&campaign);
        campaign.connect_to(ssd);
        assert!(is_filling(&mut campaign), "no peer has restored it: dump {dump}");
        campaign.set_map();
        assert!(!is_filling(&mut campaign));
        campaign.harness.ssd().shut_down().unwrap();
        campaign.power_cycle();
        let ssd = reopen(&campaign);
        campaign.connect_to(ssd);
        assert!(!is_filling(&mut campaign));
    }
}

#[test]
fn a_volume_deleted_twice_while_its_last_read_is_under_way_dies_once() {
    let mut campaign = Campaign::new(2, Faults::default());
    let raw = VOLUMES[0];
    let Life::There(entry) = campaign.table[&raw].clone() else { unreachable!("just made") };
    campaign.write_late(raw);
    campaign.drain();
    // A read whose data stays in flight.
    let mut sqe = sqe(io::READ);
    let slba = Slba::pack(Address { vid: vid(raw), client: client(8), vba: 0 });
    let (map_epoch, stamp) = (campaign.harness.map_epoch, Stamp::default());
    ReadWrite { slba, blocks: 1, fua: false, map_epoch, stamp }.encode(&mut sqe);
    sqe.dptr = KeyedSgl::keyed(0, 4096, KEY);
    campaign.harness.submit(READER, sqe);
    let delete = Sqe {
        cdw2: 9.into(),
        cdw12: u32::from(raw).into(),
        cdw13: entry.generation.into(),
        cdw14: u32::try_from(entry.term + 1).unwrap().into(),
        ..super::sqe(opcode::VOLUME_DELETE)
    };
    for _ in 0..2 {
        campaign.harness.submit(DAEMON, delete);
        (0..50).for_each(|_| campaign.harness.advance(Span::from_ns(200_000)));
    }
    assert_eq!(campaign.harness.held.len(), 1);
    campaign.harness.release(|_| 0);
    (0..50).for_each(|_| campaign.harness.advance(Span::from_ns(200_000)));
    assert!(!campaign.list().unwrap().contains_key(&raw), "it is gone");
    campaign.harness.hold = true;
    campaign.table.insert(raw, Life::Gone(entry.generation));
    campaign.term_sent = entry.term + 1;
    campaign.add(raw);
    // The sweep does not remove data of the new volume.
    campaign.work(40);
    (0..50).for_each(|_| campaign.pass(200_000));
    campaign.drain();
    campaign.check_blocks(Promise::Acknowledged);
}

#[test]
fn a_change_that_cannot_be_written_down_does_not_happen() {
    let mut campaign = Campaign::new(3, Faults::default());
    campaign.drain();
    let raw = VOLUMES[0];
    let Life::There(old) = campaign.table[&raw].clone() else { unreachable!("just made") };
    campaign.bench.power.cut();
    campaign.harness.hold = false;
    let version = old.version + 1;
    let changed = VolumeEntry { version, readers: Vec::new(), any_reader: false, ..(*old).clone() };
    let refused = campaign.harness.volume_command(opcode::VOLUME_CHMOD, &changed);
    assert_eq!(refusal(&refused), Some(Refusal::NotReady));
    let delete = Sqe {
        cdw2: u32::try_from(version).unwrap().into(),
        cdw12: u32::from(raw).into(),
        cdw13: old.generation.into(),
        cdw14: u32::try_from(old.term).unwrap().into(),
        ..super::sqe(opcode::VOLUME_DELETE)
    };
    assert_eq!(campaign.harness.refused(DAEMON, delete), Some(Refusal::NotReady));
    let fresh = VolumeEntry { vid: vid(99), ..*old.clone() };
    assert_eq!(
        refusal(&campaign.harness.volume_command(opcode::VOLUME_ADD, &fresh)),
        Some(Refusal::NotReady)
    );
    let ssd = campaign.harness.ssd();
    assert_eq!(
        ssd.table.volume(vid(raw)).map(|volume| volume.entry()),
        Some(&*old),
        "neither changed nor deleted"
    );
    assert!(ssd.table.volume(vid(99)).is_none());
}

#[test]
fn an_ssd_without_protection_writes_no_dump() {
    let mut campaign = Campaign::new(4, Faults::default());
    campaign.drain();
    campaign.harness.ssd().shut_down().unwrap();
    campaign.power_cycle();
    campaign.config.preset.power_protected = false;
    let ssd = Ssd::reopen(campaign.config.clone(), &campaign.bench).unwrap();
    campaign.connect_to(ssd);
    assert_eq!(campaign.harness.ssd().power_fail().unwrap(), 0);
    campaign.power_cycle();
    assert!(Ssd::reopen(campaign.config.clone(), &campaign.bench).unwrap().boot().is_lossy());
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rule 8a: where SSDs vote, a write lease ends by the daemon's entry, and by no SSD's clock.

use super::*;

#[test]
fn where_ssds_vote_a_writer_writes_beyond_its_lease_until_the_entry_takes_the_lease_away() {
    for (voters, later) in [(&[0][..], None), (&[][..], Some(Refusal::LeaseExpired))] {
        let mut harness = with(&voted(voters));
        harness.step_to(harness.now + Span::from_ms(1));
        assert_eq!(harness.write_at(0), None);
        harness.step_to(harness.now + Span::from_ms(20_000));
        assert_eq!(harness.write_at(1), later, "voters {voters:?}");
        harness.chmod(|entry| (entry.writer, entry.lease_ms) = (None, 0));
        assert_eq!(harness.write_at(2), Some(Refusal::LeaseExpired));
    }
}

#[test]
fn where_ssds_vote_a_restarted_ssd_takes_its_writers_writes_without_a_daemon() {
    for (voters, later) in [(&[0][..], None), (&[][..], Some(Refusal::NotServing))] {
        let (cut, ssd) = super::super::map3::Cut::new();
        let mut harness = cut.harness(ssd);
        assert_eq!(refusal(&harness.set_map(&voted(voters))), None);
        let volume = VolumeEntry { replicas: 2, ..entry(VOLUME) };
        assert_eq!(refusal(&harness.volume_command(opcode::VOLUME_ADD, &volume)), None);
        harness.step_to(harness.now + Span::from_ms(1));
        assert_eq!(harness.write_at(0), None);
        harness.ssd().shut_down().unwrap();
        drop(harness);
        let mut harness = cut.harness(cut.reopen());
        harness.step_to(harness.now + Span::from_ms(1));
        assert_eq!(harness.write_at(1), later, "voters {voters:?}");
    }
}

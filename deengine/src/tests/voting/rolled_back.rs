// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Older images that are not found. If one of these limits disappears, its test fails; then change
//! docs/security.md and docs/limits.md.

use super::super::images::{Disk, end};
use super::*;

/// The SSD's own map, by which these vote.
pub(super) fn naming(harness: &Harness, voters: &[u16]) -> FleetMap3 {
    let mut map = voted(voters);
    let identity = harness.ssd().identity();
    (map.ssds[0].uuid, map.ssds[0].incarnation) = (identity.uuid, identity.incarnation);
    map
}

/// An SSD with a volume; these vote.
pub(super) fn made(disk: &Disk, voters: &[u16]) -> Harness {
    let mut harness = disk.start();
    let map = naming(&harness, voters);
    assert_eq!(refusal(&harness.set_map(&map)), None);
    let volume = VolumeEntry { replicas: 2, ..entry(VOLUME) };
    assert_eq!(refusal(&harness.volume_command(opcode::VOLUME_ADD, &volume)), None);
    harness
}

/// The SSD starts from its file, and knows its map.
pub(super) fn started(disk: &Disk) -> Harness {
    let mut harness = disk.start();
    harness.map_epoch = 1;
    harness
}

/// The writer gets its lease from the daemon again, and writes.
pub(super) fn write_again(harness: &mut Harness, tag: u64) {
    let cid = harness.chmod(|entry| (entry.replicas, entry.lease_epoch) = (2, LEASE));
    harness.step_to(harness.now + Span::from_ms(1));
    assert_eq!(harness.take(DAEMON, cid).map(|cqe| refusal(&cqe)), Some(None));
    // Each harness counts its sequences from 1. The stamp of the first write is known, so it is not applied.
    for _ in 0..2 {
        assert_eq!(refusal(&harness.write(3, &[tag])), None);
    }
}

/// A daemon holds the numbers of openings, and an SSD process waits for it (`by_daemon.rs`).
#[test]
fn an_older_image_is_served_where_the_map_names_no_voters_and_no_daemon_is_waited_for() {
    let disk = Disk::new();
    let mut harness = made(&disk, &[]);
    assert_eq!(refusal(&harness.write(3, &[1])), None);
    end(harness);
    disk.keep("older");
    let mut harness = started(&disk);
    write_again(&mut harness, 2);
    end(harness);
    disk.put("older");
    let mut harness = started(&disk);
    harness.step_to(harness.now + Span::from_ms(1000));
    assert!(harness.questions().is_empty(), "it asks no other SSD");
    assert!(harness.read_stored(3) == Ok(block(1)), "what was written last is gone");
}

impl Harness {
    /// The voters in `there` say yes until it serves.
    fn hears_yes_of(&mut self, there: &[u16]) {
        for _ in 0..4 {
            self.step_to(self.now + Span::from_ms(101));
            for (ask, voter, _) in self.questions() {
                if there.contains(&voter) {
                    self.say(ask, Ok(()));
                }
            }
        }
    }
}

/// SSDs 0, 1 and 2 vote, and two of them are enough. SSD 2 was away when SSD 0 raised its number. SSD 1 knows
/// the number, and is away now or was rolled back itself.
#[test]
fn an_older_image_of_a_voter_is_served_while_the_voters_that_knew_its_number_are_away() {
    let disk = Disk::new();
    let mut harness = made(&disk, &[0, 1, 2]);
    harness.hears_yes_of(&[1, 2]);
    assert_eq!(refusal(&harness.write(3, &[1])), None);
    end(harness);
    disk.keep("older");
    let mut harness = started(&disk);
    harness.hears_yes_of(&[1]);
    write_again(&mut harness, 2);
    let raised = harness.ssd().openings().to_vec();
    end(harness);
    disk.put("older");
    let mut harness = started(&disk);
    assert!(harness.ssd().openings() < &raised[..], "{raised:?}");
    harness.hears_yes_of(&[2]);
    assert!(harness.read_stored(3) == Ok(block(1)), "what was written last is gone");
    // If SSD 1 answers, it finds the older image, whatever SSD 2 says.
    end(harness);
    disk.put("older");
    let mut harness = started(&disk);
    harness.step_to(harness.now + Span::from_ms(1));
    let asked = harness.questions();
    let of = |wanted: u16| asked.iter().find(|(_, voter, _)| *voter == wanted).expect("it is asked").0;
    harness.say_older(of(1), u32::try_from(raised[0]).unwrap());
    harness.hears_yes_of(&[2]);
    assert!(harness.ssd().is_filling() && harness.read_stored(3).is_err());
}

#[test]
fn a_voter_that_was_rolled_back_has_forgotten_the_numbers_that_it_heard() {
    let disk = Disk::new();
    let harness = made(&disk, &[0, 1, 2]);
    end(harness);
    disk.keep("older");
    let asks = |harness: &mut Harness, opening: u32| {
        harness.connect(PEER, 0, Identity::Peer(1), CNTLID_ANY);
        let ask =
            Ask { ssd: 1, array: ARRAY, epoch: 1, incarnation: 0, opening, uuid: [0; 16], is_goodbye: false };
        refusal(&harness.lease_ask(PEER, ask))
    };
    let mut harness = started(&disk);
    assert_eq!(asks(&mut harness, 5), None);
    end(harness);
    let mut harness = started(&disk);
    assert_eq!(asks(&mut harness, 4), Some(Refusal::OlderImage));
    end(harness);
    disk.put("older");
    assert_eq!(asks(&mut started(&disk), 4), None);
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Drawn maps of format 3: the places of one of format 2 with states, firsts and SSDs that come in.

use crate::dice::Dice;
use gnstor_proto::placement::FleetMap;
use gnstor_proto::placement::map3::{FleetMap3, Incoming3, State3, Vote};

/// A map of format 3 of this array, for the SSD of this number, whose content has this incarnation.
pub(crate) fn drawn(
    dice: &mut Dice,
    two: &FleetMap,
    array: [u8; 16],
    id: u16,
    incarnation: u32,
) -> FleetMap3 {
    let mut map = FleetMap3::of(two, array);
    for ssd in &mut map.ssds {
        let is_own = ssd.id == id;
        if ssd.state == State3::In && !(is_own && dice.below(4) > 0) {
            ssd.state = dice.of(&[State3::In, State3::In, State3::In, State3::Absent, State3::Full]);
        }
        ssd.incarnation = if is_own { incarnation } else { 1 };
        ssd.shrunk_at = u64::from(dice.below(2)).min(map.epoch);
        if dice.one_in(8) {
            ssd.address = format!("10.0.0.{id}:4420");
        }
        if is_own && dice.one_in(12) {
            ssd.incarnation += 1;
        } else if is_own && dice.one_in(20) {
            ssd.uuid = [dice.byte(); 16];
        }
    }
    // With voters the SSD serves nothing. There are at least two: a single one would give itself its lease.
    let voters = if map.ssds.len() > 1 && dice.one_in(8) { 2 + dice.index(6) } else { 0 };
    map.ssds.iter_mut().take(voters).for_each(|ssd| ssd.vote = Vote::Voter);
    let takes = |ssd: &u16| map.ssds[usize::from(*ssd)].state != State3::Out;
    let all: Vec<u16> = (0..u16::try_from(map.ssds.len()).expect("few")).filter(takes).collect();
    for row in &mut map.rows {
        let serves = |at: &u8| row.places[usize::from(*at)].is_some_and(|place| !place.filling);
        let serving: Vec<u8> = (0..4u8).filter(serves).collect();
        if serving.is_empty() {
            continue;
        }
        if dice.one_in(3) {
            row.first = Some(dice.of(&serving));
        }
        let free: Vec<u16> = all
            .iter()
            .copied()
            .filter(|ssd| !row.places.iter().flatten().any(|place| place.ssd == *ssd))
            .collect();
        if !free.is_empty() && dice.one_in(4) {
            row.incoming = Some(Incoming3 { ssd: dice.of(&free), place: dice.of(&serving) });
        }
    }
    map
}

/// Changes a byte after the head, mostly with a correct checksum.
pub(crate) fn bend(dice: &mut Dice, bytes: &mut [u8]) {
    let at = 60 + dice.index(bytes.len() - 60);
    bytes[at] = if dice.one_in(2) { dice.byte() } else { bytes[at] ^ 1 << dice.below(8) };
    if dice.below(4) > 0 {
        bytes[56..60].fill(0);
        let crc = crc32c::crc32c(bytes);
        bytes[56..60].copy_from_slice(&crc.to_le_bytes());
    }
}

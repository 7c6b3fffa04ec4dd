// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Placement: which SSDs hold a block. Clients and firmware compute it from the same fleet map.
//!
//! ```text
//!   (vid, vba >> chunk_shift, factor) --hash--> placement group --fleet map--> up to four SSDs, in order
//! ```
//!
//! A fresh map is drawn in stripes of 32 groups (`draw`). Each SSD gets its share of the places of a stripe,
//! and straw2 (weighted rendezvous) decides which places. When an SSD is lost, only *its* places are filled
//! again, in place, by the best draw among the SSDs outside the group. No other place changes. A map is
//! data, not a formula: every change is in it.

mod bytes;
mod draw;
pub mod map3;
mod rows;
mod straw2;

pub use self::rows::{AnyMap, Rows};
use crate::slba::Vid;
use alloc::vec;
use alloc::vec::Vec;

/// Default number of placement groups.
pub const DEFAULT_GROUPS: u32 = 65_536;
/// Widest group: as many SSDs as a volume may have replicas.
pub const MAX_WIDTH: usize = crate::vendor::MAX_REPLICAS as usize;
/// Most SSDs in a map.
pub const MAX_SSDS: usize = 4096;
/// Longest map in bytes. One command of the daemon carries it, and an SSD has room for it.
pub const MAP_BYTES: usize = 1 << 20;
/// Default chunk: 16 blocks = 64 KiB.
pub const DEFAULT_CHUNK_SHIFT: u8 = 4;

/// A place of [`Rows::table`] without an SSD.
pub const NO_SSD: u16 = 0xFFFF;
/// Bit of a place of [`Rows::table`]: its SSD fills.
pub const FILLING: u16 = 0x8000;

/// The 64-bit finaliser of SplitMix64, which clients and firmware use.
pub const fn mix64(value: u64) -> u64 {
    let mut x = value;
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Consecutive chunks of a volume lie in consecutive groups. After this many groups the next stripe begins.
/// In each stripe every SSD has its share of the places, so a stripe of chunks loads the SSDs by their
/// weights.
pub const STRIPE_GROUPS: u32 = 1 << STRIPE_SHIFT;
const STRIPE_SHIFT: u32 = 5;

/// The placement group of a block. `groups` is a power of two.
#[expect(clippy::cast_possible_truncation, reason = "a group number is below `groups`, a u32")]
pub const fn group_of(vid: Vid, vba: u32, chunk_shift: u8, factor: u64, groups: u32) -> u32 {
    let chunk = (vba >> chunk_shift) as u64;
    let key = (vid.get() as u64) << 32 | chunk >> STRIPE_SHIFT;
    let stripe = mix64(factor ^ mix64(key));
    ((stripe << STRIPE_SHIFT | chunk & (STRIPE_GROUPS as u64 - 1)) & (groups as u64 - 1)) as u32
}

/// One place of a placement group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// Index of the SSD in the map.
    pub ssd: u16,
    /// The SSD takes writes but does not serve reads yet (protocol rule 1).
    pub filling: bool,
}

/// State of an SSD in the map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum SsdState {
    /// Takes part.
    In = 1,
    /// Lost or retired; holds no place.
    Out = 2,
}

/// An SSD as the map describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapSsd {
    /// The SSD's number in the array; the index of the map's table is what groups refer to.
    pub id: u16,
    /// In or out.
    pub state: SsdState,
    /// Failure domain.
    pub domain: u8,
    /// Weight, 16.16 fixed point; 1.0 = 65,536.
    pub weight: u32,
}

/// The fleet map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FleetMap {
    /// Term of the daemon that published it.
    pub term: u64,
    /// Epoch, growing by one with each change. Reads and writes carry its low 32 bits.
    pub epoch: u64,
    /// Seed of the draws.
    pub seed: u64,
    /// The SSDs.
    pub ssds: Vec<MapSsd>,
    groups: u32,
    width: u8,
    places: Vec<u16>,
}

/// Why a map cannot be built or read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapError {
    /// No SSDs, or more than [`MAX_SSDS`].
    SsdCount,
    /// The number of groups is not a power of two from 1 to 2^24.
    Groups,
    /// The bytes are not a fleet map, or are cut short.
    Format,
    /// The checksum does not match.
    Checksum,
    /// A group names an SSD that is not in the map, is out, or is named twice.
    Group,
}

impl core::fmt::Display for MapError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::SsdCount => "a fleet map holds 1 to 4096 SSDs",
            Self::Groups => "the number of placement groups must be a power of two up to 2^24",
            Self::Format => "not a fleet map",
            Self::Checksum => "the fleet map's checksum does not match",
            Self::Group => "a placement group of the map is not valid",
        })
    }
}

impl core::error::Error for MapError {}

impl FleetMap {
    /// A fresh map: epoch 1, and every place serves.
    ///
    /// # Errors
    /// [`MapError::SsdCount`] or [`MapError::Groups`].
    #[expect(clippy::cast_possible_truncation, reason = "width is at most MAX_WIDTH")]
    pub fn new(ssds: Vec<MapSsd>, groups: u32, seed: u64, term: u64) -> Result<Self, MapError> {
        if ssds.is_empty() || ssds.len() > MAX_SSDS {
            return Err(MapError::SsdCount);
        }
        if !groups.is_power_of_two() || groups > 1 << 24 {
            return Err(MapError::Groups);
        }
        let width = ssds.iter().filter(|s| s.state == SsdState::In).count().min(MAX_WIDTH);
        let mut map = Self {
            term,
            epoch: 1,
            seed,
            ssds,
            groups,
            width: width as u8,
            places: vec![NO_SSD; groups as usize * width],
        };
        for stripe in (0..groups).step_by(STRIPE_GROUPS as usize) {
            map.draw_stripe(stripe..groups.min(stripe + STRIPE_GROUPS));
        }
        Ok(map)
    }

    /// A fresh map of equal SSDs `0..count`. Each is a failure domain of its own.
    ///
    /// # Errors
    /// As [`Self::new`].
    #[expect(clippy::cast_possible_truncation, reason = "the count is checked by `new`; domains wrap")]
    pub fn equal(count: usize, groups: u32, seed: u64, term: u64) -> Result<Self, MapError> {
        let ssd =
            |id: usize| MapSsd { id: id as u16, state: SsdState::In, domain: id as u8, weight: 1 << 16 };
        Self::new((0..count.min(MAX_SSDS + 1)).map(ssd).collect(), groups, seed, term)
    }

    /// The next map after SSD `lost` is gone. Each of its places goes to the best draw among the SSDs outside
    /// the group, which fills there. All other places stay.
    #[must_use]
    pub fn without(&self, lost: u16) -> Self {
        let mut next = self.clone();
        next.epoch += 1;
        if let Some(ssd) = next.ssds.get_mut(usize::from(lost)) {
            ssd.state = SsdState::Out;
        }
        let width = usize::from(self.width);
        for group in 0..self.groups {
            for place in 0..width {
                let at = group as usize * width + place;
                if next.places[at] & !FILLING == lost {
                    next.places[at] = NO_SSD;
                    if let Some(best) = next.best_outside(group) {
                        next.places[at] = best | FILLING;
                    }
                }
            }
        }
        next
    }

    /// The table as device code reads it: `groups * width` places, row by row.
    pub fn places(&self) -> &[u16] {
        &self.places
    }

    fn set_place(&mut self, group: u32, place: usize, ssd: u16) {
        self.places[group as usize * usize::from(self.width) + place] = ssd;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};
    use proptest::prelude::*;

    impl FleetMap {
        fn names_an_ssd_twice(&self) -> bool {
            (0..self.groups()).any(|group| {
                let ssds: Vec<u16> = self.row(group).flatten().map(|member| member.ssd).collect();
                (1..ssds.len()).any(|i| ssds[..i].contains(&ssds[i]))
            })
        }
    }

    #[test]
    fn equal_ssds_get_equal_shares_and_weights_count() {
        let _deadline = Deadline::after(LIMIT);
        let map = FleetMap::equal(8, 16_384, 7, 1).unwrap();
        let mut first = [0u32; 8];
        for group in 0..map.groups() {
            first[usize::from(map.replicas(group, 1).next().unwrap().ssd)] += 1;
        }
        assert_eq!(first, [2_048; 8]);
        let mut ssds = FleetMap::equal(4, 1, 7, 1).unwrap().ssds;
        ssds[2].weight *= 3;
        let map = FleetMap::new(ssds, 16_384, 7, 1).unwrap();
        let heavy = (0..map.groups()).filter(|&g| map.replicas(g, 1).next().unwrap().ssd == 2).count();
        assert!(heavy.abs_diff(8_192) <= 1, "a weight of 3 among 1, 1, 1 draws half: {heavy} of 16384");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Each 2 MiB of a volume (32 chunks of 64 KiB) load each SSD by its share. The deviation is at most
        /// one chunk for the first replica, and two chunks for each further replica.
        #[test]
        fn each_stripe_of_a_volume_loads_the_ssds_evenly(
            count in 1usize..40, seed: u64, factor: u64, vid in 1u16..0xFFFE, stripe in 0u32..1 << 10,
        ) {
            let _deadline = Deadline::after(LIMIT);
            let map = FleetMap::equal(count, 4096, seed, 1).unwrap();
            let vid = Vid::new(vid).unwrap();
            let mut chunks = vec![[0usize; MAX_WIDTH]; count];
            for chunk in stripe * STRIPE_GROUPS..(stripe + 1) * STRIPE_GROUPS {
                let vba = chunk << DEFAULT_CHUNK_SHIFT;
                let group = group_of(vid, vba, DEFAULT_CHUNK_SHIFT, factor, map.groups());
                for (place, member) in map.row(group).enumerate() {
                    chunks[usize::from(member.unwrap().ssd)][place] += 1;
                }
            }
            let (low, high) = (STRIPE_GROUPS as usize / count, (STRIPE_GROUPS as usize).div_ceil(count));
            for of in &chunks {
                prop_assert!((low..=high).contains(&of[0]), "first places: {:?}", chunks);
                let (all, width) = (of.iter().sum::<usize>(), map.width());
                let slack = 2 * (width - 1);
                prop_assert!(all + slack >= low * width && all <= high * width + slack, "{:?}", chunks);
            }
        }

        #[test]
        fn losing_one_of_n_moves_only_its_places(count in 2usize..24, seed: u64, lost in 0usize..24) {
            let _deadline = Deadline::after(LIMIT);
            let lost = u16::try_from(lost % count).unwrap();
            let map = FleetMap::equal(count, 4096, seed, 1).unwrap();
            let next = map.without(lost);
            prop_assert_eq!(next.epoch, map.epoch + 1);
            let mut changed = 0usize;
            for group in 0..map.groups() {
                for (before, after) in map.row(group).zip(next.row(group)) {
                    if before.is_some_and(|member| member.ssd == lost) {
                        changed += 1;
                        prop_assert!(after.is_none_or(|member| member.ssd != lost && member.filling));
                    } else {
                        prop_assert_eq!(before, after, "a place of another SSD changed in group {}", group);
                    }
                }
            }
            prop_assert!(!next.names_an_ssd_twice());
            #[expect(clippy::cast_precision_loss, reason = "a ratio")]
            let share = changed as f64 / map.places().len() as f64;
            #[expect(clippy::cast_precision_loss, reason = "a ratio")]
            let bound = 1.5 / count as f64;
            prop_assert!(share <= bound, "{} of the places changed, more than {}", share, bound);
        }

        #[test]
        fn no_group_names_an_ssd_twice_after_several_losses(count in 1usize..12, seed: u64, lost: [u16; 4]) {
            let _deadline = Deadline::after(LIMIT);
            let mut map = FleetMap::equal(count, 1024, seed, 3).unwrap();
            for lost in lost {
                map = map.without(lost % 12);
                prop_assert!(!map.names_an_ssd_twice());
                prop_assert_eq!(FleetMap::decode(&map.encode()), Ok(map.clone()));
            }
        }

        #[test]
        fn maps_round_trip(count in 1usize..12, seed: u64, lost: u16) {
            let _deadline = Deadline::after(LIMIT);
            let map = FleetMap::equal(count, 256, seed, 3).unwrap().without(lost % 12);
            prop_assert_eq!(FleetMap::decode(&map.encode()), Ok(map));
        }

        #[test]
        fn a_flipped_bit_is_refused(bit in 0usize..8 * 500) {
            let _deadline = Deadline::after(LIMIT);
            let mut bytes = FleetMap::equal(4, 64, 1, 1).unwrap().encode();
            let bit = bit % (bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(FleetMap::decode(&bytes).is_err());
        }
    }

    #[test]
    fn golden_groups() {
        let _deadline = Deadline::after(LIMIT);
        let vid = Vid::new(3).unwrap();
        let groups: Vec<u32> =
            [0u32, 15, 16, 1 << 20].iter().map(|&vba| group_of(vid, vba, 4, 42, 65_536)).collect();
        assert_eq!(groups[0], groups[1], "a chunk stays together");
        assert_eq!(groups, GOLDEN);
    }
    const GOLDEN: [u32; 4] = [4832, 4832, 4833, 32064];
}

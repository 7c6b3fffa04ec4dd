// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the places of a fresh map are drawn.
//!
//! ```text
//!             place 0  place 1           each column of a stripe has every SSD in its share:
//!   group 32     2        0              32 groups and 4 equal SSDs: 8 times each
//!   group 33     0        3
//!   ...                                  within a column, straw2 decides which group gets which SSD
//!   group 63     1        2
//! ```
//! A share that is not whole is rounded up in some stripes and down in others, by a hash. Over many stripes
//! the shares are exact. So blocks of one stripe never crowd on one SSD, and groups still pair every SSD with
//! every other.

use super::straw2::Straw;
use super::{FleetMap, MapSsd, Rows, SsdState, mix64};
use alloc::vec::Vec;
use core::ops::Range;

impl FleetMap {
    /// Draws every place of a stripe of groups.
    pub(super) fn draw_stripe(&mut self, stripe: Range<u32>) {
        // A straw depends only on group and SSD, so each straw is computed once and used for all columns.
        let straws: Vec<Vec<Option<Straw>>> = stripe.clone().map(|group| self.straws(group)).collect();
        let straws_of = |group: u32| &straws[(group - stripe.start) as usize][..];
        for place in 0..self.width() {
            let mut left = self.shares(&stripe, place);
            let mut order: Vec<u32> = stripe.clone().collect();
            order.sort_unstable_by_key(|&group| {
                mix64(self.seed ^ mix64(u64::from(group) << 8 | place as u64))
            });
            let mut without = Vec::new();
            for group in order {
                match self.best_of(straws_of(group), group, |ssd| left[ssd] > 0) {
                    Some(ssd) => self.give(group, place, ssd, &mut left),
                    None => without.push(group),
                }
            }
            for group in without {
                self.swap_or_exceed(group, place, &stripe, &mut left);
            }
        }
    }

    /// Called when every SSD with places left in this column holds another place of `group` already. Another
    /// group of the stripe then takes such an SSD, and gives its own SSD to `group`. If no group can do so,
    /// an SSD gets more places than its share.
    fn swap_or_exceed(&mut self, group: u32, place: usize, stripe: &Range<u32>, left: &mut [u32]) {
        let holds =
            |map: &Self, group: u32, ssd: u16| map.row(group).flatten().any(|member| member.ssd == ssd);
        let open: Vec<u16> =
            (0u16..).zip(left.iter()).filter(|(_, left)| **left > 0).map(|(ssd, _)| ssd).collect();
        for other in stripe.clone().filter(|&other| other != group) {
            let Some(theirs) = self.row(other).nth(place).flatten().map(|member| member.ssd) else {
                continue;
            };
            if holds(self, group, theirs) {
                continue;
            }
            if let Some(&ssd) = open.iter().find(|&&ssd| !holds(self, other, ssd)) {
                left[usize::from(theirs)] += 1;
                self.give(other, place, ssd, left);
                return self.give(group, place, theirs, left);
            }
        }
        let best = self.best_outside(group).expect("a group is no wider than there are SSDs");
        self.give(group, place, best, left);
    }

    fn give(&mut self, group: u32, place: usize, ssd: u16, left: &mut [u32]) {
        left[usize::from(ssd)] = left[usize::from(ssd)].saturating_sub(1);
        self.set_place(group, place, ssd);
    }

    /// Number of places of a column that each SSD gets. They sum up to the number of groups. Systematic
    /// sampling rounds the fractions: all are cut at one offset, which differs from column to column.
    fn shares(&self, stripe: &Range<u32>, place: usize) -> Vec<u32> {
        let weight = |ssd: &MapSsd| {
            if ssd.state == SsdState::In { u128::from(ssd.weight) } else { 0 }
        };
        let all = self.ssds.iter().map(weight).sum::<u128>().max(1);
        let groups = u128::from(stripe.end - stripe.start);
        let offset =
            u128::from(mix64(self.seed ^ mix64(!(u64::from(stripe.start) << 8 | place as u64))) >> 32);
        let (mut sum, mut before) = (0u128, 0u128);
        let cut = |sum: u128| (((sum * groups) << 32) / all + offset) >> 32;
        self.ssds
            .iter()
            .map(|ssd| {
                sum += weight(ssd);
                let now = cut(sum);
                let share = now - core::mem::replace(&mut before, now);
                u32::try_from(share).expect("at most the groups of a stripe")
            })
            .collect()
    }

    /// Index of the SSD outside the group with the best draw.
    pub(super) fn best_outside(&self, group: u32) -> Option<u16> {
        self.best_of(&self.straws(group), group, |_| true)
    }

    /// Index of the SSD with the best draw, among the SSDs outside the group that `may` allows.
    fn best_of(&self, straws: &[Option<Straw>], group: u32, may: impl Fn(usize) -> bool) -> Option<u16> {
        let is_taken = |index: u16| self.row(group).flatten().any(|member| member.ssd == index);
        (0u16..)
            .zip(straws)
            .filter_map(|(index, straw)| straw.as_ref().map(|straw| (index, straw)))
            .filter(|&(index, _)| may(usize::from(index)) && !is_taken(index))
            .min_by(|(_, one), (_, other)| one.cmp(other))
            .map(|(index, _)| index)
    }

    /// The straw of each SSD for a group; `None` for an SSD that takes no part in the draw.
    fn straws(&self, group: u32) -> Vec<Option<Straw>> {
        let straw = |ssd: &MapSsd| {
            let hash = mix64(self.seed ^ mix64(u64::from(group) << 16 | u64::from(ssd.id)));
            is_drawn(ssd).then(|| Straw::new(hash, ssd.weight))
        };
        self.ssds.iter().map(straw).collect()
    }
}

fn is_drawn(ssd: &MapSsd) -> bool {
    ssd.state == SsdState::In && ssd.weight != 0
}

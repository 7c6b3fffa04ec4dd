// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The draw of an SSD for an empty place of a group. It is a weighted rendezvous, first among the nodes, then
//! among the SSDs of the winning node.

use super::{FleetMap3, Ssd3, State3, Vote};
use crate::placement::mix64;
use crate::placement::straw2::Straw;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

impl FleetMap3 {
    /// The SSD that the draw gives to an empty place of the group; `None` if no SSD is left.
    ///
    /// A node gets no second place of a group while another node has an SSD for it. Within its node an SSD
    /// has its own weight, and a node has the sum of the weights of its SSDs.
    ///
    /// # Panics
    /// If there is no such group.
    pub fn draw(&self, group: u32) -> Option<u16> {
        let row = &self.rows[group as usize];
        let incoming = row.incoming.iter().map(|incoming| incoming.ssd);
        let taken: Vec<u16> = row.places.iter().flatten().map(|place| place.ssd).chain(incoming).collect();
        let node = |index: u16| self.ssds.get(usize::from(index)).map(|ssd| ssd.node);
        let nodes: Vec<u16> = taken.iter().filter_map(|&index| node(index)).collect();
        let open: Vec<(u16, &Ssd3)> =
            (0u16..).zip(&self.ssds).filter(|(index, ssd)| may_take(ssd) && !taken.contains(index)).collect();
        let is_apart = |(_, ssd): &&(u16, &Ssd3)| !nodes.contains(&ssd.node);
        let apart: Vec<(u16, &Ssd3)> = open.iter().filter(is_apart).copied().collect();
        let from = if apart.is_empty() { open } else { apart };
        let mut weights: BTreeMap<u16, u64> = BTreeMap::new();
        for (_, ssd) in &from {
            *weights.entry(ssd.node).or_default() += u64::from(ssd.weight);
        }
        // Sums above 32 bits are scaled down, all by the same factor. Only their ratios count.
        let largest = weights.values().copied().max().unwrap_or(0);
        let shift = (64 - largest.leading_zeros()).saturating_sub(32);
        let node_straw = |(&node, &weight): (&u16, &u64)| {
            let weight = u32::try_from(weight >> shift).unwrap_or(u32::MAX).max(1);
            (self.straw(group, NODE | u64::from(node), weight), node)
        };
        let (_, node) = weights.iter().map(node_straw).min()?;
        let in_node = from.into_iter().filter(|(_, ssd)| ssd.node == node);
        let ssd_straw =
            |(index, ssd): (u16, &Ssd3)| (self.straw(group, u64::from(ssd.id), ssd.weight), index);
        in_node.map(ssd_straw).min().map(|(_, index)| index)
    }

    fn straw(&self, group: u32, what: u64, weight: u32) -> u64 {
        Straw::new(mix64(self.seed ^ mix64(u64::from(group) << 17 | what)), weight).length()
    }
}

/// Separates the draws of nodes from the draws of SSDs.
const NODE: u64 = 1 << 16;

fn may_take(ssd: &Ssd3) -> bool {
    matches!(ssd.state, State3::In | State3::Spare) && ssd.vote != Vote::Witness && ssd.weight != 0
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Goodbyes of SSDs that are stopped in order (rule 2b): no map waits for their leases.
//!
//! ```text
//!   SSD      serves nothing more, asks for no lease --> says goodbye to the voters --> ends
//!   voters   MAP HOLD is answered with the SSDs that lose a place in the map, and have said goodbye
//!   daemon   a majority of the voters has answered so of an SSD: the map waits for no lease of it
//! ```
//! A goodbye belongs to one opening of the SSD ([`crate::opening`]). The same content may be opened again,
//! and may ask for a lease before the map is held. Then a majority has a higher number before the SSD serves.
//! Each majority meets each other one. So one of the voters that would have to name the SSD has a number
//! above that of its goodbye. After the voters hold the map, the SSD gets no lease.

use crate::lease::LeaseAsk;
use crate::map::FleetView;
use crate::set::SsdSet;
use crate::{Opening, SsdId, Uuid, opening};
use alloc::collections::BTreeMap;

/// The goodbyes that a voter has heard since it started. A forgotten goodbye only makes a map wait.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Goodbyes(BTreeMap<SsdId, (Opening, Uuid)>);

impl Goodbyes {
    /// Notes an SSD's goodbye. The voter has checked that the SSD itself sent it.
    pub fn heard(&mut self, ask: &LeaseAsk) {
        // The number of a substitute belongs to no content.
        if ask.opening != opening::STANDS_IN {
            self.0.insert(ask.ssd, (ask.opening, ask.uuid));
        }
    }

    /// The SSDs that lose a place in `held`, have said goodbye, and were not opened since. `known` are the
    /// voter's numbers of openings, and `active` is the map that it knows to be active.
    pub fn of<M: FleetView>(&self, held: &M, active: &M, known: impl Fn(SsdId) -> Opening) -> SsdSet {
        let is_gone = |&ssd: &SsdId| {
            let said = self.0.get(&ssd);
            said.is_some_and(|(opening, uuid)| known(ssd) == *opening && active.means(ssd, uuid))
        };
        held.deprived().iter().filter(is_gone).collect()
    }
}

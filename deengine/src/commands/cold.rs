// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pages that a repair reads. One that is on the medium only is loaded while the engine goes on.

use gnstor_flash::{Ppa, Ticket};
use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::nvme::Sqe;
use std::collections::BTreeMap;

/// The data of a page; `None`: the medium does not give it.
pub(crate) type Data = Option<Box<[u8; BLOCK_BYTES as usize]>>;

/// What a repair finds at a page.
#[derive(Debug)]
pub(crate) enum Stored {
    Here(Data),
    Loading,
}

/// Pages that were loaded for a repair, and stay pinned. So none of them is erased and written anew: a page
/// that the map still names has the data that was loaded.
#[derive(Debug, Default)]
pub(crate) struct Cold {
    landed: BTreeMap<Ppa, Data>,
    started: Vec<(Ticket, Ppa)>,
}

impl Cold {
    /// The data of a page that was loaded.
    pub(crate) fn of(&self, page: Ppa) -> Option<&Data> {
        self.landed.get(&page)
    }

    /// A load of a pinned page has begun.
    pub(crate) fn begin(&mut self, ticket: Ticket, page: Ppa) {
        self.started.push((ticket, page));
    }

    /// Whether loads have begun since the last call of [`Self::take_started`].
    pub(crate) fn is_loading(&self) -> bool {
        !self.started.is_empty()
    }

    /// Takes the loads that have begun since the last call.
    pub(crate) fn take_started(&mut self) -> Vec<(Ticket, Ppa)> {
        std::mem::take(&mut self.started)
    }

    /// Keeps the data of a pinned page. Returns whether the page had some: then it has a pin too many.
    pub(crate) fn land(&mut self, page: Ppa, data: Data) -> bool {
        self.landed.insert(page, data).is_some()
    }

    /// Forgets all pages but these. The caller gives the pins of the returned ones back.
    pub(crate) fn keep_only(&mut self, pages: &[Ppa]) -> Vec<Ppa> {
        let gone: Vec<Ppa> = self.landed.keys().copied().filter(|page| !pages.contains(page)).collect();
        for page in &gone {
            self.landed.remove(page);
        }
        gone
    }
}

/// An answer to another SSD whose pages are being loaded.
#[derive(Debug)]
pub(crate) struct Telling {
    sqe: Sqe,
    cntlid: u16,
    rounds: u32,
    cold: Cold,
}

impl Telling {
    pub(crate) fn new(cntlid: u16, sqe: &Sqe) -> Self {
        Self { sqe: *sqe, cntlid, rounds: 0, cold: Cold::default() }
    }

    pub(crate) fn question(&self) -> (u16, &Sqe) {
        (self.cntlid, &self.sqe)
    }

    pub(crate) fn cold_mut(&mut self) -> &mut Cold {
        &mut self.cold
    }

    /// Number of times that its blocks were looked up before.
    pub(crate) fn next_round(&mut self) -> u32 {
        self.rounds += 1;
        self.rounds - 1
    }
}

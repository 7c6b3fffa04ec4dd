// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parts of an SSD's controller ids and queue entries that clients and key holders may have. Key holders
//! are the daemon and other SSDs.
//!
//! ```text
//!   clients      [------------ proven ------------|-- unproven --]
//!   key holders  [- proven -|- unproven -]
//! ```
//! Before its proof a host only claims an identity. So strangers may fill both parts. If a part is full, the
//! oldest host in it without a proof gives way to the next claim. A true daemon proves itself within
//! milliseconds.

use super::table::{MAX_CONTROLLERS, MAX_ENTRIES};
use gnstor_proto::fabrics::Identity;
use std::collections::BTreeMap;

/// Controller ids that only key holders get.
const HOLDERS: usize = 1024;
/// Queue entries that clients do not get: they are for key holders, and for queues without a Connect.
const HOLDERS_ENTRIES: u32 = 1 << 15;

const _: () = assert!(HOLDERS <= MAX_CONTROLLERS / 16);
const _: () = assert!(HOLDERS_ENTRIES <= MAX_ENTRIES / 8);

/// Entries that all queues may have if one more is of a host with this identity.
pub(super) fn most_entries(identity: Identity) -> u32 {
    if is_client(identity) { MAX_ENTRIES - HOLDERS_ENTRIES } else { MAX_ENTRIES }
}

fn is_client(identity: Identity) -> bool {
    matches!(identity, Identity::Client(_))
}

/// The two parts.
#[derive(Debug, Default)]
pub(super) struct Parts {
    clients: Part,
    holders: Part,
    /// Number of the newest controller.
    newest: u64,
}

#[derive(Debug, Default)]
struct Part {
    ids: usize,
    /// Controllers whose hosts have not proven themselves, by their numbers: a smaller one is older.
    unproven: BTreeMap<u64, u16>,
}

impl Parts {
    fn of(&self, identity: Identity) -> &Part {
        if is_client(identity) { &self.clients } else { &self.holders }
    }

    fn of_mut(&mut self, identity: Identity) -> &mut Part {
        if is_client(identity) { &mut self.clients } else { &mut self.holders }
    }

    /// Whether another host may claim this identity.
    pub(super) fn has_id(&self, identity: Identity) -> bool {
        let most = if is_client(identity) { MAX_CONTROLLERS - HOLDERS } else { HOLDERS };
        self.of(identity).ids < most
    }

    /// The controller whose host has claimed such an identity for longest and not proven it.
    pub(super) fn oldest_claim(&self, identity: Identity) -> Option<u16> {
        self.of(identity).unproven.values().next().copied()
    }

    /// The same of any identity.
    pub(super) fn oldest(&self) -> Option<u16> {
        let firsts = [&self.clients, &self.holders].map(|part| part.unproven.first_key_value());
        firsts.into_iter().flatten().min().map(|(_, cntlid)| *cntlid)
    }

    /// Adds a controller; its number.
    pub(super) fn add(&mut self, identity: Identity, cntlid: u16, must_prove: bool) -> u64 {
        self.newest += 1;
        let born = self.newest;
        let part = self.of_mut(identity);
        part.ids += 1;
        if must_prove {
            part.unproven.insert(born, cntlid);
        }
        born
    }

    pub(super) fn proven(&mut self, identity: Identity, born: u64) {
        self.of_mut(identity).unproven.remove(&born);
    }

    pub(super) fn remove(&mut self, identity: Identity, born: u64) {
        let part = self.of_mut(identity);
        part.ids -= 1;
        part.unproven.remove(&born);
    }
}

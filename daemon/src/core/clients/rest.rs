// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ids that no client has any more rest until each SSD has heard that they have nothing open.

use super::{Clients, END_MS, remove};
use gnstor_proto::slba::{ClientId, Vid};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A client id that is not reused yet, because an SSD may still list it as a reader. It counts for the
/// principal that had it.
#[derive(Debug)]
pub(super) struct Resting {
    pub(super) principal: Arc<str>,
    pub(super) named: BTreeSet<Vid>,
}

impl Clients {
    pub(super) fn end_rest(&mut self, id: ClientId) {
        if let Some(resting) = self.resting.remove(&id) {
            remove(&mut self.by_principal, &resting.principal, &id);
        }
    }

    /// The id has no right to the volume any more. If it has no other open and its connection has closed, it
    /// waits like an id without opens.
    pub(in crate::core) fn released(&mut self, now: u64, id: ClientId, vid: Vid) {
        let end = now + self.quotas.idle_ms;
        self.change(id, |client| {
            client.opens.remove(&vid);
            if client.opens.is_empty() && !client.ending {
                client.ends_at = client.ends_at.map(|at| at.min(end));
            }
        });
    }

    /// As [`Self::released`], before each SSD has heard of it.
    pub(in crate::core) fn released_early(&mut self, now: u64, id: ClientId, vid: Vid) {
        let is_early = self.change(id, |client| client.is_proven && client.named_early.insert(vid));
        if is_early == Some(true) {
            self.early.insert(id);
        }
        self.released(now, id, vid);
    }

    /// Ids rest until each SSD has the entries of these volumes. `is_everywhere` says of which that is so.
    pub(in crate::core) fn rest_step(&mut self, now: u64, is_everywhere: impl Fn(Vid) -> bool) {
        if self.resting.is_empty() && self.early.is_empty() || now < self.next_rest {
            return;
        }
        self.next_rest = now + END_MS;
        let mut known = BTreeMap::new();
        let mut is_named = |vid: &Vid| !*known.entry(*vid).or_insert_with(|| is_everywhere(*vid));
        for resting in self.resting.values_mut() {
            resting.named.retain(&mut is_named);
        }
        let ended = self.resting.iter().filter(|(_, resting)| resting.named.is_empty());
        for id in ended.map(|(&id, _)| id).collect::<Vec<_>>() {
            self.end_rest(id);
            self.set_free(id);
        }
        for id in std::mem::take(&mut self.early) {
            let rest = self.change(id, |client| {
                client.named_early.retain(&mut is_named);
                !client.named_early.is_empty()
            });
            if rest == Some(true) {
                self.early.insert(id);
            }
        }
    }
}

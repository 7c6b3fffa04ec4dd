// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ids that have nothing open, in the order in which they give way when ids run out, and the number of
//! opens.
//!
//! Each change and each choice takes a time that grows with the logarithm of the number of ids. So calls that
//! find no id left are as cheap as others.

use super::{Client, remove};
use gnstor_proto::slba::ClientId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Where an id without opens is listed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// The connection of the id has closed.
    Waits { principal: Arc<str>, until: u64 },
    /// A connection keeps the id.
    Kept { connection: u64, used: u64 },
}

impl Client {
    /// `None`: the id does not give way.
    pub(super) fn place(&self) -> Option<Place> {
        if !self.opens.is_empty() || self.ending || !self.named_early.is_empty() {
            return None;
        }
        match (self.connection, self.ends_at) {
            (Some(connection), _) => Some(Place::Kept { connection, used: self.used }),
            (None, Some(until)) => Some(Place::Waits { principal: self.principal.clone(), until }),
            (None, None) => None,
        }
    }
}

/// The ids without opens.
#[derive(Default, Debug)]
pub(super) struct Idle {
    /// By the time at which the wait ends.
    waits: BTreeSet<(u64, ClientId)>,
    waits_of: BTreeMap<Arc<str>, BTreeSet<(u64, ClientId)>>,
    /// For each connection, its ids by their last use.
    kept: BTreeMap<u64, BTreeSet<(u64, ClientId)>>,
    /// Connections, by the number of ids that each keeps.
    counts: BTreeSet<(usize, u64)>,
}

impl Idle {
    pub(super) fn moves(&mut self, id: ClientId, from: Option<Place>, to: Option<Place>) {
        if from == to {
            return;
        }
        if let Some(place) = from {
            self.set(id, place, false);
        }
        if let Some(place) = to {
            self.set(id, place, true);
        }
    }

    fn set(&mut self, id: ClientId, place: Place, listed: bool) {
        match place {
            Place::Waits { principal, until } if listed => {
                self.waits.insert((until, id));
                self.waits_of.entry(principal).or_default().insert((until, id));
            }
            Place::Waits { principal, until } => {
                self.waits.remove(&(until, id));
                remove(&mut self.waits_of, &principal, &(until, id));
            }
            Place::Kept { connection, used } => {
                self.counts.remove(&(self.kept_by(connection), connection));
                if listed {
                    self.kept.entry(connection).or_default().insert((used, id));
                } else {
                    remove(&mut self.kept, &connection, &(used, id));
                }
                let count = self.kept_by(connection);
                if count > 0 {
                    self.counts.insert((count, connection));
                }
            }
        }
    }

    /// The id without a connection that waits longest.
    pub(super) fn waiting(&self) -> Option<ClientId> {
        self.waits.first().map(|&(_, id)| id)
    }

    /// As [`Self::waiting`], among the ids of one principal.
    pub(super) fn waiting_of(&self, principal: &str) -> Option<ClientId> {
        self.waits_of.get(principal)?.first().map(|&(_, id)| id)
    }

    /// Number of ids without opens that a connection keeps.
    pub(super) fn kept_by(&self, connection: u64) -> usize {
        self.kept.get(&connection).map_or(0, BTreeSet::len)
    }

    /// For the connection that keeps most ids without opens: the number of these ids, and the least recently
    /// used one.
    pub(super) fn most(&self) -> Option<(usize, ClientId)> {
        let &(count, connection) = self.counts.last()?;
        Some((count, self.kept.get(&connection)?.first()?.1))
    }
}

#[cfg(test)]
impl Idle {
    pub(super) fn lists(
        &self,
        waits: &BTreeSet<(u64, ClientId)>,
        kept: &BTreeMap<u64, BTreeSet<(u64, ClientId)>>,
    ) -> bool {
        let counts = kept.iter().map(|(&connection, ids)| (ids.len(), connection)).collect();
        let of: BTreeSet<_> = self.waits_of.values().flatten().copied().collect();
        self.waits == *waits && of == *waits && self.kept == *kept && self.counts == counts
    }
}

/// Number of opens.
#[derive(Default, Debug)]
pub(super) struct Opens {
    all: usize,
    of: BTreeMap<Arc<str>, usize>,
    kept: BTreeMap<u64, usize>,
}

impl Opens {
    pub(super) fn add(&mut self, client: &Client) {
        let opens = client.opens.len();
        if opens == 0 {
            return;
        }
        self.all += opens;
        *self.of.entry(client.principal.clone()).or_default() += opens;
        if let Some(connection) = client.connection {
            *self.kept.entry(connection).or_default() += opens;
        }
    }

    pub(super) fn take(&mut self, client: &Client) {
        let opens = client.opens.len();
        if opens == 0 {
            return;
        }
        self.all -= opens;
        less(&mut self.of, &client.principal, opens);
        if let Some(connection) = client.connection {
            less(&mut self.kept, &connection, opens);
        }
    }

    /// Number of opens of a principal.
    pub(super) fn of(&self, principal: &str) -> usize {
        self.of.get(principal).copied().unwrap_or_default()
    }

    /// Number of opens of the ids that a connection keeps.
    pub(super) fn kept_by(&self, connection: u64) -> usize {
        self.kept.get(&connection).copied().unwrap_or_default()
    }

    pub(super) fn all(&self) -> usize {
        self.all
    }
}

fn less<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K, by: usize) {
    if let Some(count) = counts.get_mut(key) {
        *count -= by;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

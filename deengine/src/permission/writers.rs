// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The volumes that a client writes, which its Flush makes durable.

use gnstor_durable::Seq;
use gnstor_proto::slba::{ClientId, Vid};
use std::collections::{BTreeMap, BTreeSet};

/// Writers by the entries of the volumes, and last transactions of former writers.
#[derive(Debug, Default)]
pub(super) struct Writers {
    /// Client and volume of each entry that names a writer.
    of: BTreeSet<(ClientId, Vid)>,
    /// The last transaction of a volume when the client lost the right to write it. What the client wrote
    /// before is acknowledged, so its next Flush makes that durable, too.
    former: BTreeMap<ClientId, Seq>,
}

impl Writers {
    /// Notes that the writer in a volume's entry has changed.
    pub(super) fn replace(&mut self, vid: Vid, old: Option<ClientId>, new: Option<ClientId>) {
        if let Some(old) = old {
            self.of.remove(&(old, vid));
        }
        if let Some(new) = new {
            self.of.insert((new, vid));
        }
    }

    /// The client may have written transactions up to `last`, and is no writer any more. What is `durable`
    /// need not be remembered.
    pub(super) fn lost(&mut self, client: ClientId, last: Seq, durable: Seq) {
        self.former.retain(|_, last| *last > durable);
        if last > durable {
            let known = self.former.entry(client).or_default();
            *known = last.max(*known);
        }
    }

    /// The volumes that a client writes.
    pub(super) fn volumes_of(&self, client: ClientId) -> impl Iterator<Item = Vid> {
        self.of.range((client, Vid::MIN)..=(client, Vid::MAX)).map(|&(_, vid)| vid)
    }

    /// The last transaction that the client may have written to volumes that it writes no more.
    pub(super) fn former(&self, client: ClientId) -> Option<Seq> {
        self.former.get(&client).copied()
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Limits of client ids and of what they have open.

use gnstor_proto::slba::ClientId;
use gnstor_proto::vendor::MAX_READERS;

/// How many ids and opens there may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quotas {
    /// The highest id that is given.
    pub ids: ClientId,
    /// Ids that one connection keeps.
    pub connection_ids: usize,
    /// Ids of one principal.
    pub principal_ids: usize,
    /// Opens of one principal: pairs of an id and a volume.
    pub principal_opens: usize,
    /// Opens in all.
    pub opens: usize,
    /// The last quarter of all opens is for connections with fewer than this number. With as many connections
    /// as the daemon takes, each can have this number, whatever others have.
    pub spared_opens: usize,
    /// Readers of one volume that are ids of one principal.
    pub volume_readers: usize,
    /// If a volume has more readers than that, a further one is for a connection with fewer than this number.
    pub spared_readers: usize,
    /// How long an id without opens outlives its connection, ms.
    pub idle_ms: u64,
    /// How long an id with opens outlives its connection, ms.
    pub open_ms: u64,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            ids: ClientId::MAX,
            connection_ids: 64,
            principal_ids: 4096,
            principal_opens: 16_384,
            opens: 65_536,
            spared_opens: 8,
            volume_readers: MAX_READERS / 4 * 3,
            spared_readers: 8,
            idle_ms: 30_000,
            open_ms: 60_000,
        }
    }
}

impl Quotas {
    /// All ids that there are.
    pub(super) fn all(&self) -> impl Iterator<Item = ClientId> + use<> {
        (ClientId::MIN.get()..=self.ids.get()).filter_map(ClientId::new)
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Settings of the daemon.

use super::access::Access;
use crate::core::CoreConfig;
use crate::openings::Openings;
use crate::port::connector::Connector;
use gnstor_auth::Secret;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Settings of the daemon.
#[derive(Clone, Debug)]
pub struct DaemonConfig {
    /// The core's part.
    pub core: CoreConfig,
    /// The array's manager key, from which Register derives the secrets of clients; none where the SSDs ask
    /// for no proof.
    pub manager_key: Option<Secret>,
    /// Longest wait for one admin command.
    pub command_timeout: Duration,
    /// Longest wait for all SSDs at the start.
    pub start_timeout: Duration,
    /// Longest wait for calls under way at the end.
    pub stop_timeout: Duration,
    /// SSDs that are away, and why. Substitutes answer for them and serve nothing.
    pub stands_in: BTreeMap<u16, String>,
    /// SSDs that were not reached. The capacities of their ports are assumed until they say theirs.
    pub assumed: BTreeSet<u16>,
    /// The way to SSDs that the daemon was not given at its start; none where no SSD can join.
    pub connector: Option<Arc<dyn Connector>>,
    /// How often each SSD of another process was opened; `None`: the daemon does not compare that.
    pub openings: Option<Arc<Openings>>,
    /// Which callers are admitted, and by which proof.
    pub access: Access,
    /// How often a silent connection is probed. One that is silent for three of these is closed.
    pub keep_alive: Duration,
    /// Most connections at once. Beyond them the host with most callers that have proven nothing loses the
    /// oldest connection of one. If all have proven themselves, further ones wait.
    pub max_connections: usize,
    /// Most connections of one host at once. Further ones are closed.
    pub max_host_connections: usize,
    /// Most TLS handshakes under way. Beyond them the host with most loses its oldest one.
    pub max_handshakes: usize,
    /// Most bytes of answers that clients have not taken yet; of one host three quarters. Beyond them the
    /// connection of the oldest answer ends.
    pub max_answer_bytes: usize,
    /// Most bytes of requests that clients have begun and not sent whole; of one host three quarters. Beyond
    /// them the connection of the oldest request ends.
    pub max_request_bytes: usize,
}

impl Default for DaemonConfig {
    fn default() -> Self {
        Self {
            core: CoreConfig::default(),
            manager_key: None,
            command_timeout: Duration::from_secs(12),
            start_timeout: Duration::from_secs(30),
            stop_timeout: Duration::from_secs(5),
            stands_in: BTreeMap::new(),
            assumed: BTreeSet::new(),
            connector: None,
            openings: None,
            access: Access::default(),
            keep_alive: Duration::from_secs(20),
            max_connections: 2048,
            max_host_connections: 1536,
            max_handshakes: 1024,
            max_answer_bytes: 128 << 20,
            max_request_bytes: 64 << 20,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};

    /// Other tests have smaller bounds and shorter times.
    #[test]
    fn the_daemons_own_bounds_are_the_ones_that_the_page_names() {
        let _deadline = Deadline::after(LIMIT);
        let daemon = DaemonConfig::default();
        assert_eq!((daemon.max_connections, daemon.max_host_connections), (2048, 1536));
        assert_eq!(daemon.max_handshakes, 1024);
        assert_eq!((daemon.max_answer_bytes >> 20, daemon.max_request_bytes >> 20), (128, 64));
        assert_eq!(3 * daemon.keep_alive, Duration::from_secs(60), "three probes without an answer");
        let quotas = daemon.core.quotas;
        assert_eq!((quotas.connection_ids, quotas.principal_ids), (64, 4096));
        assert_eq!(quotas.ids.get(), 65_534);
        assert_eq!((quotas.principal_opens, quotas.opens, quotas.spared_opens), (16_384, 65_536, 8));
        assert_eq!((quotas.volume_readers, quotas.spared_readers), (384, 8));
        assert_eq!((quotas.idle_ms, quotas.open_ms), (30_000, 60_000));
    }
}

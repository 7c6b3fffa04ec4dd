// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Settings of the daemon.

use super::access::Access;
use crate::core::CoreConfig;
use crate::port::connector::Connector;
use gnstor_auth::Secret;
use std::collections::BTreeMap;
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
    /// The way to SSDs that the daemon was not given at its start; none where no SSD can join.
    pub connector: Option<Arc<dyn Connector>>,
    /// Which callers are admitted, and by which proof.
    pub access: Access,
    /// How often a silent connection is probed. One that is silent for three of these is closed.
    pub keep_alive: Duration,
    /// Most connections at once. Further ones wait.
    pub max_connections: usize,
    /// Most connections of one host at once. Further ones are closed.
    pub max_host_connections: usize,
    /// Most bytes of answers that clients have not taken yet; of one host three quarters. Beyond them the
    /// connection of the oldest answer ends.
    pub max_answer_bytes: usize,
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
            connector: None,
            access: Access::default(),
            keep_alive: Duration::from_secs(20),
            max_connections: 2048,
            max_host_connections: 1536,
            max_answer_bytes: 128 << 20,
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State that admin commands change. The other modules of `admin` work on it. This module uses nothing above
//! `commands`, so the SSD can hold it.

mod asker;
mod changes;
mod volumes;
mod voting;

pub(in crate::admin) use asker::*;
pub(in crate::admin) use changes::*;
pub(in crate::admin) use voting::*;

use gnstor_base::controller::QueueKey;
use gnstor_durable::MetadataStore;
use volumes::Volumes;

/// State of the admin commands.
#[derive(Debug)]
pub(crate) struct Admin {
    pub(in crate::admin) volumes: Volumes,
    pub(in crate::admin) voting: Voting,
    pub(in crate::admin) asker: Asker,
    pub(in crate::admin) changes: Changes,
    pub(in crate::admin) write_cache: WriteCache,
    /// The queue on which a term was granted last, while it is open.
    pub(in crate::admin) leads: Option<QueueKey>,
}

impl Admin {
    /// The admin part of an SSD that has no volatile write cache.
    pub(crate) fn new(metadata: MetadataStore) -> Self {
        Self {
            volumes: Volumes::new(metadata),
            voting: Voting::default(),
            asker: Asker::default(),
            changes: Changes::default(),
            write_cache: WriteCache::default(),
            leads: None,
        }
    }

    pub(crate) fn volumes(&self) -> &Volumes {
        &self.volumes
    }

    pub(crate) fn volumes_mut(&mut self) -> &mut Volumes {
        &mut self.volumes
    }

    /// Drops a fence whose command's queue is gone.
    pub(crate) fn drop_fence(&mut self, id: u32) {
        self.volumes.drop_fence(id);
    }

    /// Forgets a queue that is gone, since another one may get its key.
    pub(crate) fn drop_queue(&mut self, key: QueueKey) {
        self.leads.take_if(|leads| *leads == key);
    }

    /// The queue of this command is gone. A change that has begun goes on without it.
    pub(crate) fn drop_change(&mut self, id: u32) {
        self.changes.drop_command(id);
    }
}

/// The volatile write cache (06h). With power-loss protection there is none: what is acknowledged is safe.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::admin) struct WriteCache {
    pub(in crate::admin) present: bool,
    pub(in crate::admin) enabled: bool,
}

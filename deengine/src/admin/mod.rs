// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Admin commands of the specification and of the daemon.

pub(crate) mod abort;
mod asker;
pub(crate) mod changes;
pub(crate) mod effects;
mod errors;
pub(crate) mod events;
mod features;
mod health;
pub(crate) mod identify;
mod lease;
mod logs;
pub(crate) mod opening;
pub(crate) mod volumes;
pub(crate) mod voting;

pub(crate) use asker::QUESTION;

use asker::Asker;
use changes::Changes;
use features::WriteCache;
use gnstor_durable::MetadataStore;
use volumes::Volumes;
use voting::Voting;

/// State that admin commands change.
#[derive(Debug)]
pub(crate) struct Admin {
    volumes: Volumes,
    voting: Voting,
    asker: Asker,
    changes: Changes,
    write_cache: WriteCache,
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
        }
    }

    pub(crate) fn volumes(&self) -> &Volumes {
        &self.volumes
    }

    pub(crate) fn volumes_mut(&mut self) -> &mut Volumes {
        &mut self.volumes
    }

    /// The queue of a fence's command is gone.
    pub(crate) fn drop_fence(&mut self, id: u32) {
        self.volumes.drop_fence(id);
    }

    /// The queue of this command is gone. A change that has begun goes on without it.
    pub(crate) fn drop_change(&mut self, id: u32) {
        self.changes.drop_command(id);
    }
}

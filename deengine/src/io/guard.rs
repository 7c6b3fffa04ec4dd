// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The SSD that its workers share, and its lock.

use crate::controller::Ssd;
use crate::workers::{WorkerSet, WorkerState};
use gnstor_base::controller::{Outcome, TransferId};
use gnstor_base::lock::spin_then_sleep;
use gnstor_base::time::Time;
use gnstor_ftl::Ftl;
use parking_lot::{Mutex, MutexGuard};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// State that the workers of an SSD share.
#[derive(Debug)]
struct Shared {
    ssd: Mutex<Ssd>,
    workers: Arc<WorkerSet>,
    ftl: Arc<Ftl>,
}

/// One worker's access to the state that all workers of its SSD share.
#[derive(Debug)]
pub(super) struct Handle {
    shared: Arc<Shared>,
    /// Number of the worker.
    index: usize,
}

/// The SSD behind its workers, locked.
#[derive(Debug)]
pub struct SsdGuard<'a> {
    ssd: MutexGuard<'a, Ssd>,
    workers: &'a WorkerSet,
    /// The worker that holds the lock.
    by: usize,
}

impl Deref for SsdGuard<'_> {
    type Target = Ssd;

    fn deref(&self) -> &Ssd {
        &self.ssd
    }
}

impl DerefMut for SsdGuard<'_> {
    fn deref_mut(&mut self) -> &mut Ssd {
        &mut self.ssd
    }
}

impl Drop for SsdGuard<'_> {
    /// Hands the effects to their workers, and publishes the firmware's state.
    fn drop(&mut self) {
        let ssd = &mut *self.ssd;
        // Before a completion goes out: a host that has switched the write cache off then writes through.
        let at = (ssd.alarm(), ssd.smart().look_at());
        self.workers.publish(self.by, at, ssd.admin.volumes().has_fences(), !ssd.write_cache_enabled());
        self.workers.post(self.by, ssd.commands.effects());
        self.workers.post_granted(self.by, ssd.commands.untold_grants());
    }
}

/// Number of times that a worker tries the lock before it sleeps. The lock is held for a microsecond or two.
const TRIES: u32 = 200;

impl Handle {
    /// Handles for so many workers.
    pub(super) fn of_all(ssd: Ssd, workers: Arc<WorkerSet>, count: usize) -> impl Iterator<Item = Self> {
        let ftl = ssd.share_ftl();
        let shared = Arc::new(Shared { ssd: Mutex::new(ssd), workers, ftl });
        (0..count).map(move |index| Self { shared: Arc::clone(&shared), index })
    }

    /// The handle of the first worker.
    #[cfg(test)]
    pub(super) fn of_first(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), index: 0 }
    }

    #[inline]
    pub(super) fn index(&self) -> usize {
        self.index
    }

    #[inline]
    pub(super) fn workers(&self) -> &WorkerSet {
        &self.shared.workers
    }

    /// What this worker shows to others.
    #[inline]
    pub(super) fn state(&self) -> &WorkerState {
        self.shared.workers.state(self.index)
    }

    #[inline]
    pub(super) fn ftl(&self) -> &Ftl {
        &self.shared.ftl
    }

    /// The worker takes the lock.
    pub(super) fn lock(&self) -> SsdGuard<'_> {
        let Shared { ssd, workers, .. } = &*self.shared;
        SsdGuard { ssd: spin_then_sleep(ssd, TRIES, 1), workers, by: self.index }
    }

    /// The transfer of a command that the firmware carries out has ended. If it brought a message of a proof,
    /// this is judged without the lock.
    pub(super) fn end_transfer(&self, now: Time, (transfer, outcome): (TransferId, Outcome)) {
        let mut ssd = self.lock();
        ssd.transferred(now, transfer, outcome);
        while let Some(said) = ssd.next_said() {
            drop(ssd);
            let judged = said.judge();
            ssd = self.lock();
            ssd.finish_judged(now, judged);
        }
    }

    /// `None` if another worker has the lock.
    pub(super) fn try_lock(&self) -> Option<SsdGuard<'_>> {
        let Shared { ssd, workers, .. } = &*self.shared;
        Some(SsdGuard { ssd: ssd.try_lock()?, workers, by: self.index })
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The SSD that its workers share, and its lock.

use crate::controller::Ssd;
use crate::workers::WorkerSet;
use gnstor_base::controller::{Outcome, TransferId};
use gnstor_base::lock::spin_then_sleep;
use gnstor_base::time::Time;
use gnstor_ftl::Ftl;
use parking_lot::{Mutex, MutexGuard};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// State that the workers of an SSD share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) ssd: Mutex<Ssd>,
    pub(super) workers: Arc<WorkerSet>,
    pub(super) ftl: Arc<Ftl>,
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
        self.workers.post(self.by, ssd.commands.effects());
        let at = (ssd.alarm(), ssd.smart().look_at());
        self.workers.publish(self.by, at, ssd.admin.volumes().has_fences(), !ssd.write_cache_enabled());
    }
}

/// Number of times that a worker tries the lock before it sleeps. The lock is held for a microsecond or two.
const TRIES: u32 = 200;

impl Shared {
    /// Worker `by` takes the lock.
    pub(super) fn lock(&self, by: usize) -> SsdGuard<'_> {
        SsdGuard { ssd: spin_then_sleep(&self.ssd, TRIES, 1), workers: &self.workers, by }
    }

    /// The transfer of a command that the firmware carries out has ended. If it brought a message of a proof,
    /// this is judged without the lock.
    pub(super) fn end_transfer(&self, by: usize, now: Time, (transfer, outcome): (TransferId, Outcome)) {
        let mut ssd = self.lock(by);
        ssd.transferred(now, transfer, outcome);
        while let Some(said) = ssd.next_said() {
            drop(ssd);
            let judged = said.judge();
            ssd = self.lock(by);
            ssd.finish_judged(now, judged);
        }
    }

    /// `None` if another worker has the lock.
    pub(super) fn try_lock(&self, by: usize) -> Option<SsdGuard<'_>> {
        Some(SsdGuard { ssd: self.ssd.try_lock()?, workers: &self.workers, by })
    }
}

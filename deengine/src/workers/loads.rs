// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pages that the medium has loaded for a worker or for the firmware. Any of them may hear from the layer of
//! all loads; each takes its own here.

use gnstor_flash::{Loaded, Ticket};
use gnstor_ftl::Ftl;
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

/// Loads that have ended, oldest first, until they are taken.
#[derive(Debug, Default)]
pub(crate) struct Loads(Mutex<VecDeque<Loaded>>);

impl Loads {
    /// Takes a load that has ended out of `own`.
    pub(crate) fn take<T>(&self, ftl: &Ftl, own: &mut HashMap<Ticket, T>) -> Option<(T, Loaded)> {
        if own.is_empty() {
            return None;
        }
        let mut ended = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ended.extend(std::iter::from_fn(|| ftl.poll_loaded()));
        let at = ended.iter().position(|loaded| own.contains_key(&loaded.ticket))?;
        let loaded = ended.remove(at)?;
        Some((own.remove(&loaded.ticket)?, loaded))
    }
}

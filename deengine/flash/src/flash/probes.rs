// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What tests ask of the ring of a flash, and make it return.

use super::Flash;
use crate::io::Engine;

impl Flash {
    /// Whether its file is read and written through a ring.
    pub(crate) fn has_ring(&self) -> bool {
        self.lock().engine.as_ref().is_some_and(Engine::has_ring)
    }

    /// Requests to its file that a blocking call carried out.
    pub(crate) fn blocking(&self) -> u32 {
        self.lock().engine.as_ref().map_or(0, Engine::blocking)
    }

    /// The next requests of its ring return this in place of their own results.
    pub(crate) fn bend(&self, results: &[i32]) {
        self.lock().engine.as_mut().expect("a file").bent.extend(results);
    }
}

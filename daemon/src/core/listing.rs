// SPDX-License-Identifier: Apache-2.0 OR MIT
//! List: the volumes that a caller has a right to, all of them or a page.
//!
//! Pages go by volume ids, so a page that follows needs no state at the daemon. Volumes that come or go
//! between two pages move no other volume to a page that was read before.

use super::page::Page;
use super::rights::Caller;
use super::volume::Stage;
use super::{Core, Reply};

impl Core {
    /// The volumes of a page, and the token of the page that follows.
    pub(super) fn list(&self, now: u64, caller: &Caller, page: Page) -> Reply {
        let there = self.volumes.range(page.from..).map(|(_, volume)| volume);
        let seen = |entry: &str| caller.right(entry).is_some();
        let mut shown = there.filter(|v| v.stage == Stage::Active && seen(&v.entry.labels));
        let volumes = shown.by_ref().take(page.most.unwrap_or(usize::MAX)).map(|v| v.shown(now)).collect();
        let next = shown.next().map(|volume| volume.entry.vid.to_string());
        Reply::Volumes { volumes, next }
    }
}

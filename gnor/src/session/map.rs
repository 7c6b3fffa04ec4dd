// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A session's part in following the fleet map: it sends the questions that are due, and waits for maps.

use super::following::{Following, Question};
use super::inner::Inner;
use super::{Session, Wait};
use crate::map_watch::Ask;
use crate::paths::Moment;
use std::sync::Arc;
use std::time::Duration;

pub use super::following::{Follower, Taken};

impl Inner {
    /// Sends the questions that are due. Returns whether to ask the daemon, too.
    pub(super) fn ask_for_maps(&mut self, now: Moment, kernel_runs: bool) -> bool {
        let Some(mut following) = self.following.take() else { return false };
        let can_ask = |ssd: usize| self.linked_path(ssd).is_some_and(|path| path.map.is_none());
        let asks = following.step(now, kernel_runs, can_ask);
        let mut daemon = false;
        let mut lost = Vec::new();
        for ask in asks {
            let (Ask::Epoch(ssd) | Ask::Map(ssd)) = ask else {
                daemon = true;
                continue;
            };
            let bytes = following.bytes_of(ask);
            let Some(path) = self.linked(ssd) else { continue };
            match path.admin.ask_map(bytes) {
                Ok(asked) => path.map = Some(Question { asked, ask, bytes }),
                Err(e) => lost.push((ssd, e.to_string())),
            }
        }
        self.following = Some(following);
        lost.into_iter().for_each(|(ssd, why)| self.lose(now, ssd, &why));
        daemon
    }
}

impl Session {
    /// The client goes by the map of this epoch, and follows the fleet's from now on.
    pub fn follow(&self, follower: Arc<dyn Follower>, epoch: u64) {
        let ssds = self.dialler.connector.room();
        self.shared.change(|inner, _| inner.following = Some(Following::new(follower, epoch, ssds)));
    }

    /// Waits until the client goes by a newer map than this epoch's. With `or_found` it also ends as
    /// [`Self::wait_found`] does.
    pub fn wait_for_map(&self, epoch: u64, or_found: bool, most: Duration) -> Wait {
        let waits = |inner: &mut Inner, now: Moment| {
            let Some(following) = &mut inner.following else { return false };
            following.waiting += 1;
            following.suspect(now);
            true
        };
        if !self.shared.change(waits) {
            return if or_found { self.wait_found(most) } else { Wait::Late };
        }
        self.shared.nudge();
        let ended = self.shared.wait_for_map(epoch, or_found, most);
        self.shared.change(|inner, _| inner.following.iter_mut().for_each(|f| f.waiting -= 1));
        ended
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who commits and does nothing else while cores wait for each other's commits: map, journal and stamp windows are in its core's cache then, and
//! the others go on with their queues.
//!
//! ```text
//!   a core looks in vain a few times --> wants help --> the helper wakes --> commits what all post, until nothing has come for a while
//! ```
//! Nothing depends on it: a core that has waited too long takes the lock as if there were no helper.

use super::{Core, Shared};
use gnstor_base::controller::Helper;
use gnstor_base::time::Time;
use std::sync::Arc;

/// The helper of an SSD.
#[derive(Debug)]
struct Committer(Arc<Shared>);

impl Core {
    /// A helper for this SSD, to be driven by a thread beside those of its cores.
    pub fn helper(&self) -> Box<dyn Helper> {
        Box::new(Committer(Arc::clone(&self.shared)))
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.0.roster.set_help(false);
    }
}

impl Helper for Committer {
    fn is_wanted(&self) -> bool {
        self.0.roster.wants_help()
    }

    fn set_awake(&mut self, is_awake: bool) {
        self.0.roster.set_help(is_awake);
    }

    fn step(&mut self, now: Time) -> bool {
        let Shared { roster, ftl, .. } = &*self.0;
        roster.saw(now);
        let posted = roster.lanes(0).filter(|lane| lane.is_posted()).count();
        if posted > 0
            && let Some(commits) = ftl.try_commits()
        {
            self.0.commit_lanes(0, now, commits);
        }
        if roster.is_to_settle(now)
            && let Some(mut commits) = ftl.try_commits()
        {
            roster.settle_at(commits.maintain(now));
            roster.note_change();
        }
        // One core alone does not wait for another.
        posted > 1
    }
}

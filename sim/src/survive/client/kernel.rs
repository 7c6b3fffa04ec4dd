// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The passes of a client's kernel. A kernel may stand still in the middle of a write, while its host goes on
//! and follows maps.
//!
//! ```text
//!   Midway      a part of a write is sent               for some time
//!   Alone       ... to one SSD, which then dies         until that SSD serves again
//!   Overtaken   later zeroes of its blocks are done     until the SSD that is out fills
//! ```

use super::Client;
use super::requests::Hand;
use crate::initiator::Initiator;
use crate::survive::history::History;
use crate::survive::stats::Path;
use crate::survive::wire::Post;
use gnstor_base::time::{Span, Time};
use gnstor_proto::placement::{AnyMap, Rows as _};

/// Longest time for which a kernel stands still.
const LONGEST: Span = Span::from_ms(4_000);

/// How a kernel is to stand still.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stall {
    Midway(Span),
    Alone,
    /// Stand still when zeroes have overtaken a write, from this time on and until this SSD fills.
    Overtaken(u16, Time),
}

/// A kernel stands still.
#[derive(Clone, Copy, Debug)]
pub(super) enum Still {
    /// Until a map that serves this SSD follows one without it.
    Serves(u16, bool),
    /// Until a map has the SSD fill.
    Fills(u16),
}

/// Whether the SSD has places in the map, and whether any of them fills.
pub(super) fn places(map: &AnyMap, ssd: u16) -> (bool, bool) {
    let of = |group| map.row(group).flatten().filter(|place| place.ssd == ssd).collect::<Vec<_>>();
    let own: Vec<_> = (0..map.groups()).flat_map(of).collect();
    (!own.is_empty(), own.iter().any(|place| place.filling))
}

impl Client {
    /// Makes the kernel stand still for this time, once a write is sent in part. The client's sessions go on.
    pub(in crate::survive) fn stall(&mut self, span: Span) {
        self.stalls = Some(Stall::Midway(span));
    }

    /// Makes the kernel stand still when one SSD has the only part of a write. [`Self::alone`] then names the
    /// SSD.
    pub(in crate::survive) fn stall_when_alone(&mut self) {
        self.stalls = Some(Stall::Alone);
    }

    /// Makes the kernel stand still when zeroes have overtaken a write, from this time on.
    pub(in crate::survive) fn stall_when_overtaken(&mut self, ssd: u16, from: Time) {
        self.stalls = Some(Stall::Overtaken(ssd, from));
    }

    /// Queue pairs that were made anew are used when the kernel has taken the failure of those before.
    pub(super) fn reopen(&mut self) {
        let Some(twin) = self.twin.as_mut().filter(|twin| twin.has_taken_all()) else { return };
        while let Some(ssd) = self.anew.pop_first() {
            twin.reopen(ssd, self.shape.depth);
        }
    }

    /// The kernel makes its passes. Returns when it goes on.
    pub(super) fn run(&mut self, post: &mut Post, history: &mut History) -> Time {
        let (now, pass) = (post.now, self.shape.pass);
        if now < self.passes_at {
            return self.passes_at;
        }
        self.still = None;
        loop {
            let Some(twin) = &mut self.twin else { return Time::NEVER };
            let (requests, sessions, indexes) = (&mut self.requests, &self.sessions[..], &mut self.indexes);
            let is_quiet =
                !twin.run_once(&mut Hand { requests, sessions, post, history, indexes, anew: &self.anew });
            for (ssd, cid, index) in self.indexes.drain(..) {
                self.sends[usize::from(ssd)].0.insert(cid, index);
            }
            self.reopen();
            if self.stands_still(post) {
                return self.passes_at;
            }
            if is_quiet {
                return Time::NEVER;
            }
            if pass > Span::ZERO {
                self.passes_at = now + pass;
                return self.passes_at;
            }
        }
    }

    /// Whether the kernel stands still from now on.
    fn stands_still(&mut self, post: &mut Post) -> bool {
        let Some(twin) = &self.twin else { return false };
        let now = post.now;
        let span = match self.stalls {
            Some(Stall::Midway(span)) if twin.is_midway() => span,
            Some(Stall::Alone) => {
                let Some(ssd) = twin.midway().find_map(|(lane, _)| self.requests.sent_alone(lane)) else {
                    return false;
                };
                (self.alone, self.still) = (Some(ssd), Some(Still::Serves(ssd, false)));
                LONGEST
            }
            Some(Stall::Overtaken(ssd, from)) if now >= from => {
                if !twin.midway().any(|(lane, sequence)| self.requests.is_overtaken(lane, sequence)) {
                    return false;
                }
                post.stats.path(Path::WasOvertaken);
                self.still = Some(Still::Fills(ssd));
                LONGEST
            }
            _ => return false,
        };
        self.stalls = None;
        post.stats.path(Path::Stalled);
        self.passes_at = now + span;
        self.requests.stood = Span::from_ps(self.requests.stood.as_ps() + span.as_ps());
        true
    }

    /// The host follows a map. A kernel that stands still may go on for it.
    pub(super) fn kernel_sees(&mut self, map: &AnyMap, now: Time) {
        let soon = now + Span::from_ms(5 + u64::from(self.probe_dice.below(200)));
        match self.still {
            Some(Still::Serves(ssd, was_out)) => match places(map, ssd) {
                (false, _) => self.still = Some(Still::Serves(ssd, true)),
                (true, false) if was_out => self.passes_at = self.passes_at.min(now),
                _ => {}
            },
            Some(Still::Fills(ssd)) if places(map, ssd).1 => self.passes_at = self.passes_at.min(soon),
            _ => {}
        }
    }

    /// The twin of a volume that is opened. SSDs that are not reached have failed for it.
    pub(super) fn begin_kernel(&mut self, mut twin: Initiator) {
        let sessions = (0u16..).zip(&self.sessions);
        for (ssd, _) in sessions.filter(|(_, session)| !session.is_up()) {
            twin.arrive(ssd, crate::initiator::Completion::Failed { opcode: 13, syndrome: 0x81 });
        }
        self.sends.iter_mut().for_each(|sends| *sends = (std::collections::BTreeMap::new(), 0));
        self.twin = Some(twin);
    }
}

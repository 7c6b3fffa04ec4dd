// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a session knows of the fleet map that its client follows: the questions of [`MapWatch`], and the maps
//! that come. The questions are commands of the admin queues beside Keep Alive; no thread waits for them.

use super::Path;
use crate::map_watch::{Ask, MapWatch, Rhythm};
use crate::paths::Moment;
use gnstor_fabric::admin::ChannelError;
use gnstor_fabric::host_queue::{Asked, HostQueue};
use gnstor_proto::placement::AnyMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

pub use crate::map_watch::Taken;

/// While a kernel runs, a client asks for the next map every tenth of a second. After the loss of an SSD it
/// asks every 10 ms, because most new maps follow such a loss.
const RHYTHM: Rhythm = Rhythm {
    calm: Duration::from_millis(100),
    urgent: Duration::from_millis(10),
    lasts: Duration::from_secs(1),
    patience: Duration::from_millis(100),
    daemon: Duration::from_millis(500),
};
/// A multiple of a dword.
const HEAD: usize = AnyMap::HEAD_BYTES.next_multiple_of(4);

/// A client that follows the fleet map.
pub trait Follower: Debug + Send + Sync {
    /// Uses this map from now on, if it is newer and usable. Kernels may run.
    fn take(&self, map: &[u8]) -> Taken;

    /// The SSDs that maps have left out since the last call: their queue pairs are given up, as they may be
    /// silent for long.
    fn take_dropped(&self) -> Vec<usize>;

    /// The SSDs that maps have added since the last call: they are dialled.
    fn take_added(&self) -> Vec<usize> {
        Vec::new()
    }

    /// The SSDs to which maps have given another address since the last call: they are dialled there.
    fn take_moved(&self) -> Vec<usize> {
        Vec::new()
    }

    /// Asks the daemon for its map. Ends within some seconds.
    fn ask_daemon(&self) -> Option<Vec<u8>>;
}

/// A question on its way to an SSD.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) asked: Asked,
    pub(super) ask: Ask,
    pub(super) bytes: usize,
}

/// An SSD's answer about its map: the first bytes, and the total length.
type Report = Option<(Vec<u8>, usize)>;

/// Answers that have come on an admin queue.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pub(super) alive: bool,
    map: Option<(Ask, Report)>,
}

impl Path {
    /// Takes the answers that have come, without waiting.
    pub(super) fn take_answers(&mut self) -> Result<Answers, ChannelError> {
        let mut answers = Answers::default();
        while let Some(cqe) = self.admin.next_answer()? {
            if let Some(asked) = &self.asked
                && self.admin.is_alive(asked, &cqe)?
            {
                self.asked = None;
                answers.alive = true;
            } else if let Some(question) = self.map.take_if(|question| question.asked.is_answered_by(&cqe)) {
                answers.map = Some((question.ask, self.admin.map(&cqe, question.bytes)));
            }
        }
        Ok(answers)
    }
}

/// A map that has come, and its source.
#[derive(Debug)]
pub(super) struct Came {
    pub(super) from: Ask,
    pub(super) bytes: Vec<u8>,
}

/// The client's part of a session that follows the map.
#[derive(Debug)]
pub(super) struct Following {
    watch: MapWatch,
    pub(super) follower: Arc<dyn Follower>,
    /// Length of each SSD's map, as it has reported.
    lengths: Vec<usize>,
    /// Calls that wait for a newer map.
    pub(super) waiting: u32,
    /// Maps for the client.
    pub(super) came: Vec<Came>,
}

impl Following {
    pub(super) fn new(follower: Arc<dyn Follower>, epoch: u64, ssds: usize) -> Self {
        let watch = MapWatch::new(RHYTHM, epoch);
        Self { watch, follower, lengths: vec![0; ssds], waiting: 0, came: Vec::new() }
    }

    pub(super) fn in_use(&self) -> u64 {
        self.watch.in_use()
    }

    pub(super) fn suspect(&mut self, now: Moment) {
        self.watch.suspect(now);
    }

    /// An SSD's path is gone, and with it a question.
    pub(super) fn unanswered(&mut self, now: Moment, ssd: usize) {
        self.watch.epoch_told(now, ssd, None);
        self.watch.map_came(now, Ask::Map(ssd), Taken::Nothing);
    }

    /// An SSD is lost.
    pub(super) fn lost(&mut self, now: Moment, ssd: usize) {
        self.unanswered(now, ssd);
        self.watch.suspect(now);
    }

    pub(super) fn answered(&mut self, now: Moment, ssd: usize, answers: Answers) {
        let Some((ask, told)) = answers.map else { return };
        match (ask, told) {
            (Ask::Epoch(_), told) => {
                let epoch = told.as_ref().and_then(|(head, _)| AnyMap::epoch_in(head));
                self.lengths[ssd] = told.map_or(0, |(_, length)| length);
                self.watch.epoch_told(now, ssd, epoch);
            }
            (from, Some((bytes, length))) if bytes.len() == length => {
                self.came.push(Came { from, bytes });
            }
            (from, _) => self.watch.map_came(now, from, Taken::Nothing),
        }
    }

    pub(super) fn taken(&mut self, now: Moment, from: Ask, taken: Taken) {
        self.watch.map_came(now, from, taken);
    }

    pub(super) fn step(
        &mut self,
        now: Moment,
        kernel_runs: bool,
        can_ask: impl Fn(usize) -> bool,
    ) -> Vec<Ask> {
        let busy = kernel_runs || self.waiting > 0;
        self.watch.step(now, busy, self.lengths.len(), can_ask)
    }

    pub(super) fn wakes_at(&self, now: Moment) -> Option<Moment> {
        self.watch.wakes_at(now)
    }

    pub(super) fn bytes_of(&self, ask: Ask) -> usize {
        match ask {
            Ask::Map(ssd) => self.lengths[ssd].next_multiple_of(4).clamp(HEAD, HostQueue::MAP_ROOM),
            Ask::Epoch(_) | Ask::Daemon => HEAD,
        }
    }
}

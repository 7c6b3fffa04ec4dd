// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state that callers and the session's thread share: the paths to the SSDs, in use and found anew.

use super::following::{Came, Following};
use super::{NewPath, NewPaths, NotDialled, Path};
use crate::anew::ConnectTarget;
use crate::channel::Channel;
use crate::node::Lifeline;
use crate::paths::{Action, Moment, Paths};
use gnstor_fabric::host_queue::HostQueue;
use gnstor_fabric::transport::Port;
use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::Duration;

/// Interval of checks of the admin queues. A broken connection is noticed within this time.
const LOOK: Duration = Duration::from_millis(100);
/// Pause while an answer is awaited.
const LOOK_SOON: Duration = Duration::from_millis(5);

/// State that callers share with the session's thread.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) paths: Paths,
    /// The paths in use, and lost paths whose queue pairs are not replaced yet.
    used: Vec<Option<Path>>,
    /// The paths that were found.
    pub(super) found: Vec<Option<Path>>,
    /// Why SSDs were not reached when the session began.
    pub(super) first: BTreeMap<usize, FirstDials>,
    /// Unused paths, to be dropped without the lock.
    pub(super) gone: Vec<Path>,
    /// Present if the client follows the fleet map.
    pub(super) following: Option<Following>,
    /// Queue pairs that are being made anew beside kernels.
    pub(super) anew: Renewals,
}

/// Dials of an SSD at the beginning of the session, none of which reached it.
#[derive(Debug)]
pub(super) struct FirstDials {
    /// Why the last one failed.
    pub(super) why: NotDialled,
    tries: u32,
}

/// First dials of an SSD as long as each is cut off. With the rests between them they take some seconds.
const MOST_FIRST_DIALS: u32 = 8;

/// State of making queue pairs anew beside kernels.
#[derive(Debug, Default)]
pub(super) struct Renewals {
    /// The channel of the queue pairs.
    pub(super) channel: Weak<Channel>,
    /// For each SSD when it is tried next; `None` while a try is under way.
    next: BTreeMap<usize, Option<Moment>>,
}

/// Work of a step that must be done without the lock.
#[derive(Debug)]
pub(super) struct Due {
    /// SSDs to dial.
    pub(super) dial: Vec<usize>,
    /// SSDs whose queue pairs must be made anew beside the kernel.
    pub(super) anew: Vec<usize>,
    /// Whether to ask the daemon for its map.
    pub(super) daemon: bool,
    /// Maps for the client.
    pub(super) came: Vec<Came>,
    /// Time until the next step.
    pub(super) rest: Duration,
    /// Paths to drop.
    pub(super) gone: Vec<Path>,
}

impl Inner {
    pub(super) fn new(paths: Paths) -> Self {
        let none = || std::iter::repeat_with(|| None).take(paths.len()).collect();
        let (used, found, first) = (none(), none(), BTreeMap::new());
        let anew = Renewals::default();
        Self { paths, used, found, first, gone: Vec::new(), following: None, anew }
    }

    pub(super) fn up(&self) -> impl Iterator<Item = usize> {
        (0..self.used.len()).filter(|&ssd| self.paths.is_up(ssd))
    }

    pub(super) fn in_use(&self, ssd: usize) -> Option<&Path> {
        self.used[ssd].as_ref().filter(|_| self.paths.is_up(ssd))
    }

    pub(super) fn keep(&mut self, ssd: usize, io_queue: Weak<Lifeline>) -> Option<()> {
        let path = self.used[ssd].as_mut().filter(|_| self.paths.is_up(ssd))?;
        path.io.retain(|lifeline| lifeline.strong_count() > 0);
        path.io.push(io_queue);
        Some(())
    }

    pub(super) fn with_queue<R>(
        &mut self,
        now: Moment,
        ssd: usize,
        f: impl FnOnce(&mut HostQueue) -> R,
    ) -> Option<R> {
        let path = self.used[ssd].as_mut().filter(|_| self.paths.is_up(ssd))?;
        let result = f(&mut path.admin);
        // A command that waits for its answer takes that of the Keep Alive along.
        if !path.admin.is_broken() && path.asked.take().is_some() {
            self.paths.alive(now, ssd);
        }
        Some(result)
    }

    pub(super) fn ports(&self) -> Vec<Port> {
        let known = |path: &Option<Path>| path.as_ref().map(|path| path.address.port);
        let is_local = self.used.iter().filter_map(known).any(|port| matches!(port, Port::Local(_)));
        let other = |ssd| if is_local { Port::Local(ssd) } else { Port::Remote { remote: u32::MAX, ssd } };
        (0..).zip(&self.used).map(|(ssd, path)| known(path).unwrap_or_else(|| other(ssd))).collect()
    }

    /// Returns the old paths.
    pub(super) fn put_in_use(&mut self, now: Moment, new: NewPaths) -> Vec<Path> {
        let mut old = Vec::new();
        for ssd in 0..self.found.len() {
            let Some(path) = self.found[ssd].take() else { continue };
            self.paths.take(ssd);
            old.extend(self.used[ssd].replace(path));
        }
        for (ssd, NewPath(path)) in new {
            if !self.paths.is_up(ssd) {
                old.push(path);
                continue;
            }
            // The old path's questions go with it.
            self.paths.replaced(now, ssd);
            if let Some(following) = &mut self.following {
                following.unanswered(now, ssd);
            }
            old.extend(self.used[ssd].replace(path));
        }
        old
    }

    /// Notes that an SSD is lost, and gives up its I/O queues.
    pub(super) fn lose(&mut self, now: Moment, ssd: usize, why: &str) {
        if self.paths.broke(now, ssd, why) {
            tracing::info!("SSD {ssd} is given up: {why}");
            self.cut(now, ssd);
        }
    }

    /// An SSD has another address: its path leads elsewhere, and it is dialled at once.
    pub(super) fn moved(&mut self, now: Moment, ssd: usize) {
        self.lose(now, ssd, "the fleet map has another address of it");
        self.paths.moved(now, ssd);
    }

    /// Gives up the found path if there is one, since the old one was cut before. Otherwise gives up the path
    /// in use.
    fn cut(&mut self, now: Moment, ssd: usize) {
        if let Some(following) = &mut self.following {
            following.lost(now, ssd);
        }
        match self.found[ssd].take() {
            Some(path) => {
                path.cut();
                self.gone.push(path);
            }
            None => self.used[ssd].iter().for_each(Path::cut),
        }
    }

    pub(super) fn linked(&mut self, ssd: usize) -> Option<&mut Path> {
        let list = if self.paths.is_up(ssd) { &mut self.used } else { &mut self.found };
        list[ssd].as_mut()
    }

    /// The path to an SSD, if it has one.
    pub(super) fn linked_path(&self, ssd: usize) -> Option<&Path> {
        let list = if self.paths.is_up(ssd) { &self.used } else { &self.found };
        list[ssd].as_ref().filter(|_| self.paths.is_up(ssd) || self.paths.is_found(ssd))
    }

    /// Takes answers of Keep Alives and questions, and sees which queues have broken.
    fn take_answers(&mut self, now: Moment) {
        for ssd in 0..self.used.len() {
            if !self.paths.is_up(ssd) && !self.paths.is_found(ssd) {
                continue;
            }
            let Some(path) = self.linked(ssd) else { continue };
            match path.take_answers() {
                Ok(answers) => {
                    if answers.alive {
                        self.paths.alive(now, ssd);
                    }
                    if let Some(following) = &mut self.following {
                        following.answered(now, ssd, answers);
                    }
                }
                Err(e) => self.lose(now, ssd, &e.to_string()),
            }
        }
    }

    fn ask(&mut self, now: Moment, ssd: usize) {
        let Some(path) = self.linked(ssd) else { return };
        match path.admin.ask_alive() {
            Ok(asked) => path.asked = Some(asked),
            Err(e) => self.lose(now, ssd, &e.to_string()),
        }
    }

    pub(super) fn dialled(&mut self, now: Moment, ssd: usize, outcome: Result<Path, NotDialled>) {
        match outcome {
            Ok(path) => {
                self.found[ssd] = Some(path);
                self.paths.reached(now, ssd);
            }
            Err(e) => {
                let unreached = e.unreached();
                tracing::debug!("SSD {ssd} is not reached: {}", unreached.why);
                self.paths.unreached(now, ssd, unreached.why, unreached.for_good);
                let tries = match self.first.get(&ssd) {
                    None => 1,
                    Some(_) if self.is_given_up(ssd) => return,
                    Some(first) => first.tries + 1,
                };
                self.first.insert(ssd, FirstDials { why: e, tries });
            }
        }
    }

    /// Whether the beginning of the session waits for this SSD no more: it was dialled, and the next dial
    /// will not end otherwise.
    pub(super) fn is_given_up(&self, ssd: usize) -> bool {
        self.first.get(&ssd).is_some_and(|first| {
            let may_last = first.why.unreached().was_cut && self.paths.redials();
            !may_last || first.tries >= MOST_FIRST_DIALS
        })
    }

    /// Looks at the queues, and does what is due. Returns what is left to do without the lock.
    pub(super) fn step(&mut self, now: Moment, kernel_runs: bool) -> Due {
        self.take_answers(now);
        let mut dial = Vec::new();
        for action in self.paths.step(now) {
            match action {
                Action::Dial(ssd) => dial.push(ssd),
                Action::Ask(ssd) => self.ask(now, ssd),
                Action::Cut(ssd) => {
                    tracing::warn!("SSD {ssd} is given up: it does not answer");
                    self.cut(now, ssd);
                }
            }
        }
        let daemon = self.ask_for_maps(now, kernel_runs);
        let look = if self.is_awaiting() { LOOK_SOON } else { LOOK };
        let maps_at = self.following.as_ref().and_then(|following| following.wakes_at(now));
        let wakes_at = self.paths.wakes_at().into_iter().chain(maps_at).min();
        let rest = wakes_at.map_or(look, |at| look.min(at.saturating_sub(now)));
        let came = self.following.as_mut().map_or_else(Vec::new, |f| std::mem::take(&mut f.came));
        let anew = if kernel_runs { self.renewals_due(now) } else { Vec::new() };
        Due { dial, anew, daemon, came, rest, gone: std::mem::take(&mut self.gone) }
    }

    /// The found SSDs whose queue pairs must be made anew now.
    fn renewals_due(&mut self, now: Moment) -> Vec<usize> {
        if self.anew.channel.strong_count() == 0 {
            return Vec::new();
        }
        let found = (0..self.found.len()).filter(|&ssd| self.paths.is_found(ssd));
        let next = &self.anew.next;
        let due: Vec<usize> =
            found.filter(|ssd| next.get(ssd).is_none_or(|at| at.is_some_and(|at| at <= now))).collect();
        due.iter().for_each(|&ssd| _ = self.anew.next.insert(ssd, None));
        due
    }

    /// Notes that a try is over. The next one comes after `rest`.
    pub(super) fn renewal_ended(&mut self, now: Moment, ssd: usize, rest: Duration) {
        self.anew.next.insert(ssd, Some(now + rest));
    }

    /// Data for connecting the new queue pair to a found SSD.
    pub(super) fn target(&mut self, ssd: usize, qid: u16) -> Option<ConnectTarget> {
        let path = self.found[ssd].as_mut().filter(|_| self.paths.is_found(ssd))?;
        let (port, cntlid) = (path.address.port, path.admin.cntlid());
        Some(ConnectTarget { port, cntlid, data: path.admin.connect_data(qid) })
    }

    /// The new queue pair lives as long as the found path.
    pub(super) fn keep_found(&mut self, ssd: usize, io_queue: &Weak<Lifeline>) -> Option<()> {
        let path = self.found[ssd].as_mut().filter(|_| self.paths.is_found(ssd))?;
        path.io = vec![Weak::clone(io_queue)];
        Some(())
    }

    /// The queue pair is whole: the found path that it belongs to is in use. False: that one is lost.
    pub(super) fn put_found_in_use(&mut self, ssd: usize, io_queue: &Weak<Lifeline>) -> bool {
        let is_its = |path: &mut Path| path.io.iter().any(|io| io.ptr_eq(io_queue));
        let Some(path) = self.found[ssd].take_if(is_its).filter(|_| self.paths.is_found(ssd)) else {
            return false;
        };
        self.paths.take(ssd);
        self.gone.extend(self.used[ssd].replace(path));
        true
    }

    fn is_awaiting(&self) -> bool {
        (0..self.used.len()).any(|ssd| {
            let list = if self.paths.is_up(ssd) { &self.used } else { &self.found };
            list[ssd].as_ref().is_some_and(|path| path.asked.is_some() || path.map.is_some())
        })
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The runtime of a session: clock, locks and threads.
//!
//! ```text
//!   "gn-session"  looks at the admin queues, steps Paths, does what it says   <--- Event --- "gn-dial", one
//!        |                                                                                   for each link
//!        '--- Inner, behind a lock ---  callers: what is up, what is missing, waits
//! ```

use super::dial::Dialler;
use super::inner::Inner;
use super::{ADMIN_DEADLINE, NotDialled, Path, Wait};
use crate::error::NodeError;
use crate::paths::{Moment, Pace, Paths};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A Keep Alive goes out well within KATO. Shorter silence is taken for a busy machine. Heartbeat and silence
/// together are how long a read of an SSD that stands still takes at most.
pub(super) const PACE: Pace = Pace {
    heartbeat: Duration::from_millis(500),
    silence: Duration::from_millis(2500),
    rest: Duration::from_millis(100),
    most_rest: Duration::from_secs(1),
    stood_still: Duration::from_secs(1),
};
/// A session that has reached no SSD yet waits for so long: longer than a dial takes.
const LAST_CALL: Duration = Duration::from_secs(60);

/// What a thread of the session tells another one.
#[derive(Debug)]
enum Event {
    Dialled(usize, Box<Result<Path, NotDialled>>),
    /// Something has changed.
    Nudge,
    Stop,
}

/// [`Inner`] behind its lock, and a clock.
#[derive(Debug)]
pub(super) struct Shared {
    inner: Mutex<Inner>,
    changed: Condvar,
    /// Whether a found path waits: looked at before each launch.
    has_found: AtomicBool,
    nudge: Mutex<Option<Sender<Event>>>,
    begun: Instant,
}

#[expect(clippy::disallowed_methods, reason = "this is the runtime of the session: it has the clock")]
fn clock() -> Instant {
    Instant::now()
}

impl Shared {
    pub(super) fn new(paths: Paths) -> Self {
        Self {
            inner: Mutex::new(Inner::new(paths)),
            changed: Condvar::new(),
            has_found: AtomicBool::new(false),
            nudge: Mutex::default(),
            begun: clock(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no panic while held")
    }

    pub(super) fn look<R>(&self, f: impl FnOnce(&Inner) -> R) -> R {
        f(&self.lock())
    }

    /// Changes the state, and wakes callers that wait.
    pub(super) fn change<R>(&self, f: impl FnOnce(&mut Inner, Moment) -> R) -> R {
        let mut inner = self.lock();
        let result = f(&mut inner, self.begun.elapsed());
        let found = (0..inner.found.len()).any(|ssd| inner.paths.is_found(ssd));
        // Only a reason to look: a call that misses it sees it the next time.
        self.has_found.store(found, Ordering::Relaxed);
        drop(inner);
        self.changed.notify_all();
        result
    }

    pub(super) fn has_found(&self) -> bool {
        self.has_found.load(Ordering::Relaxed)
    }

    /// Has the thread look now.
    pub(super) fn nudge(&self) {
        self.tell(Event::Nudge);
    }

    fn tell(&self, event: Event) {
        if let Some(thread) = &*self.nudge.lock().expect("no panic while held") {
            let _ = thread.send(event);
        }
    }

    /// Waits until `is_over` says something, for so long.
    fn wait<R>(&self, most: Duration, mut is_over: impl FnMut(&mut Inner) -> Option<R>) -> Option<R> {
        let begun = clock();
        let mut inner = self.lock();
        loop {
            let left = most.saturating_sub(begun.elapsed());
            let over = is_over(&mut inner);
            if over.is_some() || left.is_zero() {
                return over;
            }
            inner = self.changed.wait_timeout(inner, left).expect("no panic while held").0;
        }
    }

    pub(super) fn wait_found(&self, most: Duration) -> Wait {
        let over = |inner: &mut Inner| {
            let paths = &inner.paths;
            let found = (0..inner.found.len()).any(|ssd| paths.is_found(ssd));
            if found || paths.missing().next().is_none() {
                return Some(Wait::Found);
            }
            paths.hopeless().map(|why| Wait::Hopeless(why.to_owned()))
        };
        self.wait(most, over).unwrap_or(Wait::Late)
    }

    /// Waits until every SSD was dialled, and for at most `most` where one was reached.
    pub(super) fn roll_call(&self, most: Duration) -> Result<(), NodeError> {
        let any = |inner: &Inner| inner.found.iter().any(Option::is_some);
        let all = |inner: &Inner| {
            (0..inner.found.len()).all(|ssd| inner.found[ssd].is_some() || inner.first.contains_key(&ssd))
        };
        self.wait(most, |inner| all(inner).then_some(()));
        self.wait(LAST_CALL, |inner| (any(inner) || all(inner)).then_some(()));
        let mut inner = self.lock();
        if any(&inner) || inner.found.is_empty() {
            return Ok(());
        }
        match inner.first.pop_first() {
            Some((_, NotDialled::Admin(e))) => Err(NodeError::Admin(e)),
            Some((ssd, NotDialled::Link(e))) => Err(NodeError::NoLink { ssd, cause: e.why }),
            None => Err(NodeError::NoLink { ssd: 0, cause: "it does not answer".into() }),
        }
    }
}

/// The session's thread; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Runtime {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Runtime {
    pub(super) fn start(shared: &Arc<Shared>, dialler: &Arc<Dialler>) -> Self {
        let (tell, inbox) = mpsc::channel();
        *shared.nudge.lock().expect("no panic while held") = Some(tell.clone());
        let (mine, dialler) = (Arc::clone(shared), Arc::clone(dialler));
        let thread = std::thread::Builder::new().name("gn-session".into());
        let thread = thread.spawn(move || run(&mine, &dialler, &inbox, &tell)).expect("a thread starts");
        Self { shared: Arc::clone(shared), thread: Some(thread) }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.shared.tell(Event::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Until the session is dropped. It waits for the dials that are under way then.
fn run(shared: &Shared, dialler: &Arc<Dialler>, inbox: &Receiver<Event>, tell: &Sender<Event>) {
    let mut dials: Vec<JoinHandle<()>> = Vec::new();
    let mut news = Vec::new();
    loop {
        let (due, rest, gone) = shared.change(|inner, now| {
            for (ssd, outcome) in news.drain(..) {
                inner.dialled(now, ssd, outcome);
            }
            let (due, rest) = inner.step(now);
            (due, rest, std::mem::take(&mut inner.gone))
        });
        drop(gone);
        dials.retain(|dial| !dial.is_finished());
        dials.extend(dial_all(dialler, &due, tell));
        let mut next = inbox.recv_timeout(rest).ok();
        while let Some(event) = next {
            match event {
                Event::Dialled(ssd, outcome) => news.push((ssd, *outcome)),
                Event::Nudge => {}
                Event::Stop => return dials.into_iter().for_each(|dial| drop(dial.join())),
            }
            next = inbox.try_recv().ok();
        }
    }
}

/// Dials SSDs in threads, one for each link.
fn dial_all(dialler: &Arc<Dialler>, due: &[usize], tell: &Sender<Event>) -> Vec<JoinHandle<()>> {
    let mut links: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    due.iter().for_each(|&ssd| links.entry(dialler.roads.link_of(ssd)).or_default().push(ssd));
    let dial = |ssds: Vec<usize>| {
        let (dialler, tell) = (Arc::clone(dialler), tell.clone());
        let thread = std::thread::Builder::new().name("gn-dial".into());
        let dial = move || {
            dialler.dial(&ssds, ADMIN_DEADLINE, |ssd, outcome| {
                let _ = tell.send(Event::Dialled(ssd, Box::new(outcome)));
            });
        };
        thread.spawn(dial).expect("a thread starts")
    };
    links.into_values().map(dial).collect()
}

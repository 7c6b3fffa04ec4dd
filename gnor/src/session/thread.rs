// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The runtime of a session: clock, locks and threads.
//!
//! ```text
//!   "gn-session"  looks at the admin queues, steps Paths, does what it says   <--- Event --- "gn-dial", one
//!        |                                                                                   for each link
//!        '--- Inner, behind a lock ---  callers: what is up, what is missing, waits
//! ```

use super::dial::Dialler;
use super::following::Came;
use super::inner::Inner;
use super::{ADMIN_DEADLINE, NotDialled, Path, Wait};
use crate::anew::NotMade;
use crate::channel::QID;
use crate::error::NodeError;
use crate::map_watch::{Ask, Taken};
use crate::paths::{Moment, Pace, Paths};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A Keep Alive is sent well within KATO. A shorter silence may be due to a busy machine. Heartbeat plus
/// silence is the longest delay of a read from an SSD that stands still.
pub(super) const PACE: Pace = Pace {
    heartbeat: Duration::from_millis(500),
    silence: Duration::from_millis(2500),
    rest: Duration::from_millis(100),
    most_rest: Duration::from_secs(1),
    stood_still: Duration::from_secs(1),
};
/// Longest wait of a session that has reached no SSD yet. It is longer than a dial.
const LAST_CALL: Duration = Duration::from_secs(60);
/// Time from a failed try to make a queue pair anew beside a kernel to the next try. Something had not ended
/// yet, or the try failed.
const SOON_AGAIN: Duration = Duration::from_millis(20);
const AFTER_FAILURE: Duration = Duration::from_millis(250);

/// An event that one thread of the session sends to another.
#[derive(Debug)]
enum Event {
    Dialled(usize, Box<Result<Path, NotDialled>>),
    /// The daemon's map, or none.
    Map(Option<Vec<u8>>),
    /// Something has changed.
    Nudge,
    Stop,
}

/// [`Inner`] behind its lock, and a clock.
#[derive(Debug)]
pub(super) struct Shared {
    inner: Mutex<Inner>,
    changed: Condvar,
    /// Whether a found path waits. It is checked before each launch.
    has_found: AtomicBool,
    nudge: Mutex<Option<Sender<Event>>>,
    begun: Instant,
}

#[expect(clippy::disallowed_methods, reason = "this is the runtime of the session: it has the clock")]
fn clock() -> Instant {
    Instant::now()
}

fn found_or_hopeless(inner: &Inner) -> Option<Wait> {
    let paths = &inner.paths;
    let found = (0..inner.found.len()).any(|ssd| paths.is_found(ssd));
    if found || paths.missing().next().is_none() {
        return Some(Wait::Found);
    }
    paths.hopeless().map(|why| Wait::Hopeless(why.to_owned()))
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
        // The flag is only a hint to check: a call that misses it sees it the next time.
        self.has_found.store(found, Ordering::Relaxed);
        drop(inner);
        self.changed.notify_all();
        result
    }

    pub(super) fn has_found(&self) -> bool {
        self.has_found.load(Ordering::Relaxed)
    }

    /// Makes the thread step now.
    pub(super) fn nudge(&self) {
        self.tell(Event::Nudge);
    }

    fn tell(&self, event: Event) {
        if let Some(thread) = &*self.nudge.lock().expect("no panic while held") {
            let _ = thread.send(event);
        }
    }

    /// Waits until `is_over` returns a result, at most for `most`.
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
        let over = |inner: &mut Inner| found_or_hopeless(inner);
        self.wait(most, over).unwrap_or(Wait::Late)
    }

    /// Waits until the map in use is newer than this epoch's, or as `wait_found`.
    pub(super) fn wait_for_map(&self, epoch: u64, or_found: bool, most: Duration) -> Wait {
        let over = |inner: &mut Inner| {
            if inner.following.as_ref().is_some_and(|following| following.in_use() > epoch) {
                return Some(Wait::Moved);
            }
            found_or_hopeless(inner).filter(|_| or_found)
        };
        self.wait(most, over).unwrap_or(Wait::Late)
    }

    /// Waits until every SSD is reached or given up; at most for `most` once one is reached.
    pub(super) fn roll_call(&self, most: Duration) -> Result<(), NodeError> {
        let any = |inner: &Inner| inner.found.iter().any(Option::is_some);
        let all = |inner: &Inner| {
            (0..inner.found.len())
                .all(|ssd| inner.found[ssd].is_some() || inner.is_given_up(ssd) || inner.paths.is_vacant(ssd))
        };
        self.wait(most, |inner| all(inner).then_some(()));
        self.wait(LAST_CALL, |inner| (any(inner) || all(inner)).then_some(()));
        let mut inner = self.lock();
        if any(&inner) || inner.found.is_empty() {
            return Ok(());
        }
        match inner.first.pop_first().map(|(ssd, first)| (ssd, first.why)) {
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
    /// `kernel_runs` tells whether a kernel runs, now and later.
    pub(super) fn start(shared: &Arc<Shared>, dialler: &Arc<Dialler>, kernel_runs: Arc<AtomicBool>) -> Self {
        let (tell, inbox) = mpsc::channel();
        *shared.nudge.lock().expect("no panic while held") = Some(tell.clone());
        let (mine, dialler) = (Arc::clone(shared), Arc::clone(dialler));
        let thread = std::thread::Builder::new().name("gn-session".into());
        let body = move || run(&mine, &dialler, &inbox, &tell, &kernel_runs);
        let thread = thread.spawn(body).expect("a thread starts");
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

/// Runs until the session is dropped. Then it waits for dials that are under way.
fn run(
    shared: &Arc<Shared>,
    dialler: &Arc<Dialler>,
    inbox: &Receiver<Event>,
    tell: &Sender<Event>,
    kernel_runs: &AtomicBool,
) {
    let mut dials: Vec<JoinHandle<()>> = Vec::new();
    let mut news = Vec::new();
    loop {
        let due = shared.change(|inner, now| {
            for (ssd, outcome) in news.drain(..) {
                inner.dialled(now, ssd, outcome);
            }
            inner.step(now, kernel_runs.load(Ordering::Relaxed))
        });
        drop(due.gone);
        let rest = if due.came.is_empty() { due.rest } else { Duration::ZERO };
        due.came.into_iter().for_each(|Came { from, bytes }| take_map(shared, from, Some(&bytes)));
        dials.retain(|dial| !dial.is_finished());
        dials.extend(dial_all(dialler, &due.dial, tell));
        dials.extend(due.anew.iter().filter_map(|&ssd| make_anew(shared, ssd, tell)));
        dials.extend(due.daemon.then(|| ask_daemon(shared, tell)).flatten());
        let mut next = inbox.recv_timeout(rest).ok();
        while let Some(event) = next {
            match event {
                Event::Dialled(ssd, outcome) => news.push((ssd, *outcome)),
                Event::Map(map) => take_map(shared, Ask::Daemon, map.as_deref()),
                Event::Nudge => {}
                Event::Stop => return dials.into_iter().for_each(|dial| drop(dial.join())),
            }
            next = inbox.try_recv().ok();
        }
    }
}

/// Passes a map to the client, without the lock: it may take some milliseconds.
pub(super) fn take_map(shared: &Shared, from: Ask, map: Option<&[u8]>) {
    let Some(follower) = shared.look(|inner| inner.following.as_ref().map(|f| Arc::clone(&f.follower)))
    else {
        return;
    };
    let taken = map.map_or(Taken::Nothing, |map| follower.take(map));
    let (added, dropped) = (follower.take_added(), follower.take_dropped());
    let moved = follower.take_moved();
    shared.change(|inner, now| {
        inner.following.iter_mut().for_each(|f| f.taken(now, from, taken));
        added.into_iter().for_each(|ssd| inner.paths.occupy(now, ssd));
        dropped.into_iter().for_each(|ssd| inner.lose(now, ssd, "the fleet map leaves it out"));
        moved.into_iter().for_each(|ssd| inner.moved(now, ssd));
    });
}

/// Asks the daemon for its map in a thread: it may be away.
fn ask_daemon(shared: &Shared, tell: &Sender<Event>) -> Option<JoinHandle<()>> {
    let follower = shared.look(|inner| inner.following.as_ref().map(|f| Arc::clone(&f.follower)))?;
    let tell = tell.clone();
    let ask = move || {
        let _ = tell.send(Event::Map(follower.ask_daemon()));
    };
    Some(std::thread::Builder::new().name("gn-map".into()).spawn(ask).expect("a thread starts"))
}

/// Makes the queue pair to a found SSD anew beside the kernel, in a thread: each step waits for another part.
fn make_anew(shared: &Arc<Shared>, ssd: usize, tell: &Sender<Event>) -> Option<JoinHandle<()>> {
    let channel = shared.look(|inner| inner.anew.channel.upgrade());
    let Some(channel) = channel else {
        shared.change(|inner, now| inner.renewal_ended(now, ssd, AFTER_FAILURE));
        return None;
    };
    let (shared, tell) = (Arc::clone(shared), tell.clone());
    let make = move || {
        let target = || shared.change(|inner, _| inner.target(ssd, QID));
        let keep = |line: &_| shared.change(|inner, _| inner.keep_found(ssd, line));
        let rest = match channel.make_anew(ssd, target, keep) {
            Ok(line) if shared.change(|inner, _| inner.put_found_in_use(ssd, &line)) => {
                tracing::info!("SSD {ssd} is reached again beside a kernel");
                Duration::ZERO
            }
            Ok(_) | Err(NotMade::Later) => SOON_AGAIN,
            Err(NotMade::NextLaunch(why)) => {
                tracing::debug!("SSD {ssd} is reached with the next launch: {why}");
                AFTER_FAILURE
            }
            Err(NotMade::Failed(why)) => {
                tracing::info!("the queue pair to SSD {ssd} is not made anew: {why}");
                AFTER_FAILURE
            }
        };
        shared.change(|inner, now| inner.renewal_ended(now, ssd, rest));
        let _ = tell.send(Event::Nudge);
    };
    Some(std::thread::Builder::new().name("gn-anew".into()).spawn(make).expect("a thread starts"))
}

/// Dials SSDs in threads, one thread for each link. It starts one for each SSD.
fn dial_all(dialler: &Arc<Dialler>, due: &[usize], tell: &Sender<Event>) -> Vec<JoinHandle<()>> {
    let mut links: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    due.iter().for_each(|&ssd| links.entry(dialler.connector.link_of(ssd)).or_default().push(ssd));
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

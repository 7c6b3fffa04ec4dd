// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The runtime of a session: clock, locks and threads.
//!
//! ```text
//!   "gn-session"  looks at the admin queues, steps Paths, does what it says   <--- Event --- "gn-dial", one
//!        |                                                                                   for each link
//!        '--- Inner, behind a lock ---  callers: what is up, what is missing, waits
//! ```

use super::map::{Came, Following};
use super::{ADMIN_DEADLINE, KATO, NewPaths, NotDialled, Path, Roads, SsdAddress, Wait};
use crate::error::NodeError;
use crate::node::Lifeline;
use crate::map_watch::{Ask, Taken};
use crate::paths::{Action, Moment, Pace, Paths};
use gnstor_auth::Secret;
use gnstor_fabric::admin::ChannelError;
use gnstor_fabric::host_queue::{Credentials, HostQueue, SsdPath};
use gnstor_fabric::runtime::TransportHandle;
use gnstor_fabric::transport::{ExecutorId, Port};
use gnstor_proto::fabrics::Host;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
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
/// From one look at the admin queues to the next: a connection that breaks is noticed so soon.
const LOOK: Duration = Duration::from_millis(100);
/// The same while an answer is awaited.
const LOOK_SOON: Duration = Duration::from_millis(5);

/// Deadline of each further SSD of a link where one was silent.
const AFTER_SILENCE: Duration = Duration::from_millis(200);
/// A session that has reached no SSD yet waits for so long: longer than a dial takes.
const LAST_CALL: Duration = Duration::from_secs(60);

/// What a thread of the session tells another one.
#[derive(Debug)]
enum Event {
    Dialled(usize, Box<Result<Path, NotDialled>>),
    /// The daemon's map, or none.
    Map(Option<Vec<u8>>),
    /// Something has changed.
    Nudge,
    Stop,
}

/// Dials SSDs.
#[derive(Debug)]
pub(super) struct Dialler {
    pub(super) transport: TransportHandle,
    pub(super) executor: ExecutorId,
    pub(super) host: Host,
    pub(super) secret: Option<Secret>,
    pub(super) roads: Arc<dyn Roads>,
}

impl Dialler {
    /// Connects new admin queues to these SSDs, and authenticates. What a session has goes on meanwhile:
    /// several queues of one host stand side by side.
    pub(super) fn dial(
        &self,
        ssds: &[usize],
        deadline: Duration,
        mut each: impl FnMut(usize, Result<Path, NotDialled>),
    ) {
        let mut within = deadline;
        for (&ssd, link) in ssds.iter().zip(self.roads.link(ssds, deadline)) {
            let dialled = link.map_err(NotDialled::Link).and_then(|address| self.connect(address, within));
            if let Err(NotDialled::Admin(ChannelError::Timeout { .. })) = &dialled {
                within = AFTER_SILENCE;
            }
            each(ssd, dialled);
        }
    }

    fn connect(&self, address: SsdAddress, deadline: Duration) -> Result<Path, NotDialled> {
        let path = SsdPath {
            transport: &self.transport,
            executor: self.executor,
            port: address.port,
            subnqn: &address.subnqn,
        };
        let who = Credentials { host: self.host, secret: self.secret.clone() };
        let admin = HostQueue::connect(&path, who, KATO, deadline).map_err(NotDialled::Admin)?;
        Ok(Path::new(address, admin))
    }
}

/// What callers and the thread share.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) paths: Paths,
    /// The paths in use, and lost ones whose queue pairs are not replaced yet.
    used: Vec<Option<Path>>,
    /// The paths that were found.
    found: Vec<Option<Path>>,
    /// Why an SSD was not reached when the session began.
    first: BTreeMap<usize, NotDialled>,
    /// Paths that nothing uses any more. They are dropped behind the lock.
    gone: Vec<Path>,
    /// Where the client follows the fleet map.
    pub(super) following: Option<Following>,
}

impl Inner {
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
    pub(super) fn put_in_use(&mut self, new: NewPaths) -> Vec<Path> {
        let mut old = Vec::new();
        let found = self.found.iter_mut().map(Option::take).enumerate();
        let found: Vec<_> = found.filter_map(|(ssd, path)| Some((ssd, path?))).collect();
        for (ssd, path) in found.into_iter().chain(new.into_iter().map(|(ssd, path)| (ssd, path.0))) {
            self.paths.take(ssd);
            if self.paths.is_up(ssd) {
                old.extend(self.used[ssd].replace(path));
            }
        }
        old
    }

    /// Also gives up the I/O queues.
    pub(super) fn lose(&mut self, now: Moment, ssd: usize, why: &str) {
        if self.paths.broke(now, ssd, why) {
            tracing::info!("SSD {ssd} is given up: {why}");
            self.cut(now, ssd);
        }
    }

    /// The path is given up. While there is a found one, that is the one; the old one was cut before.
    fn cut(&mut self, now: Moment, ssd: usize) {
        self.following.iter_mut().for_each(|following| following.lost(now, ssd));
        match self.found[ssd].take() {
            Some(path) => self.gone.push(path),
            None => self.used[ssd].iter().for_each(Path::cut),
        }
    }

    pub(super) fn linked(&mut self, ssd: usize) -> Option<&mut Path> {
        let list = if self.paths.is_up(ssd) { &mut self.used } else { &mut self.found };
        list[ssd].as_mut()
    }

    /// The path to an SSD that has one.
    pub(super) fn linked_path(&self, ssd: usize) -> Option<&Path> {
        let list = if self.paths.is_up(ssd) { &self.used } else { &self.found };
        list[ssd].as_ref().filter(|_| self.paths.is_up(ssd) || self.paths.is_found(ssd))
    }

    /// Takes answers of Keep Alives, and sees which queues have broken.
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

    fn dialled(&mut self, now: Moment, ssd: usize, outcome: Result<Path, NotDialled>) {
        match outcome {
            Ok(path) => {
                self.found[ssd] = Some(path);
                self.paths.reached(now, ssd);
            }
            Err(e) => {
                let unreached = e.unreached();
                tracing::debug!("SSD {ssd} is not reached: {}", unreached.why);
                self.paths.unreached(now, ssd, unreached.why, unreached.for_good);
                self.first.entry(ssd).or_insert(e);
            }
        }
    }

    /// Looks at the queues, and does what is due. Returns what is left to do without the lock.
    fn step(&mut self, now: Moment, kernel_runs: bool) -> Due {
        self.take_answers(now);
        let mut due = Vec::new();
        for action in self.paths.step(now) {
            match action {
                Action::Dial(ssd) => due.push(ssd),
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
        let came = self.following.iter_mut().flat_map(|following| following.came.drain(..)).collect();
        Due { dial: due, daemon, came, rest, gone: std::mem::take(&mut self.gone) }
    }

    fn is_awaiting(&self) -> bool {
        (0..self.used.len()).any(|ssd| {
            let list = if self.paths.is_up(ssd) { &self.used } else { &self.found };
            list[ssd].as_ref().is_some_and(|path| path.asked.is_some() || path.map.is_some())
        })
    }
}

/// What a step leaves to do without the lock.
struct Due {
    /// SSDs to dial.
    dial: Vec<usize>,
    /// The daemon is to be asked for its map.
    daemon: bool,
    /// Maps for the client to take.
    came: Vec<Came>,
    /// When to look again.
    rest: Duration,
    /// Paths to drop.
    gone: Vec<Path>,
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
        let none = || std::iter::repeat_with(|| None).take(paths.len()).collect();
        let (used, found, first) = (none(), none(), BTreeMap::new());
        Self {
            inner: Mutex::new(Inner { paths, used, found, first, gone: Vec::new(), following: None }),
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

    /// Waits until the map in use is newer than this epoch's, or as `wait_found`.
    pub(super) fn wait_for_map(&self, epoch: u64, or_found: bool, most: Duration) -> Wait {
        let over = |inner: &mut Inner| {
            if inner.following.as_ref().is_some_and(|following| following.in_use() > epoch) {
                return Some(Wait::Moved);
            }
            let found = or_found && (0..inner.found.len()).any(|ssd| inner.paths.is_found(ssd));
            let whole = or_found && inner.paths.missing().next().is_none();
            (found || whole).then_some(Wait::Found)
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
    /// `kernel_runs` says whether a kernel does, now and later.
    pub(super) fn start(
        shared: &Arc<Shared>,
        dialler: &Arc<Dialler>,
        kernel_runs: Arc<AtomicBool>,
    ) -> Self {
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

/// Until the session is dropped. It waits for the dials that are under way then.
fn run(
    shared: &Shared,
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
        let soon = !due.came.is_empty();
        due.came.into_iter().for_each(|Came { from, bytes }| take_map(shared, from, Some(&bytes)));
        dials.retain(|dial| !dial.is_finished());
        dials.extend(dial_all(dialler, &due.dial, tell));
        dials.extend(due.daemon.then(|| ask_daemon(shared, tell)).flatten());
        let rest = if soon { Duration::ZERO } else { due.rest };
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

/// Gives a map to the client, without the lock: it may take some milliseconds.
fn take_map(shared: &Shared, from: Ask, map: Option<&[u8]>) {
    let Some(follower) = shared.look(|inner| inner.following.as_ref().map(|f| Arc::clone(&f.follower))) else {
        return;
    };
    let taken = map.map_or(Taken::Nothing, |map| follower.take(map));
    shared.change(|inner, now| inner.following.iter_mut().for_each(|f| f.taken(now, from, taken)));
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

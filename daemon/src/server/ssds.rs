// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One thread for the links of all SSDs. It never waits for one of them: it polls while completions may
//! come, and sleeps until the next deadline or probe while none may.
//!
//! Connecting anew blocks (TCP, TLS, authentication). It has a thread of its own for as long as it takes, so
//! an SSD that is down holds up no other.

use super::clock::{Clock, IDLE, spawn};
use super::input::Input;
use super::link::{Link, Output};
use crate::core::{Answer, Command, CommandId};
use crate::openings::{Opened, Openings, Uuid};
use crate::port::{Reconnect, SsdPort};
use gnstor_fabric::admin::{AdminQueue, ChannelError};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc;

/// After the last completion the thread polls without a nap for so long.
const EAGER: Duration = Duration::from_millis(1);
/// Shortest and longest nap between two polls. Between these bounds a nap is a sixteenth of the time since
/// the last completion. So it adds little to the time of a command.
const NAPS: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(1));

enum Work {
    Command {
        ssd: u16,
        id: CommandId,
        command: Command,
    },
    Dialled {
        ssd: u16,
        reconnect: Reconnect,
        outcome: Result<Box<dyn AdminQueue>, ChannelError>,
    },
    /// The SSD's number of openings is held.
    Kept {
        ssd: u16,
    },
    /// From now on silent SSDs are given up.
    WatchClosely,
    /// One more SSD.
    Connect(Box<SsdPort>),
    Stop,
}

/// The thread of all SSDs.
#[derive(Debug)]
pub(super) struct Ssds {
    work: Sender<Work>,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Ssds {
    /// Starts the thread. Its events go to `inputs`.
    pub(super) fn start(
        array: Vec<SsdPort>,
        deadline: Duration,
        clock: Clock,
        inputs: mpsc::UnboundedSender<Input>,
        openings: Option<Arc<Openings>>,
    ) -> std::io::Result<Self> {
        let (work, inbox) = channel();
        let stopping = Arc::new(AtomicBool::new(false));
        let now = clock.running_ms();
        let link = |port| Link::new(port, deadline, now).comparing(openings.as_ref(), now);
        let links = array.into_iter().map(link).collect();
        let dials = Vec::new();
        let (again, stop) = (work.clone(), stopping.clone());
        let mut ssds = Loop {
            links,
            inbox,
            work: again,
            dials,
            inputs,
            clock,
            deadline,
            watches_closely: false,
            openings,
            stopping: stop,
        };
        let thread = spawn("gnstord-ssds".into(), move || ssds.run())?;
        Ok(Self { work, stopping, thread: Some(thread) })
    }

    /// Makes an SSD execute a command.
    pub(super) fn give(&self, ssd: u16, id: CommandId, command: Command) {
        // The thread ends only when this daemon does, and then the answer has no reader.
        self.work.send(Work::Command { ssd, id, command }).ok();
    }

    /// Connects to one more SSD.
    pub(super) fn connect(&self, port: SsdPort) {
        self.work.send(Work::Connect(Box::new(port))).ok();
    }

    /// From now on silent SSDs are given up.
    pub(super) fn watch_closely(&self) {
        self.work.send(Work::WatchClosely).ok();
    }
}

impl Drop for Ssds {
    /// Waits for the commands in flight and for the connections that are being made. So the daemon's owner
    /// can rely on the queues being gone afterwards. The deadline of one command bounds the wait.
    fn drop(&mut self) {
        // Relaxed: the flag orders nothing. It only saves the thread the commands that are not sent yet.
        self.stopping.store(true, Ordering::Relaxed);
        self.work.send(Work::Stop).ok();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

struct Loop {
    links: Vec<Link>,
    inbox: Receiver<Work>,
    work: Sender<Work>,
    /// Threads that connect, or write numbers of openings.
    dials: Vec<JoinHandle<()>>,
    inputs: mpsc::UnboundedSender<Input>,
    clock: Clock,
    deadline: Duration,
    watches_closely: bool,
    openings: Option<Arc<Openings>>,
    stopping: Arc<AtomicBool>,
}

impl Loop {
    fn run(&mut self) {
        let mut last_work = self.clock.elapsed();
        while !self.stopping.load(Ordering::Relaxed) {
            let mut worked = false;
            while let Ok(work) = self.inbox.try_recv() {
                self.take(work);
                worked = true;
            }
            worked |= self.attend();
            if worked {
                last_work = self.clock.elapsed();
                continue;
            }
            self.rest(self.clock.elapsed().saturating_sub(last_work));
        }
        self.wind_up();
    }

    fn take(&mut self, work: Work) {
        match work {
            Work::Command { ssd, id, command } => self.links[usize::from(ssd)].give(id, command),
            Work::Dialled { ssd, reconnect, outcome } => {
                let now = self.clock.running_ms();
                self.links[usize::from(ssd)].dialled(now, reconnect, outcome);
            }
            Work::Kept { ssd } => self.links[usize::from(ssd)].kept(self.clock.running_ms()),
            Work::WatchClosely => {
                let now = self.clock.running_ms();
                self.watches_closely = true;
                self.links.iter_mut().for_each(|link| link.watch_closely(now));
            }
            Work::Connect(port) => {
                let now = self.clock.running_ms();
                let link = Link::to_be_dialled(*port, self.deadline, now);
                let mut link = link.comparing(self.openings.as_ref(), now);
                if self.watches_closely {
                    link.watch_closely(now);
                }
                self.links.push(link);
            }
            Work::Stop => {}
        }
    }

    /// Attends to every link. Returns whether one had an event.
    fn attend(&mut self) -> bool {
        let mut worked = false;
        // The clock is read before completions are taken: one that came while this process was stopped is not
        // late.
        let now = self.clock.running_ms();
        for link in &mut self.links {
            let ssd = link.index();
            let span = tracing::info_span!("ssd", index = ssd);
            let _entered = span.enter();
            // A queue that panics must not leave a change without its answer for ever.
            if catch_unwind(AssertUnwindSafe(|| link.attend(now))).is_err() {
                link.panicked(now);
            }
            while let Some(output) = link.pop() {
                worked = true;
                match output {
                    Output::Answer(id, answer) => {
                        log(&answer);
                        // If the reader is gone, the daemon is stopping.
                        self.inputs.send(Input::Completed { id, answer }).ok();
                    }
                    Output::News(news) => drop(self.inputs.send(Input::Presence { ssd, news })),
                    Output::Keep(of, opened) => {
                        let Some(openings) = self.openings.clone() else { continue };
                        self.dials.retain(|dial| !dial.is_finished());
                        self.dials.extend(keep((ssd, of), opened, openings, self.work.clone()));
                    }
                    Output::Dial(reconnect) => {
                        self.dials.retain(|dial| !dial.is_finished());
                        match dial(ssd, reconnect, self.work.clone()) {
                            Ok(thread) => self.dials.push(thread),
                            Err((reconnect, error)) => link.dialled(now, reconnect, Err(error)),
                        }
                    }
                }
            }
        }
        worked
    }

    /// Waits for work, after nothing has happened for `quiet`.
    fn rest(&mut self, quiet: Duration) {
        let awaits = self.links.iter().any(Link::awaits);
        if awaits && quiet < EAGER {
            return std::thread::yield_now();
        }
        let now = self.clock.running_ms();
        let due = self.links.iter().filter_map(Link::wakes_at).min();
        let mut nap = due.map_or(IDLE, |at| Duration::from_millis(at.saturating_sub(now)));
        if awaits {
            nap = nap.min((quiet / 16).clamp(NAPS.0, NAPS.1));
        }
        match self.inbox.recv_timeout(nap) {
            Ok(work) => self.take(work),
            // The link has a sender of its own.
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
    }

    fn wind_up(&mut self) {
        let end = self.clock.elapsed() + self.deadline;
        loop {
            self.links.iter_mut().for_each(Link::wind_up);
            self.attend();
            if !self.links.iter().any(Link::is_winding_up) || self.clock.elapsed() > end {
                break;
            }
            self.rest(EAGER);
        }
        for dial in self.dials.drain(..) {
            dial.join().ok();
        }
    }
}

/// Connects to an SSD on a thread of its own. If no thread can be made, the function to connect is returned.
fn dial(
    ssd: u16,
    reconnect: Reconnect,
    work: Sender<Work>,
) -> Result<JoinHandle<()>, (Reconnect, ChannelError)> {
    let broken = move |cause| ChannelError::Broken { peer: format!("SSD {ssd}"), cause };
    let way = Arc::new(Mutex::new(Some(reconnect)));
    let taken = Arc::clone(&way);
    let take = |way: &Mutex<Option<Reconnect>>| way.lock().ok().and_then(|mut way| way.take());
    let thread = spawn(format!("gnstord-dial{ssd}"), move || {
        let mut reconnect = take(&taken).expect("it is taken once");
        let outcome = catch_unwind(AssertUnwindSafe(&mut reconnect))
            .unwrap_or_else(|_| Err(broken("internal error: connecting with it panicked".into())));
        work.send(Work::Dialled { ssd, reconnect, outcome }).ok();
    });
    thread.map_err(|error| {
        let cause = format!("no thread to connect with it: {error}");
        (take(&way).expect("no thread has taken it"), broken(cause))
    })
}

/// Holds an SSD's number of openings, on a thread of its own: it waits for the disk. Without the file the
/// number is held until the daemon ends. The SSD is to serve nevertheless.
fn keep(
    (ssd, of): (u16, Uuid),
    opened: Opened,
    openings: Arc<Openings>,
    work: Sender<Work>,
) -> Option<JoinHandle<()>> {
    let keep = move || {
        if let Err(error) = openings.keep(&[(of, opened)]) {
            let file = openings.file().map(|file| file.display().to_string()).unwrap_or_default();
            tracing::error!("{file}: how often SSD {ssd} was opened cannot be written: {error}");
        }
        work.send(Work::Kept { ssd }).ok();
    };
    let thread = spawn(format!("gnstord-keep{ssd}"), keep.clone());
    // At the limit of threads this one waits for the disk.
    thread.map_err(|_| keep()).ok()
}

fn log(answer: &Answer) {
    match answer {
        Answer::Refused(refusal) => tracing::debug!(?refusal, "refused"),
        Answer::Lost(why) => tracing::warn!(%why, "no answer"),
        _ => tracing::trace!("done"),
    }
}

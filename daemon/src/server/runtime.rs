// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The runtime module of this crate. No other module reads a clock or starts a thread.
//!
//! The core is one loop; every SSD has a thread, because an admin channel blocks and executes one command
//! at a time. A slow SSD delays changes, which need every SSD, but not Get, List and GetMap.

use super::config::DaemonConfig;
use super::link::{Link, News};
use crate::core::failure::Failure;
use crate::core::request::Request;
use crate::core::rights::Caller;
use crate::core::{Answer, Command, CommandId, Core, Effect, Reply, Stop, Ticket};
use crate::port::SsdPort;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot, watch};

/// How long the core sleeps when it waits for nothing.
const IDLE: Duration = Duration::from_secs(3600);

/// An input of the loop.
#[derive(Debug)]
pub(super) enum Input {
    /// A client asks.
    Request { caller: Arc<Caller>, request: Request, reply: oneshot::Sender<Result<Reply, Failure>> },
    /// A connection of clients closed.
    Closed { connection: u64 },
    /// A command ended.
    Completed { id: CommandId, answer: Answer },
    /// An SSD went, or came back.
    Presence { ssd: u16, news: News },
}

/// The SSDs that are not there, and why.
pub(super) type Absent = Arc<BTreeMap<u16, String>>;

/// The SSDs that say that acknowledged writes may be missing there.
pub(super) type Filling = BTreeSet<u16>;

/// Where the daemon is in its life.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// It waits for this.
    Starting(String),
    Serving,
    Stopped(Stop),
}

/// Milliseconds since the start of the process's daemon.
#[derive(Clone, Copy, Debug)]
struct Clock(Instant);

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "the runtime module is where the clock is read")]
    fn start() -> Self {
        Self(Instant::now())
    }

    fn now_ms(self) -> u64 {
        u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// The core and the parts that carry out its effects.
#[derive(Debug)]
pub(super) struct Driver {
    core: Core,
    clock: Clock,
    inputs: mpsc::UnboundedReceiver<Input>,
    ports: Vec<PortThread>,
    replies: BTreeMap<Ticket, oneshot::Sender<Result<Reply, Failure>>>,
    next_ticket: u64,
    state: watch::Sender<State>,
    absent: watch::Sender<Absent>,
    filling: watch::Sender<Filling>,
    stopping: Arc<AtomicBool>,
}

/// A driver's ends for the service.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) inputs: mpsc::UnboundedSender<Input>,
    pub(super) state: watch::Receiver<State>,
    pub(super) absent: watch::Receiver<Absent>,
    pub(super) filling: watch::Receiver<Filling>,
}

impl Driver {
    /// Starts the port threads and the core. The number of inputs is bounded by the core's limits on
    /// requests and commands.
    pub(super) fn start(array: Vec<SsdPort>, config: &DaemonConfig) -> std::io::Result<(Self, Ends)> {
        let (sender, inputs) = mpsc::unbounded_channel();
        let clock = Clock::start();
        let capacities: Vec<_> = array.iter().map(|port| port.capacity_bytes).collect();
        let stopping = Arc::new(AtomicBool::new(false));
        let ports = array
            .into_iter()
            .map(|port| {
                PortThread::start(port, config.command_timeout, clock, sender.clone(), stopping.clone())
            })
            .collect::<Result<_, _>>()?;
        let (state, states) = watch::channel(State::Starting(String::new()));
        let (absent, absents) = watch::channel(Absent::default());
        let (filling, fillings) = watch::channel(Filling::default());
        let driver = Self {
            core: Core::new(config.core, &capacities).standing_in(config.stands_in.clone()),
            clock,
            inputs,
            ports,
            replies: BTreeMap::new(),
            next_ticket: 0,
            state,
            absent,
            filling,
            stopping,
        };
        Ok((driver, Ends { inputs: sender, state: states, absent: absents, filling: fillings }))
    }

    /// Drives the core for ever; it ends by being dropped.
    pub(super) async fn drive(mut self) -> Infallible {
        loop {
            self.carry_out();
            let now = self.clock.now_ms();
            let wait =
                self.core.next_event().map_or(IDLE, |at| Duration::from_millis(at.saturating_sub(now)));
            tokio::select! {
                input = self.inputs.recv() => {
                    let now = self.clock.now_ms();
                    match input {
                        Some(Input::Request { caller, request, reply }) => {
                            let ticket = Ticket(self.next_ticket);
                            self.next_ticket += 1;
                            tracing::debug!(ticket = ticket.0, ?request, caller = %caller.name, "request");
                            self.replies.insert(ticket, reply);
                            self.core.request_of(now, ticket, caller, request);
                        }
                        Some(Input::Closed { connection }) => self.core.closed(now, connection),
                        Some(Input::Completed { id, answer }) => self.core.completed(now, id, answer),
                        Some(Input::Presence { ssd, news: News::Lost(why) }) => {
                            tracing::warn!(ssd, %why, "an SSD is down");
                            self.core.ssd_lost(ssd, why);
                        }
                        Some(Input::Presence { ssd, news: News::Found }) => {
                            tracing::info!(ssd, "an SSD is back");
                            self.core.ssd_found(ssd);
                        }
                        Some(Input::Presence { ssd, news: News::Filling(is_filling) }) => {
                            self.set_filling(ssd, is_filling);
                        }
                        // The port threads and the service are gone: nothing will ever come.
                        None => std::future::pending().await,
                    }
                }
                () = tokio::time::sleep(wait) => self.core.step(self.clock.now_ms()),
            }
        }
    }

    fn set_filling(&self, ssd: u16, is_filling: bool) {
        if is_filling {
            tracing::warn!(ssd, "an SSD may lack acknowledged writes, and serves no reads");
        } else {
            tracing::info!(ssd, "an SSD serves reads again");
        }
        self.filling.send_modify(|filling| {
            if is_filling {
                filling.insert(ssd)
            } else {
                filling.remove(&ssd)
            };
        });
    }

    fn carry_out(&mut self) {
        while let Some(effect) = self.core.pop_effect() {
            match effect {
                Effect::Command { id, ssd, command } => self.ports[usize::from(ssd)].give(id, command),
                Effect::Reply { ticket, result } => {
                    if let Err(failure) = &result {
                        let code = failure.code;
                        tracing::debug!(ticket = ticket.0, ?code, message = %failure.message, "refused");
                    }
                    if let Some(reply) = self.replies.remove(&ticket) {
                        // A client that hung up does not want the answer; its request is carried out all
                        // the same.
                        reply.send(result).ok();
                    }
                }
                Effect::Serving => {
                    tracing::info!(term = self.core.term(), "the array is read, requests are served");
                    self.state.send_replace(State::Serving);
                }
                Effect::Stopped(stop) => {
                    tracing::error!(%stop, "nothing is served any more");
                    self.state.send_replace(State::Stopped(stop));
                }
            }
        }
        self.absent.send_if_modified(|absent| {
            let new = self.core.absent();
            let differs = **absent != new;
            if differs {
                *absent = Arc::new(new);
            }
            differs
        });
        if let Some(waits_for) = self.core.waits_for() {
            let new = State::Starting(waits_for);
            self.state.send_if_modified(|state| {
                let differs = *state != new;
                *state = new;
                differs
            });
        }
    }
}

impl Drop for Driver {
    /// Relaxed: the flag orders nothing. It only saves the port threads the commands whose answers have no
    /// reader.
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
    }
}

/// The thread of one SSD.
#[derive(Debug)]
struct PortThread {
    commands: Option<std::sync::mpsc::Sender<(CommandId, Command)>>,
    thread: Option<JoinHandle<()>>,
}

impl PortThread {
    fn start(
        port: SsdPort,
        deadline: Duration,
        clock: Clock,
        inputs: mpsc::UnboundedSender<Input>,
        stopping: Arc<AtomicBool>,
    ) -> std::io::Result<Self> {
        let (commands, given) = std::sync::mpsc::channel::<(CommandId, Command)>();
        let index = port.index;
        let thread = spawn(format!("gnstord-ssd{index}"), move || {
            let span = tracing::info_span!("ssd", index);
            let _entered = span.enter();
            let mut link = Link::new(port, deadline, clock.now_ms());
            loop {
                // Commands first: an answered command says as much about the connection as a probe.
                let wait = link
                    .wakes_at()
                    .map_or(IDLE, |at| Duration::from_millis(at.saturating_sub(clock.now_ms())));
                let next = given.recv_timeout(wait);
                if stopping.load(Ordering::Relaxed) {
                    return;
                }
                let input = match next {
                    Ok((id, command)) => {
                        let answer = execute(&mut link, clock.now_ms(), &command);
                        Some(Input::Completed { id, answer })
                    }
                    Err(RecvTimeoutError::Timeout) => {
                        let attended = catch_unwind(AssertUnwindSafe(|| link.attend(clock.now_ms())));
                        let panicked =
                            || Some(News::Lost("internal error: its admin channel panicked".into()));
                        let news = attended.unwrap_or_else(|_| panicked());
                        news.map(|news| Input::Presence { ssd: index, news })
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                };
                if input.is_some_and(|input| inputs.send(input).is_err()) {
                    return;
                }
            }
        })?;
        Ok(Self { commands: Some(commands), thread: Some(thread) })
    }

    fn give(&self, id: CommandId, command: Command) {
        // The thread ends only when this daemon does, and then the answer has no reader.
        if let Some(commands) = &self.commands {
            commands.send((id, command)).ok();
        }
    }
}

impl Drop for PortThread {
    /// Waits for the command under way: the owner of the daemon may rely on the channel being free
    /// afterwards. The wait is bounded by the command's deadline.
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// A channel that panics must not leave a change without its answer for ever.
fn execute(link: &mut Link, now: u64, command: &Command) -> Answer {
    let executed = catch_unwind(AssertUnwindSafe(|| link.execute(now, command)));
    let answer =
        executed.unwrap_or_else(|_| Answer::Lost("internal error: its admin channel panicked".into()));
    match &answer {
        Answer::Refused(refusal) => tracing::debug!(command = command.name(), ?refusal, "refused"),
        Answer::Lost(why) => tracing::warn!(command = command.name(), %why, "no answer"),
        Answer::Done | Answer::Table { .. } | Answer::Map(_) => {
            tracing::trace!(command = command.name(), "done")
        }
    }
    answer
}

/// A named thread.
pub(super) fn spawn<T: Send + 'static>(
    name: String,
    body: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<JoinHandle<T>> {
    std::thread::Builder::new().name(name).spawn(body)
}

/// The runtime of a [`super::Daemon`]: management calls need no more than two threads.
pub(super) fn tokio() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("gnstord-rpc")
        .enable_all()
        .build()
}

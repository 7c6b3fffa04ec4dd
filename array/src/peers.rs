// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Carries the questions of this process's SSDs to other SSDs of the array, and the answers back. One thread
//! has all connections and waits for none of them. A thread of its own makes each connection.
//!
//! ```text
//!   engines --PeerAsks--> gn-peers: a connection for each pair of SSDs --admin queue--> SSD of this process
//!      ^                   |                                        '-- TCP --> SSD of another process
//!      '-- answer_ask -----'
//! ```
//! A question to an SSD that is not reached is answered at once with nothing.

mod connection;

use crate::remote_ssd::RemoteSsd;
use connection::{Dial, Output, PeerConnection};
use gnstor_auth::Secret;
use gnstor_fabric::admin::{ChannelError, Reply};
use gnstor_fabric::host_queue::{Credentials, HostQueue, SsdPath};
use gnstor_fabric::runtime::{BootClock, TransportError, TransportHandle};
use gnstor_fabric::tcp::ClientTls;
use gnstor_fabric::transport::{ExecutorId, PeerAsk, Port};
use gnstor_proto::fabrics::ssd_subnqn;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest wait for one step of a connection.
const STEP: Duration = Duration::from_secs(1);
/// The SSD closes the queue of a peer that is silent for so long.
const KATO: Duration = Duration::from_secs(15);
/// Pauses of the thread: while it awaits data of a repair, and while it awaits other answers or a connection.
/// Else it pauses until its next round. A question wakes it at once.
const NAPS: [Duration; 2] = [Duration::from_micros(300), Duration::from_millis(1)];
/// Interval of the checks of each connection, ms: Keep Alives, deadlines, and long idle times. Between two
/// questions for a lease a connection that broke is found and has its pause.
const ROUND_MS: u64 = 50;
/// A round that is due so soon is made at once if the thread is awake.
const EARLY_MS: u64 = 10;
/// Largest number of connections that are made at a time. Each proof takes processor time, and each wait
/// polls.
const DIALS: usize = 4;

/// The SSDs of this process, as the others of their array see them.
#[derive(Clone, Debug)]
pub struct PeersConfig {
    /// Number of the first SSD.
    pub first: u16,
    /// Number of SSDs.
    pub count: u16,
    /// The array's manager key, with which they prove who they are.
    pub manager_key: Option<Secret>,
    /// TLS for SSDs of other processes.
    pub tls: Option<ClientTls>,
}

/// The thread that carries questions. It ends when this is dropped.
#[derive(Debug)]
pub struct Peers {
    engines: TransportHandle,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Result of a connection that a thread has made.
struct Dialled {
    connection: (u16, u16),
    outcome: Result<(HostQueue, Option<RemoteSsd>), ChannelError>,
}

impl Peers {
    /// Starts to carry the questions of the SSDs of these engines.
    ///
    /// # Errors
    /// No thread, or engines that have stopped.
    pub fn start(engines: &TransportHandle, config: PeersConfig) -> io::Result<Self> {
        let (carrier, inbox) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let given: Result<Vec<()>, TransportError> =
            engines.each(move |engine, _| engine.carry_asks(Some(carrier)));
        given.map_err(io::Error::other)?;
        let (dialled, dials) = channel();
        let carrying = Carrying {
            engines: engines.clone(),
            config,
            inbox,
            dialled,
            dials,
            soft: None,
            connections: BTreeMap::new(),
            busy: BTreeSet::new(),
            round_at: 0,
            to_dial: VecDeque::new(),
            threads: Vec::new(),
            clock: BootClock::start(),
            stop: Arc::clone(&stop),
        };
        let thread = std::thread::Builder::new().name("gn-peers".into());
        Ok(Self { engines: engines.clone(), stop, thread: Some(thread.spawn(move || carrying.run())?) })
    }
}

impl Drop for Peers {
    /// Waits for the thread, and for connections that are being made: a second or two.
    fn drop(&mut self) {
        // Relaxed: the flag orders nothing; the join does.
        self.stop.store(true, Ordering::Relaxed);
        // The thread wakes when the last engine has let its sender go.
        for number in 0..self.engines.count() {
            self.engines.nth(number).cast(|engine, _| engine.carry_asks(None));
        }
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

struct Carrying {
    engines: TransportHandle,
    config: PeersConfig,
    inbox: Receiver<Vec<PeerAsk>>,
    dialled: Sender<Dialled>,
    dials: Receiver<Dialled>,
    /// The executor of the queues; none before the first question.
    soft: Option<ExecutorId>,
    /// The connections, each by the number of its own SSD and of the other SSD.
    connections: BTreeMap<(u16, u16), PeerConnection>,
    /// Connections with something to do now: a question, a new queue, or an answer that may have come.
    busy: BTreeSet<(u16, u16)>,
    /// Time of the next check of all connections, ms.
    round_at: u64,
    /// Connections to make, oldest first.
    to_dial: VecDeque<((u16, u16), Dial)>,
    threads: Vec<JoinHandle<()>>,
    clock: BootClock,
    stop: Arc<AtomicBool>,
}

impl Carrying {
    fn run(mut self) {
        while !self.stop.load(Ordering::Relaxed) {
            match self.inbox.recv_timeout(self.nap()) {
                Ok(asked) => asked.into_iter().for_each(|asked| self.take(asked)),
                Err(RecvTimeoutError::Timeout) => {}
                // The engines have ended.
                Err(RecvTimeoutError::Disconnected) => break,
            }
            while let Ok(asked) = self.inbox.try_recv() {
                asked.into_iter().for_each(|asked| self.take(asked));
            }
            while let Ok(Dialled { connection, outcome }) = self.dials.try_recv() {
                let now = self.now();
                self.busy.insert(connection);
                if let Some(connection) = self.connections.get_mut(&connection) {
                    connection.dialled(now, outcome.map(|(queue, link)| (rung_later(queue), link)));
                }
            }
            self.attend();
        }
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }

    fn nap(&self) -> Duration {
        let mut busy = self.busy.iter().filter_map(|name| self.connections.get(name));
        if busy.any(PeerConnection::awaits_data) {
            NAPS[0]
        } else if !self.busy.is_empty() || !self.threads.is_empty() {
            NAPS[1]
        } else {
            Duration::from_millis(self.round_at.saturating_sub(self.now()).min(ROUND_MS))
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn take(&mut self, asked: PeerAsk) {
        let own = self.config.first.saturating_add(asked.target);
        let connection =
            self.connections.entry((own, asked.peer)).or_insert_with(|| PeerConnection::new(own, asked.peer));
        self.busy.insert((own, asked.peer));
        connection.give(asked);
    }

    /// Attends to the connections with work, and to each one from time to time. Ends a connection that has
    /// been idle for long.
    fn attend(&mut self) {
        let now = self.now();
        if now + EARLY_MS >= self.round_at {
            self.round_at = now + ROUND_MS;
            self.connections.retain(|_, connection| !connection.is_over(now));
            self.busy.extend(self.connections.keys());
        }
        let (mut has_sent, mut answers) = (false, Vec::new());
        for name in std::mem::take(&mut self.busy) {
            let Some(connection) = self.connections.get_mut(&name) else { continue };
            connection.attend(now);
            has_sent |= connection.take_sent();
            if connection.awaits() {
                self.busy.insert(name);
            }
            while let Some(output) = self.connections.get_mut(&name).and_then(PeerConnection::pop) {
                match output {
                    Output::Answer(asked, answer) => answers.push((asked, answer)),
                    Output::Dial(dial) => self.to_dial.push_back((name, dial)),
                }
            }
        }
        if has_sent || !answers.is_empty() {
            self.hand_over(has_sent, answers);
        }
        self.threads.retain(|thread| !thread.is_finished());
        while self.threads.len() < DIALS
            && let Some((name, dial)) = self.to_dial.pop_front()
        {
            self.dial(name, dial);
        }
    }

    /// One call for all capsules and answers: each call wakes the transport, and may make it poll every
    /// queue.
    fn hand_over(&self, has_sent: bool, answers: Vec<(PeerAsk, Option<Reply>)>) {
        self.engines.cast(move |engine, now| {
            if has_sent {
                engine.look_everywhere();
            }
            for (asked, answer) in answers {
                let data = answer.as_ref().map_or(&[][..], |reply| &reply.data);
                engine.answer_ask(now, &asked, answer.as_ref().map(|reply| &reply.cqe), data);
            }
        });
    }

    /// Connects on its own thread.
    fn dial(&mut self, name: (u16, u16), dial: Dial) {
        let to = self.dialled.clone();
        let connect = match self.connector(name, dial) {
            Ok(connect) => connect,
            Err(error) => return drop(to.send(Dialled { connection: name, outcome: Err(error) })),
        };
        let thread = std::thread::Builder::new().name("gn-peer-dial".into());
        match thread.spawn(move || drop(to.send(Dialled { connection: name, outcome: connect() }))) {
            Ok(thread) => self.threads.push(thread),
            Err(cause) => {
                let broken = ChannelError::Broken { peer: ssd_subnqn(name.1), cause: cause.to_string() };
                drop(self.dialled.send(Dialled { connection: name, outcome: Err(broken) }));
            }
        }
    }

    #[expect(clippy::type_complexity, reason = "what a thread is to do, and how that ends")]
    fn connector(
        &mut self,
        (own, peer): (u16, u16),
        dial: Dial,
    ) -> Result<
        impl FnOnce() -> Result<(HostQueue, Option<RemoteSsd>), ChannelError> + Send + 'static,
        ChannelError,
    > {
        let broken = |cause: String| ChannelError::Broken { peer: ssd_subnqn(peer), cause };
        let soft = match self.soft {
            Some(soft) => soft,
            None => self.engines.call(|engine, _| engine.add_soft()).map_err(|e| broken(e.to_string()))?,
        };
        self.soft = Some(soft);
        let engine = self.engines.clone();
        let who = Credentials::peer(own, self.config.manager_key.as_ref());
        let tls = self.config.tls.clone();
        let local = peer.checked_sub(self.config.first).filter(|&target| target < self.config.count);
        Ok(move || match local {
            Some(target) => {
                let subnqn = ssd_subnqn(peer);
                let path = SsdPath {
                    transport: &engine,
                    executor: soft,
                    port: Port::Local(target),
                    subnqn: &subnqn,
                };
                Ok((HostQueue::connect(&path, who, KATO, STEP)?, None))
            }
            None => {
                let mut remote = RemoteSsd::new(engine, soft, peer, dial.address, who);
                remote.use_tls(tls.as_ref());
                Ok((remote.connect()?, Some(remote)))
            }
        })
    }
}

/// The thread wakes the transport once for all queues.
fn rung_later(mut queue: HostQueue) -> HostQueue {
    queue.ring_later();
    queue
}

#[cfg(test)]
mod tests;

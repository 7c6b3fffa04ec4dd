// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The one place in this crate with a clock and threads: transports stepped by wall time, a thread each.

mod clock;
mod crowd;
mod pace;

use crate::tcp::{EngineLoad, StreamSlot};
use crate::transport::{RcTransport, Waker};
pub use clock::BootClock;
use gnstor_base::time::Time;
use pace::{Pace, Rest};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::JoinHandle;
use std::time::Duration;

type Job = Box<dyn FnOnce(&mut RcTransport, Time) + Send>;

/// Why a call to the transport got no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TransportError {
    /// The transport's thread has ended.
    #[error("the RC transport has stopped: restart the array, or the client")]
    Stopped,
    /// The transport did not answer in time.
    #[error("the RC transport did not answer within {0:?}: if it stays so, restart the array, or the client")]
    Timeout(Duration),
}

/// A handle on one of the transports that were started together, a thread each. Cloned freely; the
/// transports end with [`TransportThreads`].
#[derive(Clone, Debug)]
pub struct TransportHandle {
    engines: Arc<[Engine]>,
    mine: usize,
    clock: BootClock,
}

/// The ends of an engine for other threads.
#[derive(Debug)]
struct Engine {
    jobs: Sender<Job>,
    waker: Waker,
    load: Arc<EngineLoad>,
}

/// Owns the threads.
#[derive(Debug)]
pub struct TransportThreads {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    handle: TransportHandle,
}

const ANSWER: Duration = Duration::from_secs(10);

impl TransportHandle {
    /// Runs `job` on the transport's thread and returns what it returns.
    ///
    /// # Errors
    /// [`TransportError`].
    pub fn call<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut RcTransport, Time) -> R + Send + 'static,
    ) -> Result<R, TransportError> {
        let (answer, receive) = mpsc::channel();
        let job: Job = Box::new(move |transport, now| drop(answer.send(job(transport, now))));
        self.send(job)?;
        receive.recv_timeout(ANSWER).map_err(|e| match e {
            mpsc::RecvTimeoutError::Timeout => TransportError::Timeout(ANSWER),
            mpsc::RecvTimeoutError::Disconnected => TransportError::Stopped,
        })
    }

    /// Runs `job` on the transport's thread without waiting for it.
    pub fn cast(&self, job: impl FnOnce(&mut RcTransport, Time) + Send + 'static) {
        let _ = self.send(Box::new(job));
    }

    fn send(&self, job: Job) -> Result<(), TransportError> {
        let engine = &self.engines[self.mine];
        engine.jobs.send(job).map_err(|_| TransportError::Stopped)?;
        engine.waker.wake();
        Ok(())
    }

    /// Number of transports.
    pub fn count(&self) -> usize {
        self.engines.len()
    }

    /// The transport with this number, modulo their count.
    #[must_use]
    pub fn nth(&self, number: usize) -> Self {
        Self { mine: number % self.engines.len(), ..self.clone() }
    }

    /// The engine for one more stream of a client, and a slot there: of all engines that take newcomers,
    /// the one with the fewest streams. `None`: all serve clients, and newcomers have had their part of the
    /// time.
    pub fn slot(&self) -> Option<(Self, StreamSlot)> {
        let now = time(self.clock);
        let open = self.engines.iter().enumerate().filter(|(_, engine)| !engine.load.is_shut(now));
        let (number, engine) = open.min_by_key(|(_, engine)| engine.load.streams())?;
        Some((self.nth(number), engine.load.take()))
    }

    /// Runs `job` on every transport, one after the other, and returns what they return.
    ///
    /// # Errors
    /// [`TransportError`], the first one's; transports behind it are not asked.
    pub fn each<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut RcTransport, Time) -> R + Clone + Send + 'static,
    ) -> Result<Vec<R>, TransportError> {
        (0..self.count()).map(|number| self.nth(number).call(job.clone())).collect()
    }
}

impl TransportThreads {
    /// Starts transports, which are to be [siblings](RcTransport::sibling): they share a clock.
    ///
    /// # Errors
    /// When the operating system gives no thread, or no descriptor.
    ///
    /// # Panics
    /// Without any transport.
    pub fn start(mut transports: Vec<RcTransport>) -> std::io::Result<Self> {
        assert!(!transports.is_empty(), "a fabric has at least one transport");
        let (mut engines, mut inboxes) = (Vec::new(), Vec::new());
        for transport in &mut transports {
            let (jobs, inbox) = mpsc::channel();
            engines.push(Engine { jobs, waker: transport.waker()?, load: transport.load() });
            inboxes.push(inbox);
        }
        let start = BootClock::start();
        let handle = TransportHandle { engines: engines.into(), mine: 0, clock: start };
        let stop = Arc::new(AtomicBool::new(false));
        // Where a later one cannot be started, dropping this ends the earlier ones.
        let mut all = Self { stop, threads: Vec::new(), handle };
        for (number, (transport, inbox)) in transports.into_iter().zip(inboxes).enumerate() {
            let asked = Arc::clone(&all.stop);
            let thread = std::thread::Builder::new().name(format!("gn-engine-{number}"));
            all.threads.push(thread.spawn(move || run(transport, &inbox, &asked, start))?);
        }
        Ok(all)
    }

    /// A handle on the first transport, and through it on the others.
    pub fn handle(&self) -> TransportHandle {
        self.handle.clone()
    }

    /// Whether the transports still run. Only a panic ends one early.
    pub fn are_running(&self) -> bool {
        self.threads.iter().all(|thread| !thread.is_finished())
    }
}

impl Drop for TransportThreads {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.handle.engines.iter().for_each(|engine| engine.waker.wake());
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn time(clock: BootClock) -> Time {
    Time::from_ns(u64::try_from(clock.elapsed().as_nanos()).expect("585 years of uptime"))
}

fn run(mut transport: RcTransport, inbox: &Receiver<Job>, stop: &AtomicBool, start: BootClock) {
    let now = || time(start);
    transport.measure_work(clock::time_of_thread);
    let mut pace = Pace::new(transport.longest_nap());
    while !stop.load(Ordering::Acquire) {
        let mut worked = false;
        loop {
            match inbox.try_recv() {
                Ok(job) => {
                    job(&mut transport, now());
                    worked = true;
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return,
            }
        }
        let looked = now();
        worked |= transport.step(now);
        match pace.after(now(), worked, || transport.waits(looked)) {
            Rest::Spin => std::hint::spin_loop(),
            Rest::Yield => {
                let from = now();
                std::thread::yield_now();
                pace.yielded(from, now());
            }
            Rest::Nap(nap) => {
                transport.sleep(nap);
                transport.look_everywhere();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::TransportConfig;

    #[test]
    fn a_stream_goes_to_the_engine_with_the_fewest() {
        let _deadline = gnstor_base::testing::deadline();
        let transports = (0..3).map(|_| RcTransport::new(TransportConfig::default())).collect();
        let threads = TransportThreads::start(transports).expect("threads");
        let handle = threads.handle();
        let mut slots = Vec::new();
        let next = |slots: &mut Vec<StreamSlot>| {
            let (engine, slot) = handle.slot().expect("no engine serves a client");
            slots.push(slot);
            engine.mine
        };
        assert_eq!([next(&mut slots), next(&mut slots), next(&mut slots)], [0, 1, 2]);
        slots[0].set_admitted();
        drop(slots.remove(2));
        assert_eq!([next(&mut slots), next(&mut slots), next(&mut slots)], [2, 1, 2]);
        drop(slots.remove(0));
        assert_eq!(next(&mut slots), 0);
    }
}

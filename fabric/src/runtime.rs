// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The one place in this crate with a clock and threads: engines stepped by wall time, a thread each.

mod pace;

use crate::transport::Engine;
use gnstor_base::time::Time;
use pace::{Pace, Rest};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use pace::Waits;

type Job = Box<dyn FnOnce(&mut Engine, Time) + Send>;

/// Why a call to the engine got no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EngineError {
    /// The engine's thread has ended.
    #[error("the fabric engine has stopped")]
    Stopped,
    /// It did not answer.
    #[error("the fabric engine did not answer within {0:?}")]
    Timeout(Duration),
}

/// A handle on one of the engines that were started together, a thread each. Cloned freely; the engines end
/// with [`EngineThreads`].
#[derive(Clone, Debug)]
pub struct EngineHandle {
    jobs: Arc<[Sender<Job>]>,
    mine: usize,
}

/// Owns the threads.
#[derive(Debug)]
pub struct EngineThreads {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    handle: EngineHandle,
}

const ANSWER: Duration = Duration::from_secs(10);

impl EngineHandle {
    /// Runs `job` on the engine's thread and returns what it returns.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn call<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Engine, Time) -> R + Send + 'static,
    ) -> Result<R, EngineError> {
        let (answer, receive) = mpsc::channel();
        let job: Job = Box::new(move |engine, now| drop(answer.send(job(engine, now))));
        self.jobs[self.mine].send(job).map_err(|_| EngineError::Stopped)?;
        receive.recv_timeout(ANSWER).map_err(|e| match e {
            mpsc::RecvTimeoutError::Timeout => EngineError::Timeout(ANSWER),
            mpsc::RecvTimeoutError::Disconnected => EngineError::Stopped,
        })
    }

    /// Runs `job` on the engine's thread without waiting for it.
    pub fn cast(&self, job: impl FnOnce(&mut Engine, Time) + Send + 'static) {
        let _ = self.jobs[self.mine].send(Box::new(job));
    }

    /// How many engines there are.
    pub fn count(&self) -> usize {
        self.jobs.len()
    }

    /// The engine of this number, which goes round.
    #[must_use]
    pub fn nth(&self, number: usize) -> Self {
        Self { jobs: Arc::clone(&self.jobs), mine: number % self.jobs.len() }
    }

    /// Runs `job` on every engine, one after the other, and returns what they return.
    ///
    /// # Errors
    /// [`EngineError`], the first one's; engines behind it are not asked.
    pub fn each<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Engine, Time) -> R + Clone + Send + 'static,
    ) -> Result<Vec<R>, EngineError> {
        (0..self.count()).map(|number| self.nth(number).call(job.clone())).collect()
    }
}

impl EngineThreads {
    /// Starts engines, which are to be [siblings](Engine::sibling): they share a clock.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    ///
    /// # Panics
    /// Without any engine.
    #[expect(clippy::disallowed_methods, reason = "the runtime module of this crate")]
    pub fn start(engines: Vec<Engine>) -> std::io::Result<Self> {
        assert!(!engines.is_empty(), "a fabric has at least one engine");
        let (jobs, inboxes): (Vec<_>, Vec<_>) = engines.iter().map(|_| mpsc::channel()).unzip();
        let handle = EngineHandle { jobs: jobs.into(), mine: 0 };
        let stop = Arc::new(AtomicBool::new(false));
        let start = Instant::now();
        // Where a later one cannot be started, dropping this ends the earlier ones.
        let mut all = Self { stop, threads: Vec::new(), handle };
        for (number, (engine, inbox)) in engines.into_iter().zip(inboxes).enumerate() {
            let asked = Arc::clone(&all.stop);
            let thread = std::thread::Builder::new().name(format!("gn-engine-{number}"));
            all.threads.push(thread.spawn(move || run(engine, &inbox, &asked, start))?);
        }
        Ok(all)
    }

    /// A handle on the first engine, and through it on the others.
    pub fn handle(&self) -> EngineHandle {
        self.handle.clone()
    }

    /// Whether the engines still run; one ends early only by a panic.
    pub fn are_running(&self) -> bool {
        self.threads.iter().all(|thread| !thread.is_finished())
    }
}

impl Drop for EngineThreads {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn clock(start: Instant) -> impl Fn() -> Time {
    move || Time::from_ns(u64::try_from(start.elapsed().as_nanos()).expect("585 years of uptime"))
}

fn run(mut engine: Engine, inbox: &Receiver<Job>, stop: &AtomicBool, start: Instant) {
    let now = clock(start);
    let mut pace = Pace::default();
    while !stop.load(Ordering::Acquire) {
        let mut worked = false;
        loop {
            match inbox.try_recv() {
                Ok(job) => {
                    job(&mut engine, now());
                    worked = true;
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return,
            }
        }
        worked |= engine.step(now());
        match pace.after(now(), worked, || engine.waits()) {
            Rest::Spin => std::hint::spin_loop(),
            Rest::Yield => std::thread::yield_now(),
            Rest::Nap(nap) => {
                match inbox.recv_timeout(Duration::from_nanos(nap.as_ns())) {
                    Ok(job) => {
                        job(&mut engine, now());
                        pace.wake();
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
                engine.look_everywhere();
            }
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The one place in this crate with a clock and a thread: an engine stepped by wall time.

use crate::engine::Engine;
use crate::time::Time;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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

/// A handle on an engine that runs on a thread of its own. Cloned freely; the engine ends with [`EngineThread`].
#[derive(Clone, Debug)]
pub struct EngineHandle {
    jobs: Sender<Job>,
}

/// Owns the thread.
#[derive(Debug)]
pub struct EngineThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
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
        self.jobs.send(job).map_err(|_| EngineError::Stopped)?;
        receive.recv_timeout(ANSWER).map_err(|e| match e {
            mpsc::RecvTimeoutError::Timeout => EngineError::Timeout(ANSWER),
            mpsc::RecvTimeoutError::Disconnected => EngineError::Stopped,
        })
    }

    /// Runs `job` on the engine's thread without waiting for it.
    pub fn cast(&self, job: impl FnOnce(&mut Engine, Time) + Send + 'static) {
        let _ = self.jobs.send(Box::new(job));
    }
}

impl EngineThread {
    /// Starts an engine.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    #[expect(clippy::disallowed_methods, reason = "the runtime module of this crate")]
    pub fn start(engine: Engine) -> std::io::Result<Self> {
        let (jobs, inbox) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let start = Instant::now();
        let thread =
            std::thread::Builder::new().name("gn-engine".into()).spawn(move || run(engine, &inbox, &asked, start))?;
        Ok(Self { stop, thread: Some(thread), handle: EngineHandle { jobs } })
    }

    /// A handle on the engine.
    pub fn handle(&self) -> EngineHandle {
        self.handle.clone()
    }

    /// Whether the engine still runs; it ends early only by a panic.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for EngineThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Idle rounds before the thread gives its core to others, and before it sleeps: a busy array polls, an idle one costs nothing.
const SPIN_ROUNDS: u32 = 200;
const IDLE_BEFORE_SLEEP: Duration = Duration::from_millis(20);
const NAP: Duration = Duration::from_micros(200);

fn run(mut engine: Engine, inbox: &Receiver<Job>, stop: &AtomicBool, start: Instant) {
    let now = || Time::from_ns(u64::try_from(start.elapsed().as_nanos()).expect("585 years of uptime"));
    let mut idle_rounds = 0u32;
    let mut idle_since = now();
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
        if worked {
            idle_rounds = 0;
            continue;
        }
        if idle_rounds == 0 {
            idle_since = now();
        }
        idle_rounds = idle_rounds.saturating_add(1);
        if idle_rounds < SPIN_ROUNDS {
            std::hint::spin_loop();
        } else if now().since(idle_since).as_ns() < u64::try_from(IDLE_BEFORE_SLEEP.as_nanos()).expect("small")
            || engine.busy()
        {
            std::thread::yield_now();
        } else {
            std::thread::sleep(NAP);
        }
    }
}

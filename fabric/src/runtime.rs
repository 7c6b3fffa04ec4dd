// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The one place in this crate with a clock and threads: engines stepped by wall time.
//!
//! Each engine has a thread, and there is one thread more where there are cores for it: busy engines change threads in turn (`relay`).

mod relay;

use crate::engine::Engine;
use crate::time::Time;
use relay::{Relay, Turn};
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

/// A handle on one of the engines that were started together. Cloned freely; the engines end with [`EngineThreads`].
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

/// Threads for so many engines: one more than engines, where the machine has cores for those and for others beside them.
pub fn threads_for(engines: usize) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if engines > 1 && cores > engines + 1 { engines + 1 } else { engines }
}

impl EngineThreads {
    /// Starts engines, which are to be [siblings](Engine::sibling): they share a clock.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    ///
    /// # Panics
    /// Without any engine.
    pub fn start(engines: Vec<Engine>) -> std::io::Result<Self> {
        let threads = threads_for(engines.len());
        Self::start_on(threads, engines)
    }

    /// As [`Self::start`], on so many threads: at least as many as there are engines.
    #[expect(clippy::disallowed_methods, reason = "the runtime module of this crate")]
    fn start_on(threads: usize, engines: Vec<Engine>) -> std::io::Result<Self> {
        assert!(!engines.is_empty(), "a fabric has at least one engine");
        let (jobs, inboxes): (Vec<_>, Vec<_>) = engines.iter().map(|_| mpsc::channel()).unzip();
        let handle = EngineHandle { jobs: jobs.into(), mine: 0 };
        let stop = Arc::new(AtomicBool::new(false));
        let start = Instant::now();
        let relay = Arc::new(Relay::default());
        let mut served = engines.into_iter().zip(inboxes).map(|(engine, inbox)| Served { engine, inbox });
        // Where a later one cannot be started, dropping this ends the earlier ones.
        let mut all = Self { stop, threads: Vec::new(), handle };
        for number in 0..threads {
            let (asked, relay, first) = (Arc::clone(&all.stop), Arc::clone(&relay), served.next());
            let thread = std::thread::Builder::new().name(format!("gn-engine-{number}"));
            all.threads.push(thread.spawn(move || {
                if let Some(first) = first.or_else(|| relay.take(&asked)) {
                    run(first, &relay, &asked, start);
                }
            })?);
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

/// Idle rounds before the thread gives its core to others, and before it sleeps: a busy array polls, an idle one costs nothing.
const SPIN_ROUNDS: u32 = 200;
const IDLE_BEFORE_SLEEP: Duration = Duration::from_millis(20);
const NAP: Duration = Duration::from_micros(200);

/// An engine and the jobs for it, which go from thread to thread together.
struct Served {
    engine: Engine,
    inbox: Receiver<Job>,
}

fn run(mut served: Served, relay: &Relay, stop: &AtomicBool, start: Instant) {
    let now = || Time::from_ns(u64::try_from(start.elapsed().as_nanos()).expect("585 years of uptime"));
    let (mut idle_rounds, mut idle_since) = (0u32, now());
    let mut turn = Turn::new(now());
    while !stop.load(Ordering::Acquire) {
        let Served { engine, inbox } = &mut served;
        let mut worked = false;
        loop {
            match inbox.try_recv() {
                Ok(job) => {
                    job(engine, now());
                    worked = true;
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return,
            }
        }
        let at = now();
        worked |= engine.step(at);
        if turn.ends(at, worked) {
            match relay.pass_on(served) {
                Ok(()) => {
                    let Some(next) = relay.take(stop) else { return };
                    served = next;
                    idle_rounds = 0;
                    turn = Turn::new(now());
                    continue;
                }
                Err(kept) => served = kept,
            }
        }
        if worked {
            idle_rounds = 0;
            continue;
        }
        if idle_rounds == 0 {
            idle_since = at;
        }
        idle_rounds = idle_rounds.saturating_add(1);
        if idle_rounds < SPIN_ROUNDS {
            std::hint::spin_loop();
        } else if at.since(idle_since).as_ns() < u64::try_from(IDLE_BEFORE_SLEEP.as_nanos()).expect("small")
            || served.engine.busy()
        {
            std::thread::yield_now();
        } else {
            std::thread::sleep(NAP);
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "threads and real time are what is tested")]
mod tests {
    use super::*;
    use crate::engine::EngineConfig;
    use std::collections::HashSet;
    use std::thread;

    #[test]
    fn busy_engines_change_threads_and_none_is_lost() {
        let first = Engine::new(EngineConfig::default());
        let engines = [first.sibling(), first.sibling(), first].into_iter().collect();
        let all = EngineThreads::start_on(4, engines).expect("threads");
        let until = Instant::now() + Duration::from_secs(20);
        // Jobs are work: somebody asks for more before the last one is done.
        let served_by = thread::scope(|scope| {
            let asked = (0..3).map(|number| {
                let handle = all.handle().nth(number);
                scope.spawn(move || {
                    let mut threads = HashSet::new();
                    let work = || thread::sleep(Duration::from_micros(50));
                    while threads.len() < 2 && Instant::now() < until {
                        (0..50).for_each(|_| handle.cast(move |_, _| work()));
                        threads.insert(handle.call(|_, _| thread::current().id()).expect("it answers"));
                    }
                    threads.len()
                })
            });
            asked.collect::<Vec<_>>().into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
        });
        assert!(served_by.iter().all(|&threads| threads >= 2), "{served_by:?} threads");
        assert!(all.are_running());
        // Idle, and asked again when the threads sleep.
        thread::sleep(Duration::from_millis(100));
        assert_eq!(all.handle().each(|engine, _| engine.counters.capsules), Ok(vec![0; 3]));
    }
}

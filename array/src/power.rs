// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SSDs in transports of their own, from power on to power off. Every transport has a thread, and a core of
//! every SSD.
//!
//! ```text
//!   cores --lend--> transports on their threads ... transports stop --> cores come back
//!                                        shut_down: everything is written <--'--> power_fail: only the dump
//! ```

use crate::media::{self, Made, MediaError};
use crate::openings;
use gnstor_daemon::Openings;
use gnstor_deengine::{Ssd, Worker};
use gnstor_fabric::link::LinkConfig;
use gnstor_fabric::runtime::{TransportHandle, TransportThreads};
use gnstor_fabric::transport::{RcTransport, TransportConfig, lend};
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// Running SSDs. Dropping them shuts them down.
#[derive(Debug)]
pub struct Powered {
    // Dropped before the SSDs are asked back.
    engines: Option<TransportThreads>,
    /// The cores of each SSD.
    ssds: Vec<Vec<Receiver<Worker>>>,
}

/// Longest wait for the answers to a goodbye. A map waits little longer for a lease.
const GOODBYE: Duration = Duration::from_millis(300);
/// Pause between two looks at the answers.
const PAUSE: Duration = Duration::from_millis(2);

/// Most engines: as many as an HCA on a GPU has pairs of rings.
pub const MAX_ENGINES: usize = gnstor_fabric::hca::agent::MAX_RINGS;

/// Default number of engines: half the machine's cores. The other half is for the clients.
pub fn default_engines() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).clamp(1, MAX_ENGINES))
}

/// Number of threads for SSDs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Threads {
    /// Threads that serve the SSDs' queues.
    pub engines: usize,
}

impl Powered {
    /// Starts engines with these SSDs; clients of other processes call the first one number `first`.
    ///
    /// # Errors
    /// When the operating system gives no thread, or no descriptor.
    pub fn on(made: Vec<Made>, first: u16, link: LinkConfig, threads: Threads) -> std::io::Result<Self> {
        let mut first_engine = RcTransport::new(TransportConfig { link, ..TransportConfig::default() });
        first_engine.set_first_ssd(first);
        let more: Vec<RcTransport> =
            (1..threads.engines.clamp(1, MAX_ENGINES)).map(|_| first_engine.sibling()).collect();
        let mut engines: Vec<RcTransport> = std::iter::once(first_engine).chain(more).collect();
        let mut ssds = Vec::with_capacity(made.len());
        for Made { ssd, regions, .. } in made {
            let mut cores = Vec::with_capacity(engines.len());
            for (core, engine) in ssd.into_workers(engines.len()).into_iter().zip(&mut engines) {
                let waker = engine.waker()?;
                core.wake_by(move || waker.wake());
                let (lent, back) = lend(core);
                engine.add_target(Box::new(lent), regions.clone());
                cores.push(back);
            }
            ssds.push(cores);
        }
        // Without threads the engines are gone, and the SSDs are shut down with this.
        let mut powered = Self { engines: None, ssds };
        powered.engines = Some(TransportThreads::start(engines)?);
        Ok(powered)
    }

    /// The first engine, and through it the others.
    ///
    /// # Panics
    /// Never: the engines are there until the power is off.
    pub fn transport(&self) -> TransportHandle {
        self.engines.as_ref().expect("they run").handle()
    }

    /// Whether no panic has ended an engine.
    pub fn is_running(&self) -> bool {
        self.engines.as_ref().is_some_and(TransportThreads::are_running)
    }

    /// Makes the SSDs serve nothing from now on, and say goodbye to the voters of their map. Returns when
    /// these have heard it, or after 300 ms: the next map then waits for the leases of these SSDs.
    pub fn say_goodbye(&self) {
        let count = u16::try_from(self.ssds.len()).expect("at most 65,536 SSDs");
        let leave = move |engine: &mut RcTransport, now| {
            (0..count).filter(|&ssd| !engine.controller(ssd).leave(now)).count()
        };
        for _ in 0..GOODBYE.as_millis() / PAUSE.as_millis() {
            match self.transport().call(leave) {
                Ok(0) => return,
                Ok(_) => std::thread::sleep(PAUSE),
                Err(error) => return tracing::warn!(%error, "no goodbye is said"),
            }
        }
        tracing::warn!(after = ?GOODBYE, "the voters have not answered the goodbye");
    }

    /// Shuts every SSD down in order, which writes its contents out.
    ///
    /// # Errors
    /// The first error of an SSD that cannot write. The others are shut down nevertheless.
    pub fn shut_down(mut self) -> Result<(), MediaError> {
        self.end(|ssd| media::shut_down(ssd).map(|()| 0), None).map(drop)
    }

    /// As [`Self::shut_down`], of all SSDs of an array: their numbers of openings are raised, also in the
    /// daemon's file.
    ///
    /// # Errors
    /// As [`Self::shut_down`].
    pub fn shut_down_array(mut self, daemon: &Openings) -> Result<(), MediaError> {
        self.end(|ssd| media::shut_down(ssd).map(|()| 0), Some(daemon)).map(drop)
    }

    /// Cuts the power of every SSD; the bytes of their dumps.
    ///
    /// # Errors
    /// The first SSD's whose dump fails.
    pub fn power_fail(mut self) -> Result<u64, MediaError> {
        self.end(media::power_fail, None)
    }

    /// Ends all SSDs at once, because each may wait for its disk.
    fn end(
        &mut self,
        how: impl Fn(&mut Ssd) -> Result<u64, MediaError> + Sync,
        raise: Option<&Openings>,
    ) -> Result<u64, MediaError> {
        // Clients see their connections close, and the engines return the SSDs.
        self.engines = None;
        let ssds: Vec<_> =
            (0u32..).zip(self.ssds.drain(..)).map(|(index, back)| come_back(index, &back)).collect();
        if let Some(daemon) = raise
            && ssds.iter().all(Result::is_ok)
        {
            let mut locked: Vec<_> = ssds.iter().flatten().map(Worker::ssd).collect();
            let mut all: Vec<&mut Ssd> = locked.iter_mut().map(|ssd| &mut **ssd).collect();
            match openings::raise(&mut all, 0) {
                Ok(()) => openings::tell(all.iter().map(|ssd| &**ssd), daemon),
                // The SSDs keep the numbers that they had from the start.
                Err(error) => tracing::warn!("{error}"),
            }
        }
        let ended: Vec<_> = std::thread::scope(|scope| {
            let how = &how;
            let end = |ssd: Result<Worker, MediaError>| scope.spawn(move || how(&mut ssd?.ssd()));
            let threads: Vec<_> = ssds.into_iter().map(end).collect();
            let broken = |index| Err(MediaError::Broken { index });
            (0..)
                .zip(threads)
                .map(|(index, thread)| thread.join().unwrap_or_else(|_| broken(index)))
                .collect()
        });
        ended.into_iter().try_fold(0, |bytes, more| Ok(bytes + more?))
    }
}

/// Takes back the SSD from its workers. A worker that does not return was lost in a panic, and then the SSD's
/// state cannot be trusted.
fn come_back(index: u32, back: &[Receiver<Worker>]) -> Result<Worker, MediaError> {
    let cores = back.iter().map(|core| core.try_recv().map_err(|_| MediaError::Broken { index }));
    let mut cores = cores.collect::<Result<Vec<_>, _>>()?;
    // Commands in flight at the other workers end first.
    cores.truncate(1);
    cores.pop().ok_or(MediaError::Broken { index })
}

impl Drop for Powered {
    fn drop(&mut self) {
        if let Err(error) = self.end(|ssd| media::shut_down(ssd).map(|()| 0), None) {
            tracing::error!("{error}");
        }
    }
}

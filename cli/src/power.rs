// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SSDs in an engine of their own, from power on to power off.
//!
//! ```text
//!   SSDs --lend--> Engine on its thread ... engine stops --> SSDs come back --> shut_down: everything is written
//!                                                                          '--> power_fail: the dump, and no more
//! ```

use crate::media::{self, Made, MediaError};
use gnstor_deengine::{Core, Ssd};
use gnstor_fabric::engine::{Engine, EngineConfig, lend};
use gnstor_fabric::link::LinkConfig;
use gnstor_fabric::runtime::{EngineHandle, EngineThread};
use std::sync::mpsc::Receiver;

/// Running SSDs. Dropping them shuts them down.
#[derive(Debug)]
pub struct Powered {
    // Dropped before the SSDs are asked back.
    engine: Option<EngineThread>,
    ssds: Vec<Receiver<Core>>,
}

impl Powered {
    /// Starts an engine with these SSDs; clients of other processes call the first one number `first`.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub fn on(made: Vec<Made>, first: u16, link: LinkConfig) -> std::io::Result<Self> {
        let mut engine = Engine::new(EngineConfig { link, ..EngineConfig::default() });
        engine.set_first_ssd(first);
        let mut ssds = Vec::with_capacity(made.len());
        for Made { ssd, regions, .. } in made {
            // One engine, so one core each.
            let core = ssd.into_cores(1).pop().expect("at least one");
            let (lent, back) = lend(core);
            engine.add_target(Box::new(lent), regions);
            ssds.push(back);
        }
        // Without a thread the engine is gone, and the SSDs are shut down with this.
        let mut powered = Self { engine: None, ssds };
        powered.engine = Some(EngineThread::start(engine)?);
        Ok(powered)
    }

    /// The engine.
    ///
    /// # Panics
    /// Never: the engine is there until the power is off.
    pub fn engine(&self) -> EngineHandle {
        self.engine.as_ref().expect("it runs").handle()
    }

    /// The engine has not been ended by a panic.
    pub fn is_running(&self) -> bool {
        self.engine.as_ref().is_some_and(EngineThread::is_running)
    }

    /// Shuts every SSD down in order; what they hold is written out.
    ///
    /// # Errors
    /// The first SSD's that cannot write; the others are shut down all the same.
    pub fn shut_down(mut self) -> Result<(), MediaError> {
        self.end(|ssd| media::shut_down(ssd).map(|()| 0)).map(drop)
    }

    /// Cuts the power of every SSD; the bytes of their dumps.
    ///
    /// # Errors
    /// The first SSD's whose dump fails.
    pub fn power_fail(mut self) -> Result<u64, MediaError> {
        self.end(media::power_fail)
    }

    fn end(&mut self, how: impl Fn(&mut Ssd) -> Result<u64, MediaError>) -> Result<u64, MediaError> {
        // Clients find their connections closed, and the SSDs come back.
        self.engine = None;
        let mut bytes = 0;
        let mut failed = None;
        for (index, back) in (0u32..).zip(self.ssds.drain(..)) {
            let ended = back.try_recv().map_err(|_| MediaError::Broken { index }).and_then(|core| how(&mut core.ssd()));
            match ended {
                Ok(more) => bytes += more,
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(bytes), Err)
    }
}

impl Drop for Powered {
    fn drop(&mut self) {
        if let Err(error) = self.end(|ssd| media::shut_down(ssd).map(|()| 0)) {
            tracing::error!("{error}");
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon's clocks and threads. No other module of this crate reads a clock or starts a thread.

use gnstor_fabric::runtime::BootClock;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Sleep of a loop that waits for nothing.
pub(super) const IDLE: Duration = Duration::from_secs(3600);

/// The time of a note that is kept, in seconds since 1970.
#[expect(clippy::disallowed_methods, reason = "the runtime module is where the clock is read")]
pub(super) fn unix_seconds() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX).max(1)
}

/// The time since the start of the process's daemon.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    boot: BootClock,
    running: Instant,
}

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "the runtime module is where the clock is read")]
    pub(super) fn start() -> Self {
        Self { boot: BootClock::start(), running: Instant::now() }
    }

    /// Milliseconds. They go on while the machine is suspended, as leases do.
    pub(super) fn now_ms(self) -> u64 {
        u64::try_from(self.boot.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Milliseconds in which the machine ran: for deadlines of commands. An SSD in this process is suspended
    /// with it.
    pub(super) fn running_ms(self) -> u64 {
        u64::try_from(self.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// As [`Self::running_ms`].
    pub(super) fn elapsed(self) -> Duration {
        self.running.elapsed()
    }
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

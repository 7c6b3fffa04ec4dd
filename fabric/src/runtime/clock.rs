// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clock of leases and of the model. It goes on while the machine is suspended. `Instant` stops then, so
//! a lease by it would last longer by the time of the suspension.

use gnstor_base::time::Time;
use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// A clock that begins when it is made (`CLOCK_BOOTTIME`). Its copies show the same time.
#[derive(Clone, Copy, Debug)]
pub struct BootClock(Duration);

impl BootClock {
    /// A clock that begins now.
    pub fn start() -> Self {
        Self(since_boot())
    }

    /// Time since it began.
    pub fn elapsed(self) -> Duration {
        since_boot().saturating_sub(self.0)
    }
}

fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("Linux has this clock since 2.6.39");
    time.into()
}

/// The time for which this thread has run.
pub(super) fn time_of_thread() -> Time {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from);
    Time::from_ns(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_a_clock_show_the_same_time_and_it_goes_on() {
        let _deadline = gnstor_base::testing::deadline();
        let clock = BootClock::start();
        let copy = clock;
        std::thread::sleep(Duration::from_millis(5));
        let first = copy.elapsed();
        assert!(first >= Duration::from_millis(5) && first <= clock.elapsed());
    }
}

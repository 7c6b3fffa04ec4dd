// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sleep of a transport's thread: bytes on a stream end it, and so does a [`Waker`].
//!
//! `ppoll` waits for the descriptor of `mio`'s poll. A poll of `mio` rounds its timeout up to milliseconds,
//! and modelled events are due to the microsecond.

use super::RcTransport;
use gnstor_base::time::Span;
use mio::Token;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

/// No stream has this token: theirs are 32 bits wide.
pub(super) const WAKER: Token = Token(usize::MAX);

/// Ends the sleep of a transport's thread, or its next one.
#[derive(Clone, Debug)]
pub struct Waker(Arc<mio::Waker>);

impl Waker {
    /// After waking, the transport's thread sees everything that this thread did before.
    pub fn wake(&self) {
        // A transport that cannot be woken looks again when its nap ends.
        if let Err(error) = self.0.wake() {
            tracing::debug!("a transport's thread cannot be woken: {error}");
        }
    }
}

impl RcTransport {
    /// The waker of the thread that steps this transport.
    ///
    /// # Errors
    /// No descriptor.
    pub fn waker(&mut self) -> std::io::Result<Waker> {
        if let Some(waker) = &self.ready.waker {
            return Ok(waker.clone());
        }
        self.ready.open_events()?;
        let (poll, _) = self.ready.events.as_ref().expect("opened above");
        // A poll has one waker at most.
        let waker = Waker(Arc::new(mio::Waker::new(poll.registry(), WAKER)?));
        self.ready.ring_by(&waker);
        Ok(self.ready.waker.insert(waker).clone())
    }

    /// The longest sleep of its thread where all work wakes it.
    pub fn longest_nap(&self) -> Span {
        self.config.longest_nap
    }

    /// Sleeps until a stream is ready or a waker rings, no longer than `most`. A waker that has rung since
    /// the last sleep ends this one at once: what it announced may have come after the caller's last look.
    pub fn sleep(&mut self, most: Span) {
        let most = Duration::from_nanos(most.as_ns());
        let Some((poll, _)) = self.ready.events.as_ref() else { return std::thread::sleep(most) };
        if !std::mem::take(&mut self.ready.is_woken) {
            let mut ready = [PollFd::new(poll.registry().as_fd(), PollFlags::POLLIN)];
            // A signal ends the sleep, too.
            _ = ppoll(&mut ready, Some(TimeSpec::from_duration(most)), None);
        }
        self.ready.take_events();
        self.ready.is_woken = false;
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "sleeps are in real time")]

    use super::*;
    use crate::transport::TransportConfig;
    use gnstor_base::testing::deadline;
    use std::time::Instant;

    /// Far longer than a wake takes.
    const LONG: Span = Span::from_ms(100_000);

    fn transport() -> (RcTransport, Waker) {
        let mut transport = RcTransport::new(TransportConfig::default());
        let waker = transport.waker().expect("a descriptor");
        (transport, waker)
    }

    fn is_woken(transport: &mut RcTransport) {
        let begun = Instant::now();
        transport.sleep(LONG);
        assert!(begun.elapsed() < Duration::from_secs(50), "{:?}", begun.elapsed());
    }

    #[test]
    fn a_wake_before_a_sleep_ends_it_at_once_and_the_next_one_lasts() {
        let _deadline = deadline();
        let (mut transport, waker) = transport();
        waker.wake();
        is_woken(&mut transport);
        let begun = Instant::now();
        transport.sleep(Span::from_ms(30));
        assert!(begun.elapsed() >= Duration::from_millis(29), "{:?}", begun.elapsed());
    }

    #[test]
    fn a_wake_that_a_step_has_seen_ends_the_sleep_after_it() {
        let _deadline = deadline();
        let (mut transport, waker) = transport();
        waker.wake();
        transport.ready.take_events();
        is_woken(&mut transport);
    }

    #[test]
    fn a_wake_from_another_thread_ends_a_sleep() {
        let _deadline = deadline();
        let (mut transport, waker) = transport();
        let other = waker.clone();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            other.wake();
        });
        is_woken(&mut transport);
        thread.join().expect("no panic");
    }
}

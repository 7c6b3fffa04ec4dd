// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The port of an SSD that is being restored. A listener answers "not ready" to every connection, and a bar
//! or the log shows how far the restore is.

use crate::listener::Listener;
use gnstor_deengine::Recovering;
use gnstor_fabric::runtime::TransportThreads;
use gnstor_fabric::tcp::ServerTls;
use gnstor_fabric::transport::{RcTransport, TransportConfig};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Answers on the port of an SSD until the SSD itself does. Dropping it ends its connections; hosts then
/// connect again.
#[derive(Debug)]
pub struct RecoveryListener {
    // The listener closes before its engine stops.
    _listener: Listener,
    _engine: TransportThreads,
}

impl RecoveryListener {
    /// Answers for SSD `index` on this port, by TLS where it is named.
    ///
    /// # Errors
    /// The operating system's: no descriptor, no thread.
    pub fn answer(listener: &TcpListener, index: u16, tls: Option<ServerTls>) -> std::io::Result<Self> {
        let mut engine = RcTransport::new(TransportConfig::default());
        engine.set_first_ssd(index);
        engine.add_target(Box::new(Recovering::default()), Vec::new());
        let engine = TransportThreads::start(vec![engine])?;
        let listener = Listener::open(listener.try_clone()?, engine.handle(), tls)?;
        Ok(Self { _listener: listener, _engine: engine })
    }
}

/// Shows how far a restore is: as a bar on a terminal, else as a line in the log every 5 seconds. A restore
/// shorter than half a second shows nothing.
#[derive(Debug)]
pub(crate) struct Restoring {
    what: String,
    start: Instant,
    bar: Option<ProgressBar>,
    /// Time of the last log line, ms after the start.
    notified_ms: AtomicU64,
}

/// A shorter restore shows nothing.
const QUIET: Duration = Duration::from_millis(500);
/// Least time between two lines in the log.
const EVERY_MS: u64 = 5_000;

impl Restoring {
    #[expect(clippy::disallowed_methods, reason = "shows a person how real time passes")]
    pub(crate) fn new(what: String) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("  {msg} [{bar:32}] {percent} %  {elapsed}");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ");
            // The bar is invisible until the first call.
            ProgressBar::new(0).with_style(style).with_message(what.clone())
        });
        Self { what, start: Instant::now(), bar, notified_ms: AtomicU64::new(0) }
    }

    /// `done` of `of` units are restored. Several threads call it at a time.
    pub(crate) fn tell(&self, done: u64, of: u64) {
        let elapsed = self.start.elapsed();
        if elapsed < QUIET {
            return;
        }
        if let Some(bar) = &self.bar {
            bar.set_length(of);
            bar.set_position(done);
            return;
        }
        let now = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        let summary = self.notified_ms.load(Ordering::Relaxed);
        let is_due = summary == 0 || now >= summary + EVERY_MS;
        if is_due
            && self.notified_ms.compare_exchange(summary, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            let percent = done.saturating_mul(100).checked_div(of).unwrap_or(100);
            tracing::warn!("{}: {percent} % after {:.1} s", self.what, elapsed.as_secs_f64());
        }
    }
}

impl Drop for Restoring {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    #[test]
    fn a_restore_that_is_over_at_once_says_nothing_and_a_long_one_speaks_seldom() {
        let _deadline = deadline();
        let mut restoring = Restoring::new("restoring".into());
        restoring.bar = None;
        restoring.tell(1, 10);
        assert_eq!(restoring.notified_ms.load(Ordering::Relaxed), 0);
        restoring.start -= Duration::from_secs(1);
        restoring.tell(2, 10);
        let first = restoring.notified_ms.load(Ordering::Relaxed);
        assert!(first >= 1000, "{first}");
        restoring.tell(3, 10);
        assert_eq!(restoring.notified_ms.load(Ordering::Relaxed), first);
        restoring.start -= Duration::from_secs(6);
        restoring.tell(4, 0);
        assert!(restoring.notified_ms.load(Ordering::Relaxed) >= 7000);
    }
}

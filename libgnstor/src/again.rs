// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client that lost SSDs connects to them anew, between two launches. The session dials lost SSDs in the
//! background; a host call or a launch then makes new queue pairs.
//!
//! ```text
//!   session:  SSD lost --> dialled again and again --> found
//!                                                        |
//!   call:     request fails: connection broken --wait----'--> all queue pairs cut, nothing in flight
//!                  ^                                                   v
//!                  '----------- sent again, same stamps <------ new queue pairs
//! ```
//! This module works between launches, on all queue pairs at once. While a kernel runs, the session recreates
//! single queue pairs (gnor/src/anew.rs). The kernel's requests wait for that, for a fleet map that leaves
//! the SSD out, or until their deadline.

use crate::client::Client;
use crate::error::Error;
use crate::ssds::Fabric;
use crate::transfer::{Again, Transfers};
use gnstor_gnor::session::{ADMIN_DEADLINE, Wait};
use std::time::{Duration, Instant};

/// Longest time until commands in flight on cut queue pairs have ended.
const FLUSHED: Duration = Duration::from_secs(2);
/// Shortest time for a try. A shorter try fails even if an SSD answers.
const LEAST: Duration = Duration::from_millis(200);
/// Interval at which a call that waits to reconnect checks whether requests without a thread are drained.
const DRAINED: Duration = Duration::from_millis(20);
/// Pause after a failed try, for calls that need no lost SSD.
const PAUSE: Duration = Duration::from_secs(2);

impl Client {
    /// Connects anew to the SSDs whose connections are broken. Waits until no kernel runs. The channel's
    /// address, keys and memory stay the same; nothing is sent again. Host reads and writes call this by
    /// themselves. A caller whose kernel's requests ended with `GN_QP_BROKEN` may call this and launch again.
    ///
    /// False: none of the lost SSDs could be reached. True: the client reaches all SSDs, or more of them than
    /// before.
    ///
    /// # Errors
    /// [`Error::Protocol`]: no later try can help, for example because an SSD refuses the client's secret.
    #[expect(clippy::disallowed_methods, reason = "a blocking call with a deadline in real time")]
    pub fn reconnect(&self, deadline: Duration) -> Result<bool, Error> {
        let begun = Instant::now();
        self.may_reconnect().map_err(Error::Protocol)?;
        if self.has_parked().map_err(Error::Protocol)? {
            return Err(Error::Protocol("requests of submit_async wait: drain them first".into()));
        }
        let transfers = || self.transfers.lock().expect("no panic while held");
        self.note_broken(&transfers()).map_err(Error::Protocol)?;
        if self.session.missing().is_empty() {
            return Ok(true);
        }
        match self.session.wait_found(deadline) {
            Wait::Found => {
                let left = deadline.saturating_sub(begun.elapsed());
                self.renew_queues(&transfers(), left).map_err(Error::Protocol)
            }
            Wait::Hopeless(why) => Err(Error::Protocol(why)),
            Wait::Late | Wait::Moved => Ok(false),
        }
    }

    /// Makes new queue pairs where the session has found a lost SSD, before a launch of the caller's.
    pub(crate) fn reconnect_if_found(&self) {
        if self.session.has_found() {
            self.take_found(&self.transfers.lock().expect("no panic while held"));
        }
    }

    /// Within one process no connection can be lost, so an SSD that is cut off there is a fault.
    fn may_reconnect(&self) -> Result<(), String> {
        if self.link_options.fabric == Fabric::InProcess {
            return Err("the SSDs are in this process".into());
        }
        Ok(())
    }

    /// Whether requests of `submit_async` wait without a thread. Their queue pairs are not made anew before
    /// they are drained.
    fn has_parked(&self) -> Result<bool, String> {
        Ok(self.channel_stats().map_err(|e| e.to_string())?.parked != 0)
    }

    /// Waits until no kernel runs. Then it ends the old connections, and makes new ones to the SSDs that are
    /// up or found, within the time that is left.
    #[expect(clippy::disallowed_methods, reason = "a blocking call with a deadline in real time")]
    fn renew_queues(&self, transfers: &Transfers, left: Duration) -> Result<bool, String> {
        self.may_reconnect()?;
        // New queues get no Keep Alive before they are in use, so they are made when no kernel runs. The time
        // counts from then on.
        let lock = transfers.launch_lock(self.node());
        if self.has_parked()? {
            return Ok(false);
        }
        let begun = Instant::now();
        let left = || left.saturating_sub(begun.elapsed()).max(LEAST);
        let new = self.session.dial_anew(&lock, left().min(ADMIN_DEADLINE));
        if new.is_empty() && !self.session.has_found() {
            return Ok(false);
        }
        self.channel.cut();
        let in_flight = transfers.drain((&lock, &self.channel), None, FLUSHED).map_err(|e| e.to_string())?;
        if in_flight != 0 {
            // The client's agent or engine may stand still, as it does where the machine does: later they
            // have ended.
            tracing::info!("{in_flight} requests of the old connections have not ended yet");
            return Ok(false);
        }
        self.session.put_in_use(new);
        let connected = self.channel.reconnect(&lock, &self.session, left()).map_err(|e| e.to_string())?;
        transfers.is_clean();
        tracing::info!("connected anew to {connected} of {} SSDs", self.ssds.len());
        Ok(connected > 0)
    }
}

impl Again for Client {
    fn note_broken(&self, _: &Transfers) -> Result<(), String> {
        let broken = self.channel.broken().map_err(|e| e.to_string())?;
        for ssd in (0..broken.len()).filter(|&ssd| broken[ssd]) {
            // A found SSD has a new path, which no queue pair uses yet.
            if self.session.is_up(ssd) {
                self.session.lose(ssd, "its queue pair is broken");
            }
        }
        Ok(())
    }

    #[expect(clippy::disallowed_methods, reason = "tries are made now and then, in real time")]
    fn take_found(&self, transfers: &Transfers) {
        if !self.session.has_found() {
            return;
        }
        let mut last = self.last_failure.lock().expect("no panic while held");
        if last.is_some_and(|at| at.elapsed() < PAUSE) {
            return;
        }
        let renewed = self.renew_queues(transfers, self.io_timeout);
        if let Err(why) = &renewed {
            tracing::warn!("the connections to the SSDs are not made anew: {why}");
        }
        *last = if renewed == Ok(true) { None } else { Some(Instant::now()) };
    }

    fn renew(&self, transfers: &Transfers, left: Duration) -> Result<bool, String> {
        self.renew_queues(transfers, left)
    }

    fn has_found(&self) -> bool {
        self.session.has_found()
    }

    #[expect(clippy::disallowed_methods, reason = "a blocking call with a deadline in real time")]
    fn wait_change(&self, epoch: u64, most: Duration) -> Wait {
        if let Err(why) = self.may_reconnect() {
            return Wait::Hopeless(why);
        }
        let begun = Instant::now();
        let left = || most.saturating_sub(begun.elapsed());
        loop {
            match self.has_parked() {
                Err(why) => return Wait::Hopeless(why),
                Ok(false) => return self.session.wait_for_map(epoch, true, left()),
                Ok(true) if left().is_zero() => return Wait::Late,
                Ok(true) => {}
            }
            // A newer map may leave the lost SSD out, and then nothing has to be connected anew.
            if self.session.wait_for_map(epoch, false, DRAINED.min(left())) == Wait::Moved {
                return Wait::Moved;
            }
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client that lost SSDs connects to them anew, between two launches.
//!
//! ```text
//!   request fails: connection broken --> dial a lost SSD: link, admin queue, authentication
//!        ^                                  |no: rest, until the request's deadline
//!        |                                  v
//!   sent again, same stamps <-- new queue pairs <-- all old ones cut, nothing in flight
//! ```
//! Only the CPU can do this: the HCA's tables do not change while its agent is resident. A kernel that runs
//! meanwhile ends its requests with `GN_QP_BROKEN`.

use crate::client::{Client, Fabric};
use crate::error::Error;
use crate::link::Links;
use crate::transfer::{Again, Transfers};
use gnstor_fabric::admin::ChannelError;
use gnstor_fabric::host_queue::HostQueue;
use gnstor_fabric::runtime::TransportError;
use gnstor_gnor::node::NodeError;
use gnstor_gnor::session::{ADMIN_DEADLINE, SsdAddress};
use std::time::{Duration, Instant};

/// What is in flight on queue pairs that were cut ends in less.
const FLUSHED: Duration = Duration::from_secs(2);
/// Shortest time that a try is given: less fails where an SSD answers, too.
const LEAST: Duration = Duration::from_millis(200);
/// Launches do not try again before.
const PAUSE: Duration = Duration::from_secs(2);

/// Why an SSD was not reached.
enum Unreached {
    /// Later it may be.
    Yet(String),
    /// It answers, and does not take this client.
    Refused(String),
}

impl Client {
    /// Connects anew to the SSDs whose connections are broken. Waits until no kernel runs. The channel's
    /// address, keys and memory stay what they are; nothing is sent again. Host reads and writes do this by
    /// themselves; kernels end with `GN_QP_BROKEN`, and their caller may call this and launch again.
    ///
    /// False: none of the lost SSDs could be reached. True: the client reaches all SSDs, or more of them.
    ///
    /// # Errors
    /// [`Error::Protocol`]: no later try can help, such as an SSD that refuses the client's secret.
    pub fn reconnect(&self, deadline: Duration) -> Result<bool, Error> {
        let transfers = self.transfers.lock().expect("no panic while held");
        self.try_again(&transfers, deadline, false).map_err(Error::Protocol)
    }

    /// Tries to connect anew before a launch, where the heartbeat has missed an SSD.
    #[expect(clippy::disallowed_methods, reason = "tries are made now and then, in real time")]
    pub(crate) fn reconnect_if_hurt(&self) {
        if !self.session.is_hurt() {
            return;
        }
        let mut last = self.last_try.lock().expect("no panic while held");
        if last.is_some_and(|at| at.elapsed() < PAUSE) {
            return;
        }
        if let Err(e) = self.reconnect(self.io_timeout) {
            tracing::warn!("before a launch: {e}");
        }
        *last = Some(Instant::now());
    }

    #[expect(clippy::disallowed_methods, reason = "a blocking call with a deadline in real time")]
    fn try_again(&self, transfers: &Transfers, left: Duration, always: bool) -> Result<bool, String> {
        // Within one process there is no connection to be lost: an SSD that is cut off there is a fault.
        if self.way.fabric == Fabric::InProcess {
            return Err("the SSDs are in this process".into());
        }
        let begun = Instant::now();
        let left = || left.saturating_sub(begun.elapsed()).max(LEAST);
        let mut lost = self.channel.broken().map_err(|e| e.to_string())?;
        lost.iter_mut().enumerate().for_each(|(ssd, lost)| *lost |= !self.session.is_up(ssd));
        let all = !lost.contains(&true);
        if all && !always {
            return Ok(true);
        }
        if self.channel_stats().map_err(|e| e.to_string())?.parked != 0 {
            return Err("requests of submit_async wait: drain them first".into());
        }
        let mut links = Links::new(self.node(), &self.way, left());
        let mut reached: Vec<Option<(SsdAddress, HostQueue)>> = lost.iter().map(|_| None).collect();
        // The lost ones first: what still works is left alone until one of them answers.
        let order = (0..lost.len()).filter(|&ssd| lost[ssd]).chain((0..lost.len()).filter(|&ssd| !lost[ssd]));
        let (mut refused, mut why) = (0, String::new());
        for ssd in order {
            if !all && !lost[ssd] && reached.iter().all(Option::is_none) {
                break;
            }
            match self.dial(&mut links, ssd, left().min(ADMIN_DEADLINE)) {
                Ok(path) => reached[ssd] = Some(path),
                Err(Unreached::Yet(cause)) => why = cause,
                Err(Unreached::Refused(cause)) => (refused, why) = (refused + 1, cause),
            }
        }
        if reached.iter().all(Option::is_none) {
            tracing::debug!("no lost SSD is reached: {why}");
            let is_final = refused > 0 && refused == lost.iter().filter(|lost| **lost || all).count();
            return if is_final { Err(why) } else { Ok(false) };
        }
        self.renew(transfers, reached, left()).map_err(|e| e.to_string())
    }

    fn dial<'a>(
        &'a self,
        links: &mut Links<'a>,
        ssd: usize,
        deadline: Duration,
    ) -> Result<(SsdAddress, HostQueue), Unreached> {
        let address = links.to(&self.ssds[ssd]).map_err(|e| match e {
            Error::Node(NodeError::RcTransport(e @ TransportError::Stopped)) => {
                Unreached::Refused(e.to_string())
            }
            e => Unreached::Yet(e.to_string()),
        })?;
        match self.session.dial(self.node(), &address, deadline) {
            Ok(admin) => Ok((address, admin)),
            // Not there yet, or slow; a proof that fails fails again.
            Err(e @ ChannelError::Unproven { .. }) => Err(Unreached::Refused(e.to_string())),
            Err(e) => Err(Unreached::Yet(e.to_string())),
        }
    }

    /// Ends the old connections, and makes new ones to the SSDs that were reached.
    fn renew(
        &self,
        transfers: &Transfers,
        reached: Vec<Option<(SsdAddress, HostQueue)>>,
        left: Duration,
    ) -> Result<bool, Error> {
        let turn = self.node().turn();
        self.channel.cut();
        let in_flight = transfers.drain((&turn, &self.channel), None, FLUSHED)?;
        if in_flight != 0 {
            // Its agent or engine may stand still, as it does where the machine does: later they have ended.
            tracing::info!("{in_flight} requests of the old connections have not ended yet");
            return Ok(false);
        }
        let wanted: Vec<bool> = reached.iter().map(Option::is_some).collect();
        for (ssd, path) in reached.into_iter().enumerate() {
            if let Some((address, admin)) = path {
                self.session.adopt(ssd, address, admin);
            }
        }
        let failed = self.channel.reconnect(&turn, &self.session, &wanted, left)?;
        transfers.is_clean();
        for (_, cause) in &failed {
            tracing::warn!("connecting anew: {cause}");
        }
        let connected = wanted.iter().filter(|wanted| **wanted).count() - failed.len();
        tracing::info!("connected anew to {connected} of {} SSDs", wanted.len());
        Ok(connected > 0)
    }
}

impl Again for Client {
    fn reconnect(&self, transfers: &Transfers, left: Duration) -> Result<bool, String> {
        self.try_again(transfers, left, true)
    }
}

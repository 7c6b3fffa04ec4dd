// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Quotas of frames that wait for the data of writes, by client. A client that takes many frames and sends no
//! data must leave some to the others.
//!
//! ```text
//!   many frames are free    each client takes what it wants
//!   few are free            a client takes more only while it has at most three times what is free
//! ```
//! So one client gets three quarters of the frames, and k clients together leave one part in 3k + 1. Each
//! worker counts for itself, and so does the firmware, so that none waits for another. Each of them gets an
//! equal part of a client's quota.

use gnstor_proto::slba::ClientId;

/// Number of free frames from which on shares are not checked. It is a quarter of the frames for data under
/// way.
const PLENTY: u32 = crate::config::FRAMES / 4;

/// Frames that one worker, or the firmware, has taken for each client.
#[derive(Debug)]
pub(crate) struct Shares {
    /// Indexed by client id, up to the highest id that was served.
    held: Vec<u32>,
    /// Number of workers, and one for the firmware.
    parts: u32,
}

impl Shares {
    /// Quotas for `workers` workers and the firmware, each of which counts for itself.
    pub(crate) fn of(workers: usize) -> Self {
        Self { held: Vec::new(), parts: u32::try_from(workers).unwrap_or(u32::MAX).saturating_add(1) }
    }

    /// Whether a client may have `count` frames more while so many are free.
    #[inline]
    pub(crate) fn allow(&self, client: ClientId, count: u32, free: u32) -> bool {
        free >= PLENTY || self.is_small(client, count, free)
    }

    fn is_small(&self, client: ClientId, count: u32, free: u32) -> bool {
        let held = self.held.get(usize::from(client.get())).copied().unwrap_or(0);
        // A client without frames may take any number that is free, even all of them.
        held == 0 || u64::from(held + count) * u64::from(self.parts) <= 3 * u64::from(free)
    }

    /// A client has taken `count` frames.
    #[inline]
    pub(crate) fn take(&mut self, client: ClientId, count: u32) {
        let at = usize::from(client.get());
        if at >= self.held.len() {
            self.held.resize(at + 1, 0);
        }
        self.held[at] += count;
    }

    /// The data for `count` frames has arrived, or will not come.
    #[inline]
    pub(crate) fn give(&mut self, client: ClientId, count: u32) {
        self.held[usize::from(client.get())] -= count;
    }

    /// Frames that a client waits for data in.
    #[cfg(test)]
    pub(crate) fn held(&self, client: ClientId) -> u32 {
        self.held.get(usize::from(client.get())).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_finds_frames_beside_others_that_take_what_they_may() {
        let _deadline = crate::deadline::deadline();
        let client = |raw| ClientId::new(raw).expect("an id");
        let mut shares = Shares::of(0);
        let mut free = 4 * PLENTY;
        let mut all = |raw| {
            let mut count = 0;
            while free > 0 && shares.allow(client(raw), 1, free) {
                shares.take(client(raw), 1);
                (free, count) = (free - 1, count + 1);
            }
            count
        };
        let most = all(1);
        assert!((3 * PLENTY..=3 * PLENTY + 1).contains(&most), "{most}");
        let others: Vec<u32> = (2..=6).map(&mut all).collect();
        assert!(others.iter().all(|&count| count > 0), "{others:?}");
        assert!(others[0] >= PLENTY / 2, "{others:?}");
        shares.give(client(1), most);
        assert_eq!(shares.held(client(1)), 0);
    }
}

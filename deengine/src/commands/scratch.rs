// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Buffers for the data of commands other than reads and writes: Connect, Identify, permission entries, maps,
//! ranges. No host can have all buffers, so some are left for the daemon's commands and for another host's
//! Connect. Clients also leave some to other SSDs, which read to repair their copies.
//!
//! Several client ids of one principal may have all that the daemon leaves. So no host keeps a buffer for
//! long while another wants one: the SSD closes the queue that has had one for the longest.

use gnstor_base::controller::{Question, QueueKey};
use gnstor_base::region::{HostRegion, LocalRef};
use gnstor_base::time::{Span, Time};
use gnstor_proto::fabrics::Identity;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;

const SMALL_BYTES: u32 = 4096;
const SMALL_COUNT: u32 = 4096;
/// A map of the default 65,536 groups and 4,096 SSDs takes 557,100 bytes.
pub(crate) const LARGE_BYTES: u32 = 1 << 20;
/// One buffer must hold a fleet map.
const _: () = assert!(gnstor_proto::placement::MAP_BYTES <= LARGE_BYTES as usize);
const LARGE_COUNT: u32 = 9;
/// A question to another SSD takes a buffer of its own.
#[expect(clippy::cast_possible_truncation, reason = "200 bytes")]
pub(crate) const QUESTION: u32 = Question::BYTES as u32;

/// How long a host surely keeps a buffer while another host finds none.
const KEPT: Span = Span::from_ms(2000);

/// Owner of a buffer, for the quotas.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Owner {
    /// The daemon, which may have all buffers.
    Daemon,
    /// Another host.
    Host(Identity),
    /// All hosts whose Connect is in progress, together.
    Stranger,
}

/// Number of buffers of each size that one owner may have.
const OF_HOST: [u32; 2] = [SMALL_COUNT / 4, LARGE_COUNT / 2];
const OF_STRANGERS: [u32; 2] = [SMALL_COUNT / 4 * 3, 0];
/// Buffers of each size that only the daemon gets.
const OF_DAEMON: [usize; 2] = [64, 1];
/// Further ones that clients leave to other SSDs. Comparisons of clients may keep theirs for as long as a
/// slow disk takes.
const OF_PEERS: [usize; 2] = [64, 1];

/// A buffer in use. It is returned with [`Scratch::give`] once no transfer can touch it any more.
#[derive(Debug)]
#[must_use = "a buffer that is not given back is lost"]
pub(crate) struct Buffer {
    offset: u64,
    bytes: u32,
    owner: Owner,
    since: Time,
}

/// The scratch region of an SSD. Memory that is never touched costs nothing.
#[derive(Debug)]
pub(crate) struct Scratch {
    region: Arc<HostRegion>,
    /// Free buffers, small and large.
    free: [Vec<u64>; 2],
    /// Number of buffers of each size that each owner has.
    held: HashMap<Owner, [u32; 2]>,
    /// The queues of hosts that have some of each size, by the time since when.
    holders: [BTreeMap<(Time, u64), QueueKey>; 2],
    /// A host that may have a buffer of this size found none.
    is_wanted: [bool; 2],
}

impl Scratch {
    pub(crate) fn new() -> io::Result<Self> {
        let large_at = u64::from(SMALL_BYTES * SMALL_COUNT);
        let bytes = large_at + u64::from(LARGE_BYTES * LARGE_COUNT);
        Ok(Self {
            region: HostRegion::alloc(usize::try_from(bytes).map_err(io::Error::other)?)?,
            free: [
                (0..SMALL_COUNT).rev().map(|i| u64::from(i * SMALL_BYTES)).collect(),
                (0..LARGE_COUNT).rev().map(|i| large_at + u64::from(i * LARGE_BYTES)).collect(),
            ],
            held: HashMap::new(),
            holders: Default::default(),
            is_wanted: [false; 2],
        })
    }

    pub(crate) fn region(&self) -> &Arc<HostRegion> {
        &self.region
    }

    /// A buffer for `bytes`; `None` if none is free, the owner may have none, or `bytes` exceeds
    /// [`LARGE_BYTES`].
    pub(crate) fn take(&mut self, owner: Owner, bytes: u32) -> Option<Buffer> {
        if bytes > LARGE_BYTES {
            return None;
        }
        let size = size_of(bytes);
        let (most, left) = match owner {
            Owner::Daemon => (u32::MAX, 0),
            Owner::Host(Identity::Peer(_)) => (OF_HOST[size], OF_DAEMON[size]),
            Owner::Host(_) => (OF_HOST[size], OF_DAEMON[size] + OF_PEERS[size]),
            Owner::Stranger => (OF_STRANGERS[size], OF_DAEMON[size]),
        };
        let held = self.held.get(&owner).map_or(0, |held| held[size]);
        if held >= most {
            return None;
        }
        if self.free[size].len() <= left {
            self.is_wanted[size] = true;
            return None;
        }
        let offset = self.free[size].pop()?;
        self.held.entry(owner).or_default()[size] += 1;
        Some(Buffer { offset, bytes, owner, since: Time::NEVER })
    }

    /// As [`Self::take`], for a command of this queue.
    pub(crate) fn take_for(
        &mut self,
        now: Time,
        queue: QueueKey,
        owner: Owner,
        bytes: u32,
    ) -> Option<Buffer> {
        let buffer = self.take(owner, bytes)?;
        if owner != Owner::Daemon {
            self.holders[size_of(bytes)].insert((now, buffer.offset), queue);
        }
        Some(Buffer { since: now, ..buffer })
    }

    /// The queue to close so that other hosts find a buffer, and when to ask again.
    pub(crate) fn holder_to_end(&mut self, now: Time) -> (Option<QueueKey>, Time) {
        let mut next = Time::NEVER;
        for (size, left) in OF_DAEMON.into_iter().enumerate() {
            self.is_wanted[size] &= self.free[size].len() <= left + OF_PEERS[size];
            let oldest = self.holders[size].first_key_value().filter(|_| self.is_wanted[size]);
            match oldest {
                Some((&(since, _), &queue)) if since + KEPT <= now => {
                    // The queue's buffers come back when its transfers are answered. The next host that finds
                    // none asks for another queue to end.
                    self.holders[size].retain(|_, holder| *holder != queue);
                    self.is_wanted[size] = false;
                    return (Some(queue), now);
                }
                Some((&(since, _), _)) => next = next.min(since + KEPT),
                None => {}
            }
        }
        (None, next)
    }

    /// The host has sent the data of this buffer: from now on the SSD keeps it, and no queue ends for it.
    pub(crate) fn arrived(&mut self, buffer: &Buffer) {
        self.holders[size_of(buffer.bytes)].remove(&(buffer.since, buffer.offset));
    }

    pub(crate) fn give(&mut self, buffer: Buffer) {
        let size = size_of(buffer.bytes);
        self.free[size].push(buffer.offset);
        self.holders[size].remove(&(buffer.since, buffer.offset));
        if let Some(held) = self.held.get_mut(&buffer.owner) {
            held[size] -= 1;
            if *held == [0, 0] {
                self.held.remove(&buffer.owner);
            }
        }
    }

    pub(crate) fn local(&self, buffer: &Buffer) -> LocalRef {
        self.region.slice(buffer.offset, buffer.bytes)
    }

    /// A copy of the buffer's bytes, so that the host cannot change the data while the firmware checks it.
    pub(crate) fn read(&self, buffer: &Buffer) -> Vec<u8> {
        let mut bytes = vec![0; buffer.bytes as usize];
        self.region.read(buffer.offset, &mut bytes);
        bytes
    }

    /// Copies a part of the buffer's bytes.
    pub(crate) fn read_at(&self, buffer: &Buffer, offset: u32, out: &mut [u8]) {
        assert!(offset as usize + out.len() <= buffer.bytes as usize, "the part lies within the buffer");
        self.region.read(buffer.offset + u64::from(offset), out);
    }

    /// Fills the buffer with `data`, cut or padded with zeros.
    pub(crate) fn fill(&self, buffer: &Buffer, data: &[u8]) {
        let used = data.len().min(buffer.bytes as usize);
        self.region.write(buffer.offset, &data[..used]);
        self.region.fill(buffer.offset + used as u64, buffer.bytes as usize - used, 0);
    }
}

/// The place of a buffer's size.
fn size_of(bytes: u32) -> usize {
    usize::from(bytes > SMALL_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_in_use_never_overlap() {
        let _deadline = crate::deadline::deadline();
        let mut scratch = Scratch::new().unwrap();
        let mut taken: Vec<Buffer> = std::iter::from_fn(|| scratch.take(Owner::Daemon, 1024)).collect();
        taken.extend(std::iter::from_fn(|| scratch.take(Owner::Daemon, LARGE_BYTES)));
        assert_eq!(taken.len(), (SMALL_COUNT + LARGE_COUNT) as usize);
        let mut ranges: Vec<_> = taken.iter().map(|b| (b.offset, b.offset + u64::from(b.bytes))).collect();
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|w| w[0].1 <= w[1].0));
        assert!(scratch.take(Owner::Daemon, LARGE_BYTES + 1).is_none());
        taken.into_iter().for_each(|buffer| scratch.give(buffer));
        assert!(scratch.take(Owner::Daemon, 4096).is_some());
    }

    #[test]
    fn no_host_and_not_all_strangers_together_have_all_buffers() {
        let _deadline = crate::deadline::deadline();
        let mut scratch = Scratch::new().unwrap();
        let client =
            |raw| Owner::Host(Identity::Client(gnstor_proto::slba::ClientId::new(raw).expect("an id")));
        let all = |scratch: &mut Scratch, owner, bytes| -> Vec<Buffer> {
            std::iter::from_fn(|| scratch.take(owner, bytes)).collect()
        };
        let strangers = all(&mut scratch, Owner::Stranger, 1024);
        assert_eq!(strangers.len(), (SMALL_COUNT / 4 * 3) as usize);
        let large = all(&mut scratch, client(1), LARGE_BYTES);
        assert_eq!(large.len(), (LARGE_COUNT / 2) as usize);
        assert!(scratch.take(client(1), LARGE_BYTES).is_none());
        // Another host finds some of both sizes, and after that the daemon does.
        let others = [all(&mut scratch, client(2), 4096), all(&mut scratch, client(2), LARGE_BYTES)];
        assert!(others.iter().all(|taken| !taken.is_empty()));
        assert!(scratch.take(client(3), LARGE_BYTES).is_none());
        // Another SSD reads, however many clients have the buffers.
        let peer = scratch.take(Owner::Host(Identity::Peer(1)), LARGE_BYTES);
        assert!(peer.is_some());
        let daemon = [scratch.take(Owner::Daemon, 4096), scratch.take(Owner::Daemon, LARGE_BYTES)];
        assert!(daemon.iter().all(Option::is_some));
        let taken = strangers.into_iter().chain(large).chain(others.into_iter().flatten());
        taken.chain(daemon.into_iter().flatten()).chain(peer).for_each(|buffer| scratch.give(buffer));
        assert!(scratch.held.is_empty());
        assert_eq!(all(&mut scratch, client(1), LARGE_BYTES).len(), (LARGE_COUNT / 2) as usize);
    }
}

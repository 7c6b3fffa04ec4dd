// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the parts of a channel are in its device memory.

use crate::abi::{self, ChannelAbi, Dumps, QueuePair};
use gnstor_fabric::hca::agent::DeviceQp;
use gnstor_proto::fabrics::CONNECT_DATA_BYTES;
use std::mem::size_of;

/// Offsets of a channel's parts in its device memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    ssds: usize,
    /// Sets of queues for each SSD. There are two if its queue pair may be made anew beside a kernel.
    pub(crate) sets: usize,
    pub(crate) depth: u32,
    pub(crate) qps: usize,
    pub(crate) dumps: usize,
    pub(crate) waiting: usize,
    pub(crate) parked: usize,
    pub(crate) cq: usize,
    pub(crate) cq_log: u32,
    pub(crate) capsules: usize,
    pub(crate) connect: usize,
    pub(crate) per_ssd: usize,
    pub(crate) queue_bytes: usize,
    pub(crate) uars: usize,
    pub(crate) pool_words: usize,
    pub(crate) bytes: usize,
}

/// With fewer, one of many SSDs could block commands that wait for a place in its queue.
const LEAST_DEPTH: usize = 32;
/// Completions of tries to make a queue pair anew that the device may not have taken yet: two a try.
pub(crate) const VAIN_ENTRIES: usize = 8;

/// Number of commands that may be in flight to one SSD. The SSDs of an array share the channel's slots, so a
/// channel to four SSDs has the paper's 50 KB of queues. A channel to one SSD can have all slots in flight
/// (docs/decisions/0028).
fn queue_depth(ssds: usize) -> u32 {
    let each = abi::SLOTS.div_ceil(ssds.max(1)).next_power_of_two().max(LEAST_DEPTH);
    u32::try_from(each).expect("at most SLOTS")
}

/// Entries of an NVMe submission queue for so many commands in flight: twice as many. The tail then never
/// reaches the head that responses report (SQHD), so no code checks that.
pub(crate) fn nvme_queue_entries(depth: u32) -> u32 {
    abi::NVME_ENTRIES_EACH * depth
}

impl Layout {
    /// A channel to `ssds` SSDs. `known` of them exist when it is made, and decide on the depth of the
    /// queues: room for others does not make these shorter.
    pub(crate) fn new((ssds, known): (usize, usize), sets: usize, pool_most: u32) -> Self {
        let depth = queue_depth(known);
        let per_queue = abi::SQ_AT + depth as usize * abi::QUEUE_BYTES_EACH;
        let align = |n: usize, to: usize| n.next_multiple_of(to);
        let qps = align(size_of::<ChannelAbi>(), 128);
        let dumps = qps + ssds * size_of::<QueuePair>();
        let waiting = dumps + ssds * size_of::<Dumps>();
        let parked = align(waiting + ssds * abi::SLOTS, 64);
        // Connect's data is read once, before the first request can be parked.
        let connect = parked;
        let cq = align(parked + (abi::SLOTS * abi::PARKED_BYTES).max(ssds * CONNECT_DATA_BYTES), 4096);
        // There is an entry for every send block that is not retired and for every posted receive. So the
        // queue cannot overrun, even if all SSDs fail at once. Unsuccessful tries to make queue pairs anew
        // take some more.
        let in_vain = if sets > 1 { ssds * VAIN_ENTRIES } else { 0 };
        let entries = (2 * ssds * depth as usize + in_vain).next_power_of_two();
        let capsules = cq + entries * 64;
        let per_ssd = capsules + abi::SLOTS * 64;
        let queue_bytes = per_ssd + sets * ssds * per_queue;
        let uars = align(queue_bytes, 4096);
        let pool_words = uars + sets * ssds * abi::UAR_BYTES;
        let cq_log = entries.trailing_zeros();
        Self {
            ssds,
            sets,
            depth,
            qps,
            dumps,
            waiting,
            parked,
            cq,
            cq_log,
            capsules,
            connect,
            per_ssd,
            queue_bytes,
            uars,
            pool_words,
            bytes: pool_words + pool_most as usize * 4,
        }
    }

    /// Queue pairs, in the order of their queues: the first sets of all SSDs come first.
    pub(crate) fn queues(&self) -> usize {
        self.sets * self.ssds
    }

    /// Offset of the queues with this number.
    pub(crate) fn queue_at(&self, queue: usize) -> usize {
        self.per_ssd + queue * (abi::SQ_AT + self.depth as usize * abi::QUEUE_BYTES_EACH)
    }

    /// Queue pair `queue` of a channel whose memory begins at `base`.
    pub(crate) fn queue_pair(&self, base: u64, queue: usize, own: Owner) -> DeviceQp {
        let Owner { cq, pd, ring } = own;
        let depth = self.depth as usize;
        let queues = self.queue_at(queue);
        let at = |offset: usize| base + offset as u64;
        DeviceQp {
            sq: (at(queues + abi::SQ_AT), self.depth),
            rq: (at(queues + abi::SQ_AT + depth * abi::RQ_AT_EACH), self.depth),
            dbr: at(queues + abi::DBR_AT),
            uar: at(self.uars + queue * abi::UAR_BYTES),
            cq,
            pd,
            ring,
        }
    }
}

/// The owner of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub(crate) cq: u32,
    pub(crate) pd: u32,
    pub(crate) ring: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    #[test]
    fn a_channel_has_the_papers_50_kb_of_queues_and_all_its_slots_in_flight() {
        let _deadline = deadline();
        for ssds in [1, 2, 4] {
            let layout = Layout::new((ssds, ssds), 1, abi::POOL_BLOCKS);
            assert_eq!(ssds * layout.depth as usize, abi::SLOTS, "{ssds} SSDs");
            assert!(layout.queue_bytes < 54_000, "{ssds} SSDs: {} bytes", layout.queue_bytes);
        }
        for ssds in 1..=abi::MAX_SSDS {
            let layout = Layout::new((ssds, ssds), 2, abi::POOL_BLOCKS);
            assert!(
                ssds * layout.depth as usize >= abi::SLOTS && layout.depth.is_power_of_two(),
                "{ssds} SSDs"
            );
            let entries = ssds * (2 * layout.depth as usize + VAIN_ENTRIES);
            assert!(1 << layout.cq_log >= entries, "{ssds} SSDs");
        }
    }
}

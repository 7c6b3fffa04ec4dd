// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The SSDs that said that they have a write, and the epochs of the commands that they answered (rule 5a).

use gnstor_proto::nvme::ReadWrite;
use gnstor_proto::slba::{Stamp, Vid};
use std::collections::BTreeMap;
use std::ops::Range;

/// A part of a write that an SSD has answered well.
#[derive(Clone, Debug)]
struct Part {
    ssd: u16,
    epoch: u64,
    vid: Vid,
    blocks: Range<u32>,
    stamp: Stamp,
}

/// Answers of writes of so many leases before the present one are kept.
const KEPT_LEASES: u32 = 16;

/// The stamp of a write of a block, the SSD that said that it has it, and the epoch of the command.
type Heard = (Stamp, u16, u64);

/// Parts of writes.
#[derive(Default)]
pub(super) struct Copies {
    /// Answers on their way, by connection and command id.
    on_their_way: BTreeMap<(u32, u16), Part>,
    /// The answers that hosts have got.
    heard: BTreeMap<(Vid, u32), Vec<Heard>>,
}

impl Copies {
    /// An SSD answers a write well.
    pub(super) fn answered(&mut self, ssd: u16, key: (u32, u16), rw: &ReadWrite) {
        let Some(address) = rw.slba.unpack() else { return };
        let blocks = address.vba..address.vba + rw.blocks;
        let (vid, epoch, stamp) = (address.vid, u64::from(rw.map_epoch), rw.stamp);
        self.on_their_way.insert(key, Part { ssd, epoch, vid, blocks, stamp });
    }

    /// Its host hears that.
    pub(super) fn heard(&mut self, key: (u32, u16)) {
        let Some(Part { ssd, epoch, vid, blocks, stamp }) = self.on_their_way.remove(&key) else { return };
        for vba in blocks {
            let all = self.heard.entry((vid, vba)).or_default();
            // The kernel of a client may stand still while its host has the answers. So a write may be
            // acknowledged some leases later.
            all.retain(|(of, ..)| of.lease_epoch.saturating_add(KEPT_LEASES) >= stamp.lease_epoch);
            all.push((stamp, ssd, epoch));
        }
    }

    /// The SSDs that have the write, and the epochs. They are forgotten.
    pub(super) fn take(&mut self, vid: Vid, vba: u32, stamp: Stamp) -> Vec<(u16, u64)> {
        let Some(all) = self.heard.get_mut(&(vid, vba)) else { return Vec::new() };
        let own = all.iter().filter(|(of, ..)| *of == stamp).map(|(_, ssd, epoch)| (*ssd, *epoch)).collect();
        all.retain(|(of, ..)| *of != stamp);
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;
    use gnstor_proto::slba::{Address, ClientId, Slba};

    #[test]
    fn a_copy_counts_when_its_host_has_heard_of_it() {
        let _deadline = deadline();
        let (vid, client) = (Vid::new(3).unwrap(), ClientId::new(1).unwrap());
        let slba = Slba::pack(Address { vid, client, vba: 8 });
        let stamp = Stamp { lease_epoch: 2, sequence: 5 };
        let rw = ReadWrite { slba, blocks: 2, fua: false, map_epoch: 4, stamp };
        let mut copies = Copies::default();
        copies.answered(0, (1, 7), &rw);
        copies.answered(2, (2, 7), &ReadWrite { map_epoch: 5, ..rw });
        assert_eq!(copies.take(vid, 8, stamp), []);
        copies.heard((1, 7));
        copies.heard((2, 7));
        assert_eq!(copies.take(vid, 9, stamp), [(0, 4), (2, 5)]);
        assert_eq!(copies.take(vid, 9, stamp), [], "it was acknowledged");
        assert_eq!(copies.take(vid, 8, Stamp { sequence: 6, ..stamp }), []);
        assert_eq!(copies.take(vid, 8, stamp).len(), 2);
    }

    #[test]
    fn a_write_may_be_acknowledged_when_others_have_written_the_block_again() {
        let _deadline = deadline();
        let (vid, client) = (Vid::new(3).unwrap(), ClientId::new(1).unwrap());
        let slba = Slba::pack(Address { vid, client, vba: 8 });
        let stamp = Stamp { lease_epoch: 2, sequence: 5 };
        let mut copies = Copies::default();
        for lease_epoch in [2, 3, 40] {
            let stamp = Stamp { lease_epoch, ..stamp };
            copies.answered(0, (1, 7), &ReadWrite { slba, blocks: 1, fua: false, map_epoch: 4, stamp });
            copies.heard((1, 7));
            let own = copies.heard[&(vid, 8)].iter().any(|(of, ..)| of.lease_epoch == 2);
            assert_eq!(own, lease_epoch < 40, "lease {lease_epoch}");
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A reader beside the writers: what an SSD tells it was acknowledged, or is newer.

use super::*;

impl World {
    /// A client that never writes reads a block of one SSD, by the map that this SSD has.
    pub(super) fn read_any(&mut self) {
        let (ssd, at, hot) = (self.dice.index(3), self.dice.index(2), self.dice.small(HOT));
        if !self.nodes[ssd].answers() {
            return;
        }
        let vba = block_of(hot);
        let (vid, least) = (self.volumes[at].vid(), self.volumes[at].acknowledged(vba));
        let map_epoch = u32::try_from(self.nodes[ssd].epoch()).expect("few");
        let mut sqe = sqe(io::READ);
        let slba = Slba::pack(Address { vid, client: client(8), vba });
        ReadWrite { slba, blocks: 1, fua: false, map_epoch, stamp: Stamp::default() }.encode(&mut sqe);
        sqe.dptr = KeyedSgl::keyed(0, 4096, KEY);
        let harness = &mut self.nodes[ssd].harness;
        if harness.refused(READER, sqe).is_some() {
            return;
        }
        let data = harness.peek(READER, 0);
        let is_nothing = data.iter().all(|byte| *byte == 0);
        let found = (!is_nothing).then(|| block_sum(data));
        self.volumes[at].check_read(vba, found, least);
        self.counts.reads += 1;
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads that no client of the product sends: of a place that fills. The SSD must refuse them (rule 13),
//! because it may not have the block yet.

use super::lanes::probe_address;
use super::{Client, Open};
use crate::survive::end::KEY;
use crate::survive::history::History;
use crate::survive::stats::Path;
use crate::survive::wire::Post;
use gnstor_base::time::{Span, Time};
use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::nvme::{self, Cqe, KeyedSgl, ReadWrite, Sqe};
use gnstor_proto::placement::{AnyMap, Rows as _, group_of};
use gnstor_proto::slba::{Address, ClientId, Slba, Stamp};
use gnstor_proto::status::{Detail, Status};

/// The command id: the twin uses those below 128.
const CID: u16 = 0x7F00;
/// Pause between two probes.
const EVERY: Span = Span::from_ms(3);

/// A probe under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    ssd: usize,
    vba: u32,
    epoch: u64,
}

/// The probes of a client.
#[derive(Default, Debug)]
pub(super) struct Probes {
    open: Option<Probe>,
    next_at: Time,
}

impl Probes {
    /// The queue is gone, and what was on its way, too.
    pub(super) fn lost(&mut self, ssd: usize) {
        self.open = self.open.filter(|probe| probe.ssd != ssd);
    }
}

/// The read of one block.
fn read(open: &Open, client: ClientId, map: &AnyMap, (vba, lanes): (u32, usize)) -> Sqe {
    let mut sqe = Sqe { opcode: nvme::io::READ, nsid: 1.into(), ..Sqe::default() };
    sqe.cid = CID.into();
    sqe.dptr = KeyedSgl::keyed(probe_address(lanes) as u64, BLOCK_BYTES, KEY);
    let slba = Slba::pack(Address { vid: open.entry.vid, client, vba });
    let map_epoch = u32::try_from(map.epoch() & 0xFFFF_FFFF).expect("32 bits");
    let stamp = Stamp { lease_epoch: open.entry.lease_epoch, sequence: 0 };
    ReadWrite { slba, blocks: 1, fua: false, map_epoch, stamp }.encode(&mut sqe);
    sqe
}

impl Client {
    /// Asks a place that fills for a block, if there is one and it is time. Returns when it looks again.
    pub(super) fn probe(&mut self, post: &mut Post) -> Time {
        let (Some(open), Some(map)) = (&self.open, &self.map) else { return Time::NEVER };
        if !self.shape.probes || self.lanes.work.is_none() || self.probes.open.is_some() {
            return Time::NEVER;
        }
        let entry = &open.entry;
        let blocks = u32::try_from(entry.capacity_blocks).expect("small");
        let filling = |vba: u32| {
            let group = group_of(entry.vid, vba, entry.chunk_shift, entry.factor, map.groups());
            map.replicas(group, entry.replicas).find(|member| member.filling).map(|member| (vba, member.ssd))
        };
        let all: Vec<(u32, u16)> = (0..blocks).filter_map(filling).collect();
        if all.is_empty() {
            return Time::NEVER;
        }
        if post.now < self.probes.next_at {
            return self.probes.next_at;
        }
        self.probes.next_at = post.now + EVERY;
        let (vba, ssd) = all[self.probe_dice.below(u32::try_from(all.len()).expect("small")) as usize];
        let ssd = usize::from(ssd);
        if self.sessions[ssd].is_up() {
            post.stats.path(Path::Probed);
            self.sessions[ssd].send(post, read(open, self.id, map, (vba, self.lanes.count())));
            self.probes.open = Some(Probe { ssd, vba, epoch: map.epoch() });
        }
        self.probes.next_at
    }

    /// Takes the answer to a probe. Returns false if the response is of another command.
    pub(super) fn probed(&mut self, post: &mut Post, history: &mut History, ssd: usize, cqe: &Cqe) -> bool {
        if cqe.cid.get() != CID {
            return false;
        }
        let Some(probe) = self.probes.open.take_if(|probe| probe.ssd == ssd) else { return true };
        if let Some(refusal) = Detail::from_dw0(cqe.dw0.get()).refusal() {
            post.stats.refusal(refusal);
        }
        if Status(cqe.status_word()).is_success() {
            let Probe { vba, epoch, .. } = probe;
            let facts = format!("SSD {ssd} gave client {} block {vba} in epoch {epoch}", self.number);
            history.broken(post.now, "a place that fills served a read (rule 13)", facts);
        }
        true
    }
}

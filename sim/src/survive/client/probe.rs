// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads of one SSD, whatever the others say (`FLAG_PINNED` of the device code): a request that another copy
//! may serve waits for it. A copy that is cut off from the others must refuse, or have the newest data. And
//! reads that no client of the product sends: of a place that fills. The SSD must refuse them (rule 13),
//! because it may not have the block yet.

use super::requests::probe_address;
use super::{Client, Open};
use crate::survive::end::{KEY, lock};
use crate::survive::history::{BLOCK, History, ReadOf, found_in};
use crate::survive::stats::Path;
use crate::survive::wire::Post;
use gnstor_base::time::{Span, Time};
use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::nvme::{self, Cqe, KeyedSgl, ReadWrite, Sqe};
use gnstor_proto::placement::{AnyMap, Member, Rows as _, group_of};
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
    fills: bool,
    of: ReadOf,
}

/// The probes of a client.
#[derive(Default, Debug)]
pub(super) struct Probes {
    open: Option<Probe>,
    next_at: Time,
}

impl Probes {
    /// Forgets a probe whose queue is gone.
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
    /// Asks one SSD for a block, if it is time. Returns when it looks again.
    pub(super) fn probe(&mut self, post: &mut Post, history: &History) -> Time {
        let (Some(open), Some(map)) = (&self.open, &self.map) else { return Time::NEVER };
        if self.requests.work.is_none() || self.probes.open.is_some() {
            return Time::NEVER;
        }
        let entry = &open.entry;
        let blocks = u32::try_from(entry.capacity_blocks).expect("small");
        if post.now < self.probes.next_at {
            return self.probes.next_at;
        }
        self.probes.next_at = post.now + EVERY;
        let wants_filling = self.shape.probes && self.probe_dice.below(2) == 0;
        let place = |vba: u32| {
            let group = group_of(entry.vid, vba, entry.chunk_shift, entry.factor, map.groups());
            let is_up = |member: &Member| self.sessions[usize::from(member.ssd)].is_up();
            let mut places = map.replicas(group, entry.replicas).filter(is_up);
            places.find(|member| member.filling == wants_filling).map(|member| (vba, member))
        };
        let all: Vec<(u32, Member)> = (0..blocks).filter_map(place).collect();
        if all.is_empty() {
            return self.probes.next_at;
        }
        let (vba, member) = all[self.probe_dice.below(u32::try_from(all.len()).expect("small")) as usize];
        let (ssd, life) = (usize::from(member.ssd), (entry.vid, entry.generation));
        let of = ReadOf {
            life,
            vba,
            client: self.number,
            is_writer: self.requests.work.as_ref().is_some_and(|work| work.is_writer),
            ssd: member.ssd,
            epoch: map.epoch(),
            begun: post.now,
            floor: history.floor(life, vba),
        };
        let at = probe_address(self.requests.count());
        lock(&self.requests.memory)[at..at + BLOCK].fill(0xEE);
        post.stats.path(if member.filling { Path::Probed } else { Path::Pinned });
        self.sessions[ssd].send(post, read(open, self.id, map, (vba, self.requests.count())));
        self.probes.open = Some(Probe { ssd, fills: member.filling, of });
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
        if !Status(cqe.status_word()).is_success() {
            return true;
        }
        let Probe { fills, of, .. } = probe;
        if fills {
            let facts = format!("SSD {ssd} gave client {} block {} in epoch {}", of.client, of.vba, of.epoch);
            history.broken(post.now, "a place that fills served a read (rule 13)", facts);
        } else {
            let at = probe_address(self.requests.count());
            let found = found_in(&lock(&self.requests.memory)[at..at + BLOCK]);
            history.read(of, found, post.now);
        }
        true
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PEER READ: this SSD, as the first of groups, tells other members which blocks it has.

use super::apply::held;
use super::digest::{leaves_of, of_chunks};
use super::state::Work as Job;
use crate::commands::cold::{Cold, Stored, Telling};
use crate::commands::{CompletionPermit, Delivered, Work};
use crate::controller::Ssd;
use crate::permission::fleet::{Fleet, Place};
use crate::request::Refused;
use crate::workers::runs;
use gnstor_base::time::Time;
use gnstor_flash::Ppa;
use gnstor_fleet::repair::Held;
use gnstor_ftl::Extent;
use gnstor_proto::checksum::block_sum;
use gnstor_proto::fabrics::Identity;
use gnstor_proto::nvme::Sqe;
use gnstor_proto::placement::Rows;
use gnstor_proto::pull::{DATA_AT, Kind, PeerRead, Row, Wanted};
use gnstor_proto::slba::Stamp;
use gnstor_proto::status::Refusal;
use gnstor_proto::vendor::VolumeEntry;

/// Largest number of blocks in one hold of the layer's lock.
const AT_ONCE: usize = 64;
/// Most answers whose pages are being loaded. Each holds a copy of up to 64 blocks.
const TELLS: u32 = 16;
/// Most times that the blocks of an answer are looked up. Each time, clients may have written them anew.
const ROUNDS: u32 = 8;

/// Data, DW0, and when the SSD has all of the data.
type Told = ((Vec<u8>, u32), Time);

impl Ssd {
    pub(crate) fn answer_peer(&mut self, now: Time, permit: CompletionPermit, cntlid: u16, sqe: &Sqe) {
        let Some(read) = PeerRead::of(sqe) else {
            return self.refuse(permit, 0, Refusal::InvalidField.into(), now);
        };
        if matches!(read.wanted, Wanted::Blocks(_)) {
            return self.tell_blocks(now, permit, &read, Telling::new(cntlid, sqe));
        }
        let identity = self.hosts.identity_of(cntlid);
        let answer = self.blocks_for(now, identity, &read).map(|blocks| match read.wanted {
            Wanted::Digests(_) => (self.digests(&read, &blocks), now),
            Wanted::Rows(_) | Wanted::Blocks(_) => (self.rows(&read, &blocks), now),
        });
        self.answer(now, permit, (&read, sqe), answer);
    }

    fn answer(
        &mut self,
        now: Time,
        permit: CompletionPermit,
        (read, sqe): (&PeerRead, &Sqe),
        answer: Result<Told, Refused>,
    ) {
        match (answer, u32::try_from(read.bytes())) {
            (Ok(((data, rows), done)), Ok(bytes)) => {
                let answer = Delivered { data: &data, bytes, dw0: rows, at: done };
                self.deliver(now, permit, sqe, answer);
            }
            (Err(refused), _) => self.refuse(permit, read.vid.get(), refused, now),
            (_, Err(_)) => self.refuse(permit, read.vid.get(), Refusal::InvalidField.into(), now),
        }
    }

    /// Answers with data, or begins to load the pages that are on the medium only. When they are there, all
    /// is judged and looked up again. So each row, and its data, is of the moment of the answer.
    fn tell_blocks(&mut self, now: Time, permit: CompletionPermit, read: &PeerRead, mut telling: Telling) {
        let vid = read.vid.get();
        let is_late = telling.next_round() >= ROUNDS;
        if is_late || self.repair.tells >= TELLS && !self.ftl().is_in_memory() {
            self.let_go_cold(telling.cold_mut(), &[]);
            return self.refuse(permit, vid, Refusal::NotReady.into(), now);
        }
        let (cntlid, sqe) = telling.question();
        let (identity, sqe) = (self.hosts.identity_of(cntlid), *sqe);
        let blocks = self.blocks_for(now, identity, read);
        let answer = blocks.and_then(|blocks| self.with_data(now, read, &blocks, telling.cold_mut()));
        let started = telling.cold_mut().take_started();
        if started.is_empty() {
            self.let_go_cold(telling.cold_mut(), &[]);
            return self.answer(now, permit, (read, &sqe), answer);
        }
        self.repair.tells += 1;
        let id = self.start(permit, vid, now, Work::Tell(Box::new(telling)));
        self.await_cold(id, started);
    }

    /// The pages of an answer have been loaded.
    pub(crate) fn tell_on(&mut self, now: Time, permit: CompletionPermit, telling: Telling) {
        self.repair.tells -= 1;
        match PeerRead::of(telling.question().1) {
            Some(read) => self.tell_blocks(now, permit, &read, telling),
            None => unreachable!("it was one"),
        }
    }

    /// The queue of an answer is gone. Loads that are under way are given back when they end.
    pub(crate) fn end_telling(&mut self, mut telling: Telling) {
        self.repair.tells -= 1;
        self.let_go_cold(telling.cold_mut(), &[]);
    }

    /// The blocks that the asker gets: of groups where this SSD decides, and the asker has a place.
    fn blocks_for(
        &self,
        now: Time,
        identity: Option<Identity>,
        read: &PeerRead,
    ) -> Result<Vec<u32>, Refused> {
        let fleet = self.table.fleet().filter(|_| runs(self.table.lease_end(), now));
        let fleet = fleet.ok_or(Refusal::NotServing)?;
        fleet.check_epoch(read.epoch)?;
        if !fleet.serves() || fleet.stands_in() {
            return Err(Refusal::NotServing.into());
        }
        let map = fleet.map();
        let count = u16::try_from(map.count()).unwrap_or(u16::MAX);
        let asker = (0..count).find(|&ssd| map.id(ssd).map(Identity::Peer) == identity);
        let asker = asker.ok_or(Refusal::WrongIdentity)?;
        let volume = self.table.volume(read.vid).ok_or(Refusal::UnknownVolume)?;
        let entry = volume.entry();
        if entry.generation != read.generation {
            return Err(Refusal::UnknownVolume.into());
        }
        if entry.deleting {
            return Err(Refusal::Deleting.into());
        }
        let is_told = |vba| tells(fleet, entry, vba, asker, read.of_any);
        let blocks = of_chunks(entry, read.blocks(), is_told);
        // Each block whose data is requested has a row.
        let is_whole = !matches!(read.wanted, Wanted::Blocks(_)) || blocks.iter().copied().eq(read.blocks());
        if is_whole { Ok(blocks) } else { Err(Refused::at(Refusal::WrongTarget, map.wire_epoch())) }
    }

    fn rows(&self, read: &PeerRead, blocks: &[u32]) -> (Vec<u8>, u32) {
        let (mut data, mut rows) = (Vec::new(), 0);
        for part in blocks.chunks(AT_ONCE) {
            let commits = self.ftl().commits();
            for &vba in part {
                let row = row_of(vba, held(commits.kept(read.vid, read.generation, vba)));
                if row.kind != Kind::Nothing {
                    row.encode(&mut data);
                    rows += 1;
                }
            }
        }
        (data, rows)
    }

    fn digests(&self, read: &PeerRead, blocks: &[u32]) -> (Vec<u8>, u32) {
        let (mut data, mut leaves) = (Vec::new(), 0);
        for leaf in leaves_of(read.first, read.blocks().count(), blocks) {
            self.ftl().announce_rows(read.vid, leaf);
            let digest = self.ftl().commits().digest(read.vid, read.generation, leaf);
            data.extend_from_slice(&digest.to_le_bytes());
            leaves += 1;
        }
        (data, leaves)
    }

    /// Reads row and data of a block from the same page. The answer counts only if no load has begun.
    fn with_data(
        &mut self,
        now: Time,
        read: &PeerRead,
        blocks: &[u32],
        cold: &mut Cold,
    ) -> Result<Told, Refused> {
        let (mut rows, mut data, mut pages) = (Vec::new(), Vec::new(), Vec::new());
        let mut refused = None;
        for &vba in blocks {
            let row = match self.ftl().extent(read.vid, read.generation, vba) {
                Extent::Page(page, sum) => {
                    pages.push(page);
                    let stamp = self.told_stamp(page);
                    match (self.stored(page, cold), stamp) {
                        // The other pages begin to load, too.
                        (Stored::Loading, _) => continue,
                        (Stored::Here(_), None) => {
                            refused = Some(Refusal::NotReady);
                            break;
                        }
                        (Stored::Here(bytes), Some(stamp)) => {
                            let kind = match bytes.filter(|bytes| block_sum(&bytes[..]) == sum) {
                                Some(bytes) => {
                                    data.extend_from_slice(&bytes[..]);
                                    Kind::Block { sum }
                                }
                                None => Kind::Unreadable { sum },
                            };
                            Row { block: vba, kind, stamp }
                        }
                    }
                }
                Extent::WrongKey => {
                    Row { block: vba, kind: Kind::Unreadable { sum: 0 }, stamp: Stamp::default() }
                }
                Extent::Unmapped | Extent::StaleGeneration => {
                    match held(self.ftl().commits().kept(read.vid, read.generation, vba)) {
                        Held::Block { .. } => {
                            // A client wrote the block in between: the asker asks again.
                            refused = Some(Refusal::NotReady);
                            break;
                        }
                        held => row_of(vba, held),
                    }
                }
            };
            row.encode(&mut rows);
        }
        self.let_go_cold(cold, &pages);
        let refused = refused.or(cold.is_loading().then_some(Refusal::NotReady));
        if let Some(refusal) = refused {
            return Err(refusal.into());
        }
        rows.resize(DATA_AT, 0);
        rows.extend_from_slice(&data);
        let done = self.ftl().read_time(now, &pages, 0).max(self.turn(now, Job::Read, pages.len()));
        Ok(((rows, u32::try_from(blocks.len()).unwrap_or_default()), done))
    }

    /// The stamp that goes with a page. The page may have rotted, or the record with its sum and stamp. Data
    /// that matches the sum is right, and only the stamp is in doubt.
    fn told_stamp(&self, page: Ppa) -> Option<Stamp> {
        let stamp = self.ftl().flash().oob(page)?.stamp;
        Some(if self.ftl().flash().is_sound(page) { stamp } else { Stamp::default() })
    }
}

fn tells(fleet: &Fleet, entry: &VolumeEntry, vba: u32, asker: u16, of_any: bool) -> bool {
    let is_right = || match of_any {
        // Each copy of a merge tells the others what it has (rule 17).
        _ if fleet.merges(entry, vba) => fleet.place(entry, vba) == Place::Filling,
        true => matches!(fleet.place(entry, vba), Place::Serving { .. }),
        false => fleet.source(entry, vba) == fleet.own(),
    };
    u64::from(vba) < entry.capacity_blocks
        && fleet.own().is_some()
        && is_right()
        && fleet.has_member(entry, vba, asker)
}

fn row_of(block: u32, held: Held) -> Row {
    let kind = match held {
        Held::Nothing => Kind::Nothing,
        Held::Block { sum, .. } => Kind::Block { sum },
        Held::Tombstone { .. } => Kind::Tombstone,
    };
    Row { block, kind, stamp: held.stamp() }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PEER READ: this SSD, as the first of groups, tells other members which blocks it has.

use super::apply::held;
use super::digest::{leaves_of, of_chunks};
use super::state::Work;
use crate::commands::{CompletionPermit, Delivered};
use crate::controller::Ssd;
use crate::permission::fleet::{Fleet, Place};
use crate::request::Refused;
use crate::workers::runs;
use gnstor_base::time::Time;
use gnstor_flash::Ppa;
use gnstor_fleet::repair::Held;
use gnstor_ftl::Extent;
use gnstor_proto::BLOCK_BYTES;
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

impl Ssd {
    pub(crate) fn answer_peer(&mut self, now: Time, permit: CompletionPermit, cntlid: u16, sqe: &Sqe) {
        let identity = self.hosts.identity_of(cntlid);
        let Some(read) = PeerRead::of(sqe) else {
            return self.refuse(permit, 0, Refusal::InvalidField.into(), now);
        };
        let answer = self.blocks_for(now, identity, &read).and_then(|blocks| match read.wanted {
            Wanted::Rows(_) => Ok((self.rows(&read, &blocks), now)),
            Wanted::Digests(_) => Ok((self.digests(&read, &blocks), now)),
            Wanted::Blocks(_) => self.with_data(now, &read, &blocks),
        });
        match (answer, u32::try_from(read.bytes())) {
            (Ok(((data, rows), done)), Ok(bytes)) => {
                let answer = Delivered { data: &data, bytes, dw0: rows, at: done };
                self.deliver(now, permit, sqe, answer);
            }
            (Err(refused), _) => self.refuse(permit, read.vid.get(), refused, now),
            (_, Err(_)) => self.refuse(permit, read.vid.get(), Refusal::InvalidField.into(), now),
        }
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

    /// Reads row and data of a block from the same page.
    fn with_data(
        &mut self,
        now: Time,
        read: &PeerRead,
        blocks: &[u32],
    ) -> Result<((Vec<u8>, u32), Time), Refused> {
        let (mut rows, mut data, mut pages) = (Vec::new(), Vec::new(), Vec::new());
        for &vba in blocks {
            let row = match self.ftl().extent(read.vid, read.generation, vba) {
                Extent::Page(page, sum) => {
                    let stamp = self.ftl().flash().oob(page).map(|oob| oob.stamp);
                    let is_sound = self.ftl().flash().is_sound(page);
                    let bytes = self.page_now(page);
                    self.ftl().unpin(page);
                    pages.push(page);
                    let stamp = stamp.ok_or(Refusal::NotReady)?;
                    let stamp = if is_sound { stamp } else { Stamp::default() };
                    // The data that was read may have rotted, or the record with its sum and stamp. Data that
                    // matches the sum is right, and only the stamp is in doubt.
                    let kind = match bytes?.filter(|bytes| block_sum(bytes) == sum) {
                        Some(bytes) => {
                            data.extend_from_slice(&bytes);
                            Kind::Block { sum }
                        }
                        None => Kind::Unreadable { sum },
                    };
                    Row { block: vba, kind, stamp }
                }
                Extent::WrongKey => {
                    Row { block: vba, kind: Kind::Unreadable { sum: 0 }, stamp: Stamp::default() }
                }
                Extent::Unmapped | Extent::StaleGeneration => {
                    match held(self.ftl().commits().kept(read.vid, read.generation, vba)) {
                        // A client wrote the block in between: the asker asks again.
                        Held::Block { .. } => return Err(Refusal::NotReady.into()),
                        held => row_of(vba, held),
                    }
                }
            };
            row.encode(&mut rows);
        }
        rows.resize(DATA_AT, 0);
        rows.extend_from_slice(&data);
        let done = self.ftl().read_time(now, &pages, 0).max(self.turn(now, Work::Read, pages.len()));
        Ok(((rows, u32::try_from(blocks.len()).unwrap_or_default()), done))
    }
}

impl Ssd {
    /// The data of a pinned page; `None`: the medium does not give it.
    pub(super) fn page_now(&self, page: Ppa) -> Result<Option<[u8; BLOCK_BYTES as usize]>, Refused> {
        let frame = self.ftl().take_frame().ok_or(Refusal::NotReady)?;
        let mut bytes = [0; BLOCK_BYTES as usize];
        let copied = self.ftl().flash().copy(page, frame);
        if copied.is_ok() {
            self.ftl().flash().read_frame(frame, &mut bytes);
        }
        self.ftl().give_frame(frame);
        Ok(copied.is_ok().then_some(bytes))
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

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The merged translation layer: the map and the media under it, in one hand.
//!
//! It takes authorised requests only, and keeps three things true: a mapped page's record names the block it is mapped
//! for; a page is mapped at most once; a page that the map let go of is free as soon as no transfer reads it.

use crate::map::Map;
use crate::media::{Media, Oob, Ppa};
use crate::permission::Authorized;
use crate::preset::Preset;
use crate::request::Request;
use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::slba::{Stamp, Vid};
use gnstor_proto::status::Refusal;
use std::io;

/// Physical pages beyond the logical ones, in percent.
const OVER_PROVISIONING: u64 = 7;

/// Where a block of an authorised request is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extent {
    /// On this page, with this sum.
    Page(Ppa, u32),
    /// Nowhere: never written, or forgotten. It reads as zeros.
    Unmapped,
    /// A page of an earlier life of the volume id: it reads as zeros.
    StaleGeneration,
    /// The page's record names another block: an internal error.
    WrongKey,
}

/// Map and media of one SSD.
#[derive(Debug)]
pub(crate) struct Ftl {
    pub(crate) map: Map,
    pub(crate) media: Media,
    logical_pages: u64,
    /// Blocks that writes in flight will map anew: space is promised when a write starts, not when its data is there.
    claimed: u64,
    seq: u64,
    mapped_of: Vec<u32>,
    swept: Vec<(u32, Ppa)>,
}

impl Ftl {
    pub(crate) fn new(preset: &Preset, capacity_bytes: u64, seed: u64) -> io::Result<Self> {
        let logical_pages = capacity_bytes / u64::from(BLOCK_BYTES);
        if logical_pages == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "an SSD holds at least one block of 4 KiB"));
        }
        let physical = (u128::from(logical_pages) * u128::from(100 + OVER_PROVISIONING)).div_ceil(100);
        let physical = u64::try_from(physical).map_err(|_| io::Error::other("capacity is beyond any address space"))?;
        let media = Media::new(preset, physical)?;
        Ok(Self {
            map: Map::new(logical_pages, media.pages(), seed),
            media,
            logical_pages,
            claimed: 0,
            seq: 0,
            mapped_of: vec![0; 1 << 16],
            swept: Vec::new(),
        })
    }

    pub(crate) fn logical_pages(&self) -> u64 {
        self.logical_pages
    }

    /// Blocks of a volume that are mapped.
    pub(crate) fn mapped_of(&self, vid: Vid) -> u32 {
        self.mapped_of[usize::from(vid.get())]
    }

    /// Block `index` of the request.
    pub(crate) fn extent(&self, request: &Authorized<Request>, index: u32) -> Extent {
        let (vid, vba) = block(request, index);
        let Some(page) = self.map.get(vid, vba) else { return Extent::Unmapped };
        let oob = self.media.oob(page);
        if (oob.vid, oob.vba) != (vid.get(), vba) {
            Extent::WrongKey
        } else if oob.generation == request.generation() {
            Extent::Page(page, oob.sum)
        } else {
            Extent::StaleGeneration
        }
    }

    /// Promises room for the blocks of a write that are not mapped yet; the number to hand to [`Self::unclaim`].
    pub(crate) fn claim(&mut self, request: &Authorized<Request>) -> Result<u64, Refusal> {
        let new = (0..request.get().blocks).filter(|&index| {
            let (vid, vba) = block(request, index);
            self.map.get(vid, vba).is_none()
        });
        let new = new.count() as u64;
        if self.map.len() + self.claimed + new > self.logical_pages {
            return Err(Refusal::CapacityExceeded);
        }
        self.claimed += new;
        Ok(new)
    }

    pub(crate) fn unclaim(&mut self, blocks: u64) {
        self.claimed -= blocks;
    }

    /// The stamp of what is mapped for a block in this life of the volume.
    pub(crate) fn held_stamp(&self, request: &Authorized<Request>, index: u32) -> Option<Stamp> {
        match self.extent(request, index) {
            Extent::Page(page, _) => Some(self.media.oob(page).stamp),
            Extent::Unmapped | Extent::StaleGeneration | Extent::WrongKey => None,
        }
    }

    /// The data of block `index` is on `page`: from now on reads find it there. On refusal the page is still the
    /// caller's.
    pub(crate) fn commit(
        &mut self,
        request: &Authorized<Request>,
        index: u32,
        page: Ppa,
        sum: u32,
    ) -> Result<(), Refusal> {
        let (vid, vba) = block(request, index);
        self.seq += 1;
        // The record goes first: the map never names a page that does not say what it holds.
        self.media.set_oob(
            page,
            Oob {
                vid: vid.get(),
                generation: request.generation(),
                vba,
                stamp: request.get().stamp,
                sum,
                seq: self.seq,
            },
        );
        match self.map.insert(vid, vba, page).map_err(|_| Refusal::CapacityExceeded)? {
            Some(old) => self.media.free(old),
            None => self.mapped_of[usize::from(vid.get())] += 1,
        }
        Ok(())
    }

    /// Unmaps block `index`; whether it was mapped.
    pub(crate) fn forget(&mut self, request: &Authorized<Request>, index: u32) -> bool {
        let (vid, vba) = block(request, index);
        self.unmap(vid, vba)
    }

    fn unmap(&mut self, vid: Vid, vba: u32) -> bool {
        let Some(page) = self.map.remove(vid, vba) else { return false };
        self.mapped_of[usize::from(vid.get())] -= 1;
        self.media.free(page);
        true
    }

    /// Unmaps what a bounded part of the table holds of a volume; how many blocks.
    pub(crate) fn sweep(&mut self, vid: Vid, first_bucket: u64, buckets: u64) -> u64 {
        let mut swept = std::mem::take(&mut self.swept);
        let found = self.map.scan(first_bucket, buckets).filter(|&(owner, ..)| owner == vid);
        swept.extend(found.map(|(_, vba, page)| (vba, page)));
        let count = swept.len() as u64;
        for (vba, _) in swept.drain(..) {
            self.unmap(vid, vba);
        }
        self.swept = swept;
        count
    }
}

fn block(request: &Authorized<Request>, index: u32) -> (Vid, u32) {
    let address = request.get().address;
    // The permission check has seen that the last block is below a capacity of at most 2^32.
    (address.vid, address.vba + index)
}

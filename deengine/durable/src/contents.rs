// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The contents of cells, as [`crate::changes`] writes them; [`crate::metadata`] has their layout.

use crate::metadata::{
    ENTRY_HEAD, FLAG_GRANT, FLAG_IDENTITY, FLAG_LEASED, Grant, HELD_HEAD, HeldMap, Metadata, SsdIdentity,
    TOMBSTONE_BYTES, Tombstone,
};
use gnstor_proto::slba::Vid;
use gnstor_proto::vendor::ENTRY_BYTES;

/// What the term's cell is to say.
pub(crate) struct TermCell<'a> {
    pub(crate) term: u64,
    pub(crate) filling: Option<u64>,
    pub(crate) leased: bool,
    pub(crate) grant: Option<Grant>,
    pub(crate) identity: Option<SsdIdentity>,
    pub(crate) openings: &'a [u64],
}

impl<'a> TermCell<'a> {
    pub(crate) fn of(contents: &'a Metadata) -> Self {
        let &Metadata { term, filling, leased, grant, identity, .. } = contents;
        Self { term, filling, leased, grant, identity, openings: &contents.openings }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let filling = self.filling.map_or(0, |epoch| epoch.saturating_add(1));
        let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
        let flags = flag(self.leased, FLAG_LEASED)
            | flag(self.identity.is_some(), FLAG_IDENTITY)
            | flag(self.grant.is_some(), FLAG_GRANT);
        let mut content: Vec<u8> =
            [self.term, filling, flags].into_iter().flat_map(u64::to_le_bytes).collect();
        self.openings.iter().for_each(|number| content.extend_from_slice(&number.to_le_bytes()));
        if let Some(SsdIdentity { uuid, incarnation }) = self.identity {
            content.extend_from_slice(&uuid);
            content.extend_from_slice(&u64::from(incarnation).to_le_bytes());
        }
        if let Some(Grant { term, instance }) = self.grant {
            content.extend_from_slice(&term.to_le_bytes());
            content.extend_from_slice(&instance.to_le_bytes());
        }
        content
    }
}

pub(crate) fn entry_content(vid: Vid, generation: u32, bytes: &[u8]) -> Vec<u8> {
    let mut content = Vec::with_capacity(ENTRY_HEAD + ENTRY_BYTES);
    content.extend_from_slice(&vid.get().to_le_bytes());
    content.extend_from_slice(&[0; 2]);
    content.extend_from_slice(&generation.to_le_bytes());
    content.extend_from_slice(&[0; 8]);
    content.extend_from_slice(bytes);
    content
}

pub(crate) fn tombstone_content(vid: Vid, tombstone: &Tombstone) -> Vec<u8> {
    let count = u16::try_from(tombstone.ids.len()).expect("at most REQUEST_IDS");
    let mut content = Vec::with_capacity(TOMBSTONE_BYTES);
    content.extend_from_slice(&vid.get().to_le_bytes());
    content.extend_from_slice(&count.to_le_bytes());
    content.extend_from_slice(&tombstone.generation.to_le_bytes());
    content.extend_from_slice(&tombstone.buried_at.to_le_bytes());
    content.extend_from_slice(&tombstone.term.to_le_bytes());
    content.extend_from_slice(&tombstone.version.to_le_bytes());
    for (id, time) in &tombstone.ids {
        content.extend_from_slice(id);
        content.extend_from_slice(&time.to_le_bytes());
    }
    content.resize(TOMBSTONE_BYTES, 0);
    content
}

pub(crate) fn held_content(held: &HeldMap) -> Vec<u8> {
    let mut content = Vec::with_capacity(HELD_HEAD + held.map.len());
    content.extend_from_slice(&held.term.to_le_bytes());
    content.extend_from_slice(&held.map);
    content
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The content of the term's cell: what an SSD knows of itself in a few words. The layout is in
//! [`crate::metadata`].

use crate::bytes::{COUNTER_MAX_32, Fields, u64_at};
use crate::error::Refused;
use crate::metadata::{Grant, Metadata, SsdIdentity};

const FLAG_LEASED: u64 = 1;
const FLAG_IDENTITY: u64 = 2;
const FLAG_KEY: u64 = 4;
const FLAG_GRANT: u64 = 8;
const IDENTITY_BYTES: usize = 24;
const KEY_BYTES: usize = 32;
const GRANT_BYTES: usize = 16;
/// Most SSDs of an array.
pub(crate) const MOST_SSDS: usize = 64;

/// The content of the term's cell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TermCell<'a> {
    pub(crate) term: u64,
    pub(crate) filling: Option<u64>,
    pub(crate) leased: bool,
    pub(crate) openings: &'a [u64],
    pub(crate) identity: Option<SsdIdentity>,
    pub(crate) key_verifier: Option<[u8; 32]>,
    pub(crate) grant: Option<Grant>,
}

impl<'a> TermCell<'a> {
    pub(crate) fn of(contents: &'a Metadata) -> Self {
        let &Metadata { term, filling, leased, identity, key_verifier, grant, .. } = contents;
        Self { term, filling, leased, openings: &contents.openings, identity, key_verifier, grant }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let filling = self.filling.map_or(0, |epoch| epoch.saturating_add(1));
        let flag = |is_set: bool, flag: u64| if is_set { flag } else { 0 };
        let flags = flag(self.leased, FLAG_LEASED)
            | flag(self.identity.is_some(), FLAG_IDENTITY)
            | flag(self.key_verifier.is_some(), FLAG_KEY)
            | flag(self.grant.is_some(), FLAG_GRANT);
        let mut content: Vec<u8> =
            [self.term, filling, flags].into_iter().flat_map(u64::to_le_bytes).collect();
        self.openings.iter().for_each(|number| content.extend_from_slice(&number.to_le_bytes()));
        if let Some(SsdIdentity { uuid, incarnation }) = self.identity {
            content.extend_from_slice(&uuid);
            content.extend_from_slice(&u64::from(incarnation).to_le_bytes());
        }
        content.extend(self.key_verifier.iter().flatten());
        if let Some(Grant { term, instance }) = self.grant {
            content.extend_from_slice(&term.to_le_bytes());
            content.extend_from_slice(&instance.to_le_bytes());
        }
        content
    }
}

impl Metadata {
    /// Takes over the content of the term's cell; nothing of a wrong one.
    pub(crate) fn take_term_cell(&mut self, content: &[u8]) -> Result<(), Refused> {
        const WHAT: &str = "the term's cell";
        let mut fields = Fields::new(WHAT, content);
        let (term, filling, flags) = (fields.u64()?, fields.u64()?, fields.u64()?);
        if flags & !(FLAG_LEASED | FLAG_IDENTITY | FLAG_KEY | FLAG_GRANT) != 0 {
            return Err(Refused::new(WHAT, format!("flags {flags:#x}")));
        }
        let has = |flag: u64, bytes: usize| if flags & flag == 0 { 0 } else { bytes };
        let behind =
            has(FLAG_IDENTITY, IDENTITY_BYTES) + has(FLAG_KEY, KEY_BYTES) + has(FLAG_GRANT, GRANT_BYTES);
        let openings = fields.bytes(fields.left().saturating_sub(behind))?;
        let mut identity = None;
        if flags & FLAG_IDENTITY != 0 {
            let (uuid, incarnation) = (fields.take()?, fields.u64()?);
            let number = u32::try_from(incarnation).ok().filter(|&number| number <= COUNTER_MAX_32);
            let Some(incarnation) = number else {
                return Err(Refused::new(WHAT, format!("incarnation {incarnation}")));
            };
            identity = Some(SsdIdentity { uuid, incarnation });
        }
        let key_verifier = if flags & FLAG_KEY == 0 { None } else { Some(fields.take()?) };
        let mut grant = None;
        if flags & FLAG_GRANT != 0 {
            grant = Some(Grant { term: fields.u64()?, instance: fields.u64()? });
        }
        if openings.len() % 8 != 0 || openings.len() > 8 * MOST_SSDS {
            return Err(Refused::new(WHAT, format!("{} bytes of openings", openings.len())));
        }
        self.openings = openings.chunks_exact(8).map(|number| u64_at(number, 0)).collect();
        (self.term, self.filling, self.identity) = (term, filling.checked_sub(1), identity);
        (self.key_verifier, self.grant) = (key_verifier, grant);
        self.leased = flags & FLAG_LEASED != 0;
        Ok(())
    }
}

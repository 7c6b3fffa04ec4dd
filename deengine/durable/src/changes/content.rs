// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bytes that a step writes into its cell, and the checks before that.

use crate::error::DurableError;
use crate::metadata_store::MetadataStore;
use crate::steps::Step;
use crate::term_cell::{MOST_SSDS, TermCell};
use gnstor_proto::slba::Vid;
use gnstor_proto::vendor::{EntryError, VolumeEntry};

/// Refuses a content that is larger than its room.
pub(super) fn check_room(what: &'static str, has: usize, room: u64) -> Result<(), DurableError> {
    let has = has as u64;
    if has > room { Err(DurableError::TooLarge { what, has, room }) } else { Ok(()) }
}

impl MetadataStore {
    /// The term's cell after this step, which is one of the steps that change it.
    pub(super) fn term_cell<'a>(&'a self, step: &'a Step) -> Result<TermCell<'a>, DurableError> {
        let old = &self.contents;
        let cell = TermCell::of(old);
        Ok(match step {
            Step::Term { term, filling, leased, identity } => TermCell {
                term: term.unwrap_or(old.term),
                filling: filling.or(old.filling),
                leased: *leased || old.leased,
                identity: identity.or(old.identity),
                ..cell
            },
            Step::KeyVerifier(verifier) => TermCell { key_verifier: Some(*verifier), ..cell },
            Step::Grant(grant) => TermCell { term: old.term.max(grant.term), grant: Some(*grant), ..cell },
            Step::Openings(openings) => {
                check_room("SSDs of an array", openings.len(), MOST_SSDS as u64)?;
                TermCell { openings, ..cell }
            }
            Step::Hold(_) | Step::Map(_) | Step::Entry { .. } | Step::Bury { .. } | Step::Clear { .. } => {
                cell
            }
        })
    }

    /// The generation of a permission entry that may be written.
    pub(super) fn check_entry(&self, vid: Vid, bytes: &[u8]) -> Result<u32, DurableError> {
        let entry = VolumeEntry::decode(bytes).map_err(|why| DurableError::Entry { vid, why })?;
        if entry.vid != vid {
            return Err(DurableError::Entry { vid, why: EntryError::Field("vid") });
        }
        let generation = entry.generation;
        let tombstone = self.contents.tombstones.get(&vid).filter(|t| t.generation >= generation);
        match tombstone.map(|tombstone| tombstone.generation) {
            Some(buried) => Err(DurableError::Buried { vid, generation, buried }),
            None => Ok(generation),
        }
    }
}

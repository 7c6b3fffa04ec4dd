// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One writer at a time, and copies that are equal in the quiet.

use super::{Judge, Op, blocks_of, change_of};
use crate::block::{Found, Life};
use crate::history::{Call, Outcome};
use std::collections::BTreeMap;

impl Judge {
    /// Notes a lease, and judges leases and changes by those before. Calls come in the order of their ends.
    pub(super) fn leases_of(&mut self, op: &Op) {
        let Some(end) = op.end else { return };
        if let Some(Outcome::Opened(life, lease)) = op.outcome
            && lease > 0
        {
            let grants = &mut self.volumes.entry(life).or_default().grants;
            let is_twice = grants.iter().any(|(known, _)| *known == lease);
            let newer = grants.iter().find(|(known, told)| *known > lease && *told < op.begin).copied();
            grants.push((lease, end));
            if is_twice {
                let facts = format!("{}: lease {lease} of life {life:#x} once more", op.who);
                self.breaks("a write lease is granted once (8)", facts);
            }
            if let Some((newer, _)) = newer {
                let facts = format!("{}: lease {lease} of life {life:#x} behind lease {newer}", op.who);
                self.breaks("write leases grow (8)", facts);
            }
        }
        let (Some((stamp, _)), Some(Outcome::Done)) = (change_of(&op.call), &op.outcome) else { return };
        let Some((life, block, _)) = blocks_of(&op.call) else { return };
        let volume = self.volumes.entry(life).or_default();
        let later = volume.grants.iter().find(|(lease, told)| *lease > stamp.0 && *told < op.begin).copied();
        let is_deleted = volume.deleted.is_some_and(|deleted| deleted < op.begin);
        if let Some((lease, _)) = later {
            let facts =
                format!("{}: {stamp:?} of life {life:#x}, block {block}, began after lease {lease}", op.who);
            self.breaks("one writer at a time (8)", facts);
        }
        if is_deleted {
            let facts = format!("{}: {stamp:?} of life {life:#x} began after it was deleted", op.who);
            self.breaks("nothing is written to a deleted volume (10)", facts);
        }
    }

    /// Copies that were read in the quiet, each by itself: all are there, and they are equal.
    pub(super) fn copies_of(&mut self, ops: &[Op]) {
        let mut copies: BTreeMap<(Life, u32), Vec<(u32, Found)>> = BTreeMap::new();
        for op in ops {
            let Call::Copy { life, block, replica, .. } = op.call else { continue };
            match &op.outcome {
                Some(Outcome::Values(values, _)) => {
                    for (number, found) in (block..).zip(values) {
                        copies.entry((life, number)).or_default().push((replica, found.clone()));
                    }
                }
                Some(Outcome::Failed(_, why)) => {
                    let facts = format!("copy {replica} of life {life:#x} from block {block} on: {why}");
                    self.breaks("each copy can be read in the quiet (1b)", facts);
                }
                _ => {}
            }
        }
        for ((life, block), copies) in copies {
            let (first, rest) = copies.split_first().expect("one at least");
            if let Some(other) = rest.iter().find(|other| other.1 != first.1) {
                let facts = format!("life {life:#x}, block {block}: copy {first:?}, copy {other:?}");
                self.breaks("copies are equal in the quiet (14)", facts);
            }
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether an SSD carries out a read or a write: the SSD's part of rules 1, 2, 7a and 8.

use crate::change::min_copies;
use crate::map::{Map, Place, Row, SsdState};
use crate::{Epoch, Incarnation, Refused, SsdId};
use gnstor_proto::slba::Stamp;
use gnstor_proto::vendor::MAX_REPLICAS;

/// The state by which an SSD judges a command.
#[derive(Clone, Copy, Debug)]
pub struct Standing<'a> {
    /// The newest active map that it knows.
    pub map: &'a Map,
    /// Number of the SSD.
    pub ssd: SsdId,
    /// Incarnation of the SSD's content.
    pub incarnation: Incarnation,
    /// The SSD's serving lease runs, by a clock that was read after the command was taken in.
    pub has_lease: bool,
}

/// A write as an SSD judges it.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    /// Epoch that the command carries.
    pub epoch: Epoch,
    /// Stamp of the data.
    pub stamp: Stamp,
    /// Replicas of the volume.
    pub replicas: u32,
}

/// The part of a volume's permission entry that is about writes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Entry {
    /// The last write lease granted.
    pub lease_epoch: u32,
    /// Whether the volume has a writer, whose lease was not taken back.
    pub has_writer: bool,
    /// The lease ended uncleanly, and the volume is not settled.
    pub unsettled: bool,
}

impl Standing<'_> {
    /// Checks that the map gives this content its places, and that the lease runs.
    fn check_serving(&self) -> Result<(), Refused> {
        let known = self.map.ssd(self.ssd).ok_or(Refused::NotServing)?;
        let is_in = matches!(known.state, SsdState::In | SsdState::Full);
        if self.has_lease && is_in && known.incarnation == self.incarnation {
            Ok(())
        } else {
            Err(Refused::NotServing)
        }
    }

    fn check_epoch(&self, epoch: Epoch) -> Result<(), Refused> {
        match epoch.cmp(&self.map.epoch) {
            core::cmp::Ordering::Less => Err(Refused::StaleMap),
            core::cmp::Ordering::Equal => Ok(()),
            core::cmp::Ordering::Greater => Err(Refused::MapBehind),
        }
    }

    /// Whether a read of a block of the group is answered. It is judged again when the data is ready.
    ///
    /// # Errors
    /// The first rule that refuses.
    pub fn judge_read(&self, row: &Row, epoch: Epoch, is_writer: bool, entry: Entry) -> Result<(), Refused> {
        self.check_epoch(epoch)?;
        self.check_serving()?;
        if self.map.waits(row) || row.merging(MAX_REPLICAS).contains(self.ssd) {
            return Err(Refused::GroupWaits);
        }
        let is_mine = |place: &&Place| place.ssd() == Some(self.ssd);
        match row.places.iter().find(is_mine) {
            Some(Place::Serving(_)) => {}
            Some(Place::Filling(_)) => return Err(Refused::NotHereYet),
            _ if row.members().contains(self.ssd) => return Err(Refused::NotHereYet),
            _ => return Err(Refused::WrongTarget),
        }
        let is_settled = !entry.has_writer && !entry.unsettled;
        if is_writer || is_settled || row.first() == Some(self.ssd) {
            Ok(())
        } else {
            Err(Refused::AskTheFirst)
        }
    }

    /// Whether a write is applied. It is judged so at its commit, not only when it comes in: lease and map
    /// may have changed in between.
    ///
    /// # Errors
    /// The first rule that refuses.
    pub fn judge_write(&self, row: &Row, write: Write, entry: Entry) -> Result<(), Refused> {
        self.check_epoch(write.epoch)?;
        self.check_serving()?;
        if !row.members().contains(self.ssd) {
            return Err(Refused::WrongTarget);
        }
        // No client writes where copies merge (rule 17): a block would be current on some of them only.
        let merges = row.merging(MAX_REPLICAS).contains(self.ssd);
        if self.map.waits(row) || merges || row.members().len() < min_copies(write.replicas) {
            return Err(Refused::GroupWaits);
        }
        if !entry.has_writer || entry.lease_epoch != write.stamp.lease_epoch {
            return Err(Refused::LeaseExpired);
        }
        Ok(())
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers of openings, by which voters find an older image of an SSD: the rules are in
//! `gnstor_fleet::opening`. The metadata has a number for each SSD of the map. The lower half of a number
//! counts. The upper half names the array, where `gnstor up` has drawn one (`array/src/openings.rs`).
//!
//! ```text
//!   voter   LEASE ASK with a higher number --durable--> yes
//!   asker   a majority has proven its content --durable: next number--> it asks for its lease
//!           "you are an older image" --durable: incarnation + 1, the voter's number--> it is filled anew
//! ```
//! Where no SSDs vote, the daemon remembers the numbers (`gnstor_daemon::openings`). It says by OPENING which
//! one it knows:
//!
//! ```text
//!   SSD starts with 5    OPENING 5 --durable: 6--> answer 6      OPENING 6 --> it serves
//!   older image: 4       OPENING 5 --durable: incarnation + 1--> it serves nothing, and keeps its 4
//! ```
//! The daemon holds a number before it says it a second time. An SSD that waits for the daemon
//! ([`Ssd::await_opening`]) serves nothing before that.
//!
//! All of these are changes of the metadata ([`super::changes`]), so none overtakes another one.

use crate::admin::state::{ByDaemon, Change};
use crate::commands::{Answer, CompletionPermit, OK};
use crate::controller::Ssd;
use gnstor_base::time::Time;
use gnstor_durable::SsdIdentity;
use gnstor_fleet::opening::{self, Stage};
use gnstor_fleet::{Opening, SsdId};
use gnstor_proto::fabrics::Identity;
use gnstor_proto::placement::{AnyMap, Rows};
use gnstor_proto::ssd_identity::KnownOpening;
use gnstor_proto::status::Refusal;

const COUNT_BITS: u32 = 32;

/// The count in a number.
fn count_of(number: u64) -> Opening {
    let low = number & u64::from(Opening::MAX);
    Opening::try_from(low).unwrap_or(Opening::MAX)
}

/// The array that a number names.
fn array_of(number: u64) -> u64 {
    number >> COUNT_BITS
}

/// The numbers, with another count for one SSD.
fn with(openings: &[u64], ssd: usize, count: Opening) -> Vec<u64> {
    let named = || openings.iter().copied().map(array_of);
    let own = openings.get(ssd).copied().map(array_of).filter(|&array| array != 0);
    let array = own.or_else(|| named().max()).unwrap_or(0);
    let mut openings = openings.to_vec();
    openings.resize(openings.len().max(ssd + 1), 0);
    openings[ssd] = array << COUNT_BITS | u64::from(count);
    openings
}

impl Ssd {
    /// The highest number of openings that this SSD knows of an SSD of its map. Its own number is in its
    /// content.
    pub(crate) fn known_opening(&self, ssd: SsdId) -> Opening {
        self.openings().get(usize::from(ssd)).map_or(0, |&number| count_of(number))
    }

    /// The number of openings in this SSD's question.
    pub(crate) fn own_opening(&self, own: SsdId) -> Opening {
        if self.admin.volumes.stands_in() { opening::STANDS_IN } else { self.known_opening(own) }
    }

    /// Starts to write down the number of an SSD.
    pub(crate) fn start_opening(&mut self, ssd: SsdId, count: Opening) {
        let openings = with(self.openings(), ssd.into(), count);
        self.admin.volumes.metadata_mut().start_openings(&openings);
    }

    /// The numbers under a map that names other SSDs in some places. An old number would make the new SSD an
    /// older image of the previous one. This SSD's own place is left out, because that number belongs to its
    /// own content. `None`: all SSDs are the same.
    pub(crate) fn openings_under(&self, map: &AnyMap) -> Option<Vec<u64>> {
        let (AnyMap::Three(old), AnyMap::Three(new)) = (self.table.fleet()?.map(), map) else { return None };
        let pairs = old.ssds.iter().zip(&new.ssds).enumerate();
        let own = self.config().index;
        let others = pairs.filter(|(_, (was, is))| was.uuid != is.uuid && is.id != own).map(|(ssd, _)| ssd);
        let forgotten =
            others.filter(|&ssd| self.openings().get(ssd).is_some_and(|&number| count_of(number) > 0));
        forgotten.fold(None, |openings, ssd| {
            Some(with(openings.as_deref().unwrap_or_else(|| self.openings()), ssd, 0))
        })
    }

    /// Starts to raise the SSD's own number; `false`: the map has no place for it.
    pub(crate) fn begin_raise(&mut self) -> bool {
        let Some(own) = self.table.fleet().and_then(|fleet| fleet.own()) else { return false };
        self.start_opening(own, opening::next(self.known_opening(own)));
        true
    }

    /// If its map names no voters, this SSD serves nothing until a daemon knows of this start. It is for SSDs
    /// that start alone: the SSDs of one process judge each other. `start` is drawn, and not 0.
    pub fn await_opening(&mut self, start: u32) {
        self.admin.asker.start = start;
        if self.table.fleet().is_some() && !self.asks_voters() {
            self.admin.asker.by_daemon = ByDaemon::Awaited;
            self.table.end_lease(Time::ZERO);
        }
    }

    /// OPENING: the daemon knows this number.
    pub(crate) fn hear_opening(&mut self, now: Time, permit: CompletionPermit, known: KnownOpening) {
        let Some(own) = self.table.fleet().and_then(|fleet| fleet.own()) else {
            return self.refuse(permit, 0, Refusal::NotServing.into(), now);
        };
        let (KnownOpening(known), has) = (known, self.known_opening(own));
        if self.admin.volumes.stands_in() {
            return self.complete(permit, OK, now, 0);
        }
        let answer = Answer { dw0: has, dw1: self.admin.asker.start, ..OK };
        if has < known {
            // Without voters, the older image was found before. Its number stays low, so that the operator
            // can put the right file back.
            return match !self.asks_voters() && self.is_filling() {
                true => self.refuse(permit, 0, Refusal::OlderImage.into(), now),
                false => self.ask_change(now, permit, 0, Change::Older { known }),
            };
        }
        match (self.asks_voters(), self.admin.asker.stage, self.admin.asker.by_daemon) {
            (true, Stage::Opened, _) => self.complete(permit, answer, now, 0),
            // The number rises when a majority has proven the content.
            (true, ..) => self.refuse(permit, 0, Refusal::NotReady.into(), now),
            (false, _, ByDaemon::Counted { awaited }) => {
                if awaited && has == known {
                    self.admin.asker.by_daemon = ByDaemon::Counted { awaited: false };
                    self.table.end_lease(if self.needs_a_lease() { Time::ZERO } else { Time::NEVER });
                }
                self.complete(permit, answer, now, 0);
            }
            (false, ..) => self.ask_change(now, permit, 0, Change::Open),
        }
    }

    /// This start's number is durable.
    pub(super) fn end_open(&mut self, now: Time, command: Option<u32>) {
        let awaited = self.admin.asker.by_daemon == ByDaemon::Awaited;
        self.admin.asker.by_daemon = ByDaemon::Counted { awaited };
        let own = self.table.fleet().and_then(|fleet| fleet.own());
        let dw0 = own.map_or(0, |own| self.known_opening(own));
        if let Some(permit) = self.permit_of(command) {
            self.complete(permit, Answer { dw0, dw1: self.admin.asker.start, ..OK }, now, 0);
        }
    }

    /// A higher number is known: starts to write down that writes were lost, and the incarnation that
    /// says so (rule 1a). `false`: it has done so.
    pub(crate) fn begin_older(&mut self, known: Opening) -> bool {
        let Some(fleet) = self.table.fleet() else { return false };
        let Some(own) = fleet.own().filter(|&own| self.known_opening(own) < known) else { return false };
        let (has, epoch) = (self.known_opening(own), fleet.map().epoch());
        let by = if self.asks_voters() { "a voter" } else { "the daemon" };
        tracing::error!(
            "SSD {}: its content is an older image: it was opened {has} times, and {by} knows of {known}; it \
             serves no reads until it is filled anew",
            self.config().index
        );
        let SsdIdentity { uuid, incarnation } = self.identity();
        let identity = SsdIdentity { uuid, incarnation: incarnation + 1 };
        // This must be written first: the next start then finds a cut in between.
        self.admin.volumes.metadata_mut().start_identity(identity, Some(epoch));
        // Without voters the SSD's number stays low, so each later start finds the older image again.
        if self.asks_voters() {
            self.start_opening(own, known);
        }
        true
    }

    /// The new incarnation is durable. No map gives it a place until the daemon knows it.
    pub(crate) fn end_older(&mut self, now: Time) {
        self.admin.volumes.set_filling_since(self.admin.volumes.metadata().contents().filling);
        if let Some(map) = self.table.fleet().map(|fleet| fleet.map().clone()) {
            let fleet = self.seen(map);
            self.table.set_fleet(Some(fleet));
        }
        self.follow_voters(now);
        self.follow_fill(now);
        self.end_daemon(now);
    }

    /// The SSD has another identity. The daemon asks who an SSD is when it connects.
    pub(crate) fn end_daemon(&mut self, now: Time) {
        let ids: Vec<u16> = self.hosts.ids().collect();
        for id in ids {
            let is_daemon = self.hosts.identity_of(id) == Some(Identity::Daemon);
            if let Some(queue) = self.hosts.queue_of(id, 0).filter(|_| is_daemon) {
                self.shut(now, queue);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_keeps_the_array_that_it_names_or_gets_that_of_the_others() {
        let _deadline = crate::deadline::deadline();
        let array = 7 << COUNT_BITS;
        assert_eq!(with(&[array | 3, array | 4], 1, 9), [array | 3, array | 9]);
        assert_eq!(with(&[array | 3], 2, 1), [array | 3, 0, array | 1]);
        assert_eq!(with(&[], 1, 5), [0, 5]);
        assert_eq!((count_of(array | 3), count_of(u64::MAX)), (3, Opening::MAX));
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Single schedules in virtual time. Each shows that a present or a tempting rule loses data, and that the
//! crate's rule does not. Times are in ms.

#[path = "../../../proto/testing/deadline.rs"]
mod deadline;

mod goodbye;
mod today;
mod writes;

use gnstor_fleet::lease::{LeaseAsk, Timing};
use gnstor_fleet::map::{Map, Place, Row, Ssd, SsdState};
use gnstor_fleet::repair::Held;
use gnstor_fleet::serve::{Entry, Standing, Write};
use gnstor_fleet::set::SsdSet;
use gnstor_fleet::{ArrayId, SsdId};
use gnstor_proto::slba::Stamp;

pub(crate) const ARRAY: ArrayId = ArrayId([7; 16]);
pub(crate) const OTHER: ArrayId = ArrayId([8; 16]);
pub(crate) const MS: Timing = Timing::DEFAULT_MS;
pub(crate) const OPEN: Entry = Entry { lease_epoch: 1, has_writer: true, unsettled: false };

pub(crate) fn stamp(sequence: u64) -> Stamp {
    Stamp { lease_epoch: 1, sequence }
}

/// A write under epoch 1 to a volume of two replicas.
pub(crate) fn first_write() -> Write {
    Write { epoch: 1, stamp: stamp(1), replicas: 2 }
}

pub(crate) fn block(sequence: u64, sum: u32) -> Held {
    Held::Block { stamp: stamp(sequence), sum }
}

pub(crate) fn set(ssds: &[SsdId]) -> SsdSet {
    ssds.iter().copied().collect()
}

/// Three SSDs that vote; a group on 0 and 1, a second one on 1 and 2.
pub(crate) fn map() -> Map {
    let ssd = Ssd { state: SsdState::In, incarnation: 1, shrunk_at: 0 };
    let row = |a, b| {
        let mut row = Row::default();
        (row.places[0], row.places[1]) = (Place::Serving(a), Place::Serving(b));
        row
    };
    Map {
        array: ARRAY,
        term: 1,
        epoch: 1,
        width: 2,
        voters: set(&[0, 1, 2]),
        ssds: vec![ssd; 3],
        rows: vec![row(0, 1), row(1, 2)],
    }
}

pub(crate) fn ask(ssd: SsdId, epoch: u64) -> LeaseAsk {
    LeaseAsk { array: ARRAY, ssd, epoch, incarnation: 1, opening: 1, uuid: [0; 16] }
}

pub(crate) fn standing(map: &Map, ssd: SsdId, incarnation: u32) -> Standing<'_> {
    Standing { map, ssd, incarnation, has_lease: true }
}

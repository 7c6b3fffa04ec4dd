// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Steps of changes of the metadata store, and how far the first one is.

use crate::cell::{CellWrite, Kind};
use crate::durable::UpdateNumber;
use crate::error::Running;
use crate::metadata::{Grant, HeldMap, SsdIdentity, Tombstone};
use gnstor_proto::slba::Vid;
use std::collections::VecDeque;
use std::ops::Range;

/// A change that waits for its turn.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Fields of the term's cell; `None` and `false` leave a field as it is.
    Term { term: Option<u64>, filling: Option<u64>, leased: bool, identity: Option<SsdIdentity> },
    /// The term that this SSD granted as a voter; in the term's cell.
    Grant(Grant),
    /// How often each SSD of the array has been opened; in the term's cell.
    Openings(Vec<u64>),
    /// Verifier of the manager key, by which the SSD checks that a host knows it. It is in the term's cell.
    KeyVerifier([u8; 32]),
    /// The fleet map.
    Map(Vec<u8>),
    /// The map that the SSD holds as a voter.
    Hold(HeldMap),
    /// The entry of a volume.
    Entry { vid: Vid, bytes: Vec<u8> },
    /// The end of a generation.
    Bury { vid: Vid, tombstone: Tombstone },
    /// Clears the place of an entry whose end is durable.
    Clear { place: u32 },
}

/// Progress of the first step.
#[derive(Debug)]
pub(crate) enum Stage {
    /// The cell of the step is being written.
    Writing { place: u32, write: CellWrite },
    /// Empty cells of new places are on their way.
    Preparing { kind: Kind, places: Range<u32>, sync: Option<Running> },
    /// The header is to count the new places.
    Counting { kind: Kind, places: Range<u32>, number: UpdateNumber },
}

/// Steps that are not done. The first one is in progress if there is a stage.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) steps: VecDeque<Step>,
    pub(crate) stage: Option<Stage>,
}

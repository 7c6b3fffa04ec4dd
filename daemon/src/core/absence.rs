// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why an SSD is away, and how far it is on its way back. [`super::presence`] has the steps.

use super::CommandId;
use gnstor_proto::slba::{ClientId, Vid};
use gnstor_proto::vendor::VolumeEntry;
use std::collections::{BTreeMap, BTreeSet};

/// Why the newcomer stays out: it is no part of the array and gets no change. The next map drops the SSD that
/// it replaces.
pub(super) const OTHER: &str = "it is another SSD than the map names";

/// Why a member without a fleet map stays away from an array with volumes.
pub(super) const WITHOUT_A_MAP: &str = "\
    it came back without a fleet map, so without its blocks, and a formatted or replaced SSD cannot be filled \
    again by this version: put the old one back";

/// State of an SSD that is away or not yet up to date.
#[derive(Debug)]
pub(super) struct Absence {
    pub(super) why: String,
    pub(super) resync: Option<Resync>,
}

impl Absence {
    /// The SSD is away, for this reason.
    pub(super) fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), resync: None }
    }

    pub(super) fn why(&self) -> &str {
        &self.why
    }
}

/// An SSD on its way back.
#[derive(Debug)]
pub(super) struct Resync {
    /// The pending query, or None while waiting. A late answer to an older query is ignored.
    pub(super) asked: Option<CommandId>,
    pub(super) retry_at: Option<u64>,
    pub(super) step: Step,
    pub(super) table: BTreeMap<Vid, VolumeEntry>,
    /// What it still has to hear before its map.
    pub(super) holders: Holders,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Identify, if voters decide: which content does the SSD have?
    Says,
    /// CLIENT END of each id that entries name.
    Holders,
    /// TERM TAKE, if voters decide. The promise says which map it has.
    Take,
    /// MAP GET: which array does it belong to?
    Look,
    /// MAP SET, or ACTIVATE.
    Map,
    /// Identify once more, for an SSD that the map does not name: the map has raised its incarnation.
    Content,
    /// VOLUME LIST, page by page.
    Table,
    /// VOLUME LIST of an SSD that the map does not name: is it empty?
    Newcomer,
}

/// Ids whose earlier holders an SSD that is back ends, and the serials of their present ones. Other CLIENT
/// ENDs may be under way for changes of volumes: the return of the SSD does not wait for those.
#[derive(Default, Debug)]
pub(super) struct Holders {
    pub(super) to_ask: BTreeMap<ClientId, u64>,
    pub(super) asked: BTreeSet<(ClientId, u64)>,
}

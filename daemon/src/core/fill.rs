// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which SSDs have filled their places: the daemon asks each that fills, every 100 ms.
//!
//! ```text
//!   map with places that fill --FILL LOG--> filling: how far --> asked again
//!                                  '------> filled in this epoch, in the map's incarnation --> `serve_all`
//! ```
//! An SSD's report of an earlier epoch does not count: the map may have given it more places since.

use super::{Answer, Command, CommandId, Core, Owner};
use gnstor_proto::placement::map3::{Row3, Ssd3, State3};
use std::collections::{BTreeMap, BTreeSet};

/// Time between two questions to an SSD.
const POLL_MS: u64 = 100;

/// Progress of an SSD's fill, as the SSD reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FillReport {
    /// Epoch of the map that the report is about.
    pub epoch: u64,
    /// Incarnation of the SSD's content.
    pub incarnation: u32,
    /// Whether all its places have filled.
    pub is_filled: bool,
    /// The SSD has no place that fills.
    pub is_nothing: bool,
    /// The SSD that it waits for.
    pub waits_for: Option<u16>,
    /// Blocks that it has compared.
    pub compared: u64,
    /// Number of blocks to compare.
    pub all: u64,
    /// Blocks that it has copied.
    pub pulled: u64,
}

/// One SSD that fills.
#[derive(Default, Debug)]
struct Fill {
    asked: Option<CommandId>,
    next_at: u64,
    report: Option<FillReport>,
    /// The incarnation in which it has filled in the map's epoch.
    filled: Option<u32>,
    /// The SSD restarted in the map's epoch, and fills by a newer map only.
    has_forgotten: bool,
}

/// The SSDs that fill.
#[derive(Default, Debug)]
pub(super) struct Fills {
    open: BTreeMap<u16, Fill>,
    /// The last report of each SSD whose filled places now serve.
    over: BTreeMap<u16, FillReport>,
}

impl Fills {
    /// Takes a new map, in which these SSDs fill.
    pub(super) fn follow(&mut self, filling: &BTreeSet<u16>) {
        let over = self.open.iter().filter(|(ssd, fill)| !filling.contains(ssd) && fill.filled.is_some());
        self.over.extend(over.filter_map(|(&ssd, fill)| Some((ssd, fill.report?))));
        self.open.retain(|ssd, _| filling.contains(ssd));
        for &ssd in filling {
            let fill = self.open.entry(ssd).or_default();
            (fill.filled, fill.next_at, fill.has_forgotten) = (None, 0, false);
        }
    }

    /// The SSD does not answer.
    pub(super) fn lost(&mut self, ssd: u16) {
        if let Some(fill) = self.open.get_mut(&ssd) {
            *fill = Fill::default();
        }
    }

    /// SSDs that have filled, and their incarnations.
    pub(super) fn filled(&self) -> Vec<(u16, u32)> {
        self.open.iter().filter_map(|(&ssd, fill)| Some((ssd, fill.filled?))).collect()
    }

    /// An SSD waits for a newer map before it fills.
    pub(super) fn has_forgotten(&self) -> bool {
        self.open.values().any(|fill| fill.has_forgotten)
    }

    /// The last report of the SSD, about the present fill or the previous one.
    pub(super) fn report(&self, ssd: u16) -> Option<FillReport> {
        self.open.get(&ssd).map_or_else(|| self.over.get(&ssd).copied(), |fill| fill.report)
    }
}

impl Core {
    /// There is another map, or the daemon begins to serve.
    pub(super) fn follow_fills(&mut self, now: u64) {
        self.fills.follow(self.epoch.filling());
        self.follow_leaving(now);
        let outs = self.map_of_voters().map(|map| {
            let is_out =
                |(index, ssd): &(u16, &Ssd3)| ssd.state == State3::Out && !self.is_witness(*index, ssd);
            (0u16..).zip(&map.ssds).filter(is_out).map(|(ssd, _)| ssd).collect()
        });
        let holes = self.map_of_voters().into_iter().flat_map(|map| {
            let width = usize::from(map.width);
            let holes = move |(row, places): (usize, &Row3)| {
                let places = places.places;
                (0..width).filter(move |&place| places[place].is_none()).map(move |place| (row, place))
            };
            map.rows.iter().enumerate().flat_map(holes)
        });
        let holes: Vec<(usize, usize)> = holes.collect();
        self.changes.has_holes = !holes.is_empty();
        self.changes.has_homeless = holes.iter().any(|&(row, place)| !self.changes.has_home(row, place));
        self.changes.follow_outs(&outs.unwrap_or_default(), now);
    }

    /// Asks the SSDs that fill, when it is time.
    pub(super) fn fill_step(&mut self, now: u64) {
        if !self.is_serving() || self.map_of_voters().is_none() {
            return;
        }
        let is_due = |ssd: &u16, fill: &Fill| {
            fill.asked.is_none() && fill.filled.is_none() && fill.next_at <= now && !self.is_silent(*ssd)
        };
        let due: Vec<u16> =
            self.fills.open.iter().filter(|(ssd, fill)| is_due(ssd, fill)).map(|(&ssd, _)| ssd).collect();
        for ssd in due {
            let id = self.command(ssd, Owner::Fill, Command::FillLog);
            if let Some(fill) = self.fills.open.get_mut(&ssd) {
                fill.asked = Some(id);
            }
        }
    }

    pub(super) fn fill_answered(&mut self, now: u64, ssd: u16, id: CommandId, answer: Answer) {
        let Some(map) = self.map_of_voters() else { return };
        // An absent SSD fills nothing, whatever the map says of its places: no newer map would change that.
        let takes_part = |known: &&Ssd3| matches!(known.state, State3::In | State3::Full);
        let named = map.ssds.get(usize::from(ssd)).filter(takes_part);
        let named = named.map(|known| (map.epoch, known.incarnation));
        let Some(fill) = self.fills.open.get_mut(&ssd).filter(|fill| fill.asked == Some(id)) else { return };
        (fill.asked, fill.next_at) = (None, now + POLL_MS);
        let Answer::Fill(report) = answer else { return };
        fill.report = Some(report);
        if Some((report.epoch, report.incarnation)) != named {
            return;
        }
        fill.has_forgotten = report.is_nothing;
        fill.filled = report.is_filled.then_some(report.incarnation);
        if report.is_nothing || report.is_filled {
            self.change_step(now);
        }
    }

    pub(super) fn fill_wakes_at(&self) -> Option<u64> {
        if !self.is_serving() {
            return None;
        }
        let waits = |(ssd, fill): &(&u16, &Fill)| {
            fill.asked.is_none() && fill.filled.is_none() && !self.is_silent(**ssd)
        };
        self.fills.open.iter().filter(waits).map(|(_, fill)| fill.next_at).min()
    }

    /// Whether the SSD is down, or on its way back.
    pub(super) fn is_silent(&self, ssd: u16) -> bool {
        self.changes.is_down(ssd) || self.members.is_away(ssd)
    }
}

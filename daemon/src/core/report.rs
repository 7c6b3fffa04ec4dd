// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the core tells an operator: the state of the fleet, its changes, and what is lost.

use super::FillReport;
use gnstor_fleet::set::SsdSet;
use gnstor_proto::placement::map3::State3;
use gnstor_proto::slba::Vid;
use std::fmt::Write as _;

/// Volumes that a sentence names.
const NAMED: usize = 5;

/// One SSD of the map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SsdView {
    /// Index of the SSD in the map.
    pub index: u16,
    /// Uuid of the SSD; zeros if the map has none.
    pub uuid: [u8; 16],
    /// Address of the SSD for clients; may be empty.
    pub address: String,
    /// Node and rack, the failure domains.
    pub node: u16,
    /// See `node`.
    pub rack: u16,
    /// State in the map.
    pub state: State3,
    /// Whether it votes on maps.
    pub votes: bool,
    /// Incarnation (number of the SSD's content) that has the places.
    pub incarnation: u32,
    /// The last epoch that took a place from it; 0 = none.
    pub shrunk_at: u64,
    /// Why it does not answer or is not up to date; `None`: it is there.
    pub away: Option<String>,
    /// Time at which it stopped answering, on the clock of `now`.
    pub down_since_ms: Option<u64>,
    /// When other SSDs take its empty places, on the same clock.
    pub drawn_anew_at_ms: Option<u64>,
    /// The SSD came back too often, and stays out until it is resumed.
    pub flaps: bool,
    /// The operator has taken it out: it stays out until it is resumed.
    pub taken_out: bool,
    /// The SSD votes, and holds no blocks.
    pub is_witness: bool,
    /// The SSD leaves the array: other SSDs take its copies first.
    pub leaves: bool,
    /// What the drain waits for.
    pub leave_waits: Option<String>,
    /// What the SSD waits for before it takes its share of the places.
    pub share_waits: Option<String>,
    /// Groups in which it serves, and in which it fills, of the first `replicas` places.
    pub serving: u32,
    /// See `serving`.
    pub filling: u32,
    /// Progress of its fill, as it reported last.
    pub fill: Option<FillReport>,
    /// Groups of which it has the only copy that serves, or a part of a merge (rule 17).
    pub last_copies: u32,
    /// Whether the map calls the SSD absent with last copies, although it is connected: it has lost writes.
    pub is_lossy: bool,
}

/// A volume that is being settled: its replicas are made equal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SettleView {
    /// The volume.
    pub vid: Vid,
    /// Name of the volume.
    pub name: String,
    /// The SSDs that have not done so yet.
    pub waits_for: Vec<u16>,
}

/// The fleet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FleetStatus {
    /// The array's id; zeros in a map of format 2.
    pub array: [u8; 16],
    /// Format of the map: 2 or 3.
    pub format: u8,
    /// The map in use.
    pub epoch: u64,
    /// This daemon's term.
    pub term: u64,
    /// The SSDs that vote.
    pub voters: Vec<u16>,
    /// Placement groups.
    pub groups: u32,
    /// Of these, by the number of copies that serve, of the first `replicas` places. Here `replicas` is the
    /// most that a volume has. Index 0: blocks of some volume cannot be read or written.
    pub groups_by_copies: Vec<u32>,
    /// The most replicas that a volume has.
    pub replicas: u8,
    /// A change under way: the epoch that it makes, and what it waits for.
    pub next: Option<(u64, Option<String>)>,
    /// The SSDs.
    pub ssds: Vec<SsdView>,
    /// Whether an operator has paused the fills of all SSDs.
    pub fills_paused: bool,
    /// Volumes that are being settled.
    pub settles: Vec<SettleView>,
    /// The last maps that this daemon made, oldest first.
    pub changes: Vec<MapChange>,
}

/// A map that this daemon made, and how long it waited for leases.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapChange {
    /// The map's epoch.
    pub epoch: u64,
    /// SSDs that lost a place.
    pub deprived: SsdSet,
    /// The ones among them that had said goodbye.
    pub stopped: SsdSet,
    /// The wait for the leases of the others, in milliseconds of the daemon's clock.
    pub waited_ms: u64,
}

/// Why an operator's wish is refused: a sentence with the remedy.
pub type Refusal = String;

/// Blocks of a volume that only SSDs have which are lost or absent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LostBlocks {
    /// The volume.
    pub volume: String,
    /// Number of its blocks; an estimate for a large volume.
    pub blocks: u64,
}

/// The numbers of lost blocks, for any caller. Names are left out: a caller may not see every volume.
pub(in crate::core) fn counted(lost: &[LostBlocks]) -> String {
    let blocks: u64 = lost.iter().map(|lost| lost.blocks).sum();
    format!("{blocks} blocks of {} volumes", lost.len())
}

/// The volumes' losses, in a sentence for administrators.
pub(in crate::core) fn describe(lost: &[LostBlocks]) -> String {
    let mut text = format!("{}: ", counted(lost));
    for (at, LostBlocks { volume, blocks }) in lost.iter().take(NAMED).enumerate() {
        let comma = if at > 0 { ", " } else { "" };
        let _ = write!(text, "{comma}{volume:?} {blocks}");
    }
    if lost.len() > NAMED {
        let _ = write!(text, " and {} others", lost.len() - NAMED);
    }
    text
}

/// A salvage that can be done, or has begun.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Salvageable {
    /// The SSDs whose copies are merged.
    pub ssds: Vec<u16>,
    /// The volumes of which some blocks have lossy copies only.
    pub volumes: Vec<LostBlocks>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};

    #[test]
    fn a_sentence_names_some_volumes_and_counts_all() {
        let _deadline = Deadline::after(LIMIT);
        let lost = |count: u64| -> Vec<LostBlocks> {
            (1..=count).map(|n| LostBlocks { volume: format!("v{n}"), blocks: n }).collect()
        };
        assert_eq!(describe(&lost(2)), "3 blocks of 2 volumes: \"v1\" 1, \"v2\" 2");
        let many = describe(&lost(7));
        assert!(
            many.starts_with("28 blocks of 7 volumes: ") && many.ends_with("\"v5\" 5 and 2 others"),
            "{many}"
        );
    }
}

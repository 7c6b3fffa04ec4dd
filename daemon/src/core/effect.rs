// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commands and replies that the core hands its driver, and the answers it gets back.

use super::failure::Failure;
use super::fill::FillReport;
use super::holder::Holder;
use super::repairs::RepairView;
use super::report::{FleetStatus, LostBlocks, Salvageable};
use super::request::RequestId;
use gnstor_fleet::ArrayId;
use gnstor_fleet::known::Known;
use gnstor_fleet::map::FleetView;
use gnstor_fleet::set::SsdSet;
use gnstor_fleet::voter::{Held, Promise};
use gnstor_proto::client_end::ClientEnd;
use gnstor_proto::placement::AnyMap;
use gnstor_proto::scrub::{RepairOrder, ScrubLog};
use gnstor_proto::slba::{ClientId, Vid};
use gnstor_proto::ssd_identity::SsdSays;
use gnstor_proto::status::Refusal;
use gnstor_proto::vendor::VolumeEntry;
use std::sync::Arc;

/// Identifies a request. The driver chooses it, and never uses it again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// Identifies a command to an SSD.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CommandId(pub u64);

/// An admin command for one SSD.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// VOLUME ADD.
    Add(Arc<VolumeEntry>),
    /// VOLUME CHMOD.
    Chmod(Arc<VolumeEntry>),
    /// VOLUME DELETE.
    Delete {
        /// The volume.
        vid: Vid,
        /// The generation that dies.
        generation: u32,
        /// Version of the deletion.
        version: u64,
        /// Term of this daemon.
        term: u64,
    },
    /// One page of VOLUME LIST.
    List {
        /// First volume id to report.
        from: Vid,
    },
    /// One page of VOLUME LIST, of volumes that are gone.
    ListGone {
        /// First volume id to report.
        from: Vid,
        /// Number of tombstones of that id to leave out.
        skip: u16,
    },
    /// MAP SET with the encoded map.
    MapSet(Arc<[u8]>),
    /// MAP GET.
    MapGet,
    /// Identify Controller: the SSD's identity, and the number of its content.
    Identify,
    /// TERM TAKE, followed by MAP GET of the maps that the promise names.
    TermTake {
        /// The array.
        array: ArrayId,
        /// The term.
        term: u64,
        /// This start of the daemon.
        instance: u64,
    },
    /// MAP HOLD.
    MapHold {
        /// Term of this daemon.
        term: u64,
        /// This start of the daemon.
        instance: u64,
        /// The map.
        map: WireMap,
    },
    /// ACTIVATE.
    Activate(WireMap),
    /// Get Log Page: how far an SSD is with the places that it fills.
    FillLog,
    /// REPAIR: an order to the SSD's repairs.
    Repair(RepairOrder),
    /// Get Log Page: how far the SSD's scrub is.
    ScrubLog,
    /// CLIENT END: the SSD drops earlier holders of a client id.
    ClientEnd(ClientEnd),
    /// SETTLE: make the volume's copies those of each group's first, or say how far that is.
    Settle(SettleOf),
}

/// An encoded fleet map of an array with voters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WireMap {
    /// The array.
    pub array: ArrayId,
    /// Number of the map.
    pub epoch: u64,
    /// Bytes of the encoded map.
    pub bytes: Arc<[u8]>,
}

impl WireMap {
    /// The map with these bytes.
    pub(super) fn of(map: &Known, bytes: Arc<[u8]>) -> Self {
        Self { array: map.array(), epoch: map.epoch(), bytes }
    }
}

/// The answer of an SSD that grants a term.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Promised {
    /// The array that it belongs to.
    pub array: ArrayId,
    /// The newest map that it knows to be active.
    pub active: AnyMap,
    /// The newer map that it holds, and the term of its MAP HOLD.
    pub held: Option<(u64, AnyMap)>,
}

/// A volume's place in the name space of an SSD's SETTLE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SettleOf {
    /// The map's epoch.
    pub epoch: u64,
    /// The array.
    pub array: gnstor_fleet::ArrayId,
    /// This daemon's term.
    pub term: u64,
    /// The volume.
    pub vid: Vid,
    /// Generation of the volume.
    pub generation: u32,
}

/// Progress of a settle on one SSD, as the SSD reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SettleReport {
    /// The SSD's copies are equal to those of the groups' firsts.
    Done,
    /// The SSD copies. The number is of the blocks that it has copied.
    UnderWay(u32),
    /// The SSD waits for this other one.
    WaitsFor(u32),
}

impl Promised {
    /// As the rules of terms take it.
    pub(super) fn known(self) -> Promise<Known> {
        let held = self.held.map(|(term, map)| Held { term, map: Known::new(map) });
        Promise { array: self.array, active: Known::new(self.active), held }
    }
}

impl Command {
    /// The command's name in messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Add(_) => "VOLUME ADD",
            Self::Chmod(_) => "VOLUME CHMOD",
            Self::Delete { .. } => "VOLUME DELETE",
            Self::List { .. } | Self::ListGone { .. } => "VOLUME LIST",
            Self::MapSet(_) => "MAP SET",
            Self::MapGet => "MAP GET",
            Self::Identify => "Identify",
            Self::TermTake { .. } => "TERM TAKE",
            Self::MapHold { .. } => "MAP HOLD",
            Self::Activate(_) => "ACTIVATE",
            Self::ClientEnd(_) => "CLIENT END",
            Self::Settle(_) => "SETTLE",
            Self::FillLog => "Get Log Page (fill)",
            Self::Repair(_) => "REPAIR",
            Self::ScrubLog => "Get Log Page (scrub)",
        }
    }
}

/// A volume that is gone, as an SSD remembers it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GoneVolume {
    /// The volume id.
    pub vid: Vid,
    /// The generation that was deleted.
    pub generation: u32,
    /// Time since its blocks were swept.
    pub age_ms: u64,
    /// The last requests that changed it.
    pub request_ids: Vec<RequestId>,
}

/// Result of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The SSD executed it.
    Done,
    /// A page of the permission table, in order of volume ids.
    Table {
        /// The entries.
        entries: Vec<VolumeEntry>,
        /// The page was full, so there may be more entries.
        more: bool,
    },
    /// A page of the volumes that are gone, in order of volume ids.
    Gone {
        /// The volumes.
        gone: Vec<GoneVolume>,
        /// The page was full, so there may be more.
        more: bool,
    },
    /// The SSD's fleet map, if it has one.
    Map(Option<AnyMap>),
    /// Identity of the SSD; `None`: it does not state one.
    Says(Option<SsdSays>),
    /// Progress of the SSD's fill.
    Fill(FillReport),
    /// Progress of its scrub.
    Scrub(ScrubLog),
    /// Progress of a settle.
    Settled(SettleReport),
    /// The term is granted.
    Promise(Box<Promised>),
    /// The voter holds the map. These SSDs, which lose a place in it, have said goodbye.
    Held(SsdSet),
    /// TERM TAKE is refused: the SSD has granted, or heard of, the term with these low 32 bits.
    HigherTerm(u32),
    /// The SSD refused, and nothing changed there.
    Refused(Refusal),
    /// No usable answer came; the command may or may not have been carried out.
    Lost(String),
}

/// The answer to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Create, Get, Share, Revoke, Publish, Rename, Label.
    Volume(VolumeEntry),
    /// List.
    Volumes {
        /// The volumes.
        volumes: Vec<VolumeEntry>,
        /// The token of the page that follows, if one does.
        next: Option<String>,
    },
    /// ListLeases.
    Leases {
        /// What clients have open.
        leases: Vec<Holder>,
        /// The token of the page that follows, if one does.
        next: Option<String>,
    },
    /// Delete and RevokeLease: what clients had open, and has ended.
    Ended(Vec<Holder>),
    /// How large a new volume can be, bytes: with one replica, with two, and so on.
    Room(Vec<u64>),
    /// Open.
    Opened {
        /// The volume.
        volume: VolumeEntry,
        /// The lease granted; 0 for readers.
        lease_ms: u32,
    },
    /// Renew.
    Renewed {
        /// The lease granted.
        lease_ms: u32,
    },
    /// Release, Keep.
    Done,
    /// Register.
    Client {
        /// The id.
        client: ClientId,
        /// Number of the registration. It is higher than all earlier ones, of this daemon and of earlier
        /// ones.
        serial: u64,
    },
    /// GetMap: the encoded map.
    Map(Arc<[u8]>),
    /// Add: the number of the SSD.
    Joins {
        /// The number.
        ssd: u16,
        /// Whether the SSD has joined, or a map that names it is under way.
        is_done: bool,
    },
    /// Fail, Replace and Resume with leave to lose data: the blocks that are given up.
    Lost(Vec<LostBlocks>),
    /// Salvage: the copies that are merged, or would be.
    Salvage(Salvageable),
    /// Report of each SSD's repairs.
    Repairs(Vec<RepairView>),
    /// Show.
    Fleet {
        /// The fleet.
        status: Box<FleetStatus>,
        /// The time now, on the clock of its times.
        now_ms: u64,
    },
}

/// Why the core serves no more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stop {
    /// Another daemon has taken over.
    Deposed(String),
    /// The array cannot be served by this daemon.
    Array(String),
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Deposed(text) | Self::Array(text)) = self;
        f.write_str(text)
    }
}

/// A step that the core asks of its driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Have SSD `ssd` execute `command`. Commands of one volume, and those of the fleet map, stay in order
    /// ([`crate::port::order`]); others may overtake each other. [`super::Core::completed`] takes the result.
    Command {
        /// Names the command.
        id: CommandId,
        /// Index of the SSD.
        ssd: u16,
        /// The command.
        command: Command,
    },
    /// Connect to one more SSD. It counts as down until
    /// [`super::Core::ssd_found`].
    Connect {
        /// Number of the SSD.
        ssd: u16,
        /// `host:port`.
        address: String,
        /// Least capacity that the SSD must have, in bytes.
        bytes: u64,
    },
    /// Answer a request. Each ticket is answered exactly once.
    Reply {
        /// The request.
        ticket: Ticket,
        /// The answer.
        result: Result<Reply, Failure>,
    },
    /// The array is read and agrees; requests are served from now on.
    Serving,
    /// From now on nothing is served. Every ticket has been answered.
    Stopped(Stop),
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes of the metadata that are not done ([`crate::admin`]: `changes.rs`).

use super::ToHold;
use gnstor_base::time::Time;
use gnstor_fleet::Opening;
use gnstor_fleet::lease::LeaseAsk;
use gnstor_proto::nvme::Sqe;
use gnstor_proto::placement::AnyMap;
use gnstor_proto::slba::Vid;
use gnstor_proto::vendor::VolumeEntry;
use std::collections::VecDeque;

/// A requested change.
#[derive(Debug)]
pub(in crate::admin) enum Change {
    /// VOLUME ADD, or CHMOD.
    Entry { code: u8, entry: Box<VolumeEntry> },
    /// VOLUME DELETE.
    Delete { vid: Vid, generation: u32, version: u64, term: u64 },
    /// MAP SET.
    Map { data: Vec<u8> },
    /// TERM TAKE, whose answer is delivered.
    Grant { sqe: Box<Sqe> },
    /// MAP HOLD.
    Hold { data: Vec<u8> },
    /// LEASE ASK with a number of openings that is new.
    Heard { ask: LeaseAsk },
    /// The SSD's own number of openings rises.
    Raise,
    /// OPENING: the SSD's own number of openings rises for the daemon.
    Open,
    /// The SSD's content is an older image: a voter or the daemon knows this number.
    Older { known: Opening },
    /// ACTIVATE.
    Activate { data: Vec<u8> },
    /// LEASE RENEW.
    Lease { term: u64, version: u64, until: Time },
    /// A sweep is durable: the volume's entry gives way to a tombstone, and then its id may live again.
    Bury { vid: Vid, generation: u32 },
}

/// A change whose writes are under way, as it takes effect.
#[derive(Debug)]
pub(in crate::admin) enum Begun {
    /// An entry; whether it is a new one.
    Entry(Box<VolumeEntry>, bool),
    /// The entry of a volume that is being deleted.
    Deleting(Box<VolumeEntry>),
    /// A map; whether it was made for another content of this SSD.
    Map(Box<AnyMap>, bool),
    Grant(Box<Sqe>),
    Hold(ToHold),
    Heard(LeaseAsk),
    Raise,
    Open,
    Older,
    Lease {
        term: u64,
        version: u64,
        until: Time,
    },
    Bury {
        vid: Vid,
        generation: u32,
    },
}

/// A change, and the command that asked for it; none where its queue is gone, or for a burial.
#[derive(Debug)]
pub(in crate::admin) struct Asked<T> {
    pub(in crate::admin) command: Option<u32>,
    pub(in crate::admin) change: T,
}

/// Changes that are not done.
#[derive(Debug, Default)]
pub(in crate::admin) struct Changes {
    pub(in crate::admin) waiting: VecDeque<Asked<Change>>,
    pub(in crate::admin) begun: Option<Asked<Begun>>,
}

impl Changes {
    /// The queue of this command is gone. A change that has begun goes on without it.
    pub(in crate::admin) fn drop_command(&mut self, id: u32) {
        self.waiting.retain(|asked| asked.command != Some(id));
        if let Some(begun) = self.begun.as_mut().filter(|begun| begun.command == Some(id)) {
            begun.command = None;
        }
    }

    /// Whether a volume whose sweep is over waits for its tombstone.
    pub(in crate::admin) fn buries(&self, vid: Vid) -> bool {
        let waits = |asked: &Asked<Change>| matches!(asked.change, Change::Bury { vid: of, .. } if of == vid);
        let begun = |asked: &Asked<Begun>| matches!(asked.change, Begun::Bury { vid: of, .. } if of == vid);
        self.waiting.iter().any(waits) || self.begun.as_ref().is_some_and(begun)
    }
}

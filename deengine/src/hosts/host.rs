// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An NVMe controller of a host, and its queues.

use super::arbiter::{Arbiter, Class};
use super::events::Events;
use super::features::Features;
use super::proof::Proof;
use crate::smart::errors::ErrorLog;
use gnstor_base::controller::QueueKey;
use gnstor_base::time::{Span, Time};
use gnstor_proto::fabrics::{self, Identity};
use std::sync::Arc;

/// Purpose of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Connected on the RDMA level only: the first command must be Connect.
    Fresh,
    /// A Connect command waits for its data.
    Connecting,
    /// The admin queue of this controller, whose host has not proven who it is.
    Unproven(u16),
    /// The admin queue of this controller.
    Admin(u16),
    /// An I/O queue of this controller, with the identity of its host.
    Io(u16, Identity),
    /// An I/O queue of this controller after Disconnect: it takes no commands, and is closed with the
    /// controller.
    Ended(u16),
}

/// One queue pair.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) qid: u16,
    pub(crate) role: Role,
    /// Entries as the RDMA connection agreed on them.
    pub(crate) entries: u16,
    /// Entries that count for the SSD's bound: all of them from the Connect on.
    pub(super) counted: u16,
    /// Entries in use: Connect may ask for fewer.
    pub(crate) size: u16,
    /// Priority class of the queue in its controller.
    pub(crate) class: Class,
}

/// CC.AMS: plain round robin.
pub(crate) const AMS_ROUND_ROBIN: u32 = 0;
/// CC.AMS: weighted round robin with an urgent class.
pub(crate) const AMS_WEIGHTED: u32 = 1;

/// CC.AMS of a value of CC.
pub(crate) fn arbitration_of(cc: u32) -> u32 {
    cc >> CC_AMS_SHIFT & 7
}

/// An NVMe controller: what a host made with Connect on an admin queue.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) identity: Identity,
    pub(crate) cc: u32,
    pub(crate) kato: Span,
    pub(crate) last_alive: Time,
    /// Time at which [`Hosts`] checks the deadline; not after the deadline.
    pub(super) looked_at: Time,
    pub(crate) queues: Vec<QueueKey>,
    /// Host identifier in Connect.
    pub(crate) host_id: [u8; 16],
    /// Number of the host's registration, from its NQN.
    pub(crate) serial: u64,
    /// Its number among all hosts that the SSD has had.
    pub(super) born: u64,
    pub(crate) proof: Proof,
    pub(crate) features: Features,
    pub(crate) events: Events,
    pub(crate) errors: ErrorLog,
    /// The arbiter of its I/O queues.
    pub(crate) arbiter: Arc<Arbiter>,
}

/// A host as its Connect describes it.
#[derive(Debug)]
pub(crate) struct NewHost {
    pub(crate) identity: Identity,
    pub(crate) host_id: [u8; 16],
    pub(crate) serial: u64,
    pub(crate) kato: Span,
    pub(crate) proof: Proof,
}

/// Longest keep-alive timeout. A host that asks for none (0) or for a longer one has this one. Otherwise a
/// machine that vanished would keep its controllers for ever.
const MOST_KATO: Span = Span::from_ms(120_000);

/// The keep-alive timeout of a host that asks for this many milliseconds.
pub(crate) fn keep_alive_of(asked_ms: u32) -> Span {
    if asked_ms == 0 { MOST_KATO } else { Span::from_ms(asked_ms.into()).min(MOST_KATO) }
}

/// CC.AMS, arbitration mechanism.
const CC_AMS_SHIFT: u32 = 11;

impl Host {
    /// Class of an I/O queue with these Connect attributes. Classes count only if the host has chosen
    /// weighted round robin.
    pub(crate) fn class_of(&self, cattr: u8) -> Class {
        if arbitration_of(self.cc) == AMS_WEIGHTED { Class::from_cattr(cattr) } else { Class::Low }
    }

    /// The name that the host has in authentication.
    pub(crate) fn nqn(&self) -> String {
        fabrics::Host { identity: self.identity, id: self.host_id, serial: self.serial }.nqn()
    }

    /// When the SSD takes the host for dead, or when its time to prove its identity is over.
    pub(crate) fn deadline(&self) -> Time {
        (self.last_alive + self.kato).min(self.proof.deadline())
    }
}

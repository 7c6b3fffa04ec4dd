// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An NVMe controller of a host, and its queues.

use super::arbiter::{Arbiter, Class};
use super::events::Events;
use super::features::Features;
use super::proof::Proof;
use crate::request::Refused;
use crate::smart::errors::{ErrorEntry, ErrorLog};
use gnstor_base::controller::QueueKey;
use gnstor_base::time::{Span, Time};
use gnstor_proto::fabrics::{self, ConnectFields, Identity, property};
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
    pub(super) qid: u16,
    pub(super) role: Role,
    /// Entries as the RDMA connection agreed on them.
    pub(super) entries: u16,
    /// Entries that count for the SSD's bound: all of them from the Connect on.
    pub(super) counted: u16,
    /// Entries in use: Connect may ask for fewer.
    pub(super) size: u16,
    /// Priority class of the queue in its controller.
    pub(super) class: Class,
}

impl Queue {
    pub(crate) fn qid(&self) -> u16 {
        self.qid
    }

    pub(crate) fn role(&self) -> Role {
        self.role
    }

    /// Whether a Connect names this queue, and asks for no more entries than it has.
    pub(crate) fn fits(&self, connect: &ConnectFields) -> bool {
        connect.qid.get() == self.qid && (1..self.entries).contains(&connect.sqsize_z.get())
    }
}

/// CC.AMS: plain round robin.
pub(super) const AMS_ROUND_ROBIN: u32 = 0;
/// CC.AMS: weighted round robin with an urgent class.
pub(super) const AMS_WEIGHTED: u32 = 1;

/// CC.AMS of a value of CC.
pub(super) fn arbitration_of(cc: u32) -> u32 {
    cc >> CC_AMS_SHIFT & 7
}

/// An NVMe controller: what a host made with Connect on an admin queue.
#[derive(Debug)]
pub(crate) struct Host {
    pub(super) identity: Identity,
    pub(super) cc: u32,
    pub(super) kato: Span,
    pub(super) last_alive: Time,
    /// Time at which [`Hosts`] checks the deadline; not after the deadline.
    pub(super) looked_at: Time,
    pub(super) queues: Vec<QueueKey>,
    /// Host identifier in Connect.
    pub(super) host_id: [u8; 16],
    /// Number of the host's registration, from its NQN.
    pub(super) serial: u64,
    /// Its number among all hosts that the SSD has had.
    pub(super) born: u64,
    pub(super) proof: Proof,
    pub(super) features: Features,
    pub(super) events: Events,
    pub(super) errors: ErrorLog,
    /// The arbiter of its I/O queues.
    pub(super) arbiter: Arc<Arbiter>,
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

impl NewHost {
    /// Whether the host need not prove its identity.
    pub(crate) fn is_proven(&self) -> bool {
        matches!(self.proof, Proof::NotAsked)
    }
}

impl Host {
    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// Host identifier in Connect.
    pub(crate) fn host_id(&self) -> &[u8; 16] {
        &self.host_id
    }

    /// The identity, host identifier and registration that make the host's NQN.
    pub(super) fn named(&self) -> fabrics::Host {
        fabrics::Host { identity: self.identity, id: self.host_id, serial: self.serial }
    }

    /// The controller's property CC.
    pub(crate) fn cc(&self) -> u32 {
        self.cc
    }

    /// Whether the controller is enabled (CC.EN).
    pub(crate) fn is_enabled(&self) -> bool {
        u64::from(self.cc) & property::CC_ENABLE != 0
    }

    pub(crate) fn features(&self) -> &Features {
        &self.features
    }

    /// The keep-alive timeout.
    pub(crate) fn keep_alive(&self) -> Span {
        self.kato
    }

    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    pub(crate) fn events_mut(&mut self) -> &mut Events {
        &mut self.events
    }

    pub(crate) fn errors(&self) -> &ErrorLog {
        &self.errors
    }

    pub(crate) fn log_error(&mut self, entry: ErrorEntry) {
        self.errors.add(entry);
    }

    /// The host is alive.
    pub(crate) fn heard(&mut self, now: Time) {
        self.last_alive = now;
    }

    /// Feature 01h: weights and burst of the arbitration.
    pub(crate) fn set_arbitration(&mut self, value: u32) {
        self.features.arbitration = value;
        self.arbiter.set_feature(value);
    }

    /// Feature 04h: the threshold that CDW11 names has this value from now on.
    pub(crate) fn set_threshold(&mut self, cdw11: u32, kelvin: u16) -> Result<(), Refused> {
        *self.features.threshold_mut(cdw11)? = kelvin;
        Ok(())
    }

    /// Feature 05h. Returns whether `tells_unwritten` has changed.
    pub(crate) fn set_error_recovery(&mut self, retry_limit: u16, tells_unwritten: bool) -> bool {
        self.features.retry_limit = retry_limit;
        std::mem::replace(&mut self.features.tells_unwritten, tells_unwritten) != tells_unwritten
    }

    /// Feature 0Bh: the events that the host wants. Returns the ones that it did not want before.
    pub(crate) fn set_events(&mut self, events: u32) -> u32 {
        events & !std::mem::replace(&mut self.features.events, events)
    }

    /// Class of an I/O queue with these Connect attributes. Classes count only if the host has chosen
    /// weighted round robin.
    pub(super) fn class_of(&self, cattr: u8) -> Class {
        if arbitration_of(self.cc) == AMS_WEIGHTED { Class::from_cattr(cattr) } else { Class::Low }
    }

    /// When the SSD takes the host for dead, or when its time to prove its identity is over.
    pub(super) fn deadline(&self) -> Time {
        (self.last_alive + self.kato).min(self.proof.deadline())
    }
}

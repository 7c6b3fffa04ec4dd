// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Asynchronous events: notifications of hosts.
//!
//! ```text
//!   raise --> pending of each host that wants it --> a held Asynchronous Event Request completes
//!                 ^                                        |
//!                 +-- further ones of its kind wait <------+  until the host reads the log page that tells
//!                 more
//! ```

use crate::controller::Ssd;
use crate::io::command::{Answer, Work};
use crate::io::permit::CompletionPermit;
use crate::session::Host;
use crate::smart::health::{FlashHealth, MODELLED_KELVIN, warning};
use gnstor_base::time::Time;
use gnstor_proto::status::Refusal;

/// Asynchronous Event Requests held for each controller; Identify AERL is one less.
pub(crate) const MAX_EVENTS: usize = 4;

/// Something that hosts may want to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The SSD has found an error of its own that does not go away.
    PersistentError,
    /// The spare is below its threshold.
    SpareLow,
    /// A temperature threshold was passed.
    Temperature,
    /// Acknowledged data was or may have been lost.
    ReliabilityDegraded,
    /// No write is possible any more.
    ReadOnly,
    /// The power-failure dump does not work.
    BackupFailed,
    /// The namespace has changed.
    NamespaceChanged,
    /// New firmware starts.
    FirmwareStarting,
}

const ALL: [Event; 8] = [
    Event::PersistentError,
    Event::SpareLow,
    Event::Temperature,
    Event::ReliabilityDegraded,
    Event::ReadOnly,
    Event::BackupFailed,
    Event::NamespaceChanged,
    Event::FirmwareStarting,
];

/// The log pages that tell of events.
pub(crate) mod page {
    pub(crate) const ERRORS: u8 = 0x01;
    pub(crate) const SMART: u8 = 0x02;
    pub(crate) const FIRMWARE: u8 = 0x03;
    pub(crate) const CHANGED_NAMESPACES: u8 = 0x04;
}

/// Feature 0Bh: the SMART warnings of bits 7:0, attribute and firmware notices.
pub(crate) const NOTICES: u32 = 1 << 8 | 1 << 9;

impl Event {
    fn bit(self) -> u16 {
        1 << self as u16
    }

    /// Event type, information, and the log page that tells more.
    fn words(self) -> (u8, u8, u8) {
        match self {
            Self::PersistentError => (0, 3, page::ERRORS),
            Self::Temperature => (1, 1, page::SMART),
            Self::SpareLow => (1, 2, page::SMART),
            Self::ReliabilityDegraded | Self::ReadOnly | Self::BackupFailed => (1, 0, page::SMART),
            Self::NamespaceChanged => (2, 0, page::CHANGED_NAMESPACES),
            Self::FirmwareStarting => (2, 1, page::FIRMWARE),
        }
    }

    /// Bits of feature 0Bh of which one must be set. Zero: every host is notified.
    fn wanted_by(self) -> u32 {
        match self {
            Self::PersistentError => 0,
            Self::SpareLow => warning::SPARE.into(),
            Self::Temperature => warning::TEMPERATURE.into(),
            Self::ReliabilityDegraded => warning::RELIABILITY.into(),
            Self::ReadOnly => warning::READ_ONLY.into(),
            Self::BackupFailed => warning::BACKUP.into(),
            Self::NamespaceChanged => 1 << 8,
            Self::FirmwareStarting => 1 << 9,
        }
    }
}

/// The events of one host.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// Requests held, oldest first: numbers of commands.
    pub(crate) held: Vec<u32>,
    pending: u16,
    /// Bit n: log page n has not been read since an event named it.
    masked: u16,
    pub(crate) namespace_changed: bool,
}

impl Events {
    fn next(&mut self) -> Option<Event> {
        let event = ALL.into_iter().find(|event| {
            let (_, _, page) = event.words();
            self.pending & event.bit() != 0 && self.masked & 1 << page == 0
        })?;
        self.pending &= !event.bit();
        self.masked |= 1 << event.words().2;
        Some(event)
    }

    /// The page has been read: what it tells of is known, and new events of its kind may come.
    fn read(&mut self, read: u8) {
        self.masked &= !(1 << read);
        for event in ALL.into_iter().filter(|event| event.words().2 == read) {
            self.pending &= !event.bit();
        }
        self.namespace_changed &= read != page::CHANGED_NAMESPACES;
    }
}

impl Ssd {
    /// Tells every host that has asked for events of this kind.
    pub fn raise(&mut self, now: Time, event: Event) {
        let wanted = event.wanted_by();
        for cntlid in self.hosts.ids() {
            let Some(host) = self.hosts.host(cntlid) else { continue };
            host.events.namespace_changed |= event == Event::NamespaceChanged;
            if wanted == 0 || host.features.events & wanted != 0 {
                self.raise_for(now, cntlid, event);
            }
        }
    }

    /// Takes note of the flash layer's health; hosts are told of warnings that are new.
    pub fn set_flash_health(&mut self, now: Time, health: FlashHealth) {
        let new = self.smart.replace_health(health);
        for event in smart_events(new) {
            self.raise(now, event);
        }
    }

    /// What the flash layer has said of itself last.
    pub fn flash_health(&self) -> &FlashHealth {
        self.smart.flash_health()
    }

    /// A host has changed which warnings it wants, or its thresholds: it is told of the warnings that stand.
    pub(crate) fn remind(&mut self, now: Time, cntlid: u16, before: u8) {
        let warnings = self.warnings(cntlid) & !before;
        let Some(wanted) = self.hosts.host(cntlid).map(|host| host.features.events) else { return };
        for event in smart_events(warnings).filter(|event| event.wanted_by() & wanted != 0) {
            self.raise_for(now, cntlid, event);
        }
    }

    /// The critical warning as this host sees it: thresholds are its own.
    pub(crate) fn warnings(&mut self, cntlid: u16) -> u8 {
        let own = self.hosts.host(cntlid).map_or(0, |host| host_warnings(host));
        self.smart.flash_health().warnings() | own
    }

    fn raise_for(&mut self, now: Time, cntlid: u16, event: Event) {
        if let Some(host) = self.hosts.host(cntlid) {
            host.events.pending |= event.bit();
            self.tell(now, cntlid);
        }
    }

    /// Completes held requests with what is pending.
    fn tell(&mut self, now: Time, cntlid: u16) {
        while let Some(host) = self.hosts.host(cntlid).filter(|host| !host.events.held.is_empty()) {
            let Some(event) = host.events.next() else { return };
            let id = host.events.held.remove(0);
            let (kind, information, page) = event.words();
            let dw0 = u32::from_le_bytes([kind, information, page, 0]);
            if let Some(permit) = self.commands.remove(id).and_then(|command| command.permit) {
                self.complete(permit, Answer::dw0(dw0), now, 0);
            }
        }
    }

    /// The host has read a log page and did not ask to keep the events it tells of.
    pub(crate) fn log_was_read(&mut self, now: Time, cntlid: u16, read: u8) {
        if let Some(host) = self.hosts.host(cntlid).filter(|_| read <= page::CHANGED_NAMESPACES) {
            host.events.read(read);
            self.tell(now, cntlid);
        }
    }

    pub(crate) fn await_event(&mut self, now: Time, permit: CompletionPermit, cntlid: u16) {
        if self.hosts.host(cntlid).is_none_or(|host| host.events.held.len() >= MAX_EVENTS) {
            return self.refuse(permit, 0, Refusal::EventLimit.into(), now);
        }
        let id = self.start(permit, 0, now, Work::AwaitEvent);
        if let Some(host) = self.hosts.host(cntlid) {
            host.events.held.push(id);
        }
        self.tell(now, cntlid);
    }
}

fn host_warnings(host: &Host) -> u8 {
    let features = &host.features;
    let beyond = MODELLED_KELVIN >= features.over_kelvin || MODELLED_KELVIN <= features.under_kelvin;
    if beyond { warning::TEMPERATURE } else { 0 }
}

fn smart_events(warnings: u8) -> impl Iterator<Item = Event> {
    ALL.into_iter()
        .filter(move |event| event.words().2 == page::SMART && event.wanted_by() & u32::from(warnings) != 0)
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Asynchronous events, and the ones that each host has not received yet.

use crate::smart::health::warning;

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
    /// Writes are no longer possible.
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
    pub(crate) fn words(self) -> (u8, u8, u8) {
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
    pub(crate) fn wanted_by(self) -> u32 {
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
    held: Vec<u32>,
    pending: u16,
    /// Bit n: log page n has not been read since an event named it.
    masked: u16,
    namespace_changed: bool,
}

impl Events {
    /// An event waits for a request of the host.
    pub(crate) fn add(&mut self, event: Event) {
        self.pending |= event.bit();
    }

    /// The namespace has changed, whether or not the host wants to be notified.
    pub(crate) fn note_namespace(&mut self) {
        self.namespace_changed = true;
    }

    /// Whether the namespace has changed since the host last read of it.
    pub(crate) fn has_namespace_changed(&self) -> bool {
        self.namespace_changed
    }

    /// Requests held, oldest first: numbers of commands.
    pub(crate) fn held(&self) -> &[u32] {
        &self.held
    }

    /// Holds a request until an event comes.
    pub(crate) fn hold(&mut self, id: u32) {
        self.held.push(id);
    }

    /// Holds a request no longer.
    pub(crate) fn release(&mut self, id: u32) {
        self.held.retain(|&other| other != id);
    }

    /// The oldest request that is held, and the event that it completes with.
    pub(crate) fn next_notice(&mut self) -> Option<(u32, Event)> {
        if self.held.is_empty() {
            return None;
        }
        let event = self.next()?;
        Some((self.held.remove(0), event))
    }

    /// The next event that the host may receive.
    fn next(&mut self) -> Option<Event> {
        let event = ALL.into_iter().find(|event| {
            let (_, _, page) = event.words();
            self.pending & event.bit() != 0 && self.masked & 1 << page == 0
        })?;
        self.pending &= !event.bit();
        self.masked |= 1 << event.words().2;
        Some(event)
    }

    /// Notes that the host has read the page, so that new events of its kind may be sent.
    pub(crate) fn read(&mut self, read: u8) {
        self.masked &= !(1 << read);
        for event in ALL.into_iter().filter(|event| event.words().2 == read) {
            self.pending &= !event.bit();
        }
        self.namespace_changed &= read != page::CHANGED_NAMESPACES;
    }
}

/// The events that these SMART warnings lead to.
pub(crate) fn smart_events(warnings: u8) -> impl Iterator<Item = Event> {
    ALL.into_iter()
        .filter(move |event| event.words().2 == page::SMART && event.wanted_by() & u32::from(warnings) != 0)
}

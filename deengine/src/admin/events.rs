// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Asynchronous events: notifications of hosts.
//!
//! ```text
//!   raise --> pending of each host that wants it --> a held Asynchronous Event Request completes
//!                 ^                                        |
//!                 +-- further ones of its kind wait <------+  until the host reads the event's log page
//! ```

use crate::commands::CompletionPermit;
use crate::commands::{Answer, Work};
use crate::controller::Ssd;
use crate::hosts::events::{Event, page, smart_events};
use crate::smart::health::{FlashHealth, MODELLED_KELVIN, warning};
use gnstor_base::time::Time;
use gnstor_proto::status::Refusal;

/// Largest number of Asynchronous Event Requests held for each controller. Identify AERL is one less.
pub(crate) const MAX_EVENTS: usize = 4;

impl Ssd {
    /// Reports the event to every host that has asked for its kind.
    pub fn raise(&mut self, now: Time, event: Event) {
        let wanted = event.wanted_by();
        for cntlid in self.hosts.ids() {
            let Some(host) = self.hosts.host_mut(cntlid) else { continue };
            if event == Event::NamespaceChanged {
                host.events_mut().note_namespace();
            }
            if wanted == 0 || host.features().events() & wanted != 0 {
                self.raise_for(now, cntlid, event);
            }
        }
    }

    /// Stores the flash layer's health, and reports new warnings to the hosts.
    pub fn set_flash_health(&mut self, now: Time, health: FlashHealth) {
        let new = self.smart_mut().replace_health(health);
        for event in smart_events(new) {
            self.raise(now, event);
        }
    }

    /// The flash layer's health, as last stored.
    pub fn flash_health(&self) -> &FlashHealth {
        self.smart().flash_health()
    }

    /// Reports the current warnings to a host that has changed its thresholds or the warnings that it wants.
    pub(crate) fn remind(&mut self, now: Time, cntlid: u16, before: u8) {
        let warnings = self.warnings(cntlid) & !before;
        let Some(wanted) = self.hosts.host(cntlid).map(|host| host.features().events()) else { return };
        for event in smart_events(warnings).filter(|event| event.wanted_by() & wanted != 0) {
            self.raise_for(now, cntlid, event);
        }
    }

    /// The critical warning as this host sees it: thresholds are its own.
    pub(crate) fn warnings(&self, cntlid: u16) -> u8 {
        let is_warned = self.hosts.host(cntlid).is_some_and(|host| host.features().warns_at(MODELLED_KELVIN));
        let own = if is_warned { warning::TEMPERATURE } else { 0 };
        self.smart().flash_health().warnings() | own
    }

    fn raise_for(&mut self, now: Time, cntlid: u16, event: Event) {
        if let Some(host) = self.hosts.host_mut(cntlid) {
            host.events_mut().add(event);
            self.tell(now, cntlid);
        }
    }

    /// Completes held requests with the pending events.
    fn tell(&mut self, now: Time, cntlid: u16) {
        while let Some((id, event)) =
            self.hosts.host_mut(cntlid).and_then(|host| host.events_mut().next_notice())
        {
            let (kind, information, page) = event.words();
            let dw0 = u32::from_le_bytes([kind, information, page, 0]);
            if let Some(permit) = self.commands.remove(id).and_then(|command| command.end().permit) {
                self.complete(permit, Answer::dw0(dw0), now, 0);
            }
        }
    }

    /// The host has read a log page and did not ask to keep the events it tells of.
    pub(crate) fn log_was_read(&mut self, now: Time, cntlid: u16, read: u8) {
        if let Some(host) = self.hosts.host_mut(cntlid).filter(|_| read <= page::CHANGED_NAMESPACES) {
            host.events_mut().read(read);
            self.tell(now, cntlid);
        }
    }

    pub(crate) fn await_event(&mut self, now: Time, permit: CompletionPermit, cntlid: u16) {
        if self.hosts.host(cntlid).is_none_or(|host| host.events().held().len() >= MAX_EVENTS) {
            return self.refuse(permit, 0, Refusal::EventLimit.into(), now);
        }
        let id = self.start(permit, 0, now, Work::AwaitEvent);
        if let Some(host) = self.hosts.host_mut(cntlid) {
            host.events_mut().hold(id);
        }
        self.tell(now, cntlid);
    }
}

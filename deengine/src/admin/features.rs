// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Get Features and Set Features.
//!
//! Values are a controller's own, so each host sets its own. Only the write cache is the SSD's: it decides
//! whether the acknowledged writes of all clients are durable, so the daemon alone may change it. Nothing is
//! saved: a controller that is made anew has the defaults, and asking to save is refused.

use crate::admin::state::WriteCache;
use crate::commands::{Answer, OK};
use crate::commands::{CompletionPermit, Delivered};
use crate::controller::Ssd;
use crate::hosts::events::NOTICES;
use crate::hosts::features::Features;
use crate::hosts::{MAX_IO_QUEUES, keep_alive_of};
use crate::request::{NSID, Refused};
use gnstor_base::time::Time;
use gnstor_proto::fabrics::Identity;
use gnstor_proto::nvme::Sqe;
use gnstor_proto::status::Refusal;

/// Feature ids.
mod id {
    pub(super) const ARBITRATION: u32 = 0x01;
    pub(super) const POWER: u32 = 0x02;
    pub(super) const TEMPERATURE: u32 = 0x04;
    pub(super) const ERROR_RECOVERY: u32 = 0x05;
    pub(super) const WRITE_CACHE: u32 = 0x06;
    pub(super) const QUEUES: u32 = 0x07;
    pub(super) const EVENTS: u32 = 0x0B;
    pub(super) const KEEP_ALIVE: u32 = 0x0F;
    pub(super) const HOST_ID: u32 = 0x81;
}

/// Set Features, CDW10: save.
const SAVE: u32 = 1 << 31;
/// Error recovery: tell of unwritten blocks.
const DULBE: u32 = 1 << 16;
/// Capabilities in DW0 (select 3): changeable, and of a namespace.
const CHANGEABLE: u32 = 1 << 2;
const OF_NAMESPACE: u32 = 1 << 1;
/// Host Identifier, CDW11: 16 bytes.
const EXTENDED: u32 = 1;
const HOST_ID_BYTES: u32 = 16;
const ALL_NAMESPACES: u32 = 0xFFFF_FFFF;

impl Ssd {
    /// Whether the SSD has a volatile write cache, which is the case without power-loss protection:
    /// Identify and the feature say so. A cache starts enabled.
    pub fn set_write_cache(&mut self, present: bool) {
        self.admin.write_cache = WriteCache { present, enabled: present };
    }

    /// Whether a write may be acknowledged before it is durable: always with power-loss protection, and
    /// without it unless the daemon has switched the cache off. Where it is `false`, each write is as with
    /// FUA.
    pub fn write_cache_enabled(&self) -> bool {
        !self.admin.write_cache.present || self.admin.write_cache.enabled
    }

    pub(crate) fn submit_get_features(
        &mut self,
        now: Time,
        permit: CompletionPermit,
        cntlid: u16,
        sqe: &Sqe,
    ) {
        let select = sqe.cdw10.get() >> 8 & 7;
        if sqe.cdw10.get() & 0xFF == id::HOST_ID && select < 3 {
            let host = self.hosts.host(cntlid).filter(|_| sqe.cdw11.get() & EXTENDED != 0);
            return match host.map(|host| *host.host_id()) {
                Some(host_id) => {
                    self.deliver(now, permit, sqe, Delivered::at_once(now, HOST_ID_BYTES, 0, &host_id))
                }
                None => self.refuse(permit, 0, Refusal::InvalidField.into(), now),
            };
        }
        match self.get_features(cntlid, select, sqe) {
            Ok(dw0) => self.complete(permit, Answer::dw0(dw0), now, 0),
            Err(refused) => self.refuse(permit, 0, refused, now),
        }
    }

    fn get_features(&self, cntlid: u16, select: u32, sqe: &Sqe) -> Result<u32, Refused> {
        let feature = sqe.cdw10.get() & 0xFF;
        let host = self.hosts.host(cntlid).ok_or(Refusal::SequenceError)?;
        let (mut features, mut kato, mut cache) =
            (*host.features(), host.keep_alive(), self.admin.write_cache);
        match select {
            0 => {}
            // No value is saved, so the value after a power cycle is the default.
            1 | 2 => {
                features = Features::default();
                kato = keep_alive_of(0);
                cache.enabled = cache.present;
            }
            3 => return self.capabilities(feature),
            _ => return Err(Refusal::InvalidField.into()),
        }
        match feature {
            id::ARBITRATION => Ok(features.arbitration()),
            id::POWER => Ok(0),
            id::TEMPERATURE => {
                let composite = sqe.cdw11.get() >> 16 & 0xF == 0;
                let threshold = features.threshold(sqe.cdw11.get())?;
                if composite { Ok(threshold.into()) } else { Err(Refusal::InvalidField.into()) }
            }
            id::ERROR_RECOVERY => {
                check_namespace(sqe)?;
                Ok(u32::from(features.retry_limit()) | if features.tells_unwritten() { DULBE } else { 0 })
            }
            id::WRITE_CACHE if cache.present => Ok(cache.enabled.into()),
            id::QUEUES => Ok(granted_queues()),
            id::EVENTS => Ok(features.events()),
            id::KEEP_ALIVE => Ok(u32::try_from(kato.as_ns() / 1_000_000).unwrap_or(u32::MAX)),
            _ => Err(Refusal::InvalidField.into()),
        }
    }

    fn capabilities(&self, feature: u32) -> Result<u32, Refused> {
        match feature {
            id::ERROR_RECOVERY => Ok(CHANGEABLE | OF_NAMESPACE),
            id::WRITE_CACHE if !self.admin.write_cache.present => Err(Refusal::InvalidField.into()),
            id::ARBITRATION
            | id::POWER
            | id::TEMPERATURE
            | id::WRITE_CACHE
            | id::QUEUES
            | id::EVENTS
            | id::KEEP_ALIVE => Ok(CHANGEABLE),
            id::HOST_ID => Ok(0),
            _ => Err(Refusal::InvalidField.into()),
        }
    }

    pub(crate) fn set_features(&mut self, now: Time, cntlid: u16, sqe: &Sqe) -> Result<Answer, Refused> {
        let (feature, value) = (sqe.cdw10.get() & 0xFF, sqe.cdw11.get());
        self.capabilities(feature)?;
        if sqe.cdw10.get() & SAVE != 0 {
            return Err(Refusal::FeatureNotSaveable.into());
        }
        let before = self.warnings(cntlid);
        let host = self.hosts.host_mut(cntlid).ok_or(Refusal::SequenceError)?;
        match feature {
            id::ARBITRATION => host.set_arbitration(value & !0xF8),
            // The SSD has one power state, and ignores hints about the workload.
            id::POWER if value == 0 => {}
            id::TEMPERATURE => {
                // The SSD has one sensor: the composite one, which "all" names, too.
                if !matches!(value >> 16 & 0xF, 0 | 0xF) {
                    return Err(Refusal::InvalidField.into());
                }
                host.set_threshold(value, low(value))?;
                self.remind(now, cntlid, before);
            }
            id::ERROR_RECOVERY => {
                check_namespace(sqe)?;
                // Each worker has a copy of this setting for its queues, and reads it again with all rules
                // after a change.
                if host.set_error_recovery(low(value), value & DULBE != 0) {
                    self.table.touch();
                }
            }
            id::WRITE_CACHE if host.identity() == Identity::Daemon => {
                self.admin.write_cache.enabled = value & 1 != 0;
            }
            id::WRITE_CACHE => return Err(Refusal::NotTheDaemon.into()),
            // All queues are granted, whatever the host asks for. FFFFh is not a valid number of queues.
            id::QUEUES if value & 0xFFFF != 0xFFFF && value >> 16 != 0xFFFF => {
                return Ok(Answer::dw0(granted_queues()));
            }
            id::EVENTS if value & !(NOTICES | 0xFF) == 0 => {
                let wanted = host.set_events(value) & 0xFF;
                let known = u8::try_from(!wanted & 0xFF).unwrap_or(u8::MAX);
                self.remind(now, cntlid, known);
            }
            id::KEEP_ALIVE => {
                let deadline = self.hosts.set_keep_alive(now, cntlid, value).ok_or(Refusal::SequenceError)?;
                self.wake_at(deadline);
            }
            // Connect sets the host identifier.
            id::HOST_ID => return Err(Refusal::SequenceError.into()),
            _ => return Err(Refusal::InvalidField.into()),
        }
        Ok(OK)
    }
}

fn check_namespace(sqe: &Sqe) -> Result<(), Refused> {
    if matches!(sqe.nsid.get(), NSID | ALL_NAMESPACES) {
        Ok(())
    } else {
        Err(Refusal::InvalidNamespace.into())
    }
}

fn low(value: u32) -> u16 {
    let [a, b, ..] = value.to_le_bytes();
    u16::from_le_bytes([a, b])
}

/// Number of Queues, DW0: completion queues and submission queues granted, both zero-based.
fn granted_queues() -> u32 {
    let queues_z = u32::from(MAX_IO_QUEUES - 1);
    queues_z << 16 | queues_z
}

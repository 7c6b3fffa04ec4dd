// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Get Log Page.

use crate::admin::effects;
use crate::commands::scratch::LARGE_BYTES;
use crate::commands::{CompletionPermit, Delivered};
use crate::controller::Ssd;
use crate::hosts::events::page;
use crate::request::{NSID, Refused};
use crate::smart::counters;
use crate::smart::health::{Activity, flash_page, smart_page};
use gnstor_base::time::Time;
use gnstor_proto::fabrics::Identity;
use gnstor_proto::log_page;
use gnstor_proto::nvme::Sqe;
use gnstor_proto::repair::FILL_LID;
use gnstor_proto::scrub::SCRUB_LID;
use gnstor_proto::status::Refusal;

const SUPPORTED_PAGES: u8 = 0x00;
const EFFECTS: u8 = 0x05;
/// All log pages.
const PAGES: [u8; 11] = [
    SUPPORTED_PAGES,
    page::ERRORS,
    page::SMART,
    page::FIRMWARE,
    page::CHANGED_NAMESPACES,
    EFFECTS,
    FILL_LID,
    SCRUB_LID,
    log_page::VOLUME_COUNTERS,
    log_page::CLIENT_COUNTERS,
    log_page::FLASH,
];
/// CDW10: the events that the page tells of are kept.
const RETAIN: u32 = 1 << 15;
const ALL_NAMESPACES: u32 = 0xFFFF_FFFF;

impl Ssd {
    pub(crate) fn submit_get_log(&mut self, now: Time, permit: CompletionPermit, cntlid: u16, sqe: &Sqe) {
        let [page, ..] = sqe.cdw10.get().to_le_bytes();
        let found = log_window(sqe).and_then(|window| Ok((window, self.log_page(now, cntlid, page, sqe)?)));
        let ((bytes, offset), data) = match found {
            Ok(found) => found,
            Err(refused) => return self.refuse(permit, 0, refused, now),
        };
        let rest = usize::try_from(offset).ok().and_then(|offset| data.get(offset..));
        let Some(rest) = rest else { return self.refuse(permit, 0, Refusal::InvalidField.into(), now) };
        self.deliver(now, permit, sqe, Delivered::at_once(now, bytes, 0, rest));
        if sqe.cdw10.get() & RETAIN == 0 {
            self.log_was_read(now, cntlid, page);
        }
    }

    fn log_page(&mut self, now: Time, cntlid: u16, page: u8, sqe: &Sqe) -> Result<Vec<u8>, Refused> {
        if !PAGES.contains(&page) {
            return Err(Refusal::InvalidLogPage.into());
        }
        // Every page belongs to the controller or to the SSD. Vendor pages also accept the namespace, because
        // targets that pass commands through expect one.
        let vendor = matches!(
            page,
            log_page::VOLUME_COUNTERS | log_page::CLIENT_COUNTERS | log_page::FLASH | FILL_LID | SCRUB_LID
        );
        let known = matches!(sqe.nsid.get(), 0 | ALL_NAMESPACES) || vendor && sqe.nsid.get() == NSID;
        if !known {
            return Err(Refusal::InvalidNamespace.into());
        }
        if page == page::SMART {
            self.look_at_flash(now);
        }
        let host = self.hosts.host(cntlid).ok_or(Refusal::SequenceError)?;
        let is_daemon = host.identity() == Identity::Daemon;
        if vendor && !is_daemon {
            return Err(Refusal::NotTheDaemon.into());
        }
        Ok(match page {
            SUPPORTED_PAGES => supported(),
            page::ERRORS => if is_daemon { self.smart().errors() } else { host.errors() }.page(),
            page::SMART => {
                let error_entries =
                    if is_daemon { self.smart().errors().count() } else { host.errors().count() };
                let activity = Activity { error_entries, ..self.activity() };
                smart_page(now, self.warnings(cntlid), self.smart().flash_health(), &activity)
            }
            page::FIRMWARE => firmware_slots(),
            page::CHANGED_NAMESPACES => {
                let mut data = vec![0; 4096];
                let changed = if host.events().has_namespace_changed() { NSID } else { 0 };
                data[..4].copy_from_slice(&changed.to_le_bytes());
                data
            }
            EFFECTS => effects::page(),
            FILL_LID => self.fill_log().encode(),
            SCRUB_LID => self.scrub_log().encode(),
            log_page::VOLUME_COUNTERS => counters::page(log_page::VOLUME_MAGIC, self.table.volume_counters()),
            log_page::CLIENT_COUNTERS => counters::page(log_page::CLIENT_MAGIC, self.table.client_counters()),
            _ => flash_page(&self.ftl().health(), &self.ftl().stats(), self.flash_flags()),
        })
    }
}

impl Ssd {
    fn flash_flags(&self) -> u16 {
        let filling = if self.is_filling() { log_page::FLASH_FILLING } else { 0 };
        let damaged = if self.lost_places() > 0 { log_page::FLASH_DAMAGED } else { 0 };
        filling | damaged
    }
}

/// Bytes wanted, and from which offset of the page on.
fn log_window(sqe: &Sqe) -> Result<(u32, u64), Refused> {
    let dwords_z = u64::from(sqe.cdw10.get() >> 16) | u64::from(sqe.cdw11.get() & 0xFFFF) << 16;
    let bytes = u32::try_from((dwords_z + 1) * 4).ok().filter(|&bytes| bytes <= LARGE_BYTES);
    let offset = u64::from(sqe.cdw12.get()) | u64::from(sqe.cdw13.get()) << 32;
    // CDW14: an index in place of an offset, another command set, a UUID: none of them is known.
    match bytes {
        Some(bytes) if offset.is_multiple_of(4) && sqe.cdw14.get() == 0 => Ok((bytes, offset)),
        _ => Err(Refusal::InvalidField.into()),
    }
}

fn supported() -> Vec<u8> {
    let mut data = vec![0; 1024];
    for page in PAGES {
        data[usize::from(page) * 4] = 1;
    }
    data
}

/// One firmware slot, which is active and read-only.
fn firmware_slots() -> Vec<u8> {
    let mut data = vec![0; 512];
    data[0] = 1;
    let revision = env!("CARGO_PKG_VERSION").as_bytes();
    let used = revision.len().min(8);
    data[8..16].fill(b' ');
    data[8..8 + used].copy_from_slice(&revision[..used]);
    data
}

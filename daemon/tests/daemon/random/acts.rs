// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a run makes each step of a schedule.

use super::Run;
use super::steps::Step;
use crate::array::Fault;
use crate::bench::{create_with, delete, read, release, renew, write};
use crate::holders::{delete_all_the_same, revoke_lease};
use crate::publish::publish;
use crate::rename::rename;
use gnstor_daemon::core::Reply;
use gnstor_daemon::core::request::Request;
use gnstor_proto::labels::PARTIAL;
use gnstor_proto::placement::{AnyMap, Rows as _, SsdState};
use gnstor_proto::status::Refusal;
use gnstor_proto::vendor::VolumeEntry;
use std::sync::Arc;

fn text(name: u8) -> String {
    format!("v{name}")
}

fn fault(kind: u8) -> Fault {
    match kind {
        0 => Fault::LostBefore,
        1 => Fault::LostAfter,
        2 => Fault::Refuse(Refusal::NotReady),
        _ => Fault::Refuse(Refusal::TableFull),
    }
}

impl Run {
    pub(super) fn step(&mut self, step: Step) {
        if step.ssd().is_some_and(|ssd| ssd >= self.bench.array.len()) {
            // It has not joined yet.
            return;
        }
        match step {
            Step::Create { name, id } => self.create(name, id),
            Step::Publish { from, name } => self.publish(from, name),
            Step::Rename { from, name } => self.send(rename(&text(from), &text(name), None)),
            Step::Delete { name, client, force: false } => self.send(delete(&text(name), client)),
            Step::Delete { name, client, force: true } => self.send(delete_all_the_same(&text(name), client)),
            Step::Revoke { name, client } => self.send(revoke_lease(&text(name), client)),
            Step::Read { name, client } => self.send(read(&text(name), client)),
            Step::Write { name, client, lease_ms } => self.send(write(&text(name), client, lease_ms)),
            Step::Renew { name, client, lease_ms } => {
                let epoch = self.entry(name).map_or(1, |e| e.lease_epoch);
                self.send(renew(&text(name), client, epoch, lease_ms));
            }
            Step::Release { name, client, clean } => self.release(name, client, clean),
            Step::Execute { ssd, commands, which } => {
                for _ in 0..commands {
                    self.bench.execute_one(ssd, which.into());
                    self.hear();
                }
            }
            Step::RunUntilQuiet => self.run_until_quiet(),
            Step::Pass { ms } => {
                self.bench.pass(ms);
                self.hear();
            }
            Step::Fail { ssd, kind } => self.bench.array.ssd(ssd).faults.push_back(fault(kind)),
            Step::Die { ssd, dead } => self.bench.array.ssd(ssd).dead = dead,
            Step::Lose { ssd } => self.bench.lose(u16::try_from(ssd).unwrap()),
            Step::Find { ssd } => self.bench.find(u16::try_from(ssd).unwrap()),
            Step::Epoch { add } => self.epoch(add),
            Step::Lossy { ssd } if self.votes => {
                self.lost_and_found(ssd, |run| run.bench.array.ssd(ssd).lose_writes());
            }
            Step::Reboot { ssd } if self.votes => self.lost_and_found(ssd, |run| run.reboot(ssd)),
            Step::Swap { ssd } if self.votes && self.may_swap(ssd) => self.lost_and_found(ssd, |run| {
                // Commands to it are answered as lost.
                while run.execute(ssd) {}
                run.bench.format(ssd);
            }),
            Step::Replace { ssd, lose_data } if self.votes => {
                self.given_up.insert(ssd);
                self.send(Request::Replace { ssd, lose_data });
            }
            Step::Resume { ssd, lose_data } if self.votes => {
                self.given_up.insert(ssd);
                self.send(Request::Resume { ssd, lose_data });
            }
            Step::Drain { ssd } if self.votes => self.send(Request::Drain { ssd }),
            Step::Lossy { .. } | Step::Reboot { .. } | Step::Swap { .. } | Step::Drain { .. } => {}
            Step::Replace { .. } | Step::Resume { .. } => {}
            Step::Add => self.add(),
            Step::Restart => self.restart(),
        }
        assert_eq!(self.bench.stopped, None, "no other daemon runs");
    }

    fn reboot(&mut self, ssd: usize) {
        // What is on its way to it ends with its process.
        while self.registers && self.execute(ssd) {}
        self.bench.array.ssd(ssd).restart();
    }

    /// One more SSD joins. An earlier daemon may have connected it already.
    fn add(&mut self) {
        let named = self.bench.array.newest().map_or(0, |map| map.count());
        if !self.votes || named != self.given || !self.bench.core.is_serving() {
            return;
        }
        let mut add = crate::join::add(u16::try_from(self.given).unwrap());
        if self.bench.array.len() > self.given
            && let Some(says) = add.found.as_mut().and_then(|found| found.says.as_mut())
        {
            let ssd = self.bench.array.ssd(self.given);
            (says.uuid, says.incarnation) = (ssd.vote.uuid, ssd.vote.incarnation);
        }
        self.send(Request::Add(Box::new(add)));
    }

    /// The entry of a volume on the first SSD.
    fn entry(&self, name: u8) -> Option<VolumeEntry> {
        self.bench.array.ssd(0).active().into_iter().find(|e| e.name == text(name))
    }

    fn create(&mut self, name: u8, id: Option<u8>) {
        let mut request = create_with(&text(name), 1 + u64::from(name), id.map(|id| [id + 1; 16]));
        if let Request::Create(create) = &mut request {
            create.labels = format!("a=b\n{PARTIAL}=v\n");
            create.replicas = if name == 3 { 1 } else { 0 };
        }
        self.send(request);
    }

    /// The publisher owns the volume, and may be the writer too.
    fn publish(&mut self, from: u8, name: u8) {
        if let Some(entry) = self.entry(from) {
            self.send(publish(&entry, &text(name), true));
        }
    }

    fn release(&mut self, name: u8, client: u16, clean: bool) {
        let mut request = release(&text(name), client);
        if let Request::Release { all_acknowledged, .. } = &mut request {
            *all_acknowledged = clean && self.all_is_acknowledged(&text(name));
        }
        self.send(request);
    }

    /// Something happens to an SSD while the daemon does not reach it.
    fn lost_and_found(&mut self, ssd: usize, happens: impl FnOnce(&mut Self)) {
        self.bench.lose(u16::try_from(ssd).unwrap());
        happens(self);
        self.bench.find(u16::try_from(ssd).unwrap());
    }

    fn epoch(&mut self, add: bool) {
        let last = self.bench.array.len() - 1;
        if self.votes || !self.bench.core.is_serving() || self.bench.array.is_out(last) != add {
            return;
        }
        let Ok(Reply::Map(bytes)) = self.bench.ask_now(Request::GetMap) else { panic!("a map") };
        let AnyMap::Two(map) = AnyMap::decode(&bytes).unwrap() else { panic!("a map of format 2") };
        let mut next = map.without(u16::try_from(last).unwrap());
        next.ssds[last].state = if add { SsdState::In } else { SsdState::Out };
        let next = AnyMap::from(next);
        if add {
            self.bench.format(last);
        }
        for ssd in 0..self.bench.array.len() - usize::from(!add) {
            self.bench.array.ssd(ssd).map = Some(next.clone());
        }
        self.bench.take_map(next).unwrap();
        self.hear();
    }

    /// A lease of this volume, or one that is requested already, ends cleanly. This does not apply to a
    /// volume that is still being created, because its number is not known.
    fn all_is_acknowledged(&self, name: &str) -> bool {
        let makes = |request: &Request| match request {
            Request::Create(create) => create.name.as_str() == name,
            Request::Publish(publish) => publish.name.as_str() == name,
            _ => false,
        };
        if self.model.asked.values().any(makes) {
            return false;
        }
        let log = Arc::clone(&self.bench.array.ssd(0).vote.log);
        let mut log = log.lock().unwrap();
        for ssd in 0..self.bench.array.len() {
            for entry in self.bench.array.ssd(ssd).active().iter().filter(|entry| entry.name == name) {
                let leases = entry.lease_epoch..entry.lease_epoch.saturating_add(4);
                log.clean.extend(leases.map(|lease| (entry.vid, entry.generation, lease)));
            }
        }
        true
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The application of a client, and its calls: it opens a volume, works on it, renews its lease, and releases
//! it.

use super::calls::Call;
use super::requests::Work;
use super::{App, Client, Open};
use crate::initiator::{Initiator, Volume};
use crate::survive::history::{History, Life};
use crate::survive::shape::Shape;
use crate::survive::shrink::Turn;
use crate::survive::stats::Path;
use crate::survive::wire::{Called, Post};
use gnstor_base::time::{Span, Time};
use gnstor_daemon::core::Reply;
use gnstor_daemon::core::request::{Create, Request, Rights, VolumeName};
use gnstor_proto::placement::AnyMap;
use gnstor_proto::status::GrpcCode;
use gnstor_proto::vendor::{Limits, VolumeEntry};
use std::sync::Arc;

fn volume_name(volume: usize) -> VolumeName {
    VolumeName::new(&format!("v{volume}")).expect("letters and digits")
}

/// The daemon's answer to an Open, which asked to write or not.
struct Opened {
    entry: VolumeEntry,
    lease_ms: u32,
    writes: bool,
}

impl Client {
    /// The daemon answered a call.
    pub(in crate::survive) fn answered(
        &mut self,
        post: &mut Post,
        history: &mut History,
        number: u64,
        result: Called,
    ) {
        if self.has_repeated(post, history, number, &result) {
            return;
        }
        let Some((call, _)) = self.calls.remove(&number) else { return };
        let now = post.now;
        if let Err(failure) = &result {
            post.stats.path(Path::CallFailed);
            post.note(|| format!("client {}: {call:?} failed: {}", self.number, failure.message));
        }
        match (call, result) {
            (Call::Create, Ok(Reply::Volume(entry))) => {
                history.exists(&entry);
                self.to_make.pop();
                self.app = App::Rest { until: now };
            }
            (Call::Create, Err(failure)) if failure.code == GrpcCode::AlreadyExists => {
                self.to_make.pop();
                self.app = App::Rest { until: now };
            }
            (Call::Open { writes }, Ok(Reply::Opened { volume, lease_ms })) => {
                self.opened(post, history, Opened { entry: volume, lease_ms, writes });
            }
            (Call::Renew, Ok(Reply::Renewed { lease_ms })) => self.renewed(post, lease_ms),
            (Call::Renew, Err(failure)) if failure.code == GrpcCode::Unavailable => {
                self.renew_soon(now + Span::from_ms(50));
            }
            (Call::Renew, Err(_)) => self.lose_lease(post),
            (Call::Release, result) => {
                if result.is_ok() {
                    post.stats.path(Path::Released);
                }
                self.rest(now);
            }
            (Call::Find, Ok(Reply::Volume(entry))) => {
                self.delete(post, volume_name(self.volume), Some((entry.vid, entry.generation)));
            }
            (Call::Delete, result) => {
                if result.is_ok() {
                    post.stats.path(Path::VolumeDeleted);
                }
                self.rest(now);
            }
            (Call::Create | Call::Open { .. } | Call::Renew | Call::Find, _) => {
                if !matches!(self.app, App::Working | App::Draining) {
                    self.rest(now);
                }
            }
        }
    }

    fn renewed(&mut self, post: &mut Post, lease_ms: u32) {
        self.said_reaches(post);
        if let Some(open) = &mut self.open {
            open.until = open.asked_at + Span::from_ms(lease_ms.into());
            open.renew_at = post.now + Span::from_ms(u64::from(lease_ms) / 3);
            self.requests.wants_renewal = false;
        }
    }

    fn rest(&mut self, now: Time) {
        let is_wanted = self.wanted.is_some_and(|(_, until)| now < until);
        let ms = 5 + u64::from(self.dice.below(if is_wanted { 25 } else { 200 }));
        self.app = App::Rest { until: now + Span::from_ms(ms) };
    }

    fn lose_lease(&mut self, post: &mut Post) {
        if let Some(work) = &mut self.requests.work {
            post.stats.path(Path::LeaseLost);
            (work.left, work.may_write) = (0, false);
        }
        self.requests.in_doubt = true;
        self.app = App::Draining;
    }

    fn opened(&mut self, post: &mut Post, history: &mut History, opened: Opened) {
        let Opened { entry, lease_ms, writes } = opened;
        let now = post.now;
        history.exists(&entry);
        let may_write = writes && lease_ms > 0;
        post.note(|| {
            let VolumeEntry { vid, generation, lease_epoch, .. } = &entry;
            let (number, as_what) = (self.number, if may_write { "writer" } else { "reader" });
            format!(
                "client {number} opened volume {} generation {generation} as {as_what}, lease {lease_epoch}",
                vid.get()
            )
        });
        if may_write {
            post.stats.path(Path::LeaseGranted);
            history.granted((entry.vid, entry.generation), entry.lease_epoch, now);
        }
        let never = (Time::NEVER, Time::NEVER);
        let map = self.map.clone();
        let (until, renew_at) = match may_write && map.is_some() {
            true => (now + Span::from_ms(lease_ms.into()), now),
            false => never,
        };
        // Without a map there is nothing to do yet.
        self.app = if map.is_some() { App::Working } else { App::Draining };
        if let Some(map) = map {
            self.begin_work(&entry, may_write, map);
        }
        let (opened_at, asked_at) = (now, now);
        self.open = Some(Open { entry, writes: may_write, lease_ms, opened_at, until, renew_at, asked_at });
    }

    /// The kernel begins, and its requests.
    fn begin_work(&mut self, entry: &VolumeEntry, may_write: bool, map: Arc<AnyMap>) {
        let blocks = u32::try_from(entry.capacity_blocks).expect("small");
        let volume = Volume {
            vid: entry.vid,
            client: self.id,
            factor: entry.factor,
            replicas: entry.replicas,
            chunk_shift: entry.chunk_shift,
            lease_epoch: entry.lease_epoch,
            blocks,
            map,
        };
        let (ssds, lanes) = (self.sessions.len(), self.requests.count());
        self.begin_kernel(Initiator::new(volume, ssds, self.shape.depth, lanes));
        let Shape { mix, pause, requests, .. } = *self.shape;
        self.requests.begin(Work {
            life: (entry.vid, entry.generation),
            blocks,
            may_write,
            is_writer: entry.writer == Some(self.id),
            left: 1 + self.dice.below(requests),
            mix,
            pause,
        });
    }

    /// Steps the application. Returns the time of its next step.
    pub(super) fn go_on(&mut self, post: &mut Post, history: &mut History) -> Time {
        let now = post.now;
        match self.app.clone() {
            App::Rest { until } if now < until => until,
            App::Rest { .. } if self.open.is_some() => {
                self.close(post);
                Time::NEVER
            }
            App::Rest { .. } => self.begin(post, history),
            App::Working => self.work(post),
            App::Draining if self.requests.is_idle() => {
                self.close(post);
                Time::NEVER
            }
            App::Calling | App::Draining | App::Gone { .. } => Time::NEVER,
        }
    }

    /// Opens a volume, or makes or deletes one.
    fn begin(&mut self, post: &mut Post, history: &mut History) -> Time {
        if let Some(&volume) = self.to_make.last() {
            self.make(post, volume);
            return Time::NEVER;
        }
        if self.rests {
            return Time::NEVER;
        }
        self.turn += 1;
        let turn = Turn { client: self.number, turn: self.turn };
        if self.idle.has(turn) {
            self.rest(post.now);
            return post.now;
        }
        self.turns.push(turn);
        let drawn = self.dice.below(u32::try_from(self.shape.volumes.len()).expect("few")) as usize;
        let wanted = self.wanted.filter(|(_, until)| post.now < *until).map(|(volume, _)| volume);
        let volume = wanted.unwrap_or(drawn);
        self.volume = volume;
        let name = volume_name(volume);
        if !self.reads_only && wanted.is_none() && self.dice.below(1000) < self.shape.deletes_permille {
            history.delete_is_asked(name.as_str());
            self.to_make.push(volume);
            // Where Deletes are late, clients name the volume, as the library does.
            if self.shape.late_deletes {
                self.call(post, Call::Find, Request::Get { name });
            } else {
                self.delete(post, name, None);
            }
        } else {
            let writes = self.dice.below(100) < 60 && !self.reads_only;
            let lease_ms = self.shape.lease_ms;
            let rights = if writes { Rights::Write { lease_ms } } else { Rights::Read };
            let request = Request::Open { name, client: self.id, rights, follows_drains: self.shape.follows };
            self.call(post, Call::Open { writes }, request);
        }
        self.app = App::Calling;
        Time::NEVER
    }

    fn delete(&mut self, post: &mut Post, name: VolumeName, only: Option<Life>) {
        let request_id = self.request_id();
        let request = Request::Delete { name, client: self.id, request_id, force: false, only };
        self.call_twice(post, Call::Delete, request, request_id);
    }

    fn make(&mut self, post: &mut Post, volume: usize) {
        let request_id = self.request_id();
        let drawn = &self.shape.volumes[volume];
        let create = Create {
            name: volume_name(volume),
            capacity_blocks: drawn.blocks.into(),
            replicas: drawn.replicas,
            chunk_shift: drawn.chunk_shift,
            client: self.id,
            labels: String::new(),
            request_id,
            limits: Limits::default(),
        };
        self.app = App::Calling;
        self.call_twice(post, Call::Create, Request::Create(create), request_id);
    }

    fn work(&mut self, post: &mut Post) -> Time {
        let now = post.now;
        let Some(open) = &mut self.open else { return Time::NEVER };
        let (is_over, is_fenced) = (now >= open.until, self.requests.is_fenced);
        if self.rests
            && let Some(work) = &mut self.requests.work
        {
            work.left = 0;
        }
        if is_over || is_fenced {
            self.lose_lease(post);
            return now;
        }
        if self.requests.is_idle() && self.requests.work.as_ref().is_some_and(|work| work.left == 0) {
            self.app = App::Draining;
            return now;
        }
        let is_renewing = self.calls.values().any(|(call, _)| matches!(call, Call::Renew));
        if self.requests.wants_renewal && open.writes {
            open.renew_at = open.renew_at.min(now);
        }
        if open.writes && !is_renewing && now >= open.renew_at {
            (open.asked_at, open.renew_at) = (now, Time::NEVER);
            let reaches = (0u32..).zip(&self.sessions).filter(|(_, session)| session.is_up());
            self.said = reaches.map(|(ssd, _)| 1u64 << ssd).sum();
            let request = Request::Renew {
                name: VolumeName::new(&open.entry.name).expect("it exists"),
                client: self.id,
                lease_epoch: open.entry.lease_epoch,
                lease_ms: open.lease_ms,
                reaches: Some(self.said),
                in_doubt: self.requests.in_doubt,
                follows_drains: self.shape.follows,
            };
            self.call(post, Call::Renew, request);
        }
        let renews = if is_renewing { Time::NEVER } else { open_at(&self.open) };
        renews.min(self.open.as_ref().map_or(Time::NEVER, |open| open.until))
    }

    /// Releases the volume.
    fn close(&mut self, post: &mut Post) {
        let Some(open) = self.open.take() else { return self.rest(post.now) };
        post.note(|| {
            let doubt = if self.requests.in_doubt { ", in doubt" } else { "" };
            format!("client {} releases {}{doubt}", self.number, open.entry.name)
        });
        (self.twin, self.requests.work) = (None, None);
        self.anew.clear();
        // No answer of a call of this volume counts any more.
        self.calls.clear();
        let request = Request::Release {
            name: VolumeName::new(&open.entry.name).expect("it exists"),
            client: self.id,
            all_acknowledged: open.writes && !self.requests.in_doubt,
            lease_epoch: Some(if open.writes { open.entry.lease_epoch } else { 0 }),
        };
        self.app = App::Calling;
        self.call(post, Call::Release, request);
    }
}

fn open_at(open: &Option<Open>) -> Time {
    open.as_ref().map_or(Time::NEVER, |open| open.renew_at)
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A Delete may delete the volume that has its name when the call arrives at a daemon. If it names a volume
//! by id and generation, it may delete only that one. While it is under way
//! nothing is judged of that volume. A Delete may also wait, and a volume of that name may be created
//! meanwhile: then it may delete that one. A Delete that was refused has deleted nothing, and its repetition
//! is a new try. After any other answer its repetition deletes no more (rule 12).
//!
//! ```text
//!   Delete id X --> refused: another writes     Delete id X again --> may delete the volume of that name
//!   Delete id X --> done, or none is there      Delete id X again --> deletes nothing
//! ```

use crate::survive::chaos::DELETED;
use crate::survive::daemon::Daemon;
use crate::survive::history::Life;
use crate::survive::stats::Fault;
use crate::survive::wire::Called;
use crate::survive::world::World;
use gnstor_daemon::core::request::{Request, RequestId};
use gnstor_daemon::core::{Page, Reply, Ticket};
use gnstor_proto::status::GrpcCode;
use gnstor_proto::vendor::VolumeEntry;
use std::collections::{BTreeMap, BTreeSet};

/// The Deletes that arrived at daemons.
#[derive(Default, Debug)]
pub(super) struct Deletes {
    /// Deletes without an answer, by daemon and ticket.
    open: BTreeMap<(u64, Ticket), Delete>,
    /// Request ids of Deletes that deleted a volume, or found none.
    ended: BTreeSet<RequestId>,
}

#[derive(Debug)]
struct Delete {
    client: usize,
    name: String,
    id: Option<RequestId>,
    /// The volume that it names, and no other one of that name.
    only: Option<Life>,
    lives: Vec<Life>,
}

/// Meaning of an answer to a Delete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Says {
    /// The volume is gone, or will be.
    Deleted,
    /// There was no such volume.
    Nothing,
    /// The Delete has changed nothing.
    Refused,
    /// The Delete may be carried out later.
    Unknown,
}

fn says(result: &Called) -> Says {
    match result {
        Ok(_) => Says::Deleted,
        Err(failure) if failure.message.starts_with("the deletion of volume") => Says::Deleted,
        Err(failure) if failure.code == GrpcCode::NotFound => Says::Nothing,
        Err(failure) if failure.code == GrpcCode::FailedPrecondition => Says::Refused,
        Err(failure) if failure.message.contains("cannot be deleted") => Says::Refused,
        Err(failure) if failure.message.contains("not serving") => Says::Refused,
        Err(_) => Says::Unknown,
    }
}

impl World {
    /// A call arrives at a daemon, which has given it this ticket.
    pub(super) fn note_call(&mut self, of: (u64, Ticket), client: usize, request: &Request) {
        self.note_reach(client, request);
        let Request::Delete { name, request_id: id, only, .. } = request else { return };
        let is_over = id.is_some_and(|id| self.deletes.ended.contains(&id));
        let lives = if is_over { Vec::new() } else { self.history.delete_begins(name.as_str(), *only) };
        self.post.note(|| {
            let why = if is_over { ", which it has done" } else { "" };
            let vids: Vec<u16> = lives.iter().map(|(vid, _)| vid.get()).collect();
            format!("client {client} asks daemon {} to delete {name}, volumes {vids:?}{why}", of.0)
        });
        let name = name.as_str().to_owned();
        self.deletes.open.insert(of, Delete { client, name, id: *id, only: *only, lives });
    }

    /// Daemons have answered calls.
    pub(super) fn note_answers(&mut self) {
        let of = |daemon: &mut Daemon| {
            let number = daemon.number;
            std::mem::take(&mut daemon.answered)
                .into_iter()
                .map(move |(ticket, result)| ((number, ticket), result))
        };
        let answers: Vec<_> = self.daemons.iter_mut().flat_map(of).collect();
        for (of, result) in answers {
            if let Ok(Reply::Volume(entry)) = &result {
                self.is_created(entry);
            }
            let Some(Delete { client, id, lives, .. }) = self.deletes.open.remove(&of) else { continue };
            let said = says(&result);
            self.post.note(|| format!("daemon {} answers the Delete of client {client}: {said:?}", of.0));
            match said {
                Says::Deleted => lives.iter().for_each(|life| self.history.dies(*life)),
                Says::Nothing | Says::Refused => self.history.delete_ends(&lives),
                Says::Unknown => {}
            }
            if let Some(id) = id.filter(|_| matches!(said, Says::Deleted | Says::Nothing)) {
                self.deletes.ended.insert(id);
            }
            if said == Says::Deleted && self.shape.late_deletes && self.post.now < self.chaos.until {
                self.happens(DELETED);
                self.wake_chaos();
            }
        }
    }

    /// Each volume that no client had deleted is in the daemon's list. Returns false if one is not.
    pub(super) fn check_list(&mut self) -> bool {
        let before = self.history.lives();
        let Some(Ok(Reply::Volumes { volumes: listed, .. })) = self.asks(Request::List(Page::ALL)) else {
            return true;
        };
        let is_in = |list: &[VolumeEntry], entry: &VolumeEntry| {
            list.iter().any(|of| (of.vid, of.generation) == (entry.vid, entry.generation))
        };
        // A Delete may have come while the list was asked for.
        let now = self.history.lives();
        let is_gone = |entry: &VolumeEntry| !is_in(&listed, entry) && is_in(&now, entry);
        if let Some(entry) = before.into_iter().find(is_gone) {
            let facts = format!("volume {} generation {}, {}", entry.vid.get(), entry.generation, entry.name);
            self.history.broken(
                self.post.now,
                "a volume is gone that no client had deleted (rule 12)",
                facts,
            );
        }
        self.history.violation.is_none()
    }

    /// In half of the cases the daemon that has carried a Delete out is killed. A repetition of the Delete
    /// comes to another one.
    pub(super) fn ends_behind_delete(&mut self) -> Option<String> {
        (self.chaos.has_begun && self.chaos.dice.below(2) == 0).then_some(())?;
        let what = self.end_daemon()?;
        self.post.stats.fault(Fault::KilledBehindDelete);
        Some(format!("a Delete is carried out, and {what}"))
    }

    /// A daemon answers that it has created a volume. Each open Delete of its name may delete it.
    fn is_created(&mut self, entry: &VolumeEntry) {
        self.history.exists(entry);
        let life = (entry.vid, entry.generation);
        for delete in self.deletes.open.values_mut() {
            let is_meant = delete.name == entry.name && delete.only.is_none_or(|only| only == life);
            if is_meant && !delete.lives.contains(&life) {
                self.history.may_die(life);
                delete.lives.push(life);
            }
        }
    }
}

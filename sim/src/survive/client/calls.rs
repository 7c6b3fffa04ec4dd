// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client's calls of the daemon. A call with a request id may be sent twice, as a client does that had no
//! answer. Both must then have one result (rule 12).
//!
//! ```text
//!   Create id X --> volume 3, generation 7      Create id X, later --> volume 3, generation 7 again
//! ```

use super::{Client, Open};
use crate::survive::aimed::Then;
use crate::survive::history::{History, Life};
use crate::survive::stats::{Fault, Path};
use crate::survive::wire::{Called, Item, Post};
use gnstor_base::time::{Span, Time};
use gnstor_daemon::core::Reply;
use gnstor_daemon::core::failure::Failure;
use gnstor_daemon::core::request::{Request, RequestId};
use gnstor_proto::status::GrpcCode;
use std::collections::BTreeMap;

/// A call that is not answered within this time is unheard.
const CALL: Span = Span::from_ms(12_000);
/// A call is repeated within this number of us.
const AGAIN: u32 = 400_000;
/// In some worlds a Delete is sent again after this time, and so many ms more at most. A volume of its name
/// may be there again by then.
const LATE: (Span, u32) = (Span::from_ms(300), 2_500);

/// The purpose of a call.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Create,
    Open {
        writes: bool,
    },
    Renew,
    Release,
    /// Which volume has the name that a Delete is to name.
    Find,
    Delete,
}

/// Calls that are sent twice.
#[derive(Default, Debug)]
pub(super) struct Repeats {
    /// Calls to repeat, with their times: any call, and a late Delete.
    next: [Option<(Time, RequestId, Request)>; 2],
    /// The numbers of calls that were sent again. `true`: the first one had been answered well.
    open: BTreeMap<u64, (RequestId, bool)>,
    /// The results by request ids.
    results: BTreeMap<RequestId, Result<Option<Life>, GrpcCode>>,
    firsts: BTreeMap<u64, RequestId>,
}

impl Client {
    pub(super) fn call(&mut self, post: &mut Post, call: Call, request: Request) {
        let number = self.next_call;
        self.next_call += 1;
        self.calls.insert(number, (call, post.now + CALL));
        let request = Box::new(request);
        post.say(Item::Call { client: self.number, daemon: self.daemon, call: number, request });
    }

    /// A request id, in worlds that have them.
    pub(super) fn request_id(&mut self) -> Option<RequestId> {
        if !self.shape.repeats {
            return None;
        }
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.dice.bits().to_le_bytes());
        id[8..].copy_from_slice(&(self.dice.bits() | 1).to_le_bytes());
        Some(id)
    }

    /// Calls, and in half of the cases calls again with the same request id.
    pub(super) fn call_twice(
        &mut self,
        post: &mut Post,
        call: Call,
        request: Request,
        id: Option<RequestId>,
    ) {
        let number = self.next_call;
        self.call(post, call, request.clone());
        let Some(id) = id.filter(|_| self.dice.below(2) == 0) else { return };
        let is_late = self.shape.late_deletes && matches!(request, Request::Delete { .. });
        let after = match is_late {
            true => LATE.0 + Span::from_ms(u64::from(self.dice.below(LATE.1))),
            false => Span::from_ns(1_000 * u64::from(self.dice.below(AGAIN))),
        };
        self.repeats.firsts.insert(number, id);
        self.repeats.next[usize::from(is_late)] = Some((post.now + after, id, request));
    }

    /// Repeats the calls that are due. Returns the time of the next check.
    pub(super) fn repeat(&mut self, post: &mut Post) -> Time {
        let now = post.now;
        for which in 0..self.repeats.next.len() {
            let due = self.repeats.next[which].take_if(|(at, ..)| *at <= now);
            let Some((_, id, request)) = due else { continue };
            let number = self.next_call;
            self.next_call += 1;
            let is_known = matches!(self.repeats.results.get(&id), Some(Ok(_)));
            self.repeats.open.insert(number, (id, is_known));
            post.stats.fault(Fault::Repeated);
            let request = Box::new(request);
            post.say(Item::Call { client: self.number, daemon: self.daemon, call: number, request });
        }
        self.repeats.next.iter().flatten().map(|(at, ..)| *at).min().unwrap_or(Time::NEVER)
    }

    /// Notes the result of a call that is sent twice, and compares it with that of the other one. Returns
    /// true if this was the second call.
    pub(super) fn has_repeated(
        &mut self,
        post: &mut Post,
        history: &mut History,
        number: u64,
        result: &Called,
    ) -> bool {
        let again = self.repeats.open.remove(&number);
        let was_known = again.is_some_and(|(_, was_known)| was_known);
        let first = self.repeats.firsts.remove(&number);
        let Some(id) = again.map(|(id, _)| id).or(first) else { return false };
        let result = match result {
            Ok(Reply::Volume(entry)) => Ok(Some((entry.vid, entry.generation))),
            Ok(_) => Ok(None),
            Err(failure) => Err(failure.code),
        };
        // A call that failed has changed nothing, or is not known to have.
        match (self.repeats.results.get(&id), &result) {
            (Some(Ok(Some(one))), Ok(Some(other))) if one != other => {
                let facts = format!("client {}: volumes {one:?} and {other:?}", self.number);
                history.broken(post.now, "a repeated Create made another volume (rule 12)", facts);
            }
            (Some(Ok(Some(life))), Err(code @ (GrpcCode::AlreadyExists | GrpcCode::InvalidArgument)))
                if was_known =>
            {
                let facts = format!("client {}: volume {life:?}, and later {code:?}", self.number);
                history.broken(post.now, "a repeated Create had another answer (rule 12)", facts);
            }
            (Some(Ok(None)), Err(code @ GrpcCode::NotFound)) if was_known => {
                let facts = format!("client {}: it was deleted, and later {code:?}", self.number);
                history.broken(post.now, "a repeated Delete had another answer (rule 12)", facts);
            }
            (Some(Ok(Some(_))), Ok(Some(_))) => post.stats.path(Path::CreatedAgain),
            (Some(Ok(None)), Ok(None)) => post.stats.path(Path::DeletedAgain),
            _ => {}
        }
        self.repeats.results.insert(id, result);
        again.is_some()
    }

    /// Calls without an answer are unheard. Returns when the next one is.
    pub(super) fn late_calls(&mut self, post: &mut Post, history: &mut History) -> Time {
        let now = post.now;
        let late: Vec<u64> =
            self.calls.iter().filter(|(_, (_, until))| *until <= now).map(|(&call, _)| call).collect();
        for call in late {
            post.stats.path(Path::CallUnheard);
            let lost = Failure::new(GrpcCode::Unavailable, "unheard");
            self.answered(post, history, call, Err(lost));
        }
        let next = self.calls.values().map(|(_, until)| *until).min();
        next.unwrap_or(Time::NEVER).min(self.repeat(post))
    }

    /// Makes the client's clock leap ahead: its lease, its calls and its requests end earlier.
    pub(in crate::survive) fn leap(&mut self, by: Span) {
        let earlier = |at: &mut Time| {
            if *at < Time::NEVER {
                *at = at.before(by);
            }
        };
        if let Some(open) = &mut self.open {
            [&mut open.until, &mut open.renew_at, &mut open.asked_at].into_iter().for_each(earlier);
        }
        self.calls.values_mut().for_each(|(_, until)| earlier(until));
        self.requests.leap(by);
        self.sessions.iter_mut().for_each(|session| session.leap(by.as_ns() / 1_000_000));
    }

    /// The length of its write lease, and when it was opened.
    pub(in crate::survive) fn write_lease(&self) -> Option<(Time, Span)> {
        let open =
            self.open.as_ref().filter(|open| open.writes && matches!(self.app, super::App::Working))?;
        Some((open.opened_at, Span::from_ms(open.lease_ms.into())))
    }

    /// When the client's write lease ends, by the client's clock.
    pub(in crate::survive) fn lease_until(&self) -> Time {
        self.open.as_ref().map_or(Time::ZERO, |open: &Open| open.until)
    }

    /// The volume that it has open.
    pub(in crate::survive) fn volume(&self) -> Option<usize> {
        self.open.as_ref().map(|_| self.volume)
    }

    /// When it has said that it reaches the SSD `back`, which is out, its next data for the SSD `late` is
    /// late.
    pub(in crate::survive) fn late_when_back(&mut self, back: u16, late: u16, span: Span) {
        self.late_when_back = Some((back, late, span));
    }

    /// No data of the client is to be late any more.
    pub(in crate::survive) fn forget_late_data(&mut self) {
        self.late_when_back = None;
    }

    /// Notes that the daemon has heard which SSDs the client reaches.
    pub(super) fn said_reaches(&mut self, post: &mut Post) {
        let Some((back, late, span)) = self.late_when_back else { return };
        let is_out = self.map.as_ref().is_some_and(|map| !super::kernel::places(map, back).0);
        if is_out && self.said & 1 << back != 0 {
            self.late_when_back = None;
            post.late_data.insert((self.number, late), (span, Then::Nothing));
        }
    }

    /// Makes the client open this volume soon, until this time.
    pub(in crate::survive) fn go_to(&mut self, volume: usize, until: Time) {
        self.wanted = Some((volume, until));
        if self.volume != volume
            && let Some(work) = &mut self.requests.work
        {
            work.left = 0;
        }
    }
}

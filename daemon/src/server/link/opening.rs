// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares how often an SSD was opened by its own count with the daemon's record ([`crate::openings`]).
//!
//! ```text
//!   connected --Identify--> uuid --OPENING: the number that is held--> what the SSD says
//!     OPENING: the new number <--it is held, durably-- a higher number --'  '-- the same: done
//! ```
//! An SSD with a lower number is an older image. It hears that, and ends the connection. An SSD of a map
//! without voters serves nothing before it hears that its number is held.
//!
//! ```text
//!   held: 6, start A     stopped, rolled back to 5, started: 6, start B --> OPENING 7: it is an older image
//! ```
//! Where SSDs vote, an older image may count up before the daemon has said anything: its voters have
//! forgotten, too. Then it has the number that is held, by another start.

use super::say::{Said, Say};
use super::{LOOK_MS, Output};
use crate::core::Command;
use crate::openings::{Opened, Openings, Uuid};
use crate::port::Talk;
use gnstor_proto::ssd_identity::KnownOpening;
use gnstor_proto::status::Refusal;
use std::sync::Arc;

/// The link's knowledge of the SSD's number of openings.
#[derive(Debug, Default)]
pub(super) struct Opening {
    /// `None`: the numbers are not compared.
    openings: Option<Arc<Openings>>,
    /// Who the SSD is, since this connection began.
    ssd: Option<Uuid>,
    /// The SSD has the number that is held, and is an older image nevertheless.
    is_older: bool,
    /// When the next question is asked.
    at: Option<u64>,
}

impl Opening {
    pub(super) fn new(openings: Option<Arc<Openings>>, now: u64) -> Self {
        let at = openings.is_some().then_some(now);
        Self { openings, at, ..Self::default() }
    }

    /// A connection begins. Another SSD may be there.
    pub(super) fn begin(&mut self, now: u64) {
        *self = Self::new(self.openings.take(), now);
    }

    pub(super) fn wakes_at(&self) -> Option<u64> {
        self.at
    }

    /// The question that is due.
    pub(super) fn say(&mut self, now: u64) -> Option<Say> {
        self.at.take_if(|at| *at <= now)?;
        let Some(held) = self.held() else { return Talk::start(Command::Identify).ok().map(Say::Who) };
        let known = if self.is_older { held.number.saturating_add(1) } else { held.number };
        Some(Say::Opening(KnownOpening(known)))
    }

    /// An answer.
    pub(super) fn heard(&mut self, now: u64, index: u16, said: Said) -> Option<Output> {
        match said {
            Said::Who(ssd) => {
                // An SSD that does not say who it is does not count either.
                (self.ssd, self.at) = (ssd, ssd.map(|_| now));
                None
            }
            Said::Opening(Ok(says), told) => self.judge(now, index, says, told),
            // An SSD of an earlier version.
            Said::Opening(Err(Some(Refusal::InvalidOpcode)), _) => None,
            // The SSD has no map yet, or voters have to prove its content first.
            _ => {
                self.at = self.openings.is_some().then_some(now + LOOK_MS);
                None
            }
        }
    }

    fn judge(&mut self, now: u64, index: u16, says: Opened, told: u32) -> Option<Output> {
        let held = self.held()?;
        if held.shows_older(says) {
            // If the SSD has received a higher number than its own, it ends the connection itself.
            if says.number >= told {
                (self.is_older, self.at) = (true, Some(now));
            }
            tracing::error!(
                "SSD {index} has an older image of its data: the daemon knows of {} openings, and not of \
                 this content; it serves no reads until it is filled anew",
                held.number
            );
            return None;
        }
        (says != held && says.number > 0).then_some(Output::Keep(self.ssd?, says))
    }

    fn held(&self) -> Option<Opened> {
        Some(self.openings.as_ref()?.known(&self.ssd?))
    }

    /// The number is stored: tells the SSD so.
    pub(super) fn kept(&mut self, now: u64) {
        self.at = self.ssd.map(|_| now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};

    const SSD: Uuid = [7; 16];

    fn link(openings: &Arc<Openings>) -> Opening {
        let mut opening = Opening::new(Some(Arc::clone(openings)), 5);
        assert!(opening.say(4).is_none() && matches!(opening.say(5), Some(Say::Who(_))));
        assert!(opening.heard(6, 0, Said::Who(Some(SSD))).is_none());
        opening
    }

    /// The number of openings in the question that the link sends now.
    fn told(opening: &mut Opening, now: u64) -> u32 {
        let said = opening.say(now);
        let Some(Say::Opening(KnownOpening(known))) = said else { panic!("{said:?}") };
        assert!(opening.say(now).is_none(), "once");
        known
    }

    fn says(opening: &mut Opening, told: u32, number: u32, start: u32) -> Option<Opened> {
        match opening.heard(7, 0, Said::Opening(Ok(Opened { number, start }), told)) {
            Some(Output::Keep(ssd, opened)) if ssd == SSD => Some(opened),
            None => None,
            Some(_) => panic!("another output"),
        }
    }

    #[test]
    fn an_ssd_hears_a_number_again_when_the_daemon_holds_it() {
        let _deadline = Deadline::after(LIMIT);
        let openings = Arc::new(Openings::in_memory());
        let mut first = link(&openings);
        assert_eq!(told(&mut first, 6), 0);
        let opened = says(&mut first, 0, 1, 40).expect("it is to be held");
        assert_eq!((opened, first.say(7).is_none()), (Opened { number: 1, start: 40 }, true));
        openings.keep(&[(SSD, opened)]).unwrap();
        first.kept(8);
        assert_eq!(told(&mut first, 8), 1);
        assert_eq!((says(&mut first, 1, 1, 40), first.wakes_at()), (None, None), "done");
        // The connection is made anew, with the same start and then with the next one.
        first.begin(9);
        assert!(matches!(first.say(9), Some(Say::Who(_))), "another SSD may be there");
        let mut again = link(&openings);
        assert_eq!((told(&mut again, 6), says(&mut again, 1, 1, 40)), (1, None));
        let mut next = link(&openings);
        assert_eq!(told(&mut next, 6), 1);
        assert_eq!(says(&mut next, 1, 2, 41), Some(Opened { number: 2, start: 41 }));
    }

    #[test]
    fn an_older_image_that_has_counted_up_to_the_number_by_another_start_is_told_a_higher_one() {
        let _deadline = Deadline::after(LIMIT);
        let openings = Arc::new(Openings::in_memory());
        openings.keep(&[(SSD, Opened { number: 6, start: 40 })]).unwrap();
        let mut older = link(&openings);
        assert_eq!(told(&mut older, 6), 6);
        assert_eq!(says(&mut older, 6, 6, 41), None, "it is not held");
        assert_eq!(told(&mut older, 7), 7);
        assert_eq!((says(&mut older, 7, 5, 41), older.wakes_at()), (None, None), "it knows");
        let mut behind = link(&openings);
        assert_eq!((told(&mut behind, 6), says(&mut behind, 6, 4, 41)), (6, None));
        assert_eq!((behind.wakes_at(), openings.known(&SSD).number), (None, 6));
    }

    #[test]
    fn an_ssd_that_has_no_number_yet_is_asked_again_and_one_of_an_earlier_version_is_not() {
        let _deadline = Deadline::after(LIMIT);
        let openings = Arc::new(Openings::in_memory());
        let mut early = link(&openings);
        assert_eq!(told(&mut early, 6), 0);
        assert!(early.heard(7, 0, Said::Opening(Err(Some(Refusal::NotServing)), 0)).is_none());
        assert_eq!(early.wakes_at(), Some(7 + LOOK_MS));
        assert!(early.heard(8, 0, Said::NotOpened).is_none());
        assert_eq!(early.wakes_at(), Some(8 + LOOK_MS), "the answer was lost");
        assert!(early.heard(9, 0, Said::Opening(Err(Some(Refusal::InvalidOpcode)), 0)).is_none());
        let mut old = link(&openings);
        assert!(old.heard(7, 0, Said::Who(None)).is_none());
        assert_eq!(old.wakes_at(), None, "it does not say who it is");
        let mut none = Opening::default();
        none.begin(3);
        assert!(none.wakes_at().is_none() && none.say(9).is_none());
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An operator's orders to the repairs of the SSDs, and what they are at: `gnstor scrub`, `gnstor rebuild`.
//!
//! ```text
//!   request --REPAIR to each SSD that is there--> its scrub's log page --of all--> reply
//! ```
//! An SSD remembers no order across a restart. The daemon gives the share to each SSD that comes back. It
//! also pauses or resumes its fill, as those of the others. An SSD that runs and is out of the map takes
//! these orders too, as a later map may give it places. The daemon begins no scrub anew: the scrub of an SSD
//! that restarted shows as not begun.

use super::failure::Failure;
use super::{Answer, Command, CommandId, Core, Owner, Reply, Ticket};
use gnstor_proto::scrub::{Order, RepairOrder, ScrubLog};
use gnstor_proto::status::GrpcCode::{FailedPrecondition, Unavailable};
use gnstor_proto::status::Refusal;
use std::collections::BTreeMap;

/// An SSD's report of its repairs, or why there is none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RepairView {
    /// The SSD.
    pub ssd: u16,
    /// State of its scrub, and the share of its repairs.
    pub says: Result<ScrubLog, String>,
    /// Why it refused the order.
    pub refused: Option<String>,
}

/// A request under way.
#[derive(Debug)]
struct Asked {
    waits: BTreeMap<u16, CommandId>,
    views: Vec<RepairView>,
}

/// The requests under way, and the order that SSDs get when they are back.
#[derive(Default, Debug)]
pub(super) struct Repairs {
    asked: BTreeMap<Ticket, Asked>,
    share: Option<u8>,
    /// No SSD is to fill. Not known to the next daemon: its term ends the pause on each SSD.
    pub(super) are_fills_paused: bool,
}

impl Core {
    /// Sends the order to each SSD that answers, and asks for its scrub's progress.
    pub(super) fn repair(&mut self, ticket: Ticket, order: Option<Order>) {
        let Some(map) = self.map_of_voters() else {
            let why = "this array does not change its map by itself, and its SSDs neither fill nor scrub: \
                       copy the volumes into a new array (gnstor cp)";
            return self.reply(ticket, Err(Failure::new(FailedPrecondition, why)));
        };
        let all = 0..u16::try_from(map.ssds.len()).unwrap_or(u16::MAX);
        let why_away = |ssd: u16| {
            let absent = self.members.absent().get(&ssd).map(|absence| absence.why().to_owned());
            self.changes.why_down(ssd).map(str::to_owned).or(absent)
        };
        let (connected, away): (Vec<u16>, Vec<u16>) = all.partition(|&ssd| why_away(ssd).is_none());
        let (there, out): (Vec<u16>, Vec<u16>) =
            connected.into_iter().partition(|&ssd| self.members.contains(ssd));
        let away = away.into_iter().filter_map(|ssd| Some((ssd, why_away(ssd)?)));
        let is_out = out.iter().map(|&ssd| (ssd, "it is out of the map".to_owned()));
        let views = away.chain(is_out).map(|(ssd, why)| RepairView { ssd, says: Err(why), refused: None });
        let mut asked = Asked { waits: BTreeMap::new(), views: views.collect() };
        if there.is_empty() {
            return self.reply(ticket, Err(Failure::new(Unavailable, "no SSD answers: try again later")));
        }
        match order {
            Some(Order::Share(percent)) => self.repairs.share = Some(percent),
            Some(Order::FillPause) => self.repairs.are_fills_paused = true,
            Some(Order::FillResume) => self.repairs.are_fills_paused = false,
            Some(Order::ScrubStart | Order::ScrubStop) | None => {}
        }
        // Another map may give these places, and they do not connect anew for that. Now they have nothing to
        // scrub.
        if let Some(order) = order.filter(|order| !matches!(order, Order::ScrubStart | Order::ScrubStop)) {
            for ssd in out {
                self.command(ssd, Owner::Unawaited, self.order(order));
            }
        }
        for ssd in there {
            let command = order.map_or(Command::ScrubLog, |order| self.order(order));
            asked.waits.insert(ssd, self.command(ssd, Owner::Repair(ticket), command));
        }
        self.repairs.asked.insert(ticket, asked);
    }

    fn order(&self, order: Order) -> Command {
        Command::Repair(RepairOrder { term: self.term.number(), order })
    }

    pub(super) fn repair_answered(&mut self, ssd: u16, id: CommandId, ticket: Ticket, answer: Answer) {
        let is_asked = |asked: &Asked| asked.waits.get(&ssd) == Some(&id);
        if !self.repairs.asked.get(&ticket).is_some_and(is_asked) {
            return;
        }
        let refused = match answer {
            Answer::Refused(Refusal::StaleTerm) => return self.depose(ssd, "refused this daemon's term"),
            Answer::Refused(refusal) => Some(refusal.sentence().to_owned()),
            _ => None,
        };
        // The order is taken or refused: how far is the scrub?
        if refused.is_some() || answer == Answer::Done {
            let next = self.command(ssd, Owner::Repair(ticket), Command::ScrubLog);
            let Some(asked) = self.repairs.asked.get_mut(&ticket) else { return };
            asked.waits.insert(ssd, next);
            if refused.is_some() {
                asked.views.push(RepairView { ssd, says: Err(String::new()), refused });
            }
            return;
        }
        let says = match answer {
            Answer::Scrub(log) => Ok(log),
            Answer::Lost(why) => Err(why),
            _ => Err("it answered another command".into()),
        };
        let Some(asked) = self.repairs.asked.get_mut(&ticket) else { return };
        asked.waits.remove(&ssd);
        match asked.views.iter_mut().find(|view| view.ssd == ssd) {
            Some(view) => view.says = says,
            None => asked.views.push(RepairView { ssd, says, refused: None }),
        }
        if asked.waits.is_empty()
            && let Some(mut asked) = self.repairs.asked.remove(&ticket)
        {
            asked.views.sort_by_key(|view| view.ssd);
            self.reply(ticket, Ok(Reply::Repairs(asked.views)));
        }
    }

    /// The SSD is back: it gets the share that the others have, and fills or pauses as they do. It may have
    /// missed an order while it ran.
    pub(super) fn give_orders(&mut self, ssd: u16) {
        let fill = if self.repairs.are_fills_paused { Order::FillPause } else { Order::FillResume };
        for order in self.repairs.share.map(Order::Share).into_iter().chain([fill]).collect::<Vec<_>>() {
            let command = self.order(order);
            self.command(ssd, Owner::Unawaited, command);
        }
    }

    pub(super) fn waits_for_repair(&self, ticket: Ticket) -> bool {
        self.repairs.asked.contains_key(&ticket)
    }

    /// The request was answered as late.
    pub(super) fn forget_repair(&mut self, ticket: Ticket) {
        self.repairs.asked.remove(&ticket);
    }
}

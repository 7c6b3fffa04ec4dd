// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands of arrays whose maps name voters: who an SSD is, terms, and maps that are held or active.
//!
//! ```text
//!   TERM TAKE --promise--> MAP GET (active) --[a map is held]--> MAP GET (held) --> the answer
//! ```

use super::{MAP_FIRST_BYTES, Talk};
use crate::core::{Answer, Command, Promised, WireMap};
use gnstor_fabric::admin::{Ask, Data, Reply};
use gnstor_fleet::ArrayId;
use gnstor_proto::nvme::{self, Cqe, Sqe};
use gnstor_proto::placement::{AnyMap, Rows};
use gnstor_proto::ssd_identity::SsdSays;
use gnstor_proto::status::Refusal;
use gnstor_proto::vendor::{GET_HELD, opcode};
use gnstor_proto::voting::{Activation, Hold, MapName, PROMISE_BYTES, Promise, TermTake, map_digest};

/// Bytes of Identify Controller.
const IDENTIFY_BYTES: usize = 4096;

/// Answers of an SSD on the way to its promise.
#[derive(Default, Debug)]
pub(super) struct Taking {
    promise: Option<Box<Promise>>,
    active: Option<Box<AnyMap>>,
}

/// A vendor command with these data.
fn with(opcode: u8, data: Data) -> Ask {
    let dwords = u32::try_from(data.bytes() / 4).expect("a transfer is far below 16 GiB");
    Ask { sqe: Sqe { opcode, nsid: 1.into(), cdw10: dwords.into(), ..Sqe::default() }, data }
}

fn hold(term: u64, instance: u64, map: &WireMap) -> Data {
    let head = Hold { term, instance, array: map.array.0, epoch: map.epoch, base: 0 };
    Data::Out(head.encode(&map.bytes))
}

fn activation(map: &WireMap) -> Data {
    let name = MapName { epoch: map.epoch, digest: map_digest(&map.bytes) };
    Data::Out(Activation { array: map.array.0, map: name, base: 0 }.encode(Some(&map.bytes)))
}

impl Talk {
    /// The next capsule, if the core's command is one of voting.
    pub(super) fn ask_voter(&self) -> Option<Ask> {
        match &self.command {
            Command::Identify => {
                let cdw10 = u32::from(nvme::cns::CONTROLLER).into();
                let sqe = Sqe { opcode: nvme::admin::IDENTIFY, cdw10, ..Sqe::default() };
                Some(Ask { sqe, data: Data::In(IDENTIFY_BYTES) })
            }
            Command::TermTake { array, term, instance } => {
                Some(match (&self.taking.promise, &self.taking.active) {
                    (None, _) => {
                        let mut low = [0; 8];
                        low.copy_from_slice(&array.0[..8]);
                        let take = TermTake { array: low, term: *term, instance: *instance };
                        Ask { sqe: take.command(), data: Data::In(PROMISE_BYTES) }
                    }
                    (Some(_), None) => with(opcode::MAP_GET, Data::In(self.room)),
                    (Some(_), Some(_)) => {
                        let mut ask = with(opcode::MAP_GET, Data::In(self.room));
                        ask.sqe.cdw12 = GET_HELD.into();
                        ask
                    }
                })
            }
            Command::MapHold { term, instance, map } => {
                Some(with(opcode::MAP_HOLD, hold(*term, *instance, map)))
            }
            Command::Activate(map) => Some(with(opcode::ACTIVATE, activation(map))),
            _ => None,
        }
    }

    /// A step of TERM TAKE has succeeded. `None`: another step follows.
    pub(super) fn taken(&mut self, dw0: u32, reply: &Reply) -> Option<Answer> {
        let Some(promise) = self.taking.promise.as_deref().copied() else {
            match Promise::decode(&reply.data) {
                Ok(promise) => self.taking.promise = Some(Box::new(promise)),
                Err(error) => return Some(Answer::Lost(format!("its promise: {error}"))),
            }
            return None;
        };
        let map = match self.map(dw0 as usize, &reply.data)? {
            Answer::Map(map) => map,
            other => return Some(other),
        };
        (self.tries, self.room) = (0, MAP_FIRST_BYTES);
        let changed = || Some(Answer::Lost("the SSD's fleet maps change while they are read".into()));
        if let Some(active) = self.taking.active.take() {
            let Some(held) = map else { return changed() };
            let Some((term, name)) = promise.held else { return changed() };
            return if held.epoch() == name.epoch {
                promised(&promise, *active, Some((term, held)))
            } else {
                changed()
            };
        }
        let Some(active) = map.filter(|map| map.epoch() >= promise.active.epoch) else { return changed() };
        if promise.held.is_some_and(|(_, name)| name.epoch > active.epoch()) {
            self.taking.active = Some(Box::new(active));
            return None;
        }
        promised(&promise, active, None)
    }
}

fn promised(promise: &Promise, active: AnyMap, held: Option<(u64, AnyMap)>) -> Option<Answer> {
    Some(Answer::Promise(Box::new(Promised { array: ArrayId(promise.array), active, held })))
}

/// The answer for a refused TERM TAKE, with the SSD's term if it states that.
pub(super) fn higher_term(cqe: &Cqe, refusal: Refusal) -> Answer {
    match (refusal, cqe.dw1.get()) {
        (Refusal::StaleTerm, 0) => Answer::Refused(refusal),
        (Refusal::StaleTerm, term) => Answer::HigherTerm(term),
        _ => Answer::Refused(refusal),
    }
}

/// The answer from Identify Controller.
pub(super) fn says(reply: &Reply) -> Answer {
    Answer::Says(SsdSays::of(&reply.data))
}

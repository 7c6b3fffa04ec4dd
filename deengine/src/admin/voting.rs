// SPDX-License-Identifier: Apache-2.0 OR MIT
//! This SSD as a voter: TERM TAKE, MAP HOLD, ACTIVATE and LEASE ASK. The transition functions of crate
//! `fleet` ([`Voter`]), which the model checks, judge them.
//!
//! ```text
//!   metadata: term, grant --.
//!   active map -------------+--> Voter --judges--> writes --durable--> answer
//!   held map ---------------'
//! ```
//! The three commands of the daemon are changes of the metadata ([`super::changes`]). They are carried out
//! one after another, and take effect when they are durable. LEASE ASK is answered by what is durable. It is
//! a change, too, where the asker's number of openings is a new one ([`super::opening`]).

use crate::admin::state::{Change, ToHold, Voting};
use crate::commands::Answer;
use crate::commands::{CompletionPermit, OK};
use crate::controller::Ssd;
use crate::hosts::{Queue, Role};
use crate::permission::fleet::Fleet;
use crate::request::Refused;
use gnstor_base::time::Time;
use gnstor_durable::cell::Kind;
use gnstor_durable::{Grant, HeldMap};
use gnstor_fleet::known::Known;
use gnstor_fleet::lease::LeaseAsk;
use gnstor_fleet::map::FleetView;
use gnstor_fleet::set::SsdSet;
use gnstor_fleet::voter::{Held, Voter, check_newer};
use gnstor_fleet::{ArrayId, Opening};
use gnstor_proto::fabrics::Identity;
use gnstor_proto::placement::{AnyMap, Rows};
use gnstor_proto::status::Refusal;
use gnstor_proto::voting::{Activation, Ask, Hold, MapName, Promise, TermTake, map_digest};
use std::sync::Arc;

/// The refusal of a rule of the fleet, as it travels.
pub(crate) fn refusal_of(refused: gnstor_fleet::Refused) -> Refusal {
    use gnstor_fleet::Refused as Rule;
    match refused {
        Rule::OtherArray => Refusal::OtherArray,
        Rule::StaleTerm => Refusal::StaleTerm,
        Rule::StaleVersion => Refusal::StaleVersion,
        Rule::Deprived => Refusal::Deprived,
        Rule::StaleMap => Refusal::StaleMap,
        Rule::MapBehind => Refusal::MapBehind,
        Rule::NotServing => Refusal::NotServing,
        Rule::NotHereYet => Refusal::NotHereYet,
        Rule::AskTheFirst => Refusal::AskTheFirst,
        Rule::GroupWaits => Refusal::GroupWaits,
        Rule::WrongTarget => Refusal::WrongTarget,
        Rule::LeaseExpired => Refusal::LeaseExpired,
        Rule::GroupFull => Refusal::GroupFull,
        Rule::OlderImage => Refusal::OlderImage,
    }
}

impl Ssd {
    /// Restores its promises and its held map from the metadata.
    pub(crate) fn recall_vote(&mut self) {
        let lost = self.admin.volumes.metadata().lost();
        let forgot = lost.contains(&Kind::Held) || lost.contains(&Kind::Term);
        let held =
            self.admin.volumes.metadata().contents().held.as_ref().and_then(|HeldMap { term, map }| {
                let known = Known::new(AnyMap::decode(map).ok()?);
                Some((Held { term: *term, map: known }, Arc::from(map.as_slice())))
            });
        let is_bad = held.is_none() && self.admin.volumes.metadata().contents().held.is_some();
        if forgot || is_bad {
            tracing::error!("what this SSD has promised as a voter could not be read: it votes no more");
        }
        let Voting { is_mute, goodbyes, .. } = std::mem::take(&mut self.admin.voting);
        self.admin.voting = Voting { held, forgot: forgot || is_bad, is_mute, goodbyes };
    }

    /// The voter that this SSD is.
    ///
    /// # Errors
    /// The SSD has no map, the map names another SSD in its place, or its promise could not be read.
    pub(crate) fn voter(&self) -> Result<Voter<Known>, Refused> {
        let fleet = self.table.fleet().ok_or(Refusal::NotServing)?;
        if self.admin.voting.forgot || !self.is_named_by(fleet) {
            return Err(Refusal::NotReady.into());
        }
        let term = self.table.term();
        let grant = self.admin.volumes.metadata().contents().grant.filter(|grant| grant.term == term);
        // A term that came with another command is granted to no instance yet, and those below are refused.
        let (term, instance) =
            grant.map_or((term.saturating_sub(1), 0), |grant| (grant.term, grant.instance));
        let active = fleet.known().clone();
        let held = self.newer_held(fleet).map(|(held, _)| held.clone());
        Ok(Voter { term, instance, active, held })
    }

    /// Whether the SSD can be part of an array whose SSDs vote. For that its earlier promises are readable,
    /// its file has room for a held map, and it can ask the others.
    pub(crate) fn can_vote(&self) -> bool {
        !self.admin.voting.forgot && !self.admin.voting.is_mute && self.admin.volumes.metadata().can_hold()
    }

    /// Notes that the SSD cannot ask others. Identify says so, and fresh maps then name no voters.
    pub fn cannot_ask(&mut self) {
        self.admin.voting.is_mute = true;
    }

    fn is_named_by(&self, fleet: &Fleet) -> bool {
        let AnyMap::Three(map) = fleet.map() else { return true };
        let own = fleet.own().and_then(|own| map.ssds.get(usize::from(own)));
        own.is_some_and(|ssd| ssd.is(&self.identity().uuid))
    }

    fn newer_held(&self, fleet: &Fleet) -> Option<&(Held<Known>, Arc<[u8]>)> {
        self.admin.voting.held.as_ref().filter(|(held, _)| held.map.epoch() > fleet.map().epoch())
    }

    /// The bytes of a held map that is newer than the active one; `None` if there is none.
    pub(crate) fn held_bytes(&self) -> Option<&Arc<[u8]>> {
        self.table.fleet().and_then(|fleet| self.newer_held(fleet)).map(|(_, bytes)| bytes)
    }

    /// Epoch of the newest map that this SSD knows, as a completion carries it.
    fn newest_epoch(&self) -> u32 {
        let Some(fleet) = self.table.fleet() else { return 0 };
        self.newer_held(fleet).map_or(fleet.map().wire_epoch(), |(held, _)| held.map.map().wire_epoch())
    }

    /// TERM TAKE: judges it and starts its write.
    pub(crate) fn begin_grant(&mut self, take: TermTake) -> Result<(), Refused> {
        let mut voter = self.voter()?;
        let array = voter.active.array();
        if array.0[..8] != take.array {
            return Err(Refusal::OtherArray.into());
        }
        // The higher term that this SSD knows: the daemon asks for one above it.
        let known = self.table.term() & u64::from(u32::MAX);
        let known = u32::try_from(known).unwrap_or_default();
        let refused = |refused| Refused::at(refusal_of(refused), known);
        voter.take_term(array, take.term, take.instance).map_err(refused)?;
        self.start_grant(take.term, take.instance)
    }

    /// A term that was judged is written down with the instance that it is granted to.
    fn start_grant(&mut self, term: u64, instance: u64) -> Result<(), Refused> {
        // 0 means no instance.
        if instance == 0 {
            return Err(Refusal::InvalidField.into());
        }
        self.table.take_term(term)?;
        let grant = Grant { term, instance };
        if self.admin.volumes.metadata().contents().grant != Some(grant) {
            self.admin.volumes.metadata_mut().start_grant(grant);
        }
        Ok(())
    }

    /// The answer to TERM TAKE: the state of this voter.
    pub(crate) fn promise(&self) -> Option<Promise> {
        let fleet = self.table.fleet()?;
        let name = |epoch, bytes: &[u8]| MapName { epoch, digest: map_digest(bytes) };
        Some(Promise {
            term: self.table.term(),
            array: fleet.known().array().0,
            active: name(fleet.map().epoch(), fleet.bytes()),
            held: self.newer_held(fleet).map(|(held, bytes)| (held.term, name(held.map.epoch(), bytes))),
        })
    }

    /// MAP HOLD: judges it and starts its writes.
    pub(super) fn begin_hold(&mut self, data: &[u8]) -> Result<ToHold, Refused> {
        let (hold, bytes) = Hold::decode(data).map_err(|_| Refusal::InvalidField)?;
        if !self.admin.volumes.metadata().can_hold() {
            tracing::warn!(
                "the file of this SSD has no room for a map that is held: format it, so that it votes"
            );
            return Err(Refusal::InvalidOpcode.into());
        }
        let (map, bytes) = self.whole_map(hold.base, bytes)?;
        let map = Known::new(map);
        if (map.array(), map.epoch()) != (ArrayId(hold.array), hold.epoch) {
            return Err(Refusal::InvalidField.into());
        }
        self.voter()?.hold(hold.term, hold.instance, map.clone()).map_err(|refused| self.behind(refused))?;
        self.start_grant(hold.term, hold.instance)?;
        self.admin.volumes.metadata_mut().start_hold(HeldMap { term: hold.term, map: bytes.clone() });
        Ok(ToHold { held: Held { term: hold.term, map }, bytes })
    }

    /// The map of a MAP HOLD is durable: from now on it ends leases. The answer has a bit for each SSD that
    /// loses a place in it and has said goodbye.
    pub(super) fn end_hold(&mut self, ToHold { held, bytes }: ToHold) -> Answer {
        let gone = self.table.fleet().map_or(SsdSet::EMPTY, |fleet| {
            let known = |ssd| self.known_opening(ssd);
            self.admin.voting.goodbyes.of(&held.map, fleet.known(), known)
        });
        self.admin.voting.held = Some((held, bytes.into()));
        let [dw0, dw1] = gone.words();
        Answer { dw0, dw1, ..OK }
    }

    /// ACTIVATE: the map that becomes active, and its bytes. No term is compared: a majority has held it.
    pub(crate) fn activated(&self, data: &[u8]) -> Result<(AnyMap, Vec<u8>), Refused> {
        let (activation, bytes) = Activation::decode(data).map_err(|_| Refusal::InvalidField)?;
        let (map, bytes) = match bytes {
            Some(bytes) => self.whole_map(activation.base, bytes)?,
            None => {
                let named = |(held, bytes): &&(Held<Known>, Arc<[u8]>)| {
                    held.map.epoch() == activation.map.epoch && map_digest(bytes) == activation.map.digest
                };
                let held = self.admin.voting.held.as_ref().filter(named);
                let (held, bytes) =
                    held.ok_or_else(|| Refused::at(Refusal::MapBehind, self.newest_epoch()))?;
                (held.map.map().clone(), bytes.to_vec())
            }
        };
        let name = MapName { epoch: map.epoch(), digest: map_digest(&bytes) };
        let known = Known::new(map);
        if name != activation.map || known.array().0 != activation.array {
            return Err(Refusal::InvalidField.into());
        }
        if let Some(fleet) = self.table.fleet() {
            check_newer(fleet.known(), &known).map_err(|refused| self.behind(refused))?;
        }
        Ok((known.map().clone(), bytes))
    }

    /// A refusal, with the epoch of the newest known map.
    fn behind(&self, refused: gnstor_fleet::Refused) -> Refused {
        Refused::at(refusal_of(refused), self.newest_epoch())
    }

    /// The map in these bytes, or the one that they make as a patch of a map that this SSD knows.
    fn whole_map(&self, base: u64, bytes: &[u8]) -> Result<(AnyMap, Vec<u8>), Refused> {
        if base == 0 {
            let map = AnyMap::decode(bytes).map_err(|_| Refusal::InvalidField)?;
            return Ok((map, bytes.to_vec()));
        }
        let active = self.table.fleet().map(|fleet| fleet.known());
        let held = self.admin.voting.held.as_ref().map(|(held, _)| &held.map);
        let known = active.into_iter().chain(held).map(Known::map).find(|map| map.epoch() == base);
        let Some(AnyMap::Three(known)) = known else {
            return Err(Refused::at(Refusal::MapBehind, self.newest_epoch()));
        };
        let map = known.patched(bytes).map_err(|_| Refusal::InvalidField)?;
        let bytes = map.encode().map_err(|_| Refusal::InvalidField)?;
        Ok((map.into(), bytes))
    }

    /// The question of a LEASE ASK has arrived.
    pub(crate) fn finish_lease_ask(&mut self, now: Time, permit: CompletionPermit, data: &[u8]) {
        let asked = match self.lease_asked(&permit, data) {
            Ok((ask, true)) => return self.hear_goodbye(now, permit, &ask),
            asked => asked.map(|(ask, _)| ask),
        };
        match asked.and_then(|ask| Ok((ask, self.judge_lease_ask(&ask)?))) {
            Ok((_, None)) => self.say_yes(now, permit),
            Ok((ask, Some(_))) => self.ask_change(now, permit, 0, Change::Heard { ask }),
            Err(refused) => self.refuse(permit, 0, refused, now),
        }
    }

    /// Handles an SSD's goodbye. The voter promises nothing by that, so it writes nothing down.
    fn hear_goodbye(&mut self, now: Time, permit: CompletionPermit, ask: &LeaseAsk) {
        match self.voter() {
            Ok(voter) if voter.active.array() == ask.array => {
                self.admin.voting.goodbyes.heard(ask);
                self.say_yes(now, permit);
            }
            Ok(_) => self.refuse(permit, 0, Refusal::OtherArray.into(), now),
            Err(refused) => self.refuse(permit, 0, refused, now),
        }
    }

    /// Answers a LEASE ASK with yes.
    pub(crate) fn say_yes(&mut self, now: Time, permit: CompletionPermit) {
        let answer = Answer::dw0(self.newest_epoch());
        self.complete(permit, answer, now, 0);
    }

    /// The question, and whether it is a goodbye.
    fn lease_asked(&mut self, permit: &CompletionPermit, data: &[u8]) -> Result<(LeaseAsk, bool), Refused> {
        let ask = Ask::decode(data).map_err(|_| Refusal::InvalidField)?;
        let Some(Role::Admin(cntlid)) = self.hosts.queue(permit.queue()).map(Queue::role) else {
            return Err(Refusal::SequenceError.into());
        };
        let identity = self.hosts.identity_of(cntlid);
        // An SSD may ask only for itself.
        let named = self.voter()?.active.map().id(ask.ssd).map(Identity::Peer);
        if named.is_none() || named != identity {
            return Err(Refusal::WrongIdentity.into());
        }
        let Ask { ssd, array, epoch, incarnation, opening, uuid, is_goodbye } = ask;
        Ok((LeaseAsk { array: ArrayId(array), ssd, epoch, incarnation, opening, uuid }, is_goodbye))
    }

    /// Judges a LEASE ASK. Returns the number of openings that the voter must write down before its yes, if
    /// any.
    pub(crate) fn judge_lease_ask(&self, ask: &LeaseAsk) -> Result<Option<Opening>, Refused> {
        let known = self.known_opening(ask.ssd);
        self.voter()?.answer(ask, known).map_err(|refused| match refused {
            gnstor_fleet::Refused::OlderImage => Refused::at(Refusal::OlderImage, known),
            other => self.behind(other),
        })
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A host's progress in proving its identity, and the proof that the SSD demands.

use super::host::Role;
use super::said::{Run, Said};
use super::table::{Hosts, controller};
use crate::commands::CompletionPermit;
use crate::request::Refused;
use gnstor_auth::{Controller, Dice, Group, KeyPairs, Names, QueueProof, Secret, SessionKey};
use gnstor_base::controller::QueueKey;
use gnstor_base::time::Time;
use gnstor_proto::fabrics::{self, ConnectData, Identity};
use gnstor_proto::slba::ClientId;
use gnstor_proto::status::Refusal;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use zerocopy::FromBytes;

/// Source of random bytes: the operating system, or a test.
pub type Random = Box<dyn FnMut(&mut [u8]) + Send>;

/// The proof that an SSD demands of every host.
pub struct Authentication {
    /// The array's manager key, from which the key of each host follows.
    pub manager_key: Secret,
    /// The Diffie-Hellman group in which a host must take part.
    pub group: Group,
    /// Random bytes for challenges and exponents.
    pub random: Random,
}

impl fmt::Debug for Authentication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authentication").field("group", &self.group).finish_non_exhaustive()
    }
}

/// The SSD's part in authentication.
#[derive(Debug, Default)]
pub(super) struct Gate {
    asks: Option<Authentication>,
    pairs: KeyPairs,
    /// The highest serial that was proven or that CLIENT END named, for each client id.
    serials: HashMap<ClientId, u64>,
    /// Messages of hosts that are to be judged as soon as the SSD's lock is free.
    said: VecDeque<Said>,
}

impl Gate {
    /// Whether an older registration of the host's id has been replaced.
    fn is_replaced(&self, identity: Identity, serial: u64) -> bool {
        let Identity::Client(id) = identity else { return false };
        self.asks.is_some() && self.serials.get(&id).is_some_and(|&highest| serial < highest)
    }

    /// Notes that the host of this serial is proven, or that the daemon has invalidated lower serials.
    fn note(&mut self, identity: Identity, serial: u64) {
        if let Identity::Client(id) = identity {
            let highest = self.serials.entry(id).or_default();
            *highest = serial.max(*highest);
        }
    }
}

impl Hosts {
    /// From now on every host must prove its identity.
    pub(crate) fn require_proof(&mut self, asks: Authentication) {
        self.gate.asks = Some(asks);
    }

    /// Whether hosts must prove who they are.
    pub(crate) fn asks_proof(&self) -> bool {
        self.gate.asks.is_some()
    }

    /// The proof that a new host must give until `by`. A host whose registration was replaced is refused.
    pub(crate) fn ask_proof(&self, by: Time, identity: Identity, serial: u64) -> Result<Proof, Refused> {
        if !self.asks_proof() {
            return Ok(Proof::NotAsked);
        }
        if self.gate.is_replaced(identity, serial) {
            return Err(Refusal::ConnectRefused.into());
        }
        Ok(Proof::Awaited { by, stage: Stage::Begun, answer: None })
    }

    /// Lower serials of this identity are believed no longer.
    pub(crate) fn invalidate_below(&mut self, identity: Identity, serial: u64) {
        self.gate.note(identity, serial);
    }

    /// Judges the proof in the Connect of an I/O queue of controller `cntlid`.
    pub(crate) fn admit_queue(&mut self, cntlid: u16, qid: u16, data: &ConnectData) -> Result<(), Refused> {
        let host = self.host_mut(cntlid).ok_or(Refusal::ConnectInvalid)?;
        host.proof.admit(cntlid, qid, data)
    }

    /// Takes a message of a host that proves its identity; [`Self::next_said`] returns it. `Err`: the run has
    /// failed, and hears nothing more.
    pub(crate) fn hear(
        &mut self,
        cntlid: u16,
        subsystem: String,
        (permit, data): (CompletionPermit, Vec<u8>),
    ) -> Result<(), CompletionPermit> {
        match self.take_run(cntlid, subsystem) {
            Some(run) => self.gate.said.push_back(Said { permit, cntlid, run, data }),
            None => return Err(permit),
        }
        Ok(())
    }

    /// Takes the next message that must be judged.
    pub(crate) fn next_said(&mut self) -> Option<Said> {
        self.gate.said.pop_front()
    }

    /// Takes the run of a controller. `None`: it has failed.
    fn take_run(&mut self, cntlid: u16, subsystem: String) -> Option<Run> {
        let Gate { asks, pairs, .. } = &mut self.gate;
        let (asks, host) = (asks.as_mut()?, controller(&mut self.controllers, cntlid)?);
        let nqn = host.named().nqn();
        let Proof::Awaited { stage, answer, .. } = &mut host.proof else { return None };
        // A host must fetch each answer before it sends the next message.
        *answer = None;
        match std::mem::replace(stage, Stage::Failed) {
            Stage::Begun => {
                let secret = asks.manager_key.of_host(&nqn);
                let names = Names { host: nqn, subsystem };
                let pair = pairs.next(|bytes| (asks.random)(bytes));
                let dice = Box::new(Dice::with(pair, |bytes| (asks.random)(bytes)));
                Some(Run::Begun { names, secret, group: asks.group, dice })
            }
            Stage::Challenged(run) => Some(Run::Challenged(run)),
            Stage::Answered(run) => Some(Run::Answered(run)),
            Stage::Failed => None,
        }
    }

    /// The host is challenged: this message is its challenge.
    pub(crate) fn challenge(&mut self, cntlid: u16, run: Box<Controller>, message: Vec<u8>) {
        self.set_stage(cntlid, Stage::Challenged(run), message);
    }

    /// The host's reply is right: this message answers it.
    pub(crate) fn answer(&mut self, cntlid: u16, run: Box<Controller>, message: Vec<u8>) {
        self.set_stage(cntlid, Stage::Answered(run), message);
    }

    /// The host has not proven its identity. It may fetch this message until `until`, and then ends.
    pub(crate) fn fail_proof(&mut self, cntlid: u16, message: Vec<u8>, until: Time) {
        self.set_stage(cntlid, Stage::Failed, message);
        if let Some(Proof::Awaited { by, .. }) = self.proof_of(cntlid) {
            *by = until.min(*by);
        }
        self.look_again(cntlid);
    }

    /// The host of an admin queue has proven its identity: the queue serves, and gives way to no other.
    /// Returns the host.
    pub(crate) fn prove(
        &mut self,
        now: Time,
        (admin, cntlid): (QueueKey, u16),
        key: SessionKey,
    ) -> Option<fabrics::Host> {
        let host = self.host_mut(cntlid)?;
        host.proof = Proof::Given { key, last: 0 };
        host.last_alive = host.last_alive.max(now);
        let (named, born) = (host.named(), host.born);
        if let Some(queue) = self.queue_mut(admin) {
            queue.role = Role::Admin(cntlid);
        }
        self.parts.proven(named.identity, born);
        self.gate.note(named.identity, named.serial);
        Some(named)
    }

    /// Takes the message that waits for the host, if it has at most `most` bytes.
    pub(crate) fn take_answer(&mut self, cntlid: u16, most: usize) -> Option<Vec<u8>> {
        let Proof::Awaited { answer, .. } = self.proof_of(cntlid)? else { return None };
        answer.take_if(|answer| answer.len() <= most)
    }

    fn set_stage(&mut self, cntlid: u16, next: Stage, message: Vec<u8>) {
        if let Some(Proof::Awaited { stage, answer, .. }) = self.proof_of(cntlid) {
            (*stage, *answer) = (next, Some(message));
        }
    }

    fn proof_of(&mut self, cntlid: u16) -> Option<&mut Proof> {
        self.host_mut(cntlid).map(|host| &mut host.proof)
    }
}

/// Progress of a host's proof.
#[derive(Debug)]
pub(crate) enum Proof {
    /// The SSD asks for none.
    NotAsked,
    /// The host has until `by`. `answer` waits for Authentication Receive.
    Awaited { by: Time, stage: Stage, answer: Option<Vec<u8>> },
    /// The identity is proven. `last` is the number of the last proof of an I/O queue.
    Given { key: SessionKey, last: u64 },
}

/// A run of the protocol.
#[derive(Debug)]
pub(crate) enum Stage {
    Begun,
    Challenged(Box<Controller>),
    Answered(Box<Controller>),
    Failed,
}

impl Proof {
    /// Deadline of the host's proof.
    pub(crate) fn deadline(&self) -> Time {
        match self {
            Self::Awaited { by, .. } => *by,
            Self::NotAsked | Self::Given { .. } => Time::NEVER,
        }
    }

    /// Judges the Connect of an I/O queue. Numbers of proofs only rise.
    fn admit(&mut self, cntlid: u16, qid: u16, data: &ConnectData) -> Result<(), Refused> {
        match self {
            Self::NotAsked => Ok(()),
            Self::Awaited { .. } => Err(Refusal::AuthenticationRequired.into()),
            Self::Given { key, last } => {
                let proof = QueueProof::read_from_bytes(&data.proof).expect("40 bytes");
                let number = proof.number.get();
                if number == 0 {
                    return Err(Refusal::AuthenticationRequired.into());
                }
                if number <= *last || !key.accepts(cntlid, qid, &proof) {
                    return Err(Refusal::ConnectRefused.into());
                }
                *last = number;
                Ok(())
            }
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A host's progress in proving its identity, and the proof that the SSD demands.

use super::said::Said;
use crate::request::Refused;
use gnstor_auth::{Controller, Group, KeyPairs, QueueProof, Secret, SessionKey};
use gnstor_base::time::Time;
use gnstor_proto::fabrics::{ConnectData, Identity};
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
pub(crate) struct Gate {
    asks: Option<Authentication>,
    pairs: KeyPairs,
    /// The highest serial that was proven or that CLIENT END named, for each client id.
    serials: HashMap<ClientId, u64>,
    /// Messages of hosts that are to be judged as soon as the SSD's lock is free.
    pub(crate) said: VecDeque<Said>,
}

impl Gate {
    /// From now on every host must prove its identity.
    pub(crate) fn require(&mut self, asks: Authentication) {
        self.asks = Some(asks);
    }

    /// Whether hosts must prove who they are.
    pub(crate) fn asks(&self) -> bool {
        self.asks.is_some()
    }

    /// The proof that hosts must give, if any, and the SSD's key pairs.
    pub(super) fn authentication(&mut self) -> Option<(&mut Authentication, &mut KeyPairs)> {
        Some((self.asks.as_mut()?, &mut self.pairs))
    }

    /// Whether an older registration of the host's id has been replaced.
    pub(crate) fn is_replaced(&self, identity: Identity, serial: u64) -> bool {
        let Identity::Client(id) = identity else { return false };
        self.asks() && self.serials.get(&id).is_some_and(|&highest| serial < highest)
    }

    /// Notes that the host of this serial is proven, or that the daemon has invalidated lower serials.
    pub(crate) fn note(&mut self, identity: Identity, serial: u64) {
        if let Identity::Client(id) = identity {
            let highest = self.serials.entry(id).or_default();
            *highest = serial.max(*highest);
        }
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
    pub(crate) fn admit(&mut self, cntlid: u16, qid: u16, data: &ConnectData) -> Result<(), Refused> {
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

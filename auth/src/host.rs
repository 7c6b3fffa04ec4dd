// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host's side of DH-HMAC-CHAP.

use crate::group::{Group, PRIVATE_BYTES};
use crate::key::Secret;
use crate::message::{self, COMMON, DHCHAP, Failure, GROUPS_AT, Head, PROTOCOL_DHCHAP, SHA256, id};
use crate::pair::KeyPair;
use crate::queue::SessionKey;
use crate::response::{Names, Responder, Run, Value};
use std::sync::Arc;
use zerocopy::IntoBytes;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// Random bytes of one run, from the operating system's generator. Dropping them erases them.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct Dice {
    /// Challenge to the other side.
    pub challenge: [u8; 32],
    /// Private exponent, and its public value. It may serve other runs, too.
    #[zeroize(skip)]
    pub pair: Arc<KeyPair>,
    /// Sequence number of the challenge.
    pub sequence: u32,
}

impl Dice {
    /// Dice of these random bytes, with an exponent of this run alone.
    pub fn thrown(mut fill: impl FnMut(&mut [u8])) -> Self {
        let mut private = Zeroizing::new([0; PRIVATE_BYTES]);
        fill(&mut private[..]);
        Self::with(Arc::new(KeyPair::new(*private)), fill)
    }

    /// Dice of these random bytes, with an exponent that may serve other runs.
    pub fn with(pair: Arc<KeyPair>, fill: impl FnOnce(&mut [u8])) -> Self {
        let mut bytes = Zeroizing::new([0; 32 + 4]);
        fill(&mut bytes[..]);
        let mut dice = Self { challenge: [0; 32], pair, sequence: 0 };
        dice.challenge.copy_from_slice(&bytes[..32]);
        let word = bytes.last_chunk::<4>().expect("four bytes and more");
        // Sequence number 0 means "no challenge" in the specification.
        dice.sequence = u32::from_le_bytes(*word).max(1);
        dice
    }
}

impl std::fmt::Debug for Dice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Dice(..)")
    }
}

#[derive(Debug)]
enum State {
    Negotiated,
    Replied { c1: Value, sequence: u32 },
    Ended,
}

/// One run of the protocol at the host.
#[derive(Debug)]
pub struct Host {
    run: Run,
    secret: Secret,
    dice: Dice,
    groups: Vec<Group>,
    state: State,
}

impl Host {
    /// Begins a run. Returns the state and the AUTH_Negotiate message. `groups` are the accepted groups, the
    /// preferred one first, at least one and at most 30.
    pub fn begin(
        names: Names,
        secret: Secret,
        groups: &[Group],
        transaction: u16,
        dice: Dice,
    ) -> (Self, Vec<u8>) {
        let groups = &groups[..groups.len().min(30)];
        let mut ids = [0; 60];
        ids[0] = SHA256;
        for (at, group) in ids[GROUPS_AT..].iter_mut().zip(groups) {
            *at = *group as u8;
        }
        let negotiate = message::Negotiate {
            head: Head::new(COMMON, id::NEGOTIATE, transaction),
            secure_channel: 0,
            protocols: 1,
            protocol: PROTOCOL_DHCHAP,
            reserved: 0,
            hashes: 1,
            groups: u8::try_from(groups.len()).expect("at most 30"),
            ids,
        };
        let run = Run { names, transaction, shared: None };
        let host = Self { run, secret, dice, groups: groups.to_vec(), state: State::Negotiated };
        (host, negotiate.as_bytes().to_vec())
    }

    /// Takes the controller's challenge. Returns the reply, which challenges the controller in turn.
    ///
    /// # Errors
    /// The fault in the challenge, or the fault that the controller reports; the run is over.
    pub fn on_challenge(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Failure> {
        if !matches!(std::mem::replace(&mut self.state, State::Ended), State::Negotiated) {
            return Err(Failure::Message);
        }
        let (head, rest) =
            message::read::<message::Challenge>(bytes, DHCHAP, id::CHALLENGE, Some(self.run.transaction))?;
        if (head.hash, head.hash_bytes) != (SHA256, 32) {
            return Err(Failure::Hash);
        }
        let group =
            Group::from_id(head.group).filter(|group| self.groups.contains(group)).ok_or(Failure::Group)?;
        let (c1, public) = rest.split_first_chunk::<32>().ok_or(Failure::Payload)?;
        // A controller fills the host's buffer up with zeros.
        let public = public.get(..head.public_bytes.get().into()).ok_or(Failure::Payload)?;
        let mine = self.dice.pair.public(group);
        if group == Group::Null {
            if !public.is_empty() {
                return Err(Failure::Payload);
            }
        } else {
            self.run.shared = Some(self.dice.pair.shared(group, public).ok_or(Failure::Group)?);
        }
        let own = Responder { is_host: true, challenge: c1, sequence: head.sequence.get() };
        let response = self.run.respond(own, &self.secret);
        let reply = message::Reply {
            head: Head::new(DHCHAP, id::REPLY, self.run.transaction),
            hash_bytes: 32,
            reserved: 0,
            has_challenge: 1,
            reserved2: 0,
            public_bytes: u16::try_from(mine.len()).expect("at most 384").into(),
            sequence: self.dice.sequence.into(),
        };
        self.state = State::Replied { c1: *c1, sequence: self.dice.sequence };
        Ok([reply.as_bytes(), &response, &self.dice.challenge, mine].concat())
    }

    /// Takes the controller's response. Returns the last message and the key of the session.
    ///
    /// # Errors
    /// As [`Self::on_challenge`]; [`Failure::Authentication`] where the controller does not know the secret.
    pub fn on_success1(&mut self, bytes: &[u8]) -> Result<(Vec<u8>, SessionKey), Failure> {
        let State::Replied { c1, sequence } = std::mem::replace(&mut self.state, State::Ended) else {
            return Err(Failure::Message);
        };
        let (head, response) =
            message::read::<message::Success1>(bytes, DHCHAP, id::SUCCESS1, Some(self.run.transaction))?;
        if head.hash_bytes != 32 || head.has_response != 1 {
            return Err(Failure::Payload);
        }
        let (response, _) = response.split_first_chunk::<32>().ok_or(Failure::Payload)?;
        let c2 = self.dice.challenge;
        let controller = Responder { is_host: false, challenge: &c2, sequence };
        if !self.run.is_right(controller, &self.secret, response) {
            return Err(Failure::Authentication);
        }
        let key = self.run.session_key(&self.secret, &c1, &c2);
        let head = Head::new(DHCHAP, id::SUCCESS2, self.run.transaction);
        Ok((message::Success2 { head, reserved: [0; 10] }.as_bytes().to_vec(), key))
    }

    /// The message by which the host tells the controller that it gives up.
    pub fn failure(&self, failure: Failure) -> Vec<u8> {
        message::failure(id::FAILURE2, self.run.transaction, failure)
    }
}

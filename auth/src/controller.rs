// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The controller's side of DH-HMAC-CHAP.

use crate::group::Group;
use crate::host::Dice;
use crate::key::Secret;
use crate::message::{self, COMMON, DHCHAP, Failure, GROUPS_AT, Head, PROTOCOL_DHCHAP, SHA256, id};
use crate::queue::SessionKey;
use crate::response::{Names, Responder, Run, Value};
use zerocopy::IntoBytes;

#[derive(Debug)]
enum State {
    Challenged { group: Group },
    Answered { key: SessionKey },
    Ended,
}

/// One run of the protocol at the controller.
#[derive(Debug)]
pub struct Controller {
    run: Run,
    secret: Secret,
    dice: Dice,
    state: State,
}

impl Controller {
    /// Takes AUTH_Negotiate. Returns the state and the challenge. The SSD demands `group`: the host cannot
    /// choose how much the SSD computes.
    ///
    /// # Errors
    /// The transaction, if it could be read, and what is wrong.
    pub fn begin(
        names: Names,
        secret: Secret,
        group: Group,
        negotiate: &[u8],
        dice: Dice,
    ) -> Result<(Self, Vec<u8>), (u16, Failure)> {
        let transaction = transaction_of(negotiate);
        let chosen = choose(negotiate, group).map_err(|failure| (transaction, failure))?;
        let public = dice.pair.public(chosen);
        let challenge = message::Challenge {
            head: Head::new(DHCHAP, id::CHALLENGE, transaction),
            hash_bytes: 32,
            reserved: 0,
            hash: SHA256,
            group: chosen as u8,
            public_bytes: u16::try_from(public.len()).expect("at most 384").into(),
            sequence: dice.sequence.into(),
        };
        let bytes = [challenge.as_bytes(), &dice.challenge, public].concat();
        let run = Run { names, transaction, shared: None };
        Ok((Self { run, secret, dice, state: State::Challenged { group: chosen } }, bytes))
    }

    /// The transaction that the host has chosen.
    pub fn transaction(&self) -> u16 {
        self.run.transaction
    }

    /// Takes the host's reply. Returns DH-HMAC-CHAP_Success1, which proves the controller.
    ///
    /// # Errors
    /// The fault in the reply; the run is over. [`Failure::Authentication`]: the host does not know the
    /// secret.
    pub fn on_reply(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Failure> {
        let State::Challenged { group } = std::mem::replace(&mut self.state, State::Ended) else {
            return Err(Failure::Message);
        };
        let (head, rest) =
            message::read::<message::Reply>(bytes, DHCHAP, id::REPLY, Some(self.run.transaction))?;
        if head.hash_bytes != 32 || head.has_challenge != 1 {
            return Err(Failure::Payload);
        }
        let (response, rest) = rest.split_first_chunk::<32>().ok_or(Failure::Payload)?;
        let (c2, public) = rest.split_first_chunk::<32>().ok_or(Failure::Payload)?;
        if usize::from(head.public_bytes.get()) != public.len() || public.len() != group.bytes() {
            return Err(Failure::Payload);
        }
        if group != Group::Null {
            self.run.shared = Some(self.dice.pair.shared(group, public).ok_or(Failure::Group)?);
        }
        let c1: Value = self.dice.challenge;
        let host = Responder { is_host: true, challenge: &c1, sequence: self.dice.sequence };
        if !self.run.is_right(host, &self.secret, response) {
            return Err(Failure::Authentication);
        }
        let own = Responder { is_host: false, challenge: c2, sequence: head.sequence.get() };
        let mine = self.run.respond(own, &self.secret);
        self.state = State::Answered { key: self.run.session_key(&self.secret, &c1, c2) };
        let success = message::Success1 {
            head: Head::new(DHCHAP, id::SUCCESS1, self.run.transaction),
            hash_bytes: 32,
            reserved: 0,
            has_response: 1,
            reserved2: [0; 7],
        };
        Ok([success.as_bytes(), &mine].concat())
    }

    /// Takes the host's last message. Returns the key of the session: from here on the host is proven.
    ///
    /// # Errors
    /// As [`Self::on_reply`]; the host may also say that the controller is not proven.
    pub fn on_success2(&mut self, bytes: &[u8]) -> Result<SessionKey, Failure> {
        let State::Answered { key } = std::mem::replace(&mut self.state, State::Ended) else {
            return Err(Failure::Message);
        };
        message::read::<message::Success2>(bytes, DHCHAP, id::SUCCESS2, Some(self.run.transaction))?;
        Ok(key)
    }
}

/// The transaction of a message; 0 if the message is too short.
pub fn transaction_of(bytes: &[u8]) -> u16 {
    bytes.get(4..6).and_then(|at| at.try_into().ok()).map_or(0, u16::from_le_bytes)
}

fn choose(negotiate: &[u8], group: Group) -> Result<Group, Failure> {
    let (offer, _) = message::read::<message::Negotiate>(negotiate, COMMON, id::NEGOTIATE, None)?;
    if offer.secure_channel != 0 {
        return Err(Failure::SecureChannel);
    }
    if offer.protocols == 0 || offer.protocol != PROTOCOL_DHCHAP {
        return Err(Failure::Protocol);
    }
    let (hashes, groups) = (usize::from(offer.hashes), usize::from(offer.groups));
    if hashes > GROUPS_AT || groups > offer.ids.len() - GROUPS_AT {
        return Err(Failure::Payload);
    }
    if !offer.ids[..hashes].contains(&SHA256) {
        return Err(Failure::Hash);
    }
    let is_offered = offer.ids[GROUPS_AT..][..groups].contains(&(group as u8));
    if is_offered { Ok(group) } else { Err(Failure::Group) }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages of NVMe in-band authentication, by a client that knows no secret, and by one that does.

use crate::attacks::Attacker;
use crate::frames::kind;
use crate::random::Random;
use crate::talk::Talk;
use gnstor_auth::{Dice, Group, Host as Prover, Names, Secret};
use gnstor_proto::fabrics::{self, AuthFields, CNTLID_ANY, fctype, ssd_subnqn};
use gnstor_proto::nvme::{KeyedSgl, Sqe};

/// Bytes of the client's buffer for a message of the SSD.
const RECEIVE: u32 = 512;
/// Offsets of the group, the length of the public value and the number of the challenge in
/// DH-HMAC-CHAP_Challenge.
const GROUP: usize = 9;
const PUBLIC_BYTES: usize = 10;
/// Bytes of DH-HMAC-CHAP_Challenge before the challenge.
const CHALLENGE: usize = 16;
/// Hash identifiers are at this offset of AUTH_Negotiate, and group identifiers at the second one.
const HASHES_AT: usize = 12;
const GROUPS_AT: usize = HASHES_AT + 30;

/// Number of proofs in a row that a stranger begins without an answer, before it begins no more. On a busy
/// machine an answer may come late.
const TRIES: u32 = 4;

/// AUTH_Negotiate that offers SHA-256 and all groups.
pub fn negotiate(transaction: u16) -> Vec<u8> {
    let mut message = vec![0; 72];
    message[4..6].copy_from_slice(&transaction.to_le_bytes());
    // One descriptor, of DH-HMAC-CHAP, with one hash and three groups.
    message[7] = 1;
    message[8] = 1;
    message[10] = 1;
    message[11] = 3;
    message[HASHES_AT] = 1;
    message[GROUPS_AT..GROUPS_AT + 3].copy_from_slice(&[0, 1, 2]);
    message
}

/// DH-HMAC-CHAP_Reply of a client without a secret: its response and its public value are random.
pub fn reply(transaction: u16, public_bytes: u16, random: &mut Random) -> Vec<u8> {
    let [low, high] = transaction.to_le_bytes();
    let mut message = vec![1, 2, 0, 0, low, high, 32, 0, 1, 0];
    message.extend(public_bytes.to_le_bytes());
    message.extend(1_u32.to_le_bytes());
    message.extend(random.bytes(64 + usize::from(public_bytes)));
    message
}

/// What an SSD answered to a stranger's messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    /// The SSD did not take AUTH_Negotiate: it asks for no proof, or the queue is closed.
    Nothing,
    /// The SSD demanded this group, and took the reply. A message of failure follows, if it is fetched.
    Challenge {
        /// Identifier of the group.
        group: u8,
    },
}

/// An authentication command that moves `bytes` bytes of the first page of memory.
fn command(fctype: u8, bytes: u32) -> Sqe {
    let mut sqe = fabrics::command(fctype, &AuthFields::new(bytes));
    sqe.dptr = KeyedSgl::keyed(0, bytes, 1);
    sqe
}

impl Talk {
    /// Sends a message, and returns whether the SSD took it.
    fn auth_send(&mut self, conn: u32, message: &[u8]) -> std::io::Result<bool> {
        self.memory[..message.len()].copy_from_slice(message);
        let bytes = u32::try_from(message.len()).expect("a few hundred");
        self.succeeds(conn, command(fctype::AUTH_SEND, bytes))
    }

    fn succeeds(&mut self, conn: u32, sqe: Sqe) -> std::io::Result<bool> {
        let got = self.command(conn, sqe)?;
        // Status in the upper half of the fourth word, above the phase.
        Ok(got.is_some_and(|got| got.kind == kind::RESPONSE && got.word(12) >> 17 == 0))
    }

    /// Begins to prove a client on an admin queue, and replies to the challenge without its secret. With a
    /// group the SSD computes a power for each of the two messages.
    ///
    /// # Errors
    /// The operating system's.
    pub fn prove_falsely(&mut self, conn: u32, random: &mut Random) -> std::io::Result<Heard> {
        let transaction = u16::try_from(random.word() & 0xFFFF).expect("16 bits");
        self.memory[..CHALLENGE].fill(0);
        if !self.auth_send(conn, &negotiate(transaction))?
            || !self.succeeds(conn, command(fctype::AUTH_RECV, RECEIVE))?
        {
            return Ok(Heard::Nothing);
        }
        let group = self.memory[GROUP];
        let public = [self.memory[PUBLIC_BYTES], self.memory[PUBLIC_BYTES + 1]];
        let took = self.auth_send(conn, &reply(transaction, u16::from_le_bytes(public).min(384), random))?;
        Ok(if took { Heard::Challenge { group } } else { Heard::Nothing })
    }
}

impl Talk {
    /// Proves on an admin queue that it is the client that it claims to be. Returns whether the SSD believes
    /// it. I/O queues that are connected later belong to this admin queue.
    ///
    /// # Errors
    /// The operating system's.
    pub fn prove(&mut self, conn: u32, ssd: u16, secret: Secret) -> std::io::Result<bool> {
        let names = Names { host: self.host().nqn(), subsystem: ssd_subnqn(ssd) };
        let groups = [Group::Null, Group::Ffdhe2048, Group::Ffdhe3072];
        let (mut prover, negotiate) = Prover::begin(names, secret, &groups, 1, Dice::thrown(|b| b.fill(7)));
        let Some(challenge) = self.ask(conn, &negotiate)? else { return Ok(false) };
        let Ok(reply) = prover.on_challenge(&challenge) else { return Ok(false) };
        let Some(success1) = self.ask(conn, &reply)? else { return Ok(false) };
        let Ok((success2, key)) = prover.on_success1(&success1) else { return Ok(false) };
        self.session = Some((key, 0));
        self.auth_send(conn, &success2)
    }

    /// Sends a message and fetches the answer.
    fn ask(&mut self, conn: u32, message: &[u8]) -> std::io::Result<Option<Vec<u8>>> {
        let answered =
            self.auth_send(conn, message)? && self.succeeds(conn, command(fctype::AUTH_RECV, RECEIVE))?;
        Ok(answered.then(|| self.memory[..RECEIVE as usize].to_vec()))
    }
}

impl Attacker<'_> {
    /// Each queue has a controller until the time for its host's proof is over. If the SSD asks for no proof,
    /// it has one for a while longer.
    pub(crate) fn unproven(&mut self, held: &mut Vec<Talk>) -> std::io::Result<()> {
        if held.len() > 200 {
            held.clear();
        }
        let mut talk = Talk::connect(self.address)?;
        // An SSD that asks for no proof takes no message either.
        let mut tries = if self.nth.is_multiple_of(2) { TRIES } else { 0 };
        for conn in 1..=512 {
            self.frames += 2;
            if !talk.open(conn, self.ssd, 0)? {
                // The host has as many queues as it may have, so it drops all and begins again.
                held.clear();
                return Ok(());
            }
            talk.connect_queue(conn, self.ssd, 0, CNTLID_ANY)?;
            if tries > 0 {
                self.frames += 3;
                let is_challenged = talk.prove_falsely(conn, self.random)? != Heard::Nothing;
                self.challenged += u64::from(is_challenged);
                tries = if is_challenged { TRIES } else { tries - 1 };
            }
            talk.sent.clear();
        }
        held.push(talk);
        Ok(())
    }
}

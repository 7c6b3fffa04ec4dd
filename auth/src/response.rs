// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Responses and the session key, which both sides compute alike.

use crate::key::{KEY_BYTES, Secret, is_mac, mac};
use crate::queue::SessionKey;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// A challenge, or a response.
pub(crate) type Value = [u8; KEY_BYTES];

/// The names that both sides bind into their responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// Host NQN.
    pub host: String,
    /// NQN of the SSD's subsystem.
    pub subsystem: String,
}

/// The inputs of one run of the protocol.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) names: Names,
    pub(crate) transaction: u16,
    /// Secret of the Diffie-Hellman exchange, if there is one.
    pub(crate) shared: Option<Zeroizing<Vec<u8>>>,
}

/// The party that responds, and the challenge.
#[derive(Clone, Copy)]
pub(crate) struct Responder<'a> {
    /// The host; else the controller.
    pub(crate) is_host: bool,
    pub(crate) challenge: &'a Value,
    pub(crate) sequence: u32,
}

impl Run {
    /// The challenge as part of a response: mixed with the exchange's secret, if there is one.
    fn augmented(&self, challenge: &Value) -> Value {
        match &self.shared {
            None => *challenge,
            Some(shared) => {
                let hashed = Zeroizing::new(<[u8; KEY_BYTES]>::from(Sha256::digest(&shared[..])));
                mac(&hashed[..], &[challenge])
            }
        }
    }

    /// Calls `f` with the bytes of the host's response, or of the controller's.
    fn with_parts<R>(&self, of: Responder<'_>, f: impl FnOnce(&[&[u8]]) -> R) -> R {
        let Responder { is_host, challenge, sequence } = of;
        let challenge = self.augmented(challenge);
        let (sequence, transaction) = (sequence.to_le_bytes(), self.transaction.to_le_bytes());
        let (host, subsystem) = (self.names.host.as_bytes(), self.names.subsystem.as_bytes());
        let (role, first, second): (&[u8], _, _) =
            if is_host { (b"HostHost", host, subsystem) } else { (b"Controller", subsystem, host) };
        f(&[&challenge, &sequence, &transaction, &[0], role, first, &[0], second])
    }

    fn key_of(&self, is_host: bool, secret: &Secret) -> Zeroizing<[u8; KEY_BYTES]> {
        secret.transformed(if is_host { &self.names.host } else { &self.names.subsystem })
    }

    /// The response of the host, or of the controller, to the challenge.
    pub(crate) fn respond(&self, of: Responder<'_>, secret: &Secret) -> Value {
        let key = self.key_of(of.is_host, secret);
        self.with_parts(of, |parts| mac(&key[..], parts))
    }

    /// Whether `response` is correct, in constant time.
    pub(crate) fn is_right(&self, of: Responder<'_>, secret: &Secret, response: &[u8]) -> bool {
        let key = self.key_of(of.is_host, secret);
        self.with_parts(of, |parts| is_mac(&key[..], parts, response))
    }

    /// The key that both sides have when the run has ended well.
    pub(crate) fn session_key(&self, secret: &Secret, c1: &Value, c2: &Value) -> SessionKey {
        let key = self.key_of(true, secret);
        let (c1, c2) = (self.augmented(c1), self.augmented(c2));
        SessionKey::new(mac(&key[..], &[b"GNStor session key", &c1, &c2]))
    }
}

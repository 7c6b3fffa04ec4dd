// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tag with which a client proves to any daemon, even a restarted one, that its id is its own.
//!
//! ```text
//!   metadata of each gRPC call:   gnstor-client: ID SERIAL TAG        hexadecimal digits
//!   TAG = HMAC-SHA-256(the client's secret, "GNStor client id")
//! ```
//! The daemon derives the secret from the manager key, the id and the serial, so a daemon that has just
//! started can check a tag. A tag is shown to the daemon only, as a token is. It proves nothing to an SSD.
//! Where clients have no secrets, the tag is zero: the client only says which registration it has.

use crate::key::{KEY_BYTES, Secret, is_mac, mac};
use std::fmt;
use zeroize::Zeroizing;

/// Name of the metadata.
pub const CLIENT_PROOF: &str = "gnstor-client";

const USE: &[u8] = b"GNStor client id";

/// A caller's claim of an id. It is not checked yet.
#[derive(Clone, PartialEq, Eq)]
pub struct ShownClient {
    /// The client id.
    pub id: u16,
    /// Number of its registration.
    pub serial: u64,
    tag: [u8; KEY_BYTES],
}

impl fmt::Debug for ShownClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {} of registration {}", self.id, self.serial)
    }
}

impl ShownClient {
    /// The claim of the client with this secret.
    pub fn of(id: u16, serial: u64, secret: &Secret) -> Self {
        Self { id, serial, tag: secret.keyed(USE) }
    }

    /// The claim of a client without a secret. It proves nothing, and says which registration the client has.
    pub fn without_secret(id: u16, serial: u64) -> Self {
        Self { id, serial, tag: [0; KEY_BYTES] }
    }

    /// The text of the metadata. It is never logged.
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(format!("{:x} {:x} ", self.id, self.serial));
        for byte in self.tag {
            text.push_str(&format!("{byte:02x}"));
        }
        text
    }

    /// Reads the text.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let (id, serial, digits) = (words.next()?, words.next()?, words.next()?);
        if words.next().is_some() || digits.len() != 2 * KEY_BYTES || !digits.is_ascii() {
            return None;
        }
        let mut tag = [0; KEY_BYTES];
        for (at, byte) in tag.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
        }
        Some(Self {
            id: u16::from_str_radix(id, 16).ok()?,
            serial: u64::from_str_radix(serial, 16).ok()?,
            tag,
        })
    }

    /// Whether the caller has this secret, which follows from the id and the serial. The comparison takes
    /// constant time.
    pub fn is_of(&self, secret: &Secret) -> bool {
        secret.is_keyed(USE, &self.tag)
    }
}

impl Secret {
    fn keyed(&self, purpose: &[u8]) -> [u8; KEY_BYTES] {
        mac(self.bytes(), &[purpose])
    }

    fn is_keyed(&self, purpose: &[u8], tag: &[u8; KEY_BYTES]) -> bool {
        is_mac(self.bytes(), &[purpose], tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};

    #[test]
    fn a_client_proves_its_own_id_and_registration_only() {
        let _deadline = Deadline::after(LIMIT);
        let manager = Secret::new([7; KEY_BYTES]);
        let secret = manager.of_host("client 9 of registration 4294967297");
        let shown = ShownClient::of(9, 0x1_0000_0001, &secret);
        let text = shown.to_text();
        assert!(text.starts_with("9 100000001 "), "id and serial are in the text");
        let read = ShownClient::parse(&text).expect("its own text");
        assert_eq!(read, shown);
        assert!(read.is_of(&secret));
        assert!(!read.is_of(&manager.of_host("client 9 of registration 4294967298")));
        let tag = &text[text.len() - 2 * KEY_BYTES..];
        assert!(!format!("{shown:?}").contains(&tag[..8]), "a log does not show it");
        let said = ShownClient::without_secret(9, 0x1_0000_0001);
        assert_eq!(ShownClient::parse(&said.to_text()), Some(said.clone()));
        assert!(!said.is_of(&secret));
        for at in 0..KEY_BYTES {
            let mut bent = shown.clone();
            bent.tag[at] ^= 1;
            assert!(!bent.is_of(&secret), "byte {at}");
        }
    }

    #[test]
    fn other_texts_are_no_proof() {
        let _deadline = Deadline::after(LIMIT);
        let good = format!("9 1 {}", "0f".repeat(KEY_BYTES));
        assert!(ShownClient::parse(&good).is_some());
        let no_digits = good.replace("0f0f", "0fé");
        let bad = ["", "9", "9 1", "9 1 0f", "10000 1 ", &good[1..], &good[..good.len() - 1], &no_digits];
        for bad in bad.iter().copied().map(str::to_owned).chain([format!("{good} "), format!("x{good}")]) {
            assert!(ShownClient::parse(&bad).is_none(), "{bad:?}");
        }
    }
}

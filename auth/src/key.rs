// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Secrets: 32 bytes that no log and no `Debug` output shows, and their text form.
//!
//! ```text
//!   DHHC-1:01:BASE64(32 key bytes | CRC-32 of them, little-endian):
//!          ^ hash by which a party's name is mixed in: 00 none, 01 SHA-256
//! ```

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use std::fmt;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// Bytes of a secret, and of a SHA-256 digest.
pub const KEY_BYTES: usize = 32;

/// The text that follows a party's name in the transformed key (section 8.3.5.5.9).
const TRANSFORM_SUFFIX: &[u8] = b"NVMe-over-Fabrics";

/// Separates a device's verifier from other uses of the manager key.
const VERIFIER: &[u8] = b"GNStor manager key";

/// Why a text is no secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyError {
    /// The text does not begin with `DHHC-1:` and end with a colon.
    #[error("a secret has the form DHHC-1:01:BASE64: as `nvme gen-dhchap-key` prints it")]
    Form,
    /// The hash identifier is not 00 or 01.
    #[error("only secrets with hash 00 (none) or 01 (SHA-256) are supported")]
    Hash,
    /// The middle is not Base64 of 36 bytes.
    #[error("the secret does not hold 32 bytes and their checksum in Base64")]
    Length,
    /// The CRC-32 does not match.
    #[error("the secret's checksum does not match: it was not copied whole")]
    Checksum,
}

/// A shared secret. Dropping it erases its bytes.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Secret {
    bytes: [u8; KEY_BYTES],
    /// Whether a party's name is mixed in before use.
    is_transformed: bool,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    /// A secret of these bytes, which must come from a cryptographic random generator or a derivation.
    pub fn new(bytes: [u8; KEY_BYTES]) -> Self {
        Self { bytes, is_transformed: true }
    }

    /// A new secret.
    pub fn random() -> Self {
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        crate::random::fill(&mut bytes[..]);
        Self::new(*bytes)
    }

    /// Reads the text form.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let text = text.trim().strip_prefix("DHHC-1:").ok_or(KeyError::Form)?;
        let (hash, rest) = text.split_once(':').ok_or(KeyError::Form)?;
        let encoded = rest.strip_suffix(':').ok_or(KeyError::Form)?;
        let is_transformed = match hash {
            "00" => false,
            "01" => true,
            _ => return Err(KeyError::Hash),
        };
        let decoded = Zeroizing::new(STANDARD.decode(encoded).map_err(|_| KeyError::Length)?);
        let (bytes, sum) = decoded.split_first_chunk::<KEY_BYTES>().ok_or(KeyError::Length)?;
        let sum: [u8; 4] = sum.try_into().map_err(|_| KeyError::Length)?;
        if crc32fast::hash(bytes) != u32::from_le_bytes(sum) {
            return Err(KeyError::Checksum);
        }
        Ok(Self { bytes: *bytes, is_transformed })
    }

    /// The text form. The caller decides where it goes. It must never be logged.
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut all = Zeroizing::new([0; KEY_BYTES + 4]);
        all[..KEY_BYTES].copy_from_slice(&self.bytes);
        all[KEY_BYTES..].copy_from_slice(&crc32fast::hash(&self.bytes).to_le_bytes());
        let hash = if self.is_transformed { "01" } else { "00" };
        Zeroizing::new(format!("DHHC-1:{hash}:{}:", STANDARD.encode(&all[..])))
    }

    /// The key of the host named `hostnqn`, derived from this manager key. The name carries a serial
    /// number, so two registrations of one client id have different keys.
    #[must_use]
    pub fn of_host(&self, hostnqn: &str) -> Self {
        Self::new(mac(&self.bytes, &[b"GNStor host key", &[0], hostnqn.as_bytes()]))
    }

    /// A short public fingerprint, by which two parties tell whether they have the same secret.
    pub fn fingerprint(&self) -> [u8; 8] {
        *mac(&self.bytes, &[b"GNStor fingerprint"]).first_chunk().expect("32 bytes")
    }

    /// The verifier by which a device later recognises this manager key without storing it. `device` is the
    /// device's own id, so two devices of one array keep different bytes.
    pub fn verifier(&self, device: &[u8; 16]) -> [u8; KEY_BYTES] {
        mac(&self.bytes, &[VERIFIER, &[0], device])
    }

    /// Whether this is the key of a device with this verifier.
    pub fn is_verified_by(&self, device: &[u8; 16], verifier: &[u8; KEY_BYTES]) -> bool {
        is_mac(&self.bytes, &[VERIFIER, &[0], device], verifier)
    }

    pub(crate) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.bytes
    }

    /// The key with which the party named `nqn` computes its responses (section 8.3.5.5.9).
    pub(crate) fn transformed(&self, nqn: &str) -> Zeroizing<[u8; KEY_BYTES]> {
        Zeroizing::new(if self.is_transformed {
            mac(&self.bytes, &[nqn.as_bytes(), TRANSFORM_SUFFIX])
        } else {
            self.bytes
        })
    }
}

/// HMAC-SHA-256 over the parts, one after the other.
pub(crate) fn mac(key: &[u8], parts: &[&[u8]]) -> [u8; KEY_BYTES] {
    begin(key, parts).finalize().into_bytes().into()
}

/// Whether `tag` is the HMAC-SHA-256 over the parts. The comparison takes constant time.
pub(crate) fn is_mac(key: &[u8], parts: &[&[u8]], tag: &[u8]) -> bool {
    begin(key, parts).verify_slice(tag).is_ok()
}

fn begin(key: &[u8], parts: &[&[u8]]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    for part in parts {
        mac.update(part);
    }
    mac
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages of Authentication Send and Receive (section 8.3.5.5). Every decoder takes any bytes.

use crate::group::Group;
use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Most bytes of one message: a reply in the largest group.
pub const MAX_MESSAGE: usize = 16 + 2 * 32 + Group::MAX_BYTES;

/// `AUTH_Type` of Negotiate and of the failures.
pub const COMMON: u8 = 0x00;
/// `AUTH_Type` of the other messages.
pub const DHCHAP: u8 = 0x01;
/// `AUTH_ID`s.
pub mod id {
    #![expect(missing_docs, reason = "names of the specification")]
    pub const NEGOTIATE: u8 = 0x00;
    pub const CHALLENGE: u8 = 0x01;
    pub const REPLY: u8 = 0x02;
    pub const SUCCESS1: u8 = 0x03;
    pub const SUCCESS2: u8 = 0x04;
    pub const FAILURE2: u8 = 0xF0;
    pub const FAILURE1: u8 = 0xF1;
}
/// Identifier of SHA-256.
pub const SHA256: u8 = 1;
/// Identifier of DH-HMAC-CHAP among the authentication protocols.
pub const PROTOCOL_DHCHAP: u8 = 1;
/// Offset of the group identifiers in [`Negotiate::ids`].
pub const GROUPS_AT: usize = 30;

/// Why an authentication failed: the reason code explanation of a failure message (section 8.3.5.5.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[repr(u8)]
pub enum Failure {
    /// A response does not prove knowledge of the secret.
    #[error("the other side does not know the secret")]
    Authentication = 0x01,
    /// The host offers no protocol that the controller has.
    #[error("no common authentication protocol")]
    Protocol = 0x02,
    /// The host insists on a secure channel.
    #[error("secure channel concatenation does not match")]
    SecureChannel = 0x03,
    /// The host offers no hash that the controller has.
    #[error("no common hash function")]
    Hash = 0x04,
    /// The host offers no group that the controller accepts, or a bad public value.
    #[error("no common Diffie-Hellman group, or a bad public value")]
    Group = 0x05,
    /// A message has a wrong length or a reserved value.
    #[error("a malformed message")]
    Payload = 0x06,
    /// Another message than the expected one.
    #[error("a message out of turn")]
    Message = 0x07,
}

impl Failure {
    /// The failure with this code; a code of no meaning counts as a malformed message.
    pub fn from_code(code: u8) -> Self {
        match code {
            0x01 => Self::Authentication,
            0x02 => Self::Protocol,
            0x03 => Self::SecureChannel,
            0x04 => Self::Hash,
            0x05 => Self::Group,
            0x07 => Self::Message,
            _ => Self::Payload,
        }
    }
}

macro_rules! wire {
    ($(#[$doc:meta])* $name:ident, $bytes:literal { $($(#[$fdoc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        pub struct $name { $($(#[$fdoc])* pub $field: $type,)* }
        const _: () = assert!(size_of::<$name>() == $bytes);
    };
}

wire! {
    /// The beginning of every message.
    Head, 6 {
        /// `AUTH_Type`.
        kind: u8,
        /// `AUTH_ID`.
        id: u8,
        /// Reserved.
        reserved: U16,
        /// Transaction identifier, chosen by the host.
        transaction: U16,
    }
}

wire! {
    /// AUTH_Negotiate with one protocol descriptor.
    Negotiate, 72 {
        /// Head.
        head: Head,
        /// Secure channel concatenation; 0.
        secure_channel: u8,
        /// Number of protocol descriptors.
        protocols: u8,
        /// Protocol of the descriptor.
        protocol: u8,
        /// Reserved.
        reserved: u8,
        /// Number of hash identifiers.
        hashes: u8,
        /// Number of group identifiers.
        groups: u8,
        /// Hash identifiers from 0 on, group identifiers from [`GROUPS_AT`] on.
        ids: [u8; 60],
    }
}

wire! {
    /// DH-HMAC-CHAP_Challenge; the challenge and the controller's public value follow.
    Challenge, 16 {
        /// Head.
        head: Head,
        /// Hash length.
        hash_bytes: u8,
        /// Reserved.
        reserved: u8,
        /// Selected hash.
        hash: u8,
        /// Selected group.
        group: u8,
        /// Bytes of the public value.
        public_bytes: U16,
        /// Sequence number of the challenge.
        sequence: U32,
    }
}

wire! {
    /// DH-HMAC-CHAP_Reply; response, challenge and the host's public value follow.
    Reply, 16 {
        /// Head.
        head: Head,
        /// Hash length.
        hash_bytes: u8,
        /// Reserved.
        reserved: u8,
        /// 1: the host challenges the controller.
        has_challenge: u8,
        /// Reserved.
        reserved2: u8,
        /// Bytes of the public value.
        public_bytes: U16,
        /// Sequence number of the challenge to the controller.
        sequence: U32,
    }
}

wire! {
    /// DH-HMAC-CHAP_Success1; the controller's response follows.
    Success1, 16 {
        /// Head.
        head: Head,
        /// Hash length.
        hash_bytes: u8,
        /// Reserved.
        reserved: u8,
        /// 1: a response follows.
        has_response: u8,
        /// Reserved.
        reserved2: [u8; 7],
    }
}

wire! {
    /// DH-HMAC-CHAP_Success2.
    Success2, 16 {
        /// Head.
        head: Head,
        /// Reserved.
        reserved: [u8; 10],
    }
}

wire! {
    /// AUTH_Failure1 and AUTH_Failure2.
    FailureMessage, 8 {
        /// Head.
        head: Head,
        /// Reason code; 1.
        reason: u8,
        /// Reason code explanation.
        explanation: u8,
    }
}

impl Head {
    pub(crate) fn new(kind: u8, id: u8, transaction: u16) -> Self {
        Self { kind, id, reserved: 0.into(), transaction: transaction.into() }
    }
}

/// A failure message; `id` is [`id::FAILURE1`] from a controller, [`id::FAILURE2`] from a host.
pub fn failure(id: u8, transaction: u16, failure: Failure) -> Vec<u8> {
    let head = Head::new(COMMON, id, transaction);
    FailureMessage { head, reason: 1, explanation: failure as u8 }.as_bytes().to_vec()
}

/// Reads a message of the given kind: its fixed part, and the bytes behind it.
///
/// # Errors
/// The failure that the other side states, [`Failure::Message`] for another message, [`Failure::Payload`]
/// where it is too short.
pub(crate) fn read<T>(bytes: &[u8], kind: u8, id: u8, transaction: Option<u16>) -> Result<(T, &[u8]), Failure>
where
    T: FromBytes + Immutable + KnownLayout + Unaligned,
{
    let (head, _) = Head::read_from_prefix(bytes).map_err(|_| Failure::Payload)?;
    if head.kind == COMMON && matches!(head.id, self::id::FAILURE1 | self::id::FAILURE2) {
        let (failure, _) = FailureMessage::read_from_prefix(bytes).map_err(|_| Failure::Payload)?;
        return Err(Failure::from_code(failure.explanation));
    }
    let is_expected = (head.kind, head.id) == (kind, id)
        && transaction.is_none_or(|transaction| transaction == head.transaction.get());
    if !is_expected {
        return Err(Failure::Message);
    }
    T::read_from_prefix(bytes).map_err(|_| Failure::Payload)
}

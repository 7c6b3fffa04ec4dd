// SPDX-License-Identifier: Apache-2.0 OR MIT
//! NVMe over Fabrics: Connect, property commands, names, and the private data of an RDMA connection.
//!
//! Source: NVM Express Base Specification 2.x (Fabrics command set) and NVMe RDMA Transport Specification
//! 1.0.

use crate::nvme::{Sqe, get_ascii, put_ascii};
use crate::slba::ClientId;
use alloc::format;
use alloc::string::String;
use core::mem::{offset_of, size_of};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Opcode of every Fabrics command.
pub const OPCODE: u8 = 0x7F;

/// Fabrics command types, byte 4 of the entry.
pub mod fctype {
    #![expect(missing_docs, reason = "names of the specification")]
    pub const PROPERTY_SET: u8 = 0x00;
    pub const CONNECT: u8 = 0x01;
    pub const PROPERTY_GET: u8 = 0x04;
    pub const AUTH_SEND: u8 = 0x05;
    pub const AUTH_RECV: u8 = 0x06;
    pub const DISCONNECT: u8 = 0x08;
}

/// Property offsets.
pub mod property {
    #![expect(missing_docs, reason = "names of the specification")]
    pub const CAP: u32 = 0x00;
    pub const VS: u32 = 0x08;
    pub const CC: u32 = 0x14;
    pub const CSTS: u32 = 0x1C;
    /// CC.EN
    pub const CC_ENABLE: u64 = 1;
    /// CSTS.RDY
    pub const CSTS_READY: u64 = 1;
}

/// The command-specific bytes 40..64 of a Connect command.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ConnectFields {
    /// Record format, 0.
    pub recfmt: U16,
    /// Queue id; 0 is the admin queue.
    pub qid: U16,
    /// Zero-based queue size.
    pub sqsize_z: U16,
    /// Attributes; bits 1:0 are the priority class.
    pub cattr: u8,
    /// Reserved.
    pub reserved: u8,
    /// Keep-alive timeout, ms; 0 switches it off.
    pub kato_ms: U32,
    /// Reserved.
    pub reserved2: [u8; 12],
}
const _: () = assert!(size_of::<ConnectFields>() == 24 && offset_of!(ConnectFields, kato_ms) == 8);

/// The command-specific bytes 40..64 of a property command.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct PropertyFields {
    /// Bits 2:0: 0 = four bytes, 1 = eight bytes.
    pub attrib: u8,
    /// Reserved.
    pub reserved: [u8; 3],
    /// Offset of the property.
    pub offset: U32,
    /// Value, for Property Set.
    pub value: U64,
    /// Reserved.
    pub reserved2: [u8; 8],
}
const _: () = assert!(size_of::<PropertyFields>() == 24 && offset_of!(PropertyFields, value) == 8);

/// DW0 of a Connect's completion, bit 17 (ATR): the queue must be authenticated by the NVMe in-band protocol.
/// The controller id is in bits 15:0.
pub const AUTHENTICATION_REQUIRED: u32 = 1 << 17;

/// The command-specific bytes 40..64 of Authentication Send and Receive.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct AuthFields {
    /// Reserved.
    pub reserved: u8,
    /// SPSP0, 1.
    pub spsp0: u8,
    /// SPSP1, 1.
    pub spsp1: u8,
    /// Security protocol, E9h.
    pub secp: u8,
    /// Bytes of the message sent (TL), or of the host's buffer (AL).
    pub bytes: U32,
    /// Reserved.
    pub reserved2: [u8; 16],
}
const _: () = assert!(size_of::<AuthFields>() == 24 && offset_of!(AuthFields, bytes) == 4);

impl AuthFields {
    /// The security protocol of NVMe authentication.
    pub const SECP: u8 = 0xE9;

    /// The fields of a command that moves `bytes` bytes.
    pub fn new(bytes: u32) -> Self {
        Self { spsp0: 1, spsp1: 1, secp: Self::SECP, bytes: bytes.into(), ..Self::default() }
    }

    /// Whether the fields name the protocol of NVMe authentication.
    pub fn is_nvme(&self) -> bool {
        (self.secp, self.spsp0, self.spsp1) == (Self::SECP, 1, 1)
    }
}

/// Bytes of the proof in a Connect of an I/O queue.
pub const PROOF_BYTES: usize = 40;

/// Data of a Connect command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ConnectData {
    /// Host identifier.
    pub host_id: [u8; 16],
    /// Controller id; FFFFh asks for any.
    pub cntlid: U16,
    /// Reserved.
    pub reserved: [u8; 238],
    /// Subsystem NQN, NUL padded.
    pub subnqn: [u8; 256],
    /// Host NQN, NUL padded.
    pub hostnqn: [u8; 256],
    /// Proof that the host of an I/O queue is the host of the controller; zeros without a proof. NVMe
    /// reserves these bytes.
    pub proof: [u8; PROOF_BYTES],
    /// Reserved.
    pub reserved2: [u8; 216],
}
/// Bytes of [`ConnectData`].
pub const CONNECT_DATA_BYTES: usize = 1024;
const _: () = assert!(size_of::<ConnectData>() == CONNECT_DATA_BYTES);
const _: () = assert!(offset_of!(ConnectData, subnqn) == 256 && offset_of!(ConnectData, hostnqn) == 512);
const _: () = assert!(offset_of!(ConnectData, proof) == 768);

/// "Any controller" in [`ConnectData::cntlid`].
pub const CNTLID_ANY: u16 = 0xFFFF;

/// The host that connects, and its identity. Of two hosts with one identity the SSD hears the newer one
/// only (protocol rule 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// The identity that the host speaks for.
    pub identity: Identity,
    /// Host Identifier (NVMe over Fabrics, Connect): tells hosts of the same identity apart.
    pub id: [u8; 16],
    /// Number of the client's registration; 0 for the daemon, and for a client that did not register.
    pub serial: u64,
}

impl Host {
    /// The host NQN: the identity, and the serial if it is not 0.
    pub fn nqn(self) -> String {
        match self.serial {
            0 => self.identity.hostnqn(),
            serial => format!("{}.{serial:x}", self.identity.hostnqn()),
        }
    }
}

impl From<Identity> for Host {
    /// A host whose identifier follows from its identity, so that it is the only one. Its serial is 0.
    fn from(identity: Identity) -> Self {
        let mut id = [0; 16];
        put_ascii(&mut id, identity.hostnqn().rsplit(':').next().unwrap_or(""), 0);
        Self { identity, id, serial: 0 }
    }
}

impl ConnectData {
    /// Connect data for a host that asks for controller `cntlid` of `subnqn`.
    pub fn new(host: impl Into<Host>, cntlid: u16, subnqn: &str) -> Self {
        let host: Host = host.into();
        let mut data = Self {
            host_id: host.id,
            cntlid: cntlid.into(),
            reserved: [0; 238],
            subnqn: [0; 256],
            hostnqn: [0; 256],
            proof: [0; PROOF_BYTES],
            reserved2: [0; 216],
        };
        put_ascii(&mut data.subnqn, subnqn, 0);
        put_ascii(&mut data.hostnqn, &host.nqn(), 0);
        data
    }

    /// The subsystem NQN as text.
    pub fn subnqn(&self) -> String {
        get_ascii(&self.subnqn)
    }

    /// The host NQN as text.
    pub fn hostnqn(&self) -> String {
        get_ascii(&self.hostnqn)
    }
}

/// The identity that a connection speaks for. It is fixed at Connect; firmware compares it with every
/// command (protocol rule 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Identity {
    /// A client with an id that the daemon gave it.
    Client(ClientId),
    /// The daemon: the only identity that may use the VOLUME and MAP commands.
    Daemon,
    /// Another SSD of the array, by its number. It asks for its serving lease, and brings maps.
    Peer(u16),
}

const HOSTNQN_DAEMON: &str = "nqn.2026-11.dev.gnstor:daemon";
const HOSTNQN_CLIENT: &str = "nqn.2026-11.dev.gnstor:client.";
const HOSTNQN_PEER: &str = "nqn.2026-11.dev.gnstor:peer.";

impl Identity {
    /// The host NQN that carries this identity.
    pub fn hostnqn(self) -> String {
        match self {
            Self::Client(id) => format!("{HOSTNQN_CLIENT}{:04x}", id.get()),
            Self::Daemon => HOSTNQN_DAEMON.into(),
            Self::Peer(ssd) => format!("{HOSTNQN_PEER}{ssd:04x}"),
        }
    }

    /// The identity that a host NQN carries; `None` for a name that is not GNStor's.
    pub fn from_hostnqn(name: &str) -> Option<Self> {
        Self::parse_hostnqn(name).map(|(identity, _)| identity)
    }

    /// The identity and the serial that a host NQN carries; serial 0 if the name has none. Each pair of
    /// identity and serial has exactly one name.
    pub fn parse_hostnqn(name: &str) -> Option<(Self, u64)> {
        if name == HOSTNQN_DAEMON {
            return Some((Self::Daemon, 0));
        }
        if let Some(ssd) = name.strip_prefix(HOSTNQN_PEER) {
            let peer = Self::Peer(u16::from_str_radix(ssd, 16).ok()?);
            return (peer.hostnqn() == name).then_some((peer, 0));
        }
        let rest = name.strip_prefix(HOSTNQN_CLIENT)?;
        let (id, serial) = match rest.split_once('.') {
            Some((id, serial)) => (id, u64::from_str_radix(serial, 16).ok()?),
            None => (rest, 0),
        };
        let identity = u16::from_str_radix(id, 16).ok().and_then(ClientId::new).map(Self::Client)?;
        let host = Host { identity, id: [0; 16], serial };
        (host.nqn() == name).then_some((identity, serial))
    }
}

/// The subsystem NQN of SSD number `index`.
pub fn ssd_subnqn(index: u16) -> String {
    format!("nqn.2026-11.dev.gnstor:ssd.{index}")
}

/// Reads the command-specific bytes 40..64 of an entry as `T`.
pub fn fields<T: FromBytes + Immutable + KnownLayout + Unaligned>(sqe: &Sqe) -> Option<T> {
    use zerocopy::IntoBytes as _;
    T::read_from_bytes(&sqe.as_bytes()[40..40 + size_of::<T>()]).ok()
}

/// A Fabrics command with the given type and command-specific bytes.
pub fn command<T: IntoBytes + Immutable>(fctype: u8, fields: &T) -> Sqe {
    let mut bytes = [0u8; crate::nvme::SQE_BYTES];
    bytes[0] = OPCODE;
    bytes[1] = crate::nvme::FLAGS_SGL;
    bytes[4] = fctype;
    bytes[40..40 + size_of::<T>()].copy_from_slice(fields.as_bytes());
    zerocopy::transmute!(bytes)
}

/// The fabrics command type of an entry whose opcode is [`OPCODE`].
pub fn fctype_of(sqe: &Sqe) -> u8 {
    sqe.nsid.as_bytes()[0]
}

/// Private data of an RDMA connection request (NVMe RDMA transport, 32 bytes).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct CmRequest {
    /// Record format, 0.
    pub recfmt: U16,
    /// Queue id.
    pub qid: U16,
    /// Host receive queue size.
    pub hrqsize: U16,
    /// Host send queue size, zero-based.
    pub hsqsize_z: U16,
    /// Controller id.
    pub cntlid: U16,
    /// Reserved.
    pub reserved: [u8; 22],
}
const _: () = assert!(size_of::<CmRequest>() == 32);

/// Reject reasons of an RDMA connection (NVMe RDMA transport).
pub mod cm_reject {
    #![expect(missing_docs, reason = "names of the specification")]
    pub const INVALID_LENGTH: u16 = 1;
    pub const INVALID_RECFMT: u16 = 2;
    pub const INVALID_QID: u16 = 3;
    pub const INVALID_HSQSIZE: u16 = 4;
    pub const INVALID_HRQSIZE: u16 = 5;
    pub const NO_RESOURCES: u16 = 6;
    pub const INVALID_CNTLID: u16 = 8;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};

    #[test]
    fn golden_connect_command() {
        let _deadline = Deadline::after(LIMIT);
        let fields = ConnectFields {
            qid: 3.into(),
            sqsize_z: 63.into(),
            kato_ms: 15_000.into(),
            ..Default::default()
        };
        let sqe = command(fctype::CONNECT, &fields);
        let bytes = sqe.as_bytes();
        assert_eq!((bytes[0], bytes[1], bytes[4]), (0x7F, 0x40, 0x01));
        assert_eq!(bytes[40..52], [0, 0, 3, 0, 63, 0, 0, 0, 0x98, 0x3A, 0, 0]);
        assert_eq!(fctype_of(&sqe), fctype::CONNECT);
        assert_eq!(super::fields::<ConnectFields>(&sqe), Some(fields));
    }

    #[test]
    fn identities_round_trip_through_the_host_nqn() {
        let _deadline = Deadline::after(LIMIT);
        let client = Identity::Client(ClientId::new(0xBEE).unwrap());
        for identity in [client, Identity::Daemon, Identity::Peer(0), Identity::Peer(0x2F)] {
            assert_eq!(Identity::from_hostnqn(&identity.hostnqn()), Some(identity));
        }
        let host = Host { serial: 0x7_0000_0001, ..Host::from(client) };
        assert_eq!(Identity::parse_hostnqn(&host.nqn()), Some((client, host.serial)));
        for bad in [
            "",
            "nqn.2014-08.org.nvmexpress:x",
            "nqn.2026-11.dev.gnstor:client.0000",
            "nqn.2026-11.dev.gnstor:client.ffff",
            "nqn.2026-11.dev.gnstor:client.12345",
            "nqn.2026-11.dev.gnstor:client.0bee.0",
            "nqn.2026-11.dev.gnstor:client.0bee.01",
            "nqn.2026-11.dev.gnstor:client.0bee.+1",
            "nqn.2026-11.dev.gnstor:client.0bee.",
            "nqn.2026-11.dev.gnstor:client.0BEE",
            "nqn.2026-11.dev.gnstor:daemon.1",
            "nqn.2026-11.dev.gnstor:peer.",
            "nqn.2026-11.dev.gnstor:peer.002F",
            "nqn.2026-11.dev.gnstor:peer.00001",
            "nqn.2026-11.dev.gnstor:peer.0001.1",
        ] {
            assert_eq!(Identity::from_hostnqn(bad), None, "{bad}");
        }
    }

    #[test]
    fn connect_data_holds_the_names() {
        let _deadline = Deadline::after(LIMIT);
        let data = ConnectData::new(Identity::Daemon, CNTLID_ANY, &ssd_subnqn(2));
        assert_eq!(data.subnqn(), "nqn.2026-11.dev.gnstor:ssd.2");
        assert_eq!(Identity::from_hostnqn(&data.hostnqn()), Some(Identity::Daemon));
    }
}

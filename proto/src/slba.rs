// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The names in a command: volume, client and block, packed into the 64-bit starting LBA, and the stamp of
//! a write.
//!
//! ```text
//!   63            48 47            32 31                             0
//!  +----------------+----------------+--------------------------------+
//!  |      VID       |   client id    |              VBA               |
//!  +----------------+----------------+--------------------------------+
//! ```
//! (paper section 4.5; this order is normative here because the paper leaves it open.)

use core::fmt;

/// A volume id. 0 and FFFFh are reserved and never valid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vid(u16);

/// A client id. 0 and FFFFh are reserved and never valid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(u16);

macro_rules! id {
    ($name:ident, $what:literal) => {
        impl $name {
            #[doc = concat!("The lowest valid ", $what, ".")]
            pub const MIN: Self = Self(1);
            #[doc = concat!("The highest valid ", $what, ".")]
            pub const MAX: Self = Self(0xFFFE);

            #[doc = concat!("A ", $what, ", or `None` for the reserved values 0 and FFFFh.")]
            pub const fn new(raw: u16) -> Option<Self> {
                if raw == 0 || raw == 0xFFFF { None } else { Some(Self(raw)) }
            }

            /// The 16 bits that go on the wire.
            pub const fn get(self) -> u16 {
                self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($what, " {}"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}
id!(Vid, "volume id");
id!(ClientId, "client id");

/// A starting LBA as it is in CDW10-11: any 64 bits. [`Slba::unpack`] says whether they are valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slba(pub u64);

/// The fields of a starting LBA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    /// The volume.
    pub vid: Vid,
    /// The client that the command names. The firmware compares it with the connection's.
    pub client: ClientId,
    /// The first block within the volume, in blocks of 4 KiB.
    pub vba: u32,
}

impl Slba {
    /// Packs an address.
    pub const fn pack(address: Address) -> Self {
        Self(((address.vid.0 as u64) << 48) | ((address.client.0 as u64) << 32) | address.vba as u64)
    }

    /// Unpacks the address; `None` if the volume id or the client id is a reserved value.
    #[expect(clippy::cast_possible_truncation, reason = "taking 16- and 32-bit fields out of 64 bits")]
    pub const fn unpack(self) -> Option<Address> {
        match (Vid::new((self.0 >> 48) as u16), ClientId::new((self.0 >> 32) as u16)) {
            (Some(vid), Some(client)) => Some(Address { vid, client, vba: self.0 as u32 }),
            _ => None,
        }
    }
}

/// The order of two writes of one block: lease epoch first, then the writer's sequence.
///
/// Copies of one block are compared by stamp, never by arrival. The zero stamp means "never written".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Stamp {
    /// The write lease under which the block was written.
    pub lease_epoch: u32,
    /// The writer's sequence within that lease.
    pub sequence: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn packing_round_trips(vid in 1u16..0xFFFF, client in 1u16..0xFFFF, vba: u32) {
            let _deadline = Deadline::after(LIMIT);
            let (vid, client) = (Vid::new(vid).unwrap(), ClientId::new(client).unwrap());
            let address = Address { vid, client, vba };
            prop_assert_eq!(Slba::pack(address).unpack(), Some(address));
        }

        #[test]
        fn any_64_bits_unpack_to_themselves_or_to_nothing(raw: u64) {
            let _deadline = Deadline::after(LIMIT);
            if let Some(address) = Slba(raw).unpack() {
                prop_assert_eq!(Slba::pack(address), Slba(raw));
            } else {
                let (vid, client) = (raw >> 48, raw >> 32 & 0xFFFF);
                prop_assert!(vid == 0 || vid == 0xFFFF || client == 0 || client == 0xFFFF);
            }
        }
    }

    #[test]
    fn the_order_of_the_fields_is_normative() {
        let _deadline = Deadline::after(LIMIT);
        let address = Address {
            vid: Vid::new(0x1234).unwrap(),
            client: ClientId::new(0x5678).unwrap(),
            vba: 0x9ABC_DEF0,
        };
        assert_eq!(Slba::pack(address).0, 0x1234_5678_9ABC_DEF0);
    }

    #[test]
    fn stamps_order_by_lease_then_sequence() {
        let _deadline = Deadline::after(LIMIT);
        let stamp = |lease_epoch, sequence| Stamp { lease_epoch, sequence };
        assert!(stamp(1, 900) < stamp(2, 1));
        assert!(stamp(2, 1) < stamp(2, 2));
        assert!(Stamp::default() < stamp(1, 0));
    }
}

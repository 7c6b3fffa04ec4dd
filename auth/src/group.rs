// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Diffie-Hellman groups of RFC 7919, with arithmetic in constant time by `crypto-bigint`.

use crypto_bigint::modular::{FixedMontyForm, FixedMontyParams};
use crypto_bigint::{Odd, U320, U2048, U3072};
use zeroize::{Zeroize, Zeroizing};

/// Random bytes for a private exponent. A group uses the first ones (`Group::private_bytes`).
pub const PRIVATE_BYTES: usize = 35;

/// A group that both sides agree on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Group {
    /// No exchange: the secret alone protects the responses.
    #[default]
    Null = 0,
    /// ffdhe2048.
    Ffdhe2048 = 1,
    /// ffdhe3072.
    Ffdhe3072 = 2,
}

impl Group {
    /// Bytes of the largest public value.
    pub const MAX_BYTES: usize = 384;

    /// The group of this identifier.
    pub fn from_id(id: u8) -> Option<Self> {
        [Self::Null, Self::Ffdhe2048, Self::Ffdhe3072].into_iter().find(|group| *group as u8 == id)
    }

    /// Bytes of a public value.
    pub fn bytes(self) -> usize {
        match self {
            Self::Null => 0,
            Self::Ffdhe2048 => 256,
            Self::Ffdhe3072 => 384,
        }
    }

    /// Bytes of a private exponent. RFC 7919 (appendix A) asks for at least 225 bits with ffdhe2048 and 275
    /// with ffdhe3072: twice the strength of the group.
    fn private_bytes(self) -> usize {
        match self {
            Self::Null => 0,
            Self::Ffdhe2048 => 29,
            Self::Ffdhe3072 => PRIVATE_BYTES,
        }
    }

    /// The public value of a private exponent, big-endian; empty without an exchange.
    pub(crate) fn public(self, private: &[u8; PRIVATE_BYTES]) -> Vec<u8> {
        match self {
            Self::Null => Vec::new(),
            Self::Ffdhe2048 => power_2048(&U2048::from_u8(2), private),
            Self::Ffdhe3072 => power_3072(&U3072::from_u8(2), private),
        }
    }

    /// The secret that both sides share. `None` if the other side's value is not in 2 to p - 2: such a value
    /// would let it choose the secret.
    pub(crate) fn shared(self, private: &[u8; PRIVATE_BYTES], other: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        if other.len() != self.bytes() {
            return None;
        }
        Some(Zeroizing::new(match self {
            Self::Null => return None,
            Self::Ffdhe2048 => {
                let other = U2048::from_be_slice(other);
                let most = FFDHE2048.get().wrapping_sub(&U2048::from_u8(2));
                if other < U2048::from_u8(2) || other > most {
                    return None;
                }
                power_2048(&other, private)
            }
            Self::Ffdhe3072 => {
                let other = U3072::from_be_slice(other);
                let most = FFDHE3072.get().wrapping_sub(&U3072::from_u8(2));
                if other < U3072::from_u8(2) || other > most {
                    return None;
                }
                power_3072(&other, private)
            }
        }))
    }
}

macro_rules! power {
    ($name:ident, $uint:ident, $prime:ident, $group:expr) => {
        fn $name(base: &$uint, private: &[u8; PRIVATE_BYTES]) -> Vec<u8> {
            const PARAMS: FixedMontyParams<{ $uint::LIMBS }> = FixedMontyParams::new_vartime($prime);
            let used = $group.private_bytes();
            let mut bytes = Zeroizing::new([0; U320::BYTES]);
            bytes[U320::BYTES - used..].copy_from_slice(&private[..used]);
            let mut exponent = U320::from_be_slice(&bytes[..]);
            let bits = u32::try_from(8 * used).expect("a few hundred");
            let power = FixedMontyForm::new(base, &PARAMS).pow_bounded_exp(&exponent, bits).retrieve();
            exponent.zeroize();
            power.to_be_bytes().as_ref().to_vec()
        }
    };
}
power!(power_2048, U2048, FFDHE2048, Group::Ffdhe2048);
power!(power_3072, U3072, FFDHE3072, Group::Ffdhe3072);

/// RFC 7919, appendix A.1; the generator is 2.
const FFDHE2048: Odd<U2048> = Odd::<U2048>::from_be_hex(concat!(
    "FFFFFFFFFFFFFFFFADF85458A2BB4A9AAFDC5620273D3CF1D8B9C583CE2D3695",
    "A9E13641146433FBCC939DCE249B3EF97D2FE363630C75D8F681B202AEC4617A",
    "D3DF1ED5D5FD65612433F51F5F066ED0856365553DED1AF3B557135E7F57C935",
    "984F0C70E0E68B77E2A689DAF3EFE8721DF158A136ADE73530ACCA4F483A797A",
    "BC0AB182B324FB61D108A94BB2C8E3FBB96ADAB760D7F4681D4F42A3DE394DF4",
    "AE56EDE76372BB190B07A7C8EE0A6D709E02FCE1CDF7E2ECC03404CD28342F61",
    "9172FE9CE98583FF8E4F1232EEF28183C3FE3B1B4C6FAD733BB5FCBC2EC22005",
    "C58EF1837D1683B2C6F34A26C1B2EFFA886B423861285C97FFFFFFFFFFFFFFFF",
));
/// RFC 7919, appendix A.2.
const FFDHE3072: Odd<U3072> = Odd::<U3072>::from_be_hex(concat!(
    "FFFFFFFFFFFFFFFFADF85458A2BB4A9AAFDC5620273D3CF1D8B9C583CE2D3695",
    "A9E13641146433FBCC939DCE249B3EF97D2FE363630C75D8F681B202AEC4617A",
    "D3DF1ED5D5FD65612433F51F5F066ED0856365553DED1AF3B557135E7F57C935",
    "984F0C70E0E68B77E2A689DAF3EFE8721DF158A136ADE73530ACCA4F483A797A",
    "BC0AB182B324FB61D108A94BB2C8E3FBB96ADAB760D7F4681D4F42A3DE394DF4",
    "AE56EDE76372BB190B07A7C8EE0A6D709E02FCE1CDF7E2ECC03404CD28342F61",
    "9172FE9CE98583FF8E4F1232EEF28183C3FE3B1B4C6FAD733BB5FCBC2EC22005",
    "C58EF1837D1683B2C6F34A26C1B2EFFA886B4238611FCFDCDE355B3B6519035B",
    "BC34F4DEF99C023861B46FC9D6E6C9077AD91D2691F7F7EE598CB0FAC186D91C",
    "AEFE130985139270B4130C93BC437944F4FD4452E2D74DD364F2E21E71F54BFF",
    "5CAE82AB9C9DF69EE86D2BC522363A0DABC521979B0DEADA1DBF9A42D5C4484E",
    "0ABCD06BFA53DDEF3C1B20EE3FD59D7C25E41D2B66C62E37FFFFFFFFFFFFFFFF",
));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};

    /// 2^(p-1) = 1 modulo a prime p: this test fails if a digit of the constant is wrong.
    #[test]
    fn the_constants_satisfy_fermats_theorem() {
        let _deadline = Deadline::after(LIMIT);
        let params = FixedMontyParams::new_vartime(FFDHE2048);
        let power =
            FixedMontyForm::new(&U2048::from_u8(2), &params).pow(&FFDHE2048.get().wrapping_sub(&U2048::ONE));
        assert_eq!(power.retrieve(), U2048::ONE);
        let params = FixedMontyParams::new_vartime(FFDHE3072);
        let power =
            FixedMontyForm::new(&U3072::from_u8(2), &params).pow(&FFDHE3072.get().wrapping_sub(&U3072::ONE));
        assert_eq!(power.retrieve(), U3072::ONE);
    }

    #[test]
    fn both_sides_share_one_secret_and_trivial_values_are_refused() {
        let _deadline = Deadline::after(LIMIT);
        for group in [Group::Ffdhe2048, Group::Ffdhe3072] {
            // The last byte that the group uses counts, and none after it.
            let (a, b, mut other) = ([7; PRIVATE_BYTES], [9; PRIVATE_BYTES], [7; PRIVATE_BYTES]);
            other[group.private_bytes() - 1] = 8;
            assert_ne!(group.public(&a), group.public(&other), "{group:?}");
            other[group.private_bytes() - 1] = 7;
            other[group.private_bytes()..].fill(1);
            assert_eq!(group.public(&a), group.public(&other), "{group:?}");
            let one = group.shared(&a, &group.public(&b)).unwrap();
            let other = group.shared(&b, &group.public(&a)).unwrap();
            assert_eq!(*one, *other);
            assert_eq!(one.len(), group.bytes());
            let mut value = vec![0; group.bytes()];
            assert!(group.shared(&a, &value).is_none(), "zero");
            *value.last_mut().unwrap() = 1;
            assert!(group.shared(&a, &value).is_none(), "one");
            assert!(group.shared(&a, &vec![0xFF; group.bytes()]).is_none(), "beyond the prime");
            let minus_one = match group {
                Group::Ffdhe3072 => FFDHE3072.get().wrapping_sub(&U3072::ONE).to_be_bytes().as_ref().to_vec(),
                _ => FFDHE2048.get().wrapping_sub(&U2048::ONE).to_be_bytes().as_ref().to_vec(),
            };
            assert!(group.shared(&a, &minus_one).is_none(), "p - 1");
            assert!(group.shared(&a, &[2]).is_none(), "another length");
        }
        assert!(Group::Null.shared(&[1; PRIVATE_BYTES], &[]).is_none());
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Key pairs of the Diffie-Hellman exchange, each of which serves several runs.
//!
//! A pair saves half of the powers of a proof. The challenges of each run are its own, so no response and no
//! session key comes again. The secrets of hosts have 256 random bits, and no data is encrypted with what an
//! exchange gives. So a pair that is kept gives an attacker nothing that a fresh one would not.

use crate::group::{Group, PRIVATE_BYTES};
use std::sync::{Arc, OnceLock};
use zeroize::Zeroizing;

/// Runs that one pair serves.
pub const USES: u32 = 64;

/// A private exponent, and its public values as far as they were asked for. Dropping it erases the exponent.
pub struct KeyPair {
    private: Zeroizing<[u8; PRIVATE_BYTES]>,
    publics: [OnceLock<Vec<u8>>; 2],
}

impl KeyPair {
    /// The pair of these random bytes.
    pub fn new(private: [u8; PRIVATE_BYTES]) -> Self {
        Self { private: Zeroizing::new(private), publics: Default::default() }
    }

    /// The public value in a group, big-endian; empty without an exchange. The first call for a group
    /// computes a power, and calls at the same time wait for it.
    pub(crate) fn public(&self, group: Group) -> &[u8] {
        let place = match group {
            Group::Null => return &[],
            Group::Ffdhe2048 => &self.publics[0],
            Group::Ffdhe3072 => &self.publics[1],
        };
        place.get_or_init(|| group.public(&self.private))
    }

    /// As [`Group::shared`].
    pub(crate) fn shared(&self, group: Group, other: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        group.shared(&self.private, other)
    }
}

impl std::fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyPair(..)")
    }
}

/// The pair that one end uses now.
#[derive(Debug, Default)]
pub struct KeyPairs {
    now: Option<Arc<KeyPair>>,
    uses: u32,
}

impl KeyPairs {
    /// No pair yet.
    pub const fn new() -> Self {
        Self { now: None, uses: 0 }
    }

    /// The pair of the next run. After [`USES`] runs it is a new one, of random bytes that `fill` gives. No
    /// power is computed here.
    pub fn next(&mut self, fill: impl FnOnce(&mut [u8])) -> Arc<KeyPair> {
        self.uses += 1;
        let old = self.now.take_if(|_| self.uses <= USES);
        let pair = old.unwrap_or_else(|| {
            self.uses = 1;
            let mut private = Zeroizing::new([0; PRIVATE_BYTES]);
            fill(&mut private[..]);
            Arc::new(KeyPair::new(*private))
        });
        self.now = Some(Arc::clone(&pair));
        pair
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};
    use std::collections::BTreeSet;

    #[test]
    fn a_pair_serves_so_many_runs_and_then_comes_another() {
        let _deadline = Deadline::after(LIMIT);
        let (mut pairs, mut thrown) = (KeyPairs::new(), 0u8);
        let mut next = || {
            let pair = pairs.next(|bytes| {
                thrown += 1;
                bytes.fill(thrown);
            });
            pair.public(Group::Ffdhe2048).to_vec()
        };
        let first: BTreeSet<_> = (0..USES).map(|_| next()).collect();
        let second: BTreeSet<_> = (0..USES).map(|_| next()).collect();
        assert_eq!((first.len(), second.len()), (1, 1));
        assert!(first.is_disjoint(&second), "an exponent is kept for ever");
        assert_eq!(thrown, 2);
    }

    #[test]
    fn a_pair_has_the_public_value_of_its_exponent_in_each_group() {
        let _deadline = Deadline::after(LIMIT);
        let pair = KeyPair::new([5; PRIVATE_BYTES]);
        for group in [Group::Ffdhe2048, Group::Ffdhe3072, Group::Null] {
            for _ in 0..2 {
                assert_eq!(pair.public(group), group.public(&[5; PRIVATE_BYTES]), "{group:?}");
            }
        }
        assert_eq!(format!("{pair:?}"), "KeyPair(..)");
    }
}

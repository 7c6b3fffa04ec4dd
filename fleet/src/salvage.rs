// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Salvage of groups whose copies are all lossy (rule 17), with the operator's consent. The map is made by
//! [`crate::map::Map::salvage`].

use crate::repair::Held;
use crate::set::SsdSet;
use gnstor_proto::slba::Stamp;

/// Why a group is not salvaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsalvaged {
    /// A copy that has lost nothing is there or may return. That copy must serve.
    HasGoodCopy,
    /// Former serving members are missing. One of them may have what the others lost.
    Missing(SsdSet),
}

/// Whether the group may be merged. `former` served when the group was last whole.
///
/// # Errors
/// [`Unsalvaged`].
pub fn may_merge(former: SsdSet, lossy: SsdSet, present: SsdSet) -> Result<(), Unsalvaged> {
    if !former.is_subset_of(lossy) {
        return Err(Unsalvaged::HasGoodCopy);
    }
    if !former.is_subset_of(present) {
        let missing = former.iter().filter(|&ssd| !present.contains(ssd)).collect();
        return Err(Unsalvaged::Missing(missing));
    }
    Ok(())
}

/// Whether a copy replaces another one in a merge: its stamp is higher. One stamp is one write, so equal
/// stamps have equal data, unless a copy has rotted. Then the higher sum wins. So copies have one order, and
/// a merge gives the same whatever is compared first, and however often.
pub fn wins(copy: Held, over: Held) -> bool {
    order(copy) > order(over)
}

fn order(held: Held) -> (Stamp, u8, u32) {
    match held {
        Held::Nothing => (Stamp::default(), 0, 0),
        Held::Tombstone { stamp } => (stamp, 1, 0),
        Held::Block { stamp, sum } => (stamp, 2, sum),
    }
}

/// The block that the group has afterwards.
pub fn merge(copies: impl IntoIterator<Item = Held>) -> Held {
    copies.into_iter().fold(Held::Nothing, |best, copy| if wins(copy, best) { copy } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};

    fn stamp(sequence: u64) -> Stamp {
        Stamp { lease_epoch: 1, sequence }
    }

    #[test]
    fn copies_have_one_order() {
        let _deadline = Deadline::after(LIMIT);
        let block = |at, sum| Held::Block { stamp: stamp(at), sum };
        let trimmed = |at| Held::Tombstone { stamp: stamp(at) };
        let ascending =
            [Held::Nothing, trimmed(1), block(1, 5), block(1, 9), trimmed(2), block(2, 0), block(3, 0)];
        for (at, &low) in ascending.iter().enumerate() {
            assert!(!wins(low, low), "{low:?}");
            for &high in &ascending[at + 1..] {
                assert!(wins(high, low) && !wins(low, high), "{high:?} {low:?}");
                assert_eq!((merge([high, low]), merge([low, high])), (high, high));
            }
        }
    }
}

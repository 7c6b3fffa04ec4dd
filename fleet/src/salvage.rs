// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Salvage of a group whose copies are all lossy (rule 17), with the operator's consent.

use crate::repair::Held;
use crate::set::SsdSet;

/// Why a group is not salvaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsalvaged {
    /// A copy that has lost nothing is there, or is awaited, so that one must serve.
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

/// The block that the group has afterwards: the copy with the highest stamp, of equal stamps the one of the
/// lowest place.
pub fn merge(copies: impl IntoIterator<Item = Held>) -> Held {
    copies.into_iter().fold(Held::Nothing, |best, copy| if copy.stamp() > best.stamp() { copy } else { best })
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers of openings: how an array finds out that a data file was rolled back to an older image.
//!
//! ```text
//!              SSD 0 knows   SSD 1 knows   SSD 2 knows
//!   SSD 0      *7*           7             7
//!   SSD 1      9             *5*           9            5 < 9: SSD 1 is an older image, and serves nothing
//!   SSD 2      7             7             *7*
//! ```
//! Each SSD keeps a number of its own and the numbers of all others, durably. An array raises an SSD's number
//! when it opens the SSD and when it shuts it down: first in the SSD itself, then in the others. So a crash
//! leaves no SSD behind what the others know. An SSD whose number is below what another one knows holds an
//! older image. Its number stays, so that each later start finds the same.
//!
//! What this cannot find: an array of one SSD, and an array whose files were all rolled back together.

use crate::media::{CameUp, Made, MediaError};
use gnstor_deengine::Ssd;

/// What an SSD knows of the number of SSD `index`.
fn known(openings: &[u64], index: usize) -> u64 {
    openings.get(index).copied().unwrap_or(0)
}

/// The SSDs whose number is below what another SSD knows: own number, the highest known one, and whose.
fn behind(all: &[Vec<u64>]) -> Vec<Option<(u64, u64, usize)>> {
    let judge = |index: usize| {
        let own = known(&all[index], index);
        let others = all.iter().enumerate().filter(|(other, _)| *other != index);
        let (seen, by) = others.map(|(by, openings)| (known(openings, index), by)).max()?;
        (own < seen).then_some((own, seen, by))
    };
    (0..all.len()).map(judge).collect()
}

/// The places of the SSDs that were rolled back, and in words what is wrong with each.
pub(crate) fn behind_of(array: &[Made]) -> Vec<(usize, CameUp, String)> {
    let all: Vec<Vec<u64>> = array.iter().map(|made| made.ssd.openings().to_vec()).collect();
    let mut found = Vec::new();
    for (place, (made, behind)) in array.iter().zip(behind(&all)).enumerate() {
        // A new SSD has no image, and neither has one that stands in for another.
        let has_image = !matches!(made.about.came_up, CameUp::Fresh | CameUp::InMemory | CameUp::Damaged);
        let Some((own, seen, by)) = behind.filter(|_| has_image) else { continue };
        let file = made.about.data.as_ref().map_or(String::new(), |path| format!("{}: ", path.display()));
        let why = format!(
            "{file}it is an older image: it counts {own} starts and stops of the array, and SSD {by} knows \
             of {seen}; put the newest file back"
        );
        found.push(match own {
            0 => (place, CameUp::Damaged, format!("{file}its metadata does not know the array any more")),
            _ => (place, CameUp::Behind, why),
        });
    }
    found
}

/// Raises the numbers of the SSDs that serve: first in the SSD itself, then in the others.
///
/// # Errors
/// [`MediaError`]: an SSD does not take its number.
pub(crate) fn raise(ssds: &mut [&mut Ssd]) -> Result<(), MediaError> {
    let all: Vec<Vec<u64>> = ssds.iter().map(|ssd| ssd.openings().to_vec()).collect();
    let highest = |index: usize| all.iter().map(|openings| known(openings, index)).max().unwrap_or(0);
    let own = |ssd: &Ssd, index| known(ssd.openings(), index);
    let next: Vec<u64> =
        (0..ssds.len()).map(|index| highest(index) + u64::from(!ssds[index].is_filling())).collect();
    for (index, ssd) in ssds.iter_mut().enumerate().filter(|(_, ssd)| !ssd.is_filling()) {
        let mut openings = all[index].clone();
        openings.resize(next.len(), 0);
        openings[index] = next[index];
        write(ssd, index, &openings)?;
    }
    for (index, ssd) in ssds.iter_mut().enumerate() {
        let mut openings = next.clone();
        openings[index] = own(ssd, index);
        write(ssd, index, &openings)?;
    }
    Ok(())
}

fn write(ssd: &mut Ssd, index: usize, openings: &[u64]) -> Result<(), MediaError> {
    ssd.set_openings(openings).map_err(|error| MediaError::Make {
        what: format!("writing the number of openings to SSD {index}"),
        cause: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ssd_is_behind_where_another_one_knows_a_higher_number() {
        let all = [vec![7, 9, 7], vec![7, 5, 7], vec![7, 9, 7]];
        assert_eq!(behind(&all), [None, Some((5, 9, 2)), None]);
        // Ahead: the array ended between the two writes.
        let all = [vec![8, 9], vec![7, 9]];
        assert_eq!(behind(&all), [None, None]);
        // New SSDs, files of older programs, an array of one SSD.
        assert_eq!(behind(&[vec![], vec![]]), [None, None]);
        assert_eq!(behind(&[vec![3]]), [None]);
    }
}

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
//! when it opens the SSD and when it shuts it down. It does so first in the SSD itself, then in the others.
//! So a crash leaves no SSD behind what the others know. An SSD whose number is below what another one knows
//! holds an older image. Its number stays, so that each later start finds the same.
//!
//! The numbers of an array begin at a drawn one, of which the upper half names the array. So a file of
//! another array is found, too. The array is the one that most SSDs are of, or of two halves the first.
//!
//! The daemon holds the numbers, too ([`gnstor_daemon::openings`]), in a file beside the data files. By that
//! file an older image is found in an array of one SSD, and where all data files were rolled back together.
//! One case cannot be found: that file was rolled back together with the data files.
//!
//! Files that were made before numbers were drawn get a number at their next start ([`crate::unnumbered`]).

use crate::media::{CameUp, Made, MediaError};
use gnstor_auth::random;
use gnstor_daemon::openings::{Opened, Openings};
use gnstor_deengine::Ssd;
use std::collections::BTreeMap;

/// Bits of a number that count openings. The bits above them name the array; 0 stands for an array without a
/// drawn number.
const COUNT_BITS: u32 = 32;

/// The array that a number belongs to.
fn array_of(number: u64) -> u64 {
    number >> COUNT_BITS
}

/// The count in a number.
fn count_of(number: u64) -> u64 {
    number & ((1 << COUNT_BITS) - 1)
}

/// The number from which a new array counts.
pub(crate) fn drawn() -> u64 {
    let mut bytes = [0; 4];
    random::fill(&mut bytes);
    u64::from(u32::from_le_bytes(bytes).max(1)) << COUNT_BITS
}

/// The number that an SSD knows for SSD `index`.
fn known(openings: &[u64], index: usize) -> u64 {
    openings.get(index).copied().unwrap_or(0)
}

/// The SSDs of another array than the majority, by their own numbers; `None`: an SSD has none. `knows` says
/// whether an SSD knows this number of another one.
fn strangers(own: &[Option<u64>], knows: impl Fn(usize, usize, u64) -> bool) -> Vec<usize> {
    let arrays = || own.iter().map(|number| number.map(array_of));
    let mut count: BTreeMap<u64, usize> = BTreeMap::new();
    arrays().flatten().for_each(|array| *count.entry(array).or_default() += 1);
    // Of several arrays with as many SSDs, the first one.
    let most = arrays().flatten().rev().max_by_key(|array| count[array]);
    // An SSD that was away when its array got a number: the others know it without one.
    let was_away = |place: usize, number: u64| {
        let of_most =
            |(by, own): (usize, &Option<u64>)| own.map(array_of) == most && knows(by, place, number);
        array_of(number) == 0 && own.iter().enumerate().any(of_most)
    };
    let is_stranger = |(place, number): (usize, &Option<u64>)| {
        number
            .is_some_and(|number| Some(array_of(number)) != most && !was_away(place, number))
            .then_some(place)
    };
    own.iter().enumerate().filter_map(is_stranger).collect()
}

/// Whether no SSD of an array that has been opened before has a drawn number.
pub(crate) fn is_unnumbered(array: &[Made]) -> bool {
    let numbers = || array.iter().flat_map(|made| made.ssd.openings());
    numbers().any(|&number| number != 0) && numbers().all(|&number| array_of(number) == 0)
}

/// The places of the SSDs that belong to another array, and in words what is wrong with each. `None`: an SSD
/// that cannot be used.
pub(crate) fn strangers_of<'a>(array: impl Iterator<Item = Option<&'a Made>>) -> Vec<(usize, String)> {
    let array: Vec<_> = array.collect();
    let own = |(place, made): (usize, &Option<&Made>)| {
        let number = made.map(|made| known(made.ssd.openings(), place))?;
        (number != 0).then_some(number)
    };
    let own: Vec<_> = array.iter().enumerate().map(own).collect();
    let why = |place: usize| {
        let path = array[place].and_then(|made| made.about.data.as_ref());
        let file = path.map_or(String::new(), |path| format!("{}: ", path.display()));
        format!("{file}it is the file of an SSD of another array; put this array's file back")
    };
    let knows = |by: usize, place: usize, number: u64| {
        array[by].is_some_and(|made| known(made.ssd.openings(), place) == number)
    };
    strangers(&own, knows).into_iter().map(|place| (place, why(place))).collect()
}

/// The SSDs whose number is below the one that another SSD or the daemon knows. Each with its own number, the
/// highest known one, and the SSD that knows it; `None`: the daemon does.
fn behind(all: &[Vec<u64>], daemon: &[u32]) -> Vec<Option<(u64, u64, Option<usize>)>> {
    let judge = |index: usize| {
        let own = known(&all[index], index);
        let others = all.iter().enumerate().filter(|(other, _)| *other != index);
        let of_others = others.map(|(by, openings)| (known(openings, index), Some(by)));
        // The daemon's file names SSDs, and not the array.
        let of_daemon =
            daemon.get(index).map(|&count| (array_of(own) << COUNT_BITS | u64::from(count), None));
        let (seen, by) = of_others.chain(of_daemon).max()?;
        (own < seen).then_some((own, seen, by))
    };
    (0..all.len()).map(judge).collect()
}

/// The places of the SSDs that were rolled back, and in words what is wrong with each.
pub(crate) fn behind_of(array: &[Made], daemon: &Openings) -> Vec<(usize, CameUp, String)> {
    let all: Vec<Vec<u64>> = array.iter().map(|made| made.ssd.openings().to_vec()).collect();
    let held: Vec<u32> = array.iter().map(|made| daemon.known(&made.ssd.identity().uuid).number).collect();
    let mut found = Vec::new();
    for (place, (made, behind)) in array.iter().zip(behind(&all, &held)).enumerate() {
        // A new SSD has no older image, nor has a substitute.
        let has_image = !matches!(made.about.came_up, CameUp::Fresh | CameUp::InMemory | CameUp::Damaged);
        let Some((own, seen, by)) = behind.filter(|_| has_image) else { continue };
        let file = made.about.data.as_ref().map_or(String::new(), |path| format!("{}: ", path.display()));
        let by = by.map(|by| format!("SSD {by}"));
        let (by, or) = match (&by, daemon.file()) {
            (Some(by), _) => (by.as_str(), String::new()),
            (None, Some(file)) => ("the daemon", format!(", or remove {} to go back to it", file.display())),
            (None, None) => ("the daemon", String::new()),
        };
        let why = format!(
            "{file}it is an older image: it counts {} starts and stops of the array, and {by} knows of {}; \
             put the newest file back{or}",
            count_of(own),
            count_of(seen)
        );
        found.push(match own {
            0 => (place, CameUp::Damaged, format!("{file}its metadata does not know the array any more")),
            _ => (place, CameUp::Behind, why),
        });
    }
    found
}

/// Tells the daemon the numbers of the SSDs that serve.
pub(crate) fn tell<'a>(ssds: impl Iterator<Item = &'a Ssd>, daemon: &Openings) {
    let number = |(index, ssd): (usize, &Ssd)| {
        let number = u32::try_from(count_of(known(ssd.openings(), index))).unwrap_or(u32::MAX);
        (!ssd.is_filling()).then_some((ssd.identity().uuid, Opened { number, start: 0 }))
    };
    let numbers: Vec<_> = ssds.enumerate().filter_map(number).collect();
    if let Err(error) = daemon.keep(&numbers) {
        let file = daemon.file().map_or(String::new(), |file| file.display().to_string());
        tracing::error!("{file}: how often the SSDs were opened cannot be written: {error}");
    }
}

/// Raises the numbers of the SSDs that serve: first in the SSD itself, then in the others. A new array counts
/// from `first` on. So does one from before numbers were drawn.
///
/// # Errors
/// [`MediaError`]: an SSD cannot store its number.
pub(crate) fn raise(ssds: &mut [&mut Ssd], first: u64) -> Result<(), MediaError> {
    let all: Vec<Vec<u64>> = ssds.iter().map(|ssd| ssd.openings().to_vec()).collect();
    let array = all.iter().flatten().copied().map(array_of).max().filter(|&array| array != 0);
    // A new SSD of an array counts from its array's number on.
    let least = array.map_or(first, |array| array << COUNT_BITS);
    let highest = |index: usize| {
        let known = all.iter().map(|openings| known(openings, index)).max().unwrap_or(0);
        // An SSD that is away keeps the number that the others know.
        if known != 0 && ssds[index].is_filling() { known } else { known.max(least) }
    };
    let next: Vec<u64> =
        (0..ssds.len()).map(|index| highest(index) + u64::from(!ssds[index].is_filling())).collect();
    let own = all.into_iter().enumerate().map(|(index, mut openings)| {
        openings.resize(next.len(), 0);
        openings[index] = next[index];
        openings
    });
    let raised: Vec<_> = own.zip(&*ssds).map(|(own, ssd)| (!ssd.is_filling()).then_some(own)).collect();
    write_all(ssds, raised)?;
    let own = |(index, ssd): (usize, &&mut Ssd)| {
        let mut openings = next.clone();
        openings[index] = known(ssd.openings(), index);
        Some(openings)
    };
    let others: Vec<_> = ssds.iter().enumerate().map(own).collect();
    write_all(ssds, others)
}

/// Each SSD stores its numbers, all at the same time, because each waits for its disk.
fn write_all(ssds: &mut [&mut Ssd], numbers: Vec<Option<Vec<u64>>>) -> Result<(), MediaError> {
    std::thread::scope(|scope| {
        let all = ssds.iter_mut().zip(numbers).enumerate();
        let asked = all.filter_map(|(index, (ssd, numbers))| Some((index, &mut **ssd, numbers?)));
        let threads: Vec<_> =
            asked.map(|(index, ssd, numbers)| scope.spawn(move || write(ssd, index, &numbers))).collect();
        // All threads end before a failure is reported.
        let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        ended.into_iter().try_for_each(|ended| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
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
    fn an_ssd_of_another_array_is_told_by_the_upper_half_of_its_number() {
        let _deadline = gnstor_base::testing::deadline();
        let (a, b) = (1 << COUNT_BITS, 2 << COUNT_BITS);
        let strangers = |own: &[Option<u64>]| strangers(own, |_, _, _| false);
        assert_eq!(strangers(&[Some(a + 3), Some(b + 9), Some(a + 3)]), [1]);
        assert_eq!(strangers(&[Some(b + 9), Some(a + 3), Some(a + 4)]), [0]);
        // Each array has half of the SSDs: the array of the first SSD is taken for the right one.
        assert_eq!(strangers(&[Some(b + 2), Some(a + 2)]), [1]);
        assert_eq!(strangers(&[None, Some(a + 2), None]), [0; 0]);
        // Arrays from before numbers were drawn.
        assert_eq!(strangers(&[Some(7), Some(5), None]), [0; 0]);
        assert_eq!(strangers(&[Some(7), Some(a + 5), Some(7)]), [1]);
        assert_eq!((array_of(a + 5), count_of(a + 5)), (1, 5));
        let known = |own: &[Option<u64>]| super::strangers(own, |_, place, number| (place, number) == (1, 7));
        assert_eq!(known(&[Some(a + 3), Some(7), Some(a + 3)]), [0; 0], "it was away");
        assert_eq!(known(&[Some(a + 3), Some(8), Some(a + 3)]), [1]);
        assert!(array_of(drawn()) != 0 && count_of(drawn()) == 0 && drawn() != drawn());
    }

    #[test]
    fn an_ssd_is_behind_where_another_one_knows_a_higher_number() {
        let _deadline = gnstor_base::testing::deadline();
        let all = [vec![7, 9, 7], vec![7, 5, 7], vec![7, 9, 7]];
        assert_eq!(behind(&all, &[]), [None, Some((5, 9, Some(2))), None]);
        // Ahead: the array ended between the two writes.
        let all = [vec![8, 9], vec![7, 9]];
        assert_eq!(behind(&all, &[]), [None, None]);
        // New SSDs, files of older programs, an array of one SSD.
        assert_eq!(behind(&[vec![], vec![]], &[]), [None, None]);
        assert_eq!(behind(&[vec![3]], &[]), [None]);
    }

    #[test]
    fn an_ssd_is_behind_where_the_daemon_knows_a_higher_number() {
        let _deadline = gnstor_base::testing::deadline();
        let a = 5 << COUNT_BITS;
        assert_eq!(behind(&[vec![a + 3]], &[4]), [Some((a + 3, a + 4, None))]);
        assert_eq!((behind(&[vec![a + 4]], &[4]), behind(&[vec![a + 3]], &[0])), (vec![None], vec![None]));
        let all = [vec![a + 2, a + 2], vec![a + 2, a + 2]];
        assert_eq!(behind(&all, &[3, 2]), [Some((a + 2, a + 3, None)), None]);
        let all = [vec![a + 2, a + 2], vec![a + 3, a + 2]];
        let by_ssd = behind(&all, &[3, 0])[0].expect("it is behind");
        assert_eq!(by_ssd, (a + 2, a + 3, Some(1)), "the SSD is named where it knows, too");
    }
}

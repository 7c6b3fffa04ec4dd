// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An array of which one SSD cannot be used: its file is damaged, or an older image.
//!
//! An empty SSD in memory stands in for that SSD. It takes connections and permission entries, so that
//! clients and the daemon find all SSDs. It refuses every read and every write with `CopyUnusable`, whose
//! sentence names the remedy. Reads go to the other copies. Writes of blocks that have a copy there fail,
//! since all copies acknowledge a write. Such writes succeed again only after a newer map leaves the SSD out
//! (rule 1b of `docs/protocol-fleet.md`). Without such a map the SSD would come back without these writes,
//! and not know that it lacks them. The damaged or older file stays as it is.

use crate::media::{CameUp, Made, MediaError, make_ssd, take_back};
use crate::openings;
use crate::plan::{MISSING, Plan};
use crate::unnumbered;
use gnstor_daemon::Openings;
use gnstor_deengine::{Preset, Ssd, SsdConfig, SsdMedia};
use gnstor_proto::placement::{AnyMap, Rows};
use std::panic::resume_unwind;
use std::path::Path;

/// The stand-in's capacity: it holds nothing, and has as much room for volumes as the largest SSD.
const STAND_IN_BYTES: u64 = 8 << 30;

/// SSDs that are opened at a time.
const AT_A_TIME: usize = 8;

/// Turns on the power of all SSDs of an array.
///
/// # Errors
/// As [`make_ssd`]. A damaged file is an error only if no other SSD knows the array's fleet map. Older images
/// are an error only if they are all that there is.
pub fn make_array(plans: &[Plan], daemon: &Openings) -> Result<Vec<Made>, MediaError> {
    let mut all = make_each(plans)?;
    for (place, why) in openings::strangers_of(all.iter().map(|made| made.as_ref().ok())) {
        // The SSD's file stays unchanged, and its map and volumes are not this array's.
        take_back(std::mem::replace(&mut all[place], Err(why)));
    }
    for (place, why) in unnumbered::strangers_of(all.iter().map(|made| made.as_ref().ok())) {
        take_back(std::mem::replace(&mut all[place], Err(why)));
    }
    let newest = newest_map(&all);
    let Some(map) = newest else {
        let Some(damage) = all.iter().find_map(|made| made.as_ref().err().cloned()) else {
            return with_numbers(all.into_iter().flatten().collect(), daemon);
        };
        take_back(all.into_iter().flatten());
        return Err(MediaError::Damaged(damage));
    };
    if let Err(error) = fits(&map, plans.len(), &all) {
        take_back(all.into_iter().flatten());
        return Err(error);
    }
    for made in all.iter_mut().flatten() {
        made.ssd.recall_map(&map).map_err(|error| failed(made.about.index, &error))?;
    }
    let bytes = all.iter().flatten().map(|made| made.about.bytes).max().unwrap_or(0);
    let mut array = Vec::with_capacity(plans.len());
    for ((index, plan), made) in (0u16..).zip(plans).zip(all) {
        array.push(match made {
            Ok(made) => made,
            Err(why) => stand_in(index, plan.file.as_deref(), bytes, &map, (CameUp::Damaged, why))?,
        });
    }
    let behind = openings::behind_of(&array, daemon);
    let serves = |(index, made): (usize, &Made)| {
        !made.about.came_up.stands_in() && behind.iter().all(|(behind, ..)| *behind != index)
    };
    if let Some((.., why)) = behind.first()
        && !array.iter().enumerate().any(serves)
    {
        let why = why.clone();
        take_back(array);
        return Err(MediaError::Damaged(why));
    }
    for (index, came_up, why) in behind {
        let about = &array[index].about;
        let number = about.index;
        let other = stand_in(number, about.data.as_deref(), about.bytes, &map, (came_up, why))?;
        let behind = std::mem::replace(&mut array[index], other);
        // The SSD ends without a change of its file.
        take_back([behind]);
    }
    with_numbers(array, daemon)
}

/// Checks that these SSDs may start by the array's map.
fn fits(map: &[u8], here: usize, all: &[Result<Made, String>]) -> Result<(), MediaError> {
    let Ok(known) = AnyMap::decode(map) else { return Ok(()) };
    let count = known.count();
    if here < count {
        return Err(MediaError::Request(format!(
            "the array has {count} SSDs, and {here} are here: {MISSING}"
        )));
    }
    if here > count {
        return Err(MediaError::Request(format!(
            "the array has {count} SSDs, not {here}: the files from ssd-{count}.gns on are not of this array"
        )));
    }
    let is_fresh = |made: &Made| made.about.came_up == CameUp::Fresh;
    if matches!(known, AnyMap::Two(_)) && all.iter().flatten().any(is_fresh) {
        return Err(MediaError::Request(
            "SSDs of this array do not vote, so nothing would fill an SSD that begins anew: start without \
             --begin-anew, with the file put back, and copy the volumes into a new array (gnstor cp)"
                .into(),
        ));
    }
    Ok(())
}

/// Makes or opens the SSDs, several at a time, because each often waits for its disk. An array of several
/// SSDs goes on without one whose file is damaged.
fn make_each(plans: &[Plan]) -> Result<Vec<Result<Made, String>>, MediaError> {
    let mut all = Vec::with_capacity(plans.len());
    for some in plans.chunks(AT_A_TIME) {
        let made: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = some.iter().map(|plan| scope.spawn(|| make_ssd(plan))).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
                .collect()
        });
        let mut failed = None;
        for made in made {
            match made {
                Ok(made) => all.push(Ok(made)),
                Err(MediaError::Damaged(why)) if plans.len() > 1 => all.push(Err(why)),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(error) = failed {
            take_back(all.into_iter().flatten());
            return Err(error);
        }
    }
    Ok(all)
}

/// Raises the numbers of openings, if the SSDs keep them. The daemon is told last.
fn with_numbers(mut array: Vec<Made>, daemon: &Openings) -> Result<Vec<Made>, MediaError> {
    if array.iter().any(|made| made.about.data.is_some()) {
        if openings::is_unnumbered(&array) {
            unnumbered::note(&mut array);
        }
        let mut ssds: Vec<_> = array.iter_mut().map(|made| &mut made.ssd).collect();
        openings::raise(&mut ssds, openings::drawn())?;
        openings::tell(array.iter().map(|made| &made.ssd), daemon);
    }
    Ok(array)
}

/// The newest fleet map of any SSD, encoded.
fn newest_map(all: &[Result<Made, String>]) -> Option<Vec<u8>> {
    let ssds = all.iter().flatten().map(|made| &made.ssd);
    let newest = ssds.filter_map(Ssd::fleet_map).max_by_key(|map| (map.epoch(), map.term()));
    newest.and_then(|map| map.encode().ok())
}

fn stand_in(
    index: u16,
    file: Option<&Path>,
    bytes: u64,
    map: &[u8],
    (came_up, why): (CameUp, String),
) -> Result<Made, MediaError> {
    tracing::error!("the array runs without SSD {index}: {why}");
    let preset = Preset::by_name("null").ok_or_else(|| failed(index, &"no preset null"))?;
    let config = SsdConfig {
        index,
        preset,
        capacity_bytes: STAND_IN_BYTES,
        serial: format!("GN{index:06}"),
        media: SsdMedia::Ram,
    };
    let mut ssd = Ssd::format(config.clone()).map_err(|error| failed(index, &error))?;
    ssd.stand_in(map).map_err(|error| failed(index, &error))?;
    let mut made = crate::media::made(ssd, config, file);
    let about = &mut made.about;
    (about.came_up, about.lost, about.bytes) = (came_up, Some(why), bytes);
    Ok(made)
}

fn failed(index: u16, cause: &dyn std::fmt::Display) -> MediaError {
    MediaError::Make { what: format!("starting without SSD {index}"), cause: cause.to_string() }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Each copy of each volume, read by itself.

use super::Connected;
use super::turn::{BLOCKS, Turns, VOLUMES, name_of, opened, shrunk};
use crate::block::{BLOCK, Found, found_in, life_of};
use crate::history::{Call, Outcome, now};
use libgnstor::{Error, File, NOT_FOUND, Rights};
use std::time::Duration;

/// How long a copy may be late: after a pause of the machine an SSD has no serving lease for a moment.
const LATE_NS: u64 = 10_000_000_000;
const REST: Duration = Duration::from_millis(50);
/// Blocks of a call.
const PART: u32 = 16;

/// Reads the copies of all volumes that there are.
pub(super) fn read_all(turns: &mut Turns, connected: &Connected) {
    let end = now() + LATE_NS;
    for volume in 0..VOLUMES {
        let name = name_of(volume);
        let file = loop {
            let call = Call::Open { name: name.clone(), writes: false };
            let open = || connected.client.open(&name, Rights::Read);
            match turns.recorder.call(call, open, |file| opened(file.info(), false)) {
                Ok(file) => break Some(file),
                Err(Error::Daemon(status)) if status.code() == NOT_FOUND => break None,
                Err(_) if now() > end => break None,
                Err(_) => std::thread::sleep(REST),
            }
        };
        for (replica, block) in file.iter().flat_map(|file| parts(file.info().replicas)) {
            read(turns, file.as_ref().expect("it is there"), (replica, block));
        }
    }
}

fn parts(replicas: u32) -> impl Iterator<Item = (u32, u32)> {
    (0..replicas).flat_map(|replica| (0..BLOCKS / PART).map(move |part| (replica, part * PART)))
}

/// Reads a part of a copy, again until it serves. Only the last try is written down.
fn read(turns: &mut Turns, file: &File, (replica, block): (u32, u32)) {
    let life = life_of(file.info().vid, file.info().generation);
    let mut data = vec![0; PART as usize * BLOCK];
    let read = || -> Result<(Vec<Found>, u64), Error> {
        let end = now() + LATE_NS;
        loop {
            match file.read_replica_at(replica, u64::from(block) * BLOCK as u64, &mut data) {
                Ok(()) => break,
                Err(why) if now() > end => return Err(why),
                Err(_) => std::thread::sleep(REST),
            }
        }
        Ok((data.chunks(BLOCK).map(found_in).collect(), shrunk(&file.client().fleet_map())))
    };
    let call = Call::Copy { life, block, blocks: PART, replica };
    let values = |(values, shrunk): &(Vec<Found>, u64)| Outcome::Values(values.clone(), *shrunk);
    let _ = turns.recorder.call(call, read, values);
}

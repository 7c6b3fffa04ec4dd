// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The central engine of a conventional array, for comparison. It has the place of each unit of each volume,
//! under one lock. It logs every change, and the record is on the log's medium before the write is
//! acknowledged.
//!
//! ```text
//!   read    lock: unit -> place
//!   write   lock: a free place ... the data is written there ... log record, flushed ...
//!           lock: unit -> place, the old place is free
//! ```
//! It writes out of place, so that a crash leaves the old data or the new. The place of a unit in the log
//! says which SSDs hold it.

use super::load::Load;
use gnstor_console::CliError;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// Bytes of a log record: client, unit, place, and their sum.
const RECORD: usize = 16;
/// The log starts over at this length: what it says is then in the map, and a real engine would first save
/// the map.
const LOG_BYTES: usize = 64 << 20;
/// A flush that takes longer counts as failed.
const FLUSH: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct Volume {
    places: Vec<u32>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Log {
    file: File,
    pending: Vec<u8>,
    length: usize,
    /// Number of the records that were given out, and of the records that were flushed.
    given: u64,
    flushed: u64,
    flushing: bool,
    /// A flush failed: what was in it is on no medium, and nothing is acknowledged any more.
    broken: Option<io::ErrorKind>,
}

impl Log {
    /// Takes the pending records and the file to write them to. A log that is long enough starts over.
    fn begin_flush(&mut self) -> io::Result<(File, Vec<u8>)> {
        if self.length + self.pending.len() > LOG_BYTES {
            self.file.set_len(0)?;
            io::Seek::rewind(&mut self.file)?;
            self.length = 0;
        }
        Ok((self.file.try_clone()?, std::mem::take(&mut self.pending)))
    }
}

/// The engine.
#[derive(Debug)]
pub(super) struct Central {
    volumes: Mutex<Vec<Volume>>,
    log: Mutex<Log>,
    ready: Condvar,
}

/// The unit has no place yet.
const NOWHERE: u32 = u32::MAX;

impl Central {
    /// An engine whose log is in a memory file system, if the system has one. That stands for the
    /// battery-backed memory of a real engine.
    pub(super) fn new(load: &Load) -> Result<Self, CliError> {
        let shm = Path::new("/dev/shm");
        let folder = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
        // The file has no name, so it disappears with the process.
        let failed = |cause: io::Error| CliError::File {
            path: folder.display().to_string(),
            cause: cause.to_string(),
        };
        let file = tempfile::tempfile_in(&folder).map_err(failed)?;
        let volume = || Volume {
            places: vec![NOWHERE; load.units as usize],
            free: (0..load.units + load.spare_units()).rev().collect(),
        };
        let volumes = (0..load.clients).map(|_| volume()).collect();
        let log =
            Log { file, pending: Vec::new(), length: 0, given: 0, flushed: 0, flushing: false, broken: None };
        Ok(Self { volumes: Mutex::new(volumes), log: Mutex::new(log), ready: Condvar::new() })
    }

    /// The place from which to read a unit.
    pub(super) fn find(&self, client: u32, unit: u32) -> Option<u32> {
        let volumes = self.volumes.lock().expect("no panic while held");
        volumes.get(client as usize)?.places.get(unit as usize).copied().filter(|place| *place != NOWHERE)
    }

    /// The place to which to write a unit.
    pub(super) fn allocate(&self, client: u32, unit: u32) -> Option<u32> {
        let mut volumes = self.volumes.lock().expect("no panic while held");
        let volume = volumes.get_mut(client as usize)?;
        if unit as usize >= volume.places.len() { None } else { volume.free.pop() }
    }

    /// The data of these (unit, place) pairs is written. Makes the places durable, with one flush for all.
    pub(super) fn commit(&self, client: u32, changes: &[(u32, u32)]) -> io::Result<()> {
        self.append(client, changes)?;
        let mut volumes = self.volumes.lock().expect("no panic while held");
        let volume = &mut volumes[client as usize];
        for &(unit, place) in changes {
            let old = std::mem::replace(&mut volume.places[unit as usize], place);
            volume.free.extend(Some(old).filter(|old| *old != NOWHERE));
        }
        Ok(())
    }

    /// Group commit: a thread that finds no flush under way writes the pending records of all threads.
    fn append(&self, client: u32, changes: &[(u32, u32)]) -> io::Result<()> {
        let mut log = self.log.lock().expect("no panic while held");
        for &(unit, place) in changes {
            let sum = client ^ unit.rotate_left(8) ^ place.rotate_left(16);
            let record: [[u8; 4]; 4] = [client, unit, place, sum].map(u32::to_le_bytes);
            log.pending.extend_from_slice(record.as_flattened());
            log.given += 1;
        }
        let mine = log.given;
        while log.flushed < mine {
            if let Some(kind) = log.broken {
                return Err(kind.into());
            }
            if log.flushing {
                let (held, waited) = self.ready.wait_timeout(log, FLUSH).expect("no panic while held");
                if waited.timed_out() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                log = held;
                continue;
            }
            let (until, begun) = (log.given, log.begin_flush());
            log.flushing = true;
            drop(log);
            let written = begun.and_then(|(mut file, records)| {
                file.write_all(&records)?;
                file.sync_data()?;
                Ok(records.len())
            });
            log = self.log.lock().expect("no panic while held");
            log.flushing = false;
            self.ready.notify_all();
            match written {
                Ok(bytes) => (log.flushed, log.length) = (until, log.length + bytes),
                Err(error) => {
                    log.broken = Some(error.kind());
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Number of log records written so far.
    pub(super) fn records(&self) -> u64 {
        self.log.lock().expect("no panic while held").flushed
    }
}

const _: () = assert!(RECORD == 4 * size_of::<u32>());

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;
    use std::sync::Arc;

    fn load() -> Load {
        let words = ["--mode", "gd", "--clients", "2", "--iodepth", "4", "--size", "64KiB"];
        Load::new(&crate::args::parsed(&words)).expect("a load that can be run")
    }

    #[test]
    fn a_unit_is_where_its_last_commit_says_and_no_place_is_lost() {
        let _deadline = deadline();
        let central = Central::new(&load()).expect("an engine");
        assert_eq!(central.find(0, 3), None);
        assert_eq!((central.find(0, 16), central.allocate(1, 16)), (None, None), "beyond the volume");
        for round in 0..100 {
            for unit in 0..16 {
                let place = central.allocate(1, unit).expect("a place for every request in flight");
                assert!(
                    (0..16).all(|other| central.find(1, other) != Some(place)),
                    "round {round}: {place} is taken"
                );
                central.commit(1, &[(unit, place)]).expect("the log is written");
                assert_eq!(central.find(1, unit), Some(place));
            }
        }
        assert_eq!((central.records(), central.find(0, 3)), (1600, None), "clients have maps of their own");
    }

    #[test]
    fn clients_that_commit_at_once_all_get_their_records_flushed() {
        let _deadline = deadline();
        let central = Arc::new(Central::new(&load()).expect("an engine"));
        std::thread::scope(|scope| {
            for client in 0..2 {
                let central = Arc::clone(&central);
                scope.spawn(move || {
                    for unit in (0..16).cycle().take(2000) {
                        let place = central.allocate(client, unit).expect("a place");
                        central.commit(client, &[(unit, place)]).expect("the log is written");
                    }
                });
            }
        });
        assert_eq!(central.records(), 4000);
    }

    #[test]
    fn a_log_that_cannot_be_written_acknowledges_nothing_any_more() {
        let _deadline = deadline();
        let central = Central::new(&load()).expect("an engine");
        // A file that is open only for reading accepts no record.
        let name = tempfile::NamedTempFile::new().expect("a file");
        central.log.lock().unwrap().file = File::open(name.path()).expect("the same one");
        let place = central.allocate(0, 1).expect("a place");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert!(central.commit(0, &[(1, place)]).is_err()));
            }
        });
        assert!(central.commit(0, &[(1, place)]).is_err(), "nothing is pending, and nothing was written");
        assert_eq!((central.find(0, 1), central.records()), (None, 0));
    }
}

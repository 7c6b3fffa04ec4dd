// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turns: a volume is opened, some calls are made, and it is given back.

use super::Connected;
use super::record::Recorder;
use super::zero::{Zeroes, first_of};
use crate::block::{BLOCK, Life, Stamp, bytes_of, found_in, life_of};
use crate::dice::Dice;
use crate::history::{Call, Outcome};
use gnstor_proto::placement::{AnyMap, Rows as _};
use libgnstor::{Client, CreateOptions, Error, File, NOT_FOUND, Rights, VolumeInfo};
use std::sync::Arc;
use std::time::Duration;

/// Volumes of the array: writers contend for them.
pub(super) const VOLUMES: u64 = 3;
/// Blocks of a volume, of which each turn uses one chunk more than others.
pub(super) const BLOCKS: u32 = 128;
/// Blocks of a chunk.
const CHUNK: u32 = 16;
/// Most blocks of a call. It may cross the border of a chunk.
const MOST: u64 = 9;
/// Length of a write lease.
const LEASE: Duration = Duration::from_secs(4);
const WRITERS: u64 = 3;
/// Draws of a place that an SSD serves.
const DRAWS: usize = 100;

pub(super) struct Turns {
    pub(super) recorder: Recorder,
    dice: Dice,
    writer: Option<u32>,
    /// A client that writes does nothing else.
    pub(super) hurries: bool,
    /// Only what this SSD serves is read: other reads would wait, where the client reaches no other one.
    pub(super) only: Option<u16>,
}

/// The last epoch that took a place from an SSD.
pub(super) fn shrunk(map: &AnyMap) -> u64 {
    match map {
        AnyMap::Three(map) => map.ssds.iter().map(|ssd| ssd.shrunk_at).max().unwrap_or(0),
        AnyMap::Two(_) => 0,
    }
}

fn life(file: &File) -> Life {
    life_of(file.info().vid, file.info().generation)
}

pub(super) fn name_of(volume: u64) -> String {
    format!("v{volume}")
}

pub(super) fn opened(info: &VolumeInfo, writes: bool) -> Outcome {
    Outcome::Opened(life_of(info.vid, info.generation), if writes { info.lease_epoch } else { 0 })
}

/// What a client that had this error must do: a client whose I/O timed out is of no use any more.
fn is_of_use(error: &Error) -> bool {
    !matches!(error, Error::AfterTimeout | Error::Node(_))
}

impl Turns {
    pub(super) fn new(recorder: Recorder, dice: Dice, writer: Option<u32>) -> Self {
        Self { recorder, dice, writer, hurries: false, only: None }
    }

    /// One turn. False: the client must connect anew.
    pub(super) fn turn(&mut self, connected: &Connected, mut is_told: impl FnMut() -> bool) -> bool {
        let client = &connected.client;
        let volume = self.dice.within(0, VOLUMES);
        let writes = self.writer.is_some() && (self.hurries || !self.dice.once_in(4));
        let file = match self.open(client, volume, writes) {
            Ok(file) => file,
            Err(why) => {
                self.make(client, volume, &why);
                self.rest(20, 150);
                return is_of_use(&why);
            }
        };
        let life = life(&file);
        let (mut counter, mut is_good) = (0, true);
        let mut zeroes = None;
        if writes && !self.hurries && self.dice.once_in(4) {
            zeroes = Zeroes::new(&connected.engine.handle(), &file).ok();
        }
        // A client that only reads goes on for longer: one that is cut off cannot open another volume.
        let most = if self.writer.is_some() { 60 } else { 600 };
        for _ in 0..self.dice.within(5, most) {
            if is_told() {
                break;
            }
            let made = match &mut zeroes {
                Some(zeroes) if self.dice.once_in(2) => self.zero(&file, zeroes, &mut counter),
                Some(_) => self.read(&file, writes),
                None => self.call(&file, writes, &mut counter),
            };
            self.rest(1, 12);
            let Err(why) = made else { continue };
            is_good = is_of_use(&why);
            if !is_good || matches!(why, Error::LeaseLost { .. }) || self.dice.once_in(2) {
                break;
            }
        }
        let lease = if writes { file.info().lease_epoch } else { 0 };
        let release = move || {
            drop(file);
            Ok(())
        };
        let _ = self.recorder.call(Call::Release { life, lease }, release, |()| Outcome::Done);
        if writes && is_good && volume % WRITERS == self.number() && self.dice.once_in(6) {
            let name = name_of(volume);
            let _ = self.recorder.call(Call::Delete { life }, || client.delete(&name), |()| Outcome::Done);
        }
        is_good
    }

    /// Number of the writer. Only one writer makes and deletes a volume, so it knows which one it deletes.
    fn number(&self) -> u64 {
        self.writer.map_or(WRITERS, u64::from)
    }

    fn open(&mut self, client: &Arc<Client>, volume: u64, writes: bool) -> Result<File, Error> {
        let name = name_of(volume);
        let rights = if writes { Rights::Write } else { Rights::Read };
        let open = || client.open_for(&name, rights, if writes { LEASE } else { Duration::ZERO });
        let call = Call::Open { name: name.clone(), writes };
        self.recorder.call(call, open, |file| opened(file.info(), writes))
    }

    /// Makes a volume that is not there, where it is this writer's.
    fn make(&mut self, client: &Arc<Client>, volume: u64, why: &Error) {
        let is_missing = matches!(why, Error::Daemon(status) if status.code() == NOT_FOUND);
        if !is_missing || volume % WRITERS != self.number() {
            return;
        }
        let options = CreateOptions {
            capacity_bytes: u64::from(BLOCKS) * BLOCK as u64,
            replicas: if volume == 2 { 3 } else { 2 },
            chunk_bytes: CHUNK * u32::try_from(BLOCK).expect("small"),
            ..CreateOptions::default()
        };
        let name = name_of(volume);
        let call = Call::Create { name: name.clone() };
        let _ = self.recorder.call(call, || client.create(&name, &options), |info| opened(info, false));
    }

    /// First block of a call, and their number.
    fn place(&mut self, most: u64) -> (u32, u32) {
        let blocks = self.dice.within(1, most);
        // Half of the calls meet in the first blocks.
        let end = if self.dice.once_in(2) { MOST * 2 } else { u64::from(BLOCKS) };
        let block = self.dice.within(0, end - blocks + 1);
        (u32::try_from(block).expect("small"), u32::try_from(blocks).expect("small"))
    }

    fn call(&mut self, file: &File, writes: bool, counter: &mut u64) -> Result<(), Error> {
        if !writes || !self.hurries && self.dice.once_in(3) {
            self.read(file, writes)
        } else {
            self.write(file, counter)
        }
    }

    /// Blocks of a chunk that this SSD serves, where draws find any.
    fn place_of(&mut self, file: &File, ssd: u16) -> (u32, u32) {
        let mut last = (0, 1);
        for _ in 0..DRAWS {
            let (block, blocks) = self.place(MOST);
            last = (block, blocks.min(CHUNK - block % CHUNK));
            if first_of(file, block) == Some(ssd) {
                break;
            }
        }
        last
    }

    fn read(&mut self, file: &File, writes: bool) -> Result<(), Error> {
        let (block, blocks) = match self.only {
            Some(ssd) => self.place_of(file, ssd),
            None => self.place(MOST),
        };
        let mut data = vec![0; blocks as usize * BLOCK];
        let epoch = file.client().fleet_map().epoch();
        let call = Call::Read { life: life(file), block, blocks, writer: writes, epoch };
        let read = || {
            file.read_at(u64::from(block) * BLOCK as u64, &mut data)?;
            Ok((data.chunks(BLOCK).map(found_in).collect(), shrunk(&file.client().fleet_map())))
        };
        let values = |(values, shrunk): &(Vec<_>, u64)| Outcome::Values(values.clone(), *shrunk);
        self.recorder.call(call, read, values).map(drop)
    }

    fn write(&mut self, file: &File, counter: &mut u64) -> Result<(), Error> {
        let (block, blocks) = self.place(MOST);
        *counter += 1;
        let stamp = Stamp(file.info().lease_epoch, *counter);
        let writer = self.writer.unwrap_or(u32::MAX);
        let bytes = |at| bytes_of(life(file), at, stamp, writer);
        let data: Vec<u8> = (block..block + blocks).flat_map(bytes).collect();
        let call = Call::Write { life: life(file), block, blocks, stamp };
        let write = || file.write_at(u64::from(block) * BLOCK as u64, &data);
        self.recorder.call(call, write, |()| Outcome::Done)
    }

    fn zero(&mut self, file: &File, zeroes: &mut Zeroes, counter: &mut u64) -> Result<(), Error> {
        let (block, blocks) = self.place(MOST);
        // A command is of one chunk.
        let blocks = blocks.min(CHUNK - block % CHUNK);
        *counter += 1;
        let stamp = Stamp(file.info().lease_epoch, *counter);
        let call = Call::Zero { life: life(file), block, blocks, stamp };
        let zero = || zeroes.zero(file, (block, blocks), stamp.1);
        let zeroed = self.recorder.call(call, zero, |()| Outcome::Done);
        if zeroed.is_err() {
            // The library has not seen the command: this says that its outcome is not known.
            let _ = file.device_file();
        }
        zeroed
    }

    fn rest(&mut self, least_ms: u64, most_ms: u64) {
        std::thread::sleep(Duration::from_millis(self.dice.within(least_ms, most_ms)));
    }
}

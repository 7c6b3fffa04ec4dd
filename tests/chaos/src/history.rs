// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What clients and the conductor write down: one JSON line before each call, and one after it. A line that
//! was written outlives a killed process.

use crate::block::{Found, Life, Stamp};
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Nanoseconds of `CLOCK_BOOTTIME`. Clients and the conductor are in one time namespace.
pub type Time = u64;

/// The time now.
///
/// # Panics
/// If the machine has no such clock.
pub fn now() -> Time {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("Linux has this clock");
    let (seconds, ns) = (now.tv_sec(), now.tv_nsec());
    u64::try_from(seconds).expect("after the boot") * 1_000_000_000 + u64::try_from(ns).expect("positive")
}

/// What a client calls.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Call {
    /// A volume of this name is made.
    Create {
        /// Name of the volume.
        name: String,
    },
    /// A volume is opened.
    Open {
        /// Name of the volume.
        name: String,
        /// With a write lease.
        writes: bool,
    },
    /// A volume is given back.
    Release {
        /// The volume.
        life: Life,
        /// The write lease; 0: none.
        lease: u32,
    },
    /// A volume is deleted.
    Delete {
        /// The volume that had the name.
        life: Life,
    },
    /// Blocks are written.
    Write {
        /// The volume.
        life: Life,
        /// First block.
        block: u32,
        /// Number of blocks.
        blocks: u32,
        /// Order of the write.
        stamp: Stamp,
    },
    /// Blocks are unmapped (Write Zeroes).
    Zero {
        /// The volume.
        life: Life,
        /// First block.
        block: u32,
        /// Number of blocks.
        blocks: u32,
        /// Order of the command among the writes.
        stamp: Stamp,
    },
    /// Blocks are read.
    Read {
        /// The volume.
        life: Life,
        /// First block.
        block: u32,
        /// Number of blocks.
        blocks: u32,
        /// The reader has the write lease.
        writer: bool,
        /// Epoch of the client's map before the call.
        epoch: u64,
    },
    /// Blocks of one copy are read while no volume has a writer.
    Copy {
        /// The volume.
        life: Life,
        /// First block.
        block: u32,
        /// Number of blocks.
        blocks: u32,
        /// The copy.
        replica: u32,
    },
}

/// Why a call failed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Failure {
    /// It reached its deadline: the outcome is not known.
    TimedOut,
    /// The write lease was lost.
    LeaseLost,
    /// An SSD refused by a rule.
    Refused,
    /// An I/O failed otherwise.
    Io,
    /// The daemon refused, or could not yet.
    Daemon,
    /// The daemon was not reached.
    Unreachable,
    /// Anything else.
    Other,
}

/// How a call ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Outcome {
    /// It succeeded.
    Done,
    /// A volume was opened: the volume, and the write lease or 0.
    Opened(Life, u32),
    /// Blocks that were read, and the last epoch that took a place from any SSD, by the client's map then.
    Values(Vec<Found>, u64),
    /// It failed, with its sentence.
    Failed(Failure, String),
}

/// A line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Event {
    /// A call begins.
    Begin {
        /// Client process, one name for each start.
        who: String,
        /// Number of the call in its process.
        id: u64,
        /// When.
        at: Time,
        /// The call.
        call: Call,
    },
    /// A call ends.
    End {
        /// Client process.
        who: String,
        /// Number of the call.
        id: u64,
        /// When.
        at: Time,
        /// Its outcome.
        outcome: Outcome,
    },
    /// A round begins.
    Round {
        /// Its number.
        round: u64,
        /// When.
        at: Time,
        /// Its only fault is of one SSD as a whole: no call may fail.
        alone: bool,
        /// Its faults, for people.
        faults: String,
    },
    /// The array is as it should be, or was not in time.
    Healed {
        /// When.
        at: Time,
        /// What was missing; `None`: nothing.
        lacks: Option<String>,
    },
}

impl Event {
    /// When it happened.
    pub fn at(&self) -> Time {
        match self {
            Self::Begin { at, .. }
            | Self::End { at, .. }
            | Self::Round { at, .. }
            | Self::Healed { at, .. } => *at,
        }
    }
}

/// A file of lines that grows.
#[derive(Debug)]
pub struct Writer(File);

impl Writer {
    /// Opens the file; new lines come behind its old ones.
    ///
    /// # Errors
    /// The operating system's.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        OpenOptions::new().create(true).append(true).open(path).map(Self)
    }

    /// Adds a line in one write, so a kill never leaves a part of it beside another line.
    ///
    /// # Panics
    /// If the disk is full: what follows would not be judged.
    pub fn add(&mut self, event: &Event) {
        let mut line = serde_json::to_vec(event).expect("an event has a form in JSON");
        line.push(b'\n');
        self.0.write_all(&line).expect("the history can be written: make room on the disk");
    }
}

/// Reads what a file has got since the last call.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    at: u64,
}

impl Reader {
    /// A reader from the beginning of the file on.
    pub fn new(path: PathBuf) -> Self {
        Self { path, at: 0 }
    }

    /// Whole lines since the last call. A part of a line at the end is left to the next one.
    ///
    /// # Errors
    /// The file cannot be read, or a line is none of this crate.
    pub fn read_new(&mut self) -> std::io::Result<Vec<Event>> {
        let Ok(mut file) = File::open(&self.path) else { return Ok(Vec::new()) };
        file.seek(SeekFrom::Start(self.at))?;
        let (mut file, mut events, mut line) = (BufReader::new(file), Vec::new(), String::new());
        while file.read_line(&mut line)? > 0 && line.ends_with('\n') {
            self.at += line.len() as u64;
            events.push(serde_json::from_str(&line)?);
            line.clear();
        }
        Ok(events)
    }
}

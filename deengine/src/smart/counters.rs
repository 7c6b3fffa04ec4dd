// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counters of each volume and each client: the rows of the vendor log pages C0h and C1h, in the form of
//! `proto/src/log_page.rs`.

use gnstor_base::controller::QueueKey;
use gnstor_proto::log_page::{CountersHeader, CountersRow, FORMAT};
use gnstor_proto::slba::ClientId;
use std::collections::HashMap;
use std::ops::{Add, Sub};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zerocopy::IntoBytes;

/// Counters of one volume or client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Read and Compare commands completed with success.
    pub reads: u64,
    /// Write, Write Zeroes commands and Dataset Management ranges completed with success.
    pub writes: u64,
    /// Blocks in successful reads and compares.
    pub blocks_read: u64,
    /// Blocks in successful writes.
    pub blocks_written: u64,
    /// Commands refused.
    pub refusals: u64,
    /// Commands that waited for the volume's rate limit.
    pub throttled: u64,
}

impl Counters {
    /// Adds the counts of workers.
    pub(crate) fn add(&mut self, done: Done) {
        self.reads += done.reads.commands;
        self.blocks_read += done.reads.blocks;
        self.writes += done.writes.commands;
        self.blocks_written += done.writes.blocks;
    }

    fn row(&self, id: u16, generation: u32) -> CountersRow {
        CountersRow {
            id: id.into(),
            generation: generation.into(),
            reads: self.reads.into(),
            writes: self.writes.into(),
            blocks_read: self.blocks_read.into(),
            blocks_written: self.blocks_written.into(),
            refusals: self.refusals.into(),
            throttled: self.throttled.into(),
            ..CountersRow::default()
        }
    }
}

/// A page of rows: id, generation and counters of each.
pub(crate) fn page(magic: [u8; 4], rows: impl Iterator<Item = (u16, u32, Counters)>) -> Vec<u8> {
    let rows: Vec<CountersRow> =
        rows.map(|(id, generation, counters)| counters.row(id, generation)).collect();
    let header = CountersHeader {
        magic,
        format: FORMAT.into(),
        row_bytes: 64.into(),
        rows: u32::try_from(rows.len()).expect("ids have 16 bits").into(),
        reserved_12: [0; 52],
    };
    [header.as_bytes(), rows.as_bytes()].concat()
}

/// Reads and writes that have succeeded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Done {
    pub(crate) reads: IoCount,
    pub(crate) writes: IoCount,
}

impl Add for Done {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { reads: self.reads + other.reads, writes: self.writes + other.writes }
    }
}

impl Sub for Done {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { reads: self.reads - other.reads, writes: self.writes - other.writes }
    }
}

/// Commands of one kind that have succeeded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct IoCount {
    pub(crate) commands: u64,
    /// Blocks in them.
    pub(crate) blocks: u64,
}

impl Add for IoCount {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { commands: self.commands + other.commands, blocks: self.blocks + other.blocks }
    }
}

impl Sub for IoCount {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { commands: self.commands - other.commands, blocks: self.blocks - other.blocks }
    }
}

/// A counter of one worker, which others read.
#[derive(Debug, Default)]
pub(crate) struct IoCounter {
    commands: AtomicU64,
    blocks: AtomicU64,
}

impl IoCounter {
    /// Counts one command. Only its worker calls this.
    #[inline]
    pub(crate) fn count(&self, blocks: u32) {
        let done = self.get();
        self.commands.store(done.commands + 1, Ordering::Relaxed);
        self.blocks.store(done.blocks + u64::from(blocks), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn get(&self) -> IoCount {
        IoCount {
            commands: self.commands.load(Ordering::Relaxed),
            blocks: self.blocks.load(Ordering::Relaxed),
        }
    }
}

/// Counters of reads and writes.
#[derive(Debug, Default)]
pub(crate) struct DoneCounter {
    pub(crate) reads: IoCounter,
    pub(crate) writes: IoCounter,
}

impl DoneCounter {
    pub(crate) fn get(&self) -> Done {
        Done { reads: self.reads.get(), writes: self.writes.get() }
    }
}

/// A worker's counters for one queue, on a cache line of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct QueueCounters(pub(crate) DoneCounter);

const NO_ROW: u16 = u16::MAX;

/// The counters of every client that has ever used this SSD.
#[derive(Debug)]
pub(crate) struct Clients {
    row_of: Vec<u16>,
    rows: Vec<Counters>,
    /// The workers' counters, by queue.
    watched: HashMap<QueueKey, (ClientId, Arc<QueueCounters>)>,
}

impl Default for Clients {
    fn default() -> Self {
        Self { row_of: vec![NO_ROW; 1 << 16], rows: Vec::new(), watched: HashMap::new() }
    }
}

impl Clients {
    #[inline]
    pub(crate) fn of(&mut self, client: ClientId) -> &mut Counters {
        let row = &mut self.row_of[usize::from(client.get())];
        if *row == NO_ROW {
            // There are fewer clients than NO_ROW.
            *row = u16::try_from(self.rows.len()).unwrap_or(NO_ROW - 1);
            self.rows.push(Counters::default());
        }
        &mut self.rows[usize::from(*row)]
    }

    pub(crate) fn watch(&mut self, queue: QueueKey, client: ClientId, done: Arc<QueueCounters>) {
        self.of(client);
        self.watched.insert(queue, (client, done));
    }

    pub(crate) fn unwatch(&mut self, queue: QueueKey) {
        if let Some((client, done)) = self.watched.remove(&queue) {
            self.of(client).add(done.0.get());
        }
    }

    /// Id and counters of each client, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, Counters)> {
        let mut rows = self.rows.clone();
        for (client, done) in self.watched.values() {
            rows[usize::from(self.row_of[usize::from(client.get())])].add(done.0.get());
        }
        (0u16..=u16::MAX)
            .zip(&self.row_of)
            .filter_map(move |(id, &row)| Some((id, *rows.get(usize::from(row))?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_client_has_a_row_of_its_own() {
        let _deadline = crate::deadline::deadline();
        let mut clients = Clients::default();
        for raw in (1..=0xFFFE).rev() {
            clients.of(ClientId::new(raw).expect("valid")).reads += u64::from(raw);
        }
        assert!(
            clients
                .iter()
                .eq((1..=0xFFFE).map(|raw| (raw, Counters { reads: raw.into(), ..Counters::default() })))
        );
    }

    #[test]
    fn a_page_has_its_fields_where_the_format_says() {
        let _deadline = crate::deadline::deadline();
        let counters =
            Counters { reads: 1, writes: 2, blocks_read: 3, blocks_written: 4, refusals: 5, throttled: 6 };
        let page = page(*b"GNLV", [(7, 9, counters)].into_iter());
        assert_eq!(page.len(), 128);
        assert_eq!(page[..12], [b'G', b'N', b'L', b'V', 1, 0, 64, 0, 1, 0, 0, 0]);
        assert_eq!(page[64..72], [7, 0, 0, 0, 9, 0, 0, 0]);
        let values: Vec<u8> = page[72..].iter().step_by(8).copied().collect();
        assert_eq!(values, [1, 2, 3, 4, 5, 6, 0]);
    }
}

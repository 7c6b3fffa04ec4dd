// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each SSD says that it served: its own log pages, read over an admin queue to each, as a daemon reads
//! them.

use gnstor_array::ArrayError;
use gnstor_console::CliError;
use gnstor_fabric::admin::{AdminChannel, ChannelError, Payload};
use gnstor_fabric::host_queue::{HostQueue, SsdPath};
use gnstor_fabric::runtime::TransportHandle;
use gnstor_fabric::transport::{ExecutorId, Port};
use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::fabrics::{Identity, ssd_subnqn};
use gnstor_proto::log_page::{self, CountersHeader, CountersRow, FlashPage};
use gnstor_proto::status::{Detail, Status};
use libgnstor::Node;
use serde::{Deserialize, Serialize};
use std::sync::Mutex;
use std::time::Duration;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Longest time for a log page of an SSD.
const DEADLINE: Duration = Duration::from_secs(5);
/// The commands that one SSD served in a period, or in all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Served {
    /// Number of the SSD.
    pub ssd: u16,
    /// Read commands that ended well.
    pub reads: u64,
    /// Write commands that succeeded, one for each replica.
    pub writes: u64,
    /// Bytes in these reads.
    pub read_bytes: u64,
    /// Bytes in these writes.
    pub written_bytes: u64,
    /// Commands refused.
    pub refusals: u64,
    /// Pages that collection moved to free a superblock.
    pub moved_pages: u64,
}

impl Served {
    /// Reads and writes.
    pub fn commands(&self) -> u64 {
        self.reads + self.writes
    }

    pub(super) fn since(&self, before: &Self) -> Self {
        Self {
            ssd: self.ssd,
            reads: self.reads - before.reads,
            writes: self.writes - before.writes,
            read_bytes: self.read_bytes - before.read_bytes,
            written_bytes: self.written_bytes - before.written_bytes,
            refusals: self.refusals - before.refusals,
            moved_pages: self.moved_pages - before.moved_pages,
        }
    }
}

/// The smallest and the largest share of the commands that any SSD had; `None` if there were no commands.
#[expect(clippy::cast_precision_loss, reason = "shares")]
pub(super) fn shares(served: &[Served]) -> Option<(f64, f64)> {
    let all: u64 = served.iter().map(Served::commands).sum();
    let share = |ssd: &Served| ssd.commands() as f64 / all as f64;
    let (least, most) =
        (served.iter().min_by_key(|s| s.commands())?, served.iter().max_by_key(|s| s.commands())?);
    (all != 0).then(|| (share(least), share(most)))
}

/// An admin queue to each SSD.
#[derive(Debug)]
pub(super) struct Logs {
    queues: Mutex<Vec<HostQueue>>,
    transport: TransportHandle,
    executor: ExecutorId,
    /// Rows that a page of volumes has at most.
    volumes: usize,
}

impl Logs {
    /// Connects to SSDs 0 to `ssds`, of an array with so many volumes at most.
    ///
    /// # Errors
    /// An SSD that does not let a daemon in.
    pub(super) fn open(node: &Node, ssds: u16, volumes: usize) -> Result<Self, CliError> {
        let (transport, executor) = (node.transport().clone(), node.soft_executor());
        let queues = (0..ssds).map(|ssd| connect(&transport, executor, ssd));
        let queues = queues.collect::<Result<_, _>>().map_err(ArrayError::from)?;
        Ok(Self { queues: Mutex::new(queues), transport, executor, volumes })
    }

    /// The counters of each SSD so far; `None` for one that does not answer, because a load goes on without
    /// it.
    pub(super) fn read(&self) -> Vec<Option<Served>> {
        let mut queues = self.queues.lock().expect("no panic while held");
        let one = |(ssd, queue): (u16, &mut HostQueue)| {
            self.of(ssd, queue)
                .or_else(|_| {
                    // Nothing was asked for longer than an SSD keeps a silent host.
                    *queue = connect(&self.transport, self.executor, ssd)?;
                    self.of(ssd, queue)
                })
                .inspect_err(|error| tracing::warn!("SSD {ssd} does not tell what it served: {error}"))
                .ok()
        };
        (0..).zip(queues.iter_mut()).map(one).collect()
    }

    fn of(&self, ssd: u16, queue: &mut HostQueue) -> Result<Served, ChannelError> {
        let mut page = vec![0; size_of::<CountersHeader>() + self.volumes * size_of::<CountersRow>()];
        get_log(ssd, queue, log_page::VOLUME_COUNTERS, &mut page)?;
        let mut flash = FlashPage::new_zeroed();
        get_log(ssd, queue, log_page::FLASH, flash.as_mut_bytes())?;
        let moved_pages = flash.moved_pages.get();
        Ok(Served { ssd, moved_pages, ..counted(&page) })
    }
}

fn connect(transport: &TransportHandle, executor: ExecutorId, ssd: u16) -> Result<HostQueue, ChannelError> {
    let (port, name) = (Port::Local(ssd), ssd_subnqn(ssd));
    let path = SsdPath { transport, executor, port, subnqn: &name };
    HostQueue::connect(&path, Identity::Daemon, Duration::ZERO, DEADLINE)
}

/// The sum of a page's rows. The reader asked for as many as it has room for; the page may have more.
fn counted(page: &[u8]) -> Served {
    let mut served = Served::default();
    let Ok((header, rows)) = CountersHeader::ref_from_prefix(page) else { return served };
    let wanted = usize::try_from(header.rows.get()).unwrap_or(usize::MAX);
    for row in rows.chunks_exact(size_of::<CountersRow>()).take(wanted) {
        let row = CountersRow::ref_from_bytes(row).expect("a chunk has a row's length");
        served.reads += row.reads.get();
        served.writes += row.writes.get();
        served.read_bytes += row.blocks_read.get() * u64::from(BLOCK_BYTES);
        served.written_bytes += row.blocks_written.get() * u64::from(BLOCK_BYTES);
        served.refusals += row.refusals.get();
    }
    served
}

fn get_log(ssd: u16, queue: &mut HostQueue, page: u8, data: &mut [u8]) -> Result<(), ChannelError> {
    let sqe = log_page::get_log(page, u32::try_from(data.len()).expect("a few KiB"));
    let cqe = queue.execute(sqe, Payload::In(data), DEADLINE)?;
    let status = Status(cqe.status_word());
    if status.is_success() {
        return Ok(());
    }
    let why = Detail::from_dw0(cqe.dw0.get()).refusal().map_or("", |refusal| refusal.sentence());
    Err(ChannelError::Refused {
        peer: ssd_subnqn(ssd),
        cause: format!("log page {page:02X}h: status {status} {why}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    #[test]
    fn only_the_rows_that_the_header_counts_are_summed() {
        let _deadline = deadline();
        let row = |reads: u64| CountersRow {
            reads: reads.into(),
            writes: 2.into(),
            blocks_read: (3 * reads).into(),
            blocks_written: 4.into(),
            refusals: 5.into(),
            ..CountersRow::default()
        };
        let header = CountersHeader {
            magic: log_page::VOLUME_MAGIC,
            format: log_page::FORMAT.into(),
            row_bytes: 64.into(),
            rows: 2.into(),
            reserved_12: [0; 52],
        };
        let rows = [row(1), row(10), row(100)];
        let page = [header.as_bytes(), rows.as_bytes()].concat();
        let served = counted(&page);
        assert_eq!((served.reads, served.writes, served.refusals), (11, 4, 10));
        assert_eq!((served.read_bytes, served.written_bytes), (33 * 4096, 8 * 4096));
        // More rows than the reader had room for.
        assert_eq!(counted(&page[..2 * 64]).reads, 1);
        assert_eq!(counted(&[]), Served::default());
    }

    #[test]
    fn shares_are_of_all_commands() {
        let _deadline = deadline();
        let ssd = |reads, writes| Served { reads, writes, ..Served::default() };
        assert_eq!(shares(&[ssd(1, 2), ssd(4, 1), ssd(2, 0)]), Some((0.2, 0.5)));
        assert_eq!(shares(&[ssd(0, 0), ssd(0, 0)]), None);
        assert_eq!(shares(&[]), None);
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each SSD says that it served: its own log pages, read over an admin queue to each, as a daemon reads them.

use gnstor_array::ArrayError;
use gnstor_console::CliError;
use gnstor_fabric::admin::{AdminChannel, ChannelError, Payload};
use gnstor_fabric::host_queue::{HostQueue, SsdPath};
use gnstor_fabric::transport::Port;
use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::fabrics::{Identity, ssd_subnqn};
use gnstor_proto::nvme::{Sqe, admin};
use gnstor_proto::status::{Detail, Status};
use libgnstor::Node;
use serde::{Deserialize, Serialize};
use std::sync::Mutex;
use std::time::Duration;

/// Longest that an SSD may take for a log page.
const DEADLINE: Duration = Duration::from_secs(5);
/// Log page of the volumes' counters (`docs/formats.md`): a header and a row for each, of as many bytes.
const VOLUMES: u8 = 0xC0;
const ROW: usize = 64;
/// Log page of the flash.
const FLASH: u8 = 0xC2;
const FLASH_BYTES: usize = 128;

/// What one SSD served, or all that it has served so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Served {
    /// Number of the SSD.
    pub ssd: u16,
    /// Read commands that ended well.
    pub reads: u64,
    /// Write commands that ended well; one for each replica.
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

/// The smallest and the largest share of the commands that an SSD had; `None` where there were none.
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
    /// Rows that a page of volumes has at most.
    volumes: usize,
}

impl Logs {
    /// Connects to SSDs 0 to `ssds`, of an array with so many volumes at most.
    ///
    /// # Errors
    /// An SSD that does not let a daemon in.
    pub(super) fn open(node: &Node, ssds: u16, volumes: usize) -> Result<Self, CliError> {
        let connect = |ssd| {
            let (port, name) = (Port::Local(ssd), ssd_subnqn(ssd));
            HostQueue::connect(
                &SsdPath { transport: node.transport(), executor: node.soft_executor(), port, subnqn: &name },
                Identity::Daemon,
                Duration::ZERO,
                DEADLINE,
            )
        };
        let queues = (0..ssds).map(connect).collect::<Result<_, _>>().map_err(ArrayError::from)?;
        Ok(Self { queues: Mutex::new(queues), volumes })
    }

    /// What each SSD has served so far; `None` for one that does not answer: a load goes on without it.
    pub(super) fn read(&self) -> Vec<Option<Served>> {
        let mut queues = self.queues.lock().expect("no panic while held");
        let one = |(ssd, queue)| {
            self.of(ssd, queue)
                .inspect_err(|error| tracing::warn!("SSD {ssd} does not tell what it served: {error}"))
                .ok()
        };
        (0..).zip(queues.iter_mut()).map(one).collect()
    }

    fn of(&self, ssd: u16, queue: &mut HostQueue) -> Result<Served, ChannelError> {
        let mut page = vec![0; ROW * (1 + self.volumes)];
        get_log(ssd, queue, VOLUMES, &mut page)?;
        let rows = u32::from_le_bytes(*page[8..].first_chunk().expect("a header")) as usize;
        let mut served = Served { ssd, ..Served::default() };
        for row in page[ROW..].chunks_exact(ROW).take(rows) {
            served.reads += number(row, 8);
            served.writes += number(row, 16);
            served.read_bytes += number(row, 24) * u64::from(BLOCK_BYTES);
            served.written_bytes += number(row, 32) * u64::from(BLOCK_BYTES);
            served.refusals += number(row, 40);
        }
        let mut page = [0; FLASH_BYTES];
        get_log(ssd, queue, FLASH, &mut page)?;
        served.moved_pages = number(&page, 8 + 5 * 8);
        Ok(served)
    }
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("offsets lie within a page"))
}

fn get_log(ssd: u16, queue: &mut HostQueue, page: u8, data: &mut [u8]) -> Result<(), ChannelError> {
    let dwords_z = u32::try_from(data.len() / 4 - 1).expect("a few KiB");
    let cdw10 = ((dwords_z & 0xFFFF) << 16 | u32::from(page)).into();
    let sqe = Sqe { opcode: admin::GET_LOG_PAGE, cdw10, cdw11: (dwords_z >> 16).into(), ..Sqe::default() };
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

    #[test]
    fn shares_are_of_all_commands() {
        let ssd = |reads, writes| Served { reads, writes, ..Served::default() };
        assert_eq!(shares(&[ssd(1, 2), ssd(4, 1), ssd(2, 0)]), Some((0.2, 0.5)));
        assert_eq!(shares(&[ssd(0, 0), ssd(0, 0)]), None);
        assert_eq!(shares(&[]), None);
    }
}

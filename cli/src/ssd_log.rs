// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor ssd log`: what an SSD of a running array keeps of errors, volumes, clients and flash (log pages
//! 01h and C0h to C2h).

use crate::args::SsdPageArgs;
use crate::ssd_pages::Pages;
use gnstor_console::{CliError, outln, print_json};
use gnstor_proto::log_page::{self, CountersHeader, CountersRow, ERROR_ENTRIES, ErrorEntry, FlashPage};
use gnstor_proto::status::{Detail, Status};
use serde::Serialize;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Largest number of counter rows to read: the page has one for each volume, or for each client.
const ROWS: usize = 4096;

/// The pages.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Log {
    ssd: u32,
    errors: Vec<ErrorLine>,
    volumes: Vec<Counters>,
    clients: Vec<Counters>,
    flash: Flash,
}

/// One error, the newest first.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct ErrorLine {
    number: u64,
    vid: u64,
    status: u16,
    what: String,
}

/// Activity of one volume or client.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Counters {
    /// VID, or client id.
    id: u16,
    reads: u64,
    writes: u64,
    blocks_read: u64,
    blocks_written: u64,
    refusals: u64,
    throttled: u64,
}

/// Wear, and what collection costs.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Flash {
    least_erases: u64,
    most_erases: u64,
    host_pages: u64,
    flash_pages: u64,
    moved_pages: u64,
    bad_blocks: u64,
    lost_pages: u64,
    free_superblocks: u64,
    spare_percent: u64,
}

/// Shows the pages.
///
/// # Errors
/// [`CliError`]: no such SSD, or it cannot be reached.
pub fn run(args: &SsdPageArgs) -> Result<(), CliError> {
    let mut pages = Pages::of_daemon(args)?;
    let mut errors = [ErrorEntry::new_zeroed(); ERROR_ENTRIES];
    pages.read(log_page::ERRORS, errors.as_mut_bytes())?;
    let mut counters = |page| {
        let mut bytes = vec![0; size_of::<CountersHeader>() + ROWS * size_of::<CountersRow>()];
        pages.read(page, &mut bytes).map(|()| rows(&bytes))
    };
    let (volumes, clients) = (counters(log_page::VOLUME_COUNTERS)?, counters(log_page::CLIENT_COUNTERS)?);
    let mut flash = FlashPage::new_zeroed();
    pages.read(log_page::FLASH, flash.as_mut_bytes())?;
    let errors = errors.iter().filter(|entry| entry.number.get() != 0).map(ErrorLine::of).collect();
    let log = Log { ssd: args.index.into(), errors, volumes, clients, flash: Flash::of(&flash) };
    if args.array.json {
        print_json(&log)
    } else {
        log.print()
    }
    Ok(())
}

/// The rows of a page of counters.
fn rows(page: &[u8]) -> Vec<Counters> {
    let Ok((header, rows)) = CountersHeader::ref_from_prefix(page) else { return Vec::new() };
    let count = usize::try_from(header.rows.get()).unwrap_or(usize::MAX);
    let row = |bytes: &[u8]| Some(Counters::of(CountersRow::ref_from_bytes(bytes).ok()?));
    rows.chunks_exact(size_of::<CountersRow>()).take(count).filter_map(row).collect()
}

impl ErrorLine {
    fn of(entry: &ErrorEntry) -> Self {
        let status = Status(entry.status.get() >> 1);
        let refusal = Detail::from_dw0(entry.dw0.get()).refusal();
        let what = refusal.map_or_else(|| status.to_string(), |refusal| refusal.sentence().into());
        Self { number: entry.number.get(), vid: entry.lba.get() >> 48, status: status.0, what }
    }
}

impl Counters {
    fn of(row: &CountersRow) -> Self {
        Self {
            id: row.id.get(),
            reads: row.reads.get(),
            writes: row.writes.get(),
            blocks_read: row.blocks_read.get(),
            blocks_written: row.blocks_written.get(),
            refusals: row.refusals.get(),
            throttled: row.throttled.get(),
        }
    }
}

impl Flash {
    fn of(page: &FlashPage) -> Self {
        Self {
            least_erases: page.least_erases.get(),
            most_erases: page.most_erases.get(),
            host_pages: page.host_pages.get(),
            flash_pages: page.flash_pages.get(),
            moved_pages: page.moved_pages.get(),
            bad_blocks: page.bad_blocks.get(),
            lost_pages: page.lost_pages.get(),
            free_superblocks: page.free_superblocks.get(),
            spare_percent: page.spare_percent.get(),
        }
    }
}

impl Log {
    fn print(&self) {
        outln!("SSD               {}", self.ssd);
        let Flash { least_erases, most_erases, spare_percent, free_superblocks, .. } = self.flash;
        outln!("erases            {least_erases} to {most_erases} of a superblock");
        outln!("spare             {spare_percent} %, {free_superblocks} superblocks are free");
        let Flash { host_pages, flash_pages, moved_pages, bad_blocks, lost_pages, .. } = self.flash;
        outln!(
            "pages             {host_pages} written by hosts, {flash_pages} programmed, {moved_pages} moved"
        );
        outln!("defects           {bad_blocks} bad blocks, {lost_pages} pages lost");
        for (what, rows) in [("VID", &self.volumes), ("CLIENT", &self.clients)] {
            outln!();
            outln!(
                "{what:>6} {:>12} {:>12} {:>14} {:>14} {:>9} {:>9}",
                "READS",
                "WRITES",
                "BLOCKS READ",
                "BLOCKS WRITTEN",
                "REFUSALS",
                "THROTTLED"
            );
            for row in rows {
                outln!(
                    "{:>6} {:>12} {:>12} {:>14} {:>14} {:>9} {:>9}",
                    row.id,
                    row.reads,
                    row.writes,
                    row.blocks_read,
                    row.blocks_written,
                    row.refusals,
                    row.throttled
                );
            }
        }
        outln!();
        outln!("errors            {}", if self.errors.is_empty() { "none" } else { "the newest first" });
        for ErrorLine { number, vid, status, what } in &self.errors {
            outln!("{number:>6}  VID {vid}, status {status:04x}h: {what}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    #[test]
    fn an_error_names_volume_status_and_reason() {
        let _deadline = deadline();
        let mut entry = ErrorEntry::new_zeroed();
        (entry.number, entry.lba, entry.status) = (7.into(), (5 << 48).into(), (0x4286 << 1).into());
        let line = ErrorLine::of(&entry);
        assert_eq!((line.number, line.vid, line.status), (7, 5, 0x4286));
        assert!(!line.what.is_empty());
    }

    #[test]
    fn only_counted_rows_are_listed() {
        let _deadline = deadline();
        let header = CountersHeader {
            magic: log_page::CLIENT_MAGIC,
            format: log_page::FORMAT.into(),
            row_bytes: 64.into(),
            rows: 1.into(),
            reserved_12: [0; 52],
        };
        let row = |id: u16| CountersRow { id: id.into(), reads: 3.into(), ..CountersRow::default() };
        let page = [header.as_bytes(), [row(9), row(10)].as_bytes()].concat();
        let rows = rows(&page);
        assert_eq!((rows.len(), rows[0].id, rows[0].reads), (1, 9, 3));
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rows that compare the project with its goals. One row is the bare copy of the same machine. Loads that
//! the emulator limits are compared with that copy. Loads that the modelled array limits are compared with
//! the array's ideal. The last rows are the baselines.

use super::gap::{self, Gap};
use super::store::{Kept, Store};
use super::{Head, Row, What, copy_baseline, head_text};
use crate::args::BenchArgs;
use crate::latency::{TAILS_HEAD, Tails};
use crate::report::{Report, word};
use crate::words::{LinkArg, Mode, Rw, Switch};
use crate::{Better, Spread};
use gnstor_array::media::DEFAULT_PRESET;
use gnstor_console::CliError;
use gnstor_console::out;
use gnstor_console::print_json;
use serde::Serialize;
use std::fmt::Write;

const K4: u64 = 4 << 10;
const K64: u64 = 64 << 10;
const COPY: &str = "copy";
/// State of SSDs that have not collected.
const FRESH: &str = "fresh";
/// Smallest SSD of these rows.
const LEAST_SSD: u64 = 256 << 20;
/// Largest number of bytes that one SSD accepts in a second.
const WRITTEN_PER_S: f64 = 6.0e9;
/// Least time of a write: requests in flight divided by it bound the rate of a load with few of them.
const LEAST_WRITE_S: f64 = 25e-6;
/// Share of the blocks that an SSD may have, as a multiple of the mean share.
const UNEVEN: f64 = 1.125;
/// SSDs of the rows that add them.
const SCALE: [u16; 5] = [1, 2, 4, 8, 16];
const MODES: [Mode; 4] = [Mode::Gnstor, Mode::GdDeengine, Mode::Gd, Mode::Basic];

/// All rows. The first word of a name is the group.
pub(super) fn rows(args: &BenchArgs) -> Vec<Row> {
    let mut rows = vec![Row { name: COPY.into(), what: What::Copy }];
    let base = |rw, bs, clients: u32| BenchArgs {
        rw,
        bs,
        clients: args.max_clients.map_or(clients, |most| clients.min(most)),
        replicas: Some(2),
        preset: DEFAULT_PRESET.into(),
        // As long as in the suite, but with a load of its own.
        runtime: Some(args.runtime()),
        ..args.clone()
    };
    let mut add = |group: &str, load: BenchArgs| {
        let load = roomy(load);
        rows.push(Row::load(name(group, &load), load));
    };
    let null = |load: BenchArgs| BenchArgs { preset: "null".into(), ..load };
    // To reach the largest rate, so much is in flight that no SSD is idle. If requests are spread at random,
    // some SSDs have few at times.
    let deep = |load: BenchArgs, iodepth| BenchArgs { iodepth, ..load };
    for (rw, bs) in [(Rw::Randread, K4), (Rw::Randread, K64), (Rw::Randwrite, K4)] {
        add("null", deep(null(base(rw, bs, 32)), 64));
    }
    add("null", null(base(Rw::Randread, K4, 1)));
    add("array", deep(base(Rw::Randread, K4, 32), 128));
    add("array", deep(base(Rw::Randwrite, K4, 32), 64));
    add("array", deep(base(Rw::Randwrite, K64, 32), 64));
    add("array", deep(base(Rw::Randread, K64, 2), 64));
    for ssds in SCALE {
        // One replica everywhere, so that only the number of SSDs differs.
        let deep = BenchArgs {
            iodepth: 128,
            replicas: Some(1),
            link: Some(LinkArg::None),
            ..base(Rw::Randread, K4, 32)
        };
        // As much memory in all of them, whatever their number, because pinning takes time.
        let all = (2 * deep.size * u64::from(deep.clients)).max(LEAST_SSD);
        let each = (all / u64::from(ssds)).max(LEAST_SSD).next_multiple_of(1 << 20);
        add("scale", BenchArgs { ssds, ssd_size: Some(each), ..deep });
    }
    for mode in [Mode::Gd, Mode::Basic] {
        for (rw, bs) in [(Rw::Randread, K4), (Rw::Randwrite, K4), (Rw::Randread, K64), (Rw::Randwrite, K64)] {
            add("bare", null(BenchArgs { mode, central_engine: Some(Switch::Off), ..base(rw, bs, 4) }));
        }
    }
    for rw in [Rw::Randread, Rw::Randwrite] {
        for mode in MODES {
            add("one", BenchArgs { mode, ..base(rw, K4, 1) });
        }
    }
    rows
}

/// The same load. If it writes, its SSDs have room for all that it can write: a row measures the way to the
/// SSDs, and not their collection.
fn roomy(load: BenchArgs) -> BenchArgs {
    if matches!(load.rw, Rw::Read | Rw::Randread) {
        return load;
    }
    let (ssds, replicas) = (f64::from(load.ssds.max(1)), f64::from(load.replicas.unwrap_or(2)));
    #[expect(clippy::cast_precision_loss, reason = "some gigabytes")]
    let (volumes, in_flight) = (
        load.size as f64 * f64::from(load.clients) * replicas / ssds,
        load.bs as f64 * f64::from(load.clients * load.iodepth) * replicas / ssds,
    );
    let rate = (in_flight / LEAST_WRITE_S).min(WRITTEN_PER_S);
    let seconds = (load.runtime() + load.warmup).as_secs_f64();
    // Placement is random, so an SSD may have more than its share. The I/Os in flight end after the measured
    // part.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some gigabytes")]
    let bytes = (UNEVEN * (volumes + in_flight) + rate * seconds) as u64;
    BenchArgs { ssd_size: Some(bytes.max(LEAST_SSD).next_multiple_of(1 << 20)), ..load }
}

/// Group, mode, order, size, clients, requests of each in flight, SSDs.
fn name(group: &str, load: &BenchArgs) -> String {
    let (mode, rw, bs) = (word(load.mode), word(load.rw), load.bs >> 10);
    format!("{group} {mode} {rw} {bs}k c{} q{} s{}", load.clients, load.iodepth, load.ssds)
}

/// A row of the report.
#[derive(Debug, Serialize)]
struct RowSummary<'a> {
    name: &'a str,
    iops: Option<Spread>,
    gbps: Option<Spread>,
    mean_us: Option<Spread>,
    #[serde(flatten)]
    tails: Tails,
    /// Responses that the emulator delivered late, and commands whose client waited too long.
    late_share: Option<Spread>,
    client_late_share: Option<Spread>,
    /// `fresh`, or `collecting` if an SSD of any run has collected.
    state: Option<&'a str>,
    /// The value with which `ratio` compares the row.
    against: Option<&'static str>,
    /// The figure by that; none for a row that had too few cores.
    ratio: Option<Spread>,
    /// More busy threads than cores: the row has no ratio.
    core_bound: bool,
    /// Why runs failed.
    failed: &'a [String],
    /// Everything.
    kept: &'a Kept,
}

#[derive(Debug, Serialize)]
struct Targets<'a> {
    #[serde(flatten)]
    head: &'a Head<'a>,
    rows: Vec<RowSummary<'a>>,
    /// Differences of `gd` and `gnstor` with one client.
    gaps: Vec<Gap>,
}

/// Writes object and transcript into the folder, and prints one of them.
pub(super) fn report(
    head: &Head<'_>,
    kept: &[Kept],
    args: &BenchArgs,
    store: &Store,
) -> Result<(), CliError> {
    let rows = kept.iter().map(|row| summary(row, kept)).collect();
    let all = Targets { head, rows, gaps: gap::gaps(kept) };
    let text = text(&all, kept);
    store.save("targets.json", &all)?;
    store.write("targets.txt", &text)?;
    if args.json {
        print_json(&all)
    } else {
        out!("{text}")
    }
    Ok(())
}

fn spread<'a>(
    reports: impl Iterator<Item = &'a Report>,
    better: Better,
    figure: impl Fn(&Report) -> Option<f64>,
) -> Option<Spread> {
    Spread::of(reports.filter_map(figure), better)
}

fn summary<'a>(row: &'a Kept, all: &[Kept]) -> RowSummary<'a> {
    let of = |better, figure: fn(&Report) -> Option<f64>| spread(row.reports(), better, figure);
    let core_bound = row.reports().any(|report| report.busy.core_bound);
    let (against, ratio) = held_against(row, all);
    RowSummary {
        name: &row.name,
        iops: of(Better::High, |r| Some(r.iops)),
        gbps: of(Better::High, |r| Some(r.gbps)),
        mean_us: of(Better::Low, |r| r.timed().map(|timed| timed.latency_us.mean)),
        tails: Tails::of(row.reports().filter_map(Report::timed)),
        late_share: of(Better::Low, |r| r.late.share),
        client_late_share: of(Better::Low, |r| r.late.client_share),
        state: state(row),
        against,
        ratio: ratio.filter(|_| !core_bound),
        core_bound,
        failed: &row.failed,
        kept: row,
    }
}

/// State of the SSDs: `collecting` if one of any run has collected.
fn state(row: &Kept) -> Option<&str> {
    let mut states = row.reports().map(|report| report.array.state.as_str());
    let first = states.next()?;
    Some(states.find(|state| *state != FRESH).unwrap_or(first))
}

/// Explanations of the table's columns and marks.
const NOTES: [&str; 3] = [
    "p50 to max  latency of an I/O; of several runs the median, and of two the worse, as in all columns",
    "late        responses that the emulator delivered late; client: commands whose client waited too long",
    "core-bound  more busy threads than cores: such a row says how threads share cores, and has no ratio",
];

/// The value with which a row is compared, and its ratio.
fn held_against(row: &Kept, all: &[Kept]) -> (Option<&'static str>, Option<Spread>) {
    let none = (None, None);
    let Some(report) = row.reports().next() else { return none };
    let by = |bound: f64| spread(row.reports(), Better::High, |report| Some(report.iops / bound));
    let writes = report.write.is_some();
    // Bytes of a request on the bus.
    let copies = if writes { f64::from(report.load.replicas) } else { 1.0 };
    let bare = copy_baseline(all, !writes, report.load.bs).map(|pieces| pieces / copies);
    match row.name.split_whitespace().next() {
        Some("null") if report.load.clients > 1 => (Some("the bare copy"), bare.and_then(by)),
        Some("bare") => (Some("the bare copy"), bare.and_then(by)),
        Some("array" | "one") => (
            Some("the modelled ideal"),
            spread(row.reports(), Better::High, |r| r.ideal.as_ref().map(|ideal| ideal.ratio)),
        ),
        Some("scale") => {
            let is_single = |row: &&Kept| row.name.starts_with("scale ") && row.name.ends_with(" s1");
            let of = |row: &Kept| spread(row.reports(), Better::Low, |r| Some(r.iops));
            // It is the others' goal, so of two runs the faster one counts.
            let single = all.iter().find(is_single).and_then(of);
            #[expect(clippy::cast_precision_loss, reason = "a few SSDs")]
            let linear = single.map(|single| single.median * report.array.ssds as f64);
            let bound = linear.map(|linear| bare.map_or(linear, |bare| linear.min(bare)));
            (Some("one SSD's times their number, up to the bare copy"), bound.and_then(by))
        }
        _ => none,
    }
}

fn text(all: &Targets<'_>, kept: &[Kept]) -> String {
    let mut text = head_text(all.head, kept);
    let _ = writeln!(text);
    for row in kept.iter().filter(|row| row.name == COPY) {
        copies(&mut text, row);
    }
    let _ = writeln!(
        text,
        "  {:<38} {:>4}  {:<28} {:>7} {TAILS_HEAD} {:>7} {:>7}  {:<10}  held against",
        "row", "runs", "thousand I/Os a second", "GB/s", "late", "client", "SSDs"
    );
    for summary in all.rows.iter().filter(|summary| summary.name != COPY) {
        let _ = writeln!(text, "  {}", summary.line());
    }
    for summary in &all.rows {
        for why in summary.failed {
            let _ = writeln!(text, "  failed      {}: {why}", summary.name);
        }
    }
    gap::write(&mut text, &all.gaps);
    for line in NOTES {
        let _ = writeln!(text, "  {line}");
    }
    text
}

/// The bare copy's table.
fn copies(text: &mut String, row: &Kept) {
    let Some(first) = row.copy_baselines().next() else { return };
    let _ = writeln!(text, "  {:<38} {:>4}  {:<30} GB/s", "bare copy", "runs", "thousand pieces a second");
    for (place, copy) in first.copies.iter().enumerate() {
        let of = |figure: fn(&crate::copy_baseline::Copied) -> f64| {
            let copies = row.copy_baselines().filter_map(|copy_baseline| copy_baseline.copies.get(place));
            Spread::of(copies.map(figure), Better::High)
        };
        let way = if copy.to_device { "to the device" } else { "to the host" };
        let warps = if copy.like_movers { " (as many as movers)" } else { "" };
        let name = format!("{way} {}k, {} x {} warps", copy.piece >> 10, copy.blocks, copy.warps);
        let [pieces, gbps] =
            [of(|c| c.pieces_per_s / 1e3).map(|s| s.line(1)), of(|c| c.gbps).map(|s| s.line(2))]
                .map(Option::unwrap_or_default);
        let _ = writeln!(text, "  {name:<38} {:>4}  {pieces:<30} {gbps}{warps}", row.runs.len());
    }
    let _ = writeln!(text);
}

impl RowSummary<'_> {
    fn line(&self) -> String {
        let thousand = |spread: Spread| {
            Spread { median: spread.median / 1e3, least: spread.least / 1e3, most: spread.most / 1e3 }.line(1)
        };
        let percent = |spread: Spread| format!("{:.1} %", spread.median * 100.0);
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        let mark = if self.core_bound { "  core-bound" } else { "" };
        let against = match (self.ratio, self.against) {
            (Some(ratio), Some(what)) => {
                let [least, most] = [ratio.least, ratio.most].map(|share| share * 100.0);
                format!("{} ({least:.1}..{most:.1}) of {what}", percent(ratio))
            }
            _ => "-".into(),
        };
        format!(
            "{:<38} {:>4}  {:<28} {:>7} {} {:>7} {:>7}  {:<10}  {against}{mark}",
            self.name,
            self.kept.runs.len(),
            or_none(self.iops.map(thousand)),
            or_none(self.gbps.map(|spread| format!("{:.2}", spread.median))),
            self.tails.columns(),
            or_none(self.late_share.map(percent)),
            or_none(self.client_late_share.map(percent)),
            self.state.unwrap_or("-"),
        )
    }
}

#[cfg(test)]
mod tests;

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rows that say how far the project is: the bare copy of the same machine, loads that are bound by the emulator and are held against
//! it, loads that are bound by the modelled array and are held against its ideal, and what the baselines reach.

use super::store::{Kept, Store};
use super::{Head, Row, What, copy_baseline, head_text};
use crate::Spread;
use crate::args::{BenchArgs, LinkArg, Mode, Rw, Switch};
use crate::report::{Report, word};
use gnstor_array::media::DEFAULT_PRESET;
use gnstor_console::CliError;
use gnstor_console::out;
use gnstor_console::print_json;
use serde::Serialize;
use std::fmt::Write;

const K4: u64 = 4 << 10;
const K64: u64 = 64 << 10;
const COPY: &str = "copy";
/// Smallest SSD of these rows.
const LEAST_SSD: u64 = 256 << 20;
/// What one SSD may have written to it in a second, more or less.
const WRITTEN_PER_S: f64 = 6.0e9;
/// SSDs of the rows that add them.
const SCALE: [u16; 5] = [1, 2, 4, 8, 16];
const MODES: [Mode; 4] = [Mode::Gnstor, Mode::GdDeengine, Mode::Gd, Mode::Basic];

/// All rows. A name's first word is the group.
pub(super) fn rows(args: &BenchArgs) -> Vec<Row> {
    let mut rows = vec![Row { name: COPY.into(), what: What::Copy }];
    let base = |rw, bs, clients: u32| BenchArgs {
        rw,
        bs,
        clients: args.max_clients.map_or(clients, |most| clients.min(most)),
        replicas: Some(2),
        preset: DEFAULT_PRESET.into(),
        // As long as in the suite, but a load of its own.
        runtime: Some(args.runtime()),
        ..args.clone()
    };
    let mut add = |group: &str, load: BenchArgs| rows.push(Row::load(name(group, &load), load));
    let null = |load: BenchArgs| BenchArgs { preset: "null".into(), ..load };
    // Where the most that can be reached is asked for, so much is in flight that no SSD is without work: with requests spread at random some
    // of them have few at times.
    let deep = |load: BenchArgs, iodepth| BenchArgs { iodepth, ..load };
    for (rw, bs) in [(Rw::Randread, K4), (Rw::Randread, K64), (Rw::Randwrite, K4)] {
        add("null", deep(null(roomy(base(rw, bs, 32))), 64));
    }
    add("null", null(base(Rw::Randread, K4, 1)));
    add("array", deep(base(Rw::Randread, K4, 32), 128));
    add("array", deep(roomy(base(Rw::Randwrite, K4, 32)), 64));
    add("array", deep(roomy(base(Rw::Randwrite, K64, 32)), 64));
    add("array", deep(base(Rw::Randread, K64, 2), 64));
    for ssds in SCALE {
        // One replica everywhere: the only thing that differs is how many there are.
        let deep = BenchArgs {
            iodepth: 128,
            replicas: Some(1),
            link: Some(LinkArg::None),
            ..base(Rw::Randread, K4, 32)
        };
        // As much memory in all of them, however many: pinning it takes time.
        let all = (2 * deep.size * u64::from(deep.clients)).max(LEAST_SSD);
        let each = (all / u64::from(ssds)).max(LEAST_SSD).next_multiple_of(1 << 20);
        add("scale", BenchArgs { ssds, ssd_size: Some(each), ..deep });
    }
    for mode in [Mode::Gd, Mode::Basic] {
        for (rw, bs) in [(Rw::Randread, K4), (Rw::Randwrite, K4), (Rw::Randread, K64), (Rw::Randwrite, K64)] {
            add("bare", null(BenchArgs { mode, central_engine: Switch::Off, ..base(rw, bs, 4) }));
        }
    }
    for rw in [Rw::Randread, Rw::Randwrite] {
        for mode in MODES {
            add("one", BenchArgs { mode, ..base(rw, K4, 1) });
        }
    }
    rows
}

/// The same with SSDs that stay fresh: a row of writes measures the way to them, not their collection.
fn roomy(load: BenchArgs) -> BenchArgs {
    if load.rw == Rw::Randread {
        return load;
    }
    let data = 2 * load.size * u64::from(load.clients) / u64::from(load.ssds.max(1));
    let seconds = (load.runtime() + load.warmup).as_secs_f64();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some gigabytes")]
    let written = (seconds * WRITTEN_PER_S) as u64;
    BenchArgs { ssd_size: Some((data + written).max(LEAST_SSD).next_multiple_of(1 << 20)), ..load }
}

/// Group, mode, order, size, clients, requests of each in flight, SSDs.
fn name(group: &str, load: &BenchArgs) -> String {
    let (mode, rw, bs) = (word(load.mode), word(load.rw), load.bs >> 10);
    format!("{group} {mode} {rw} {bs}k c{} q{} s{}", load.clients, load.iodepth, load.ssds)
}

/// A row of the report.
#[derive(Debug, Serialize)]
struct SsdSummary<'a> {
    name: &'a str,
    iops: Option<Spread>,
    gbps: Option<Spread>,
    mean_us: Option<Spread>,
    p99_us: Option<Spread>,
    late_share: Option<Spread>,
    /// What `ratio` holds the row against.
    against: Option<&'static str>,
    /// The figure by that; none for a row that had too few cores.
    ratio: Option<Spread>,
    /// More busy threads than cores: it counts for nobody.
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
    rows: Vec<SsdSummary<'a>>,
}

/// Writes object and transcript into the folder, and prints one of them.
pub(super) fn report(
    head: &Head<'_>,
    kept: &[Kept],
    args: &BenchArgs,
    store: &Store,
) -> Result<(), CliError> {
    let rows = kept.iter().map(|row| summary(row, kept)).collect();
    let all = Targets { head, rows };
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
    figure: impl Fn(&Report) -> Option<f64>,
) -> Option<Spread> {
    Spread::of(reports.filter_map(figure))
}

fn summary<'a>(row: &'a Kept, all: &[Kept]) -> SsdSummary<'a> {
    let of = |figure: fn(&Report) -> Option<f64>| spread(row.reports(), figure);
    let core_bound = row.reports().any(|report| report.busy.core_bound);
    let (against, ratio) = held_against(row, all);
    SsdSummary {
        name: &row.name,
        iops: of(|r| Some(r.iops)),
        gbps: of(|r| Some(r.gbps)),
        mean_us: of(|r| r.read.as_ref().or(r.write.as_ref()).map(|timed| timed.latency_us.mean)),
        p99_us: of(|r| r.read.as_ref().or(r.write.as_ref()).map(|timed| timed.latency_us.p99)),
        late_share: of(|r| r.late.share),
        against,
        ratio: ratio.filter(|_| !core_bound),
        core_bound,
        failed: &row.failed,
        kept: row,
    }
}

/// What a row is held against, and its share of that.
fn held_against(row: &Kept, all: &[Kept]) -> (Option<&'static str>, Option<Spread>) {
    let none = (None, None);
    let Some(report) = row.reports().next() else { return none };
    let by = |bound: f64| spread(row.reports(), |report| Some(report.iops / bound));
    let writes = report.write.is_some();
    // What a request moves over the bus.
    let copies = if writes { f64::from(report.load.replicas) } else { 1.0 };
    let bare = copy_baseline(all, !writes, report.load.bs).map(|pieces| pieces / copies);
    match row.name.split_whitespace().next() {
        Some("null") if report.load.clients > 1 => (Some("the bare copy"), bare.and_then(by)),
        Some("bare") => (Some("the bare copy"), bare.and_then(by)),
        Some("array" | "one") => {
            (Some("the modelled ideal"), spread(row.reports(), |r| r.ideal.as_ref().map(|ideal| ideal.ratio)))
        }
        Some("scale") => {
            let is_single = |row: &&Kept| row.name.starts_with("scale ") && row.name.ends_with(" s1");
            let single = all.iter().find(is_single).and_then(|row| spread(row.reports(), |r| Some(r.iops)));
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
        "  {:<36} {:>4}  {:<30} {:>8} {:<22} {:>7}  held against",
        "row", "runs", "thousand I/Os a second", "GB/s", "mean us", "late"
    );
    for summary in all.rows.iter().filter(|summary| summary.name != COPY) {
        let _ = writeln!(text, "  {}", summary.line());
    }
    for summary in &all.rows {
        for why in summary.failed {
            let _ = writeln!(text, "  failed      {}: {why}", summary.name);
        }
    }
    let _ = writeln!(
        text,
        "  core-bound  more busy threads than cores: such a row says how threads share cores, and counts for nobody"
    );
    text
}

/// The bare copy's table.
fn copies(text: &mut String, row: &Kept) {
    let Some(first) = row.copy_baselines().next() else { return };
    let _ = writeln!(text, "  {:<36} {:>4}  {:<30} GB/s", "bare copy", "runs", "thousand pieces a second");
    for (place, copy) in first.copies.iter().enumerate() {
        let of = |figure: fn(&crate::copy_baseline::Copied) -> f64| {
            Spread::of(
                row.copy_baselines().filter_map(|copy_baseline| copy_baseline.copies.get(place)).map(figure),
            )
        };
        let way = if copy.to_device { "to the device" } else { "to the host" };
        let warps = if copy.like_movers { " (as many as movers)" } else { "" };
        let name = format!("{way} {}k, {} x {} warps", copy.piece >> 10, copy.blocks, copy.warps);
        let [pieces, gbps] =
            [of(|c| c.pieces_per_s / 1e3).map(|s| s.line(1)), of(|c| c.gbps).map(|s| s.line(2))]
                .map(Option::unwrap_or_default);
        let _ = writeln!(text, "  {name:<36} {:>4}  {pieces:<30} {gbps}{warps}", row.runs.len());
    }
    let _ = writeln!(text);
}

impl SsdSummary<'_> {
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
            "{:<36} {:>4}  {:<30} {:>8} {:<22} {:>7}  {against}{mark}",
            self.name,
            self.kept.runs.len(),
            or_none(self.iops.map(thousand)),
            or_none(self.gbps.map(|spread| format!("{:.2}", spread.median))),
            or_none(self.mean_us.map(|spread| spread.line(1))),
            or_none(self.late_share.map(percent)),
        )
    }
}

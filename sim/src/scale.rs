// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor sim scale`: closed loops over ranges of clients and SSDs, one world for each point.

mod drawing;
mod failure;
mod image;
mod range;
mod svg;
mod table;

pub use failure::Failure;
pub use range::Range;
pub use table::csv;

use crate::bound::{self, Bounds};
use crate::load::Rw;
use crate::memory;
use crate::world::{Ended, Plan, World};
use crate::{Fail, Usage, WorldError};
use failure::Counts;
use gnstor_base::time::Span;
use gnstor_deengine::{Pace, Preset};
use gnstor_fabric::link::LinkConfig;
use gnstor_proto::BLOCK_BYTES;
use hdrhistogram::Histogram;
use serde::Serialize;

/// The options of a sweep.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Clients.
    pub clients: Range,
    /// SSDs.
    pub ssds: Range,
    /// Machines with SSDs, each with a wire of its own; at most as many as SSDs.
    pub nodes: usize,
    /// Copies of every block.
    pub replicas: u8,
    /// Kind of the clients' requests.
    pub rw: Rw,
    /// Bytes of a request.
    pub bs: u64,
    /// Random places by Zipf's distribution with this exponent, in thousandths; 0: all as often.
    pub zipf_permille: u32,
    /// Requests in flight of each client.
    pub iodepth: u16,
    /// Bytes of each client's volume.
    pub size: u64,
    /// Logical capacity of each SSD; `None`: twice what the volumes take of it, at least 256 MiB.
    pub ssd_bytes: Option<u64>,
    /// Preset of the SSDs.
    pub preset: Preset,
    /// The wire of each node.
    pub link: LinkConfig,
    /// Virtual time that is not measured.
    pub warmup: Span,
    /// Virtual time that is measured.
    pub runtime: Span,
    /// Seed of all random draws.
    pub seed: u64,
    /// Largest memory that a world may take, in bytes.
    pub memory: u64,
    /// The SSD that fails.
    pub fail: Option<Fail>,
}

/// The results of one point.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// Clients.
    pub clients: usize,
    /// SSDs.
    pub ssds: usize,
    /// Machines with SSDs.
    pub nodes: usize,
    /// Copies of every block.
    pub replicas: u8,
    /// Kind of the clients' requests.
    pub rw: Rw,
    /// Bytes of a request.
    pub bs: u64,
    /// Exponent of Zipf's distribution, in thousandths; 0: all places as often.
    pub zipf_permille: u32,
    /// Requests in flight of each client.
    pub iodepth: u16,
    /// Requests that ended in the measured time.
    pub requests: u64,
    /// Requests a second.
    pub iops: u64,
    /// Megabytes a second, 10^6 bytes each.
    pub mb_per_s: u64,
    /// What the SSDs' models allow together, requests a second; `None`: nothing is modelled.
    pub ssds_iops: Option<u64>,
    /// What the wires allow, requests a second; `None`: they are not limited.
    pub wires_iops: Option<u64>,
    /// Share of what the SSDs allow, in thousandths.
    pub share_permille: Option<u64>,
    /// Median latency, nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile of the latency.
    pub p99_ns: u64,
    /// 99.9th percentile of the latency.
    pub p999_ns: u64,
    /// Largest latency.
    pub max_ns: u64,
    /// Blocks sent to the busiest SSD, divided by the mean of all SSDs, in thousandths.
    pub load_permille: u64,
    /// Number of actors' steps, the fill included.
    pub steps: u64,
    /// Hash of every step and of the end of every request.
    pub trace: String,
    /// What followed from the failure of an SSD.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

const K: u64 = 1 << 10;
const MAX_COUNT: usize = 1024;
const MAX_DEPTH: u16 = 128;
/// A token identifies a block by 20 bits.
const MAX_SIZE: u64 = 4 << 30;
const MAX_ZIPF: u32 = 2000;
const LEAST_SSD: u64 = 256 << 20;
/// Longest measured time of a world. It must be shorter than the lease under which the fill writes.
const LONGEST: Span = Span::from_ms(60_000);

impl Sweep {
    /// The worlds of the table. All that can be checked before a world is made is checked here.
    ///
    /// # Errors
    /// A sentence that says what is wrong and what is possible.
    pub fn plans(&self) -> Result<Vec<Plan>, Usage> {
        self.check()?;
        let mut plans = Vec::new();
        for ssds in self.ssds.values() {
            for clients in self.clients.values() {
                plans.push(self.plan(ssds, clients)?);
            }
        }
        Ok(plans)
    }

    fn check(&self) -> Result<(), Usage> {
        let Self { replicas, bs, iodepth, size, .. } = *self;
        for (what, range) in [("--clients", &self.clients), ("--ssds", &self.ssds)] {
            range.check(what, MAX_COUNT)?;
        }
        let fewest = self.ssds.first;
        if replicas == 0 || replicas > 4 || usize::from(replicas) > fewest {
            let most = fewest.min(4);
            return Err(Usage(format!(
                "--replicas {replicas} is not possible with {fewest} SSDs: use 1 to {most}"
            )));
        }
        if self.nodes == 0 || self.nodes > fewest {
            let nodes = self.nodes;
            return Err(Usage(format!(
                "--nodes {nodes} is not possible with {fewest} SSDs: use 1 to {fewest}"
            )));
        }
        if iodepth == 0 || iodepth > MAX_DEPTH {
            return Err(Usage(format!(
                "--iodepth {iodepth} must be 1 to {MAX_DEPTH}, the slots of a channel"
            )));
        }
        if bs == 0 || !bs.is_multiple_of(u64::from(BLOCK_BYTES)) || bs > 1 << 20 {
            return Err(Usage(format!("--bs {bs} must be a multiple of 4096, up to 1 MiB")));
        }
        if size < bs * u64::from(iodepth) || size > MAX_SIZE {
            let least = bs * u64::from(iodepth) / K;
            return Err(Usage(format!("--size {size} must be {least} KiB (--iodepth times --bs) to 4 GiB")));
        }
        if self.zipf_permille > MAX_ZIPF || self.zipf_permille > 0 && !self.rw.is_random() {
            return Err(Usage("--zipf is 0 to 2, and needs --rw randread or randwrite".into()));
        }
        if self.runtime == Span::ZERO || self.runtime > LONGEST || self.warmup > LONGEST {
            return Err(Usage("--runtime must be more than 0, and it and --warmup at most 60s".into()));
        }
        self.fail.map_or(Ok(()), |fail| failure::check(self, fail))
    }

    fn plan(&self, ssds: usize, clients: usize) -> Result<Plan, Usage> {
        let arrays = ssds.div_ceil(crate::world::CELL);
        if clients < arrays && clients > 1 || arrays > 1 && clients == 1 {
            return Err(Usage(format!(
                "{ssds} SSDs are {arrays} arrays of up to 64, and {clients} clients leave some of them idle: \
                 use --clients {arrays} or more"
            )));
        }
        let unit_blocks = u32::try_from(self.bs / u64::from(BLOCK_BYTES)).expect("at most 1 MiB");
        let units = u32::try_from(self.size / self.bs).expect("at most 4 GiB");
        let all = self.size * clients as u64 * u64::from(self.replicas);
        // If a world has several arrays, their sizes differ by at most one SSD and one client.
        let share = all.div_ceil(ssds as u64) + self.size.div_ceil(ssds.min(crate::world::CELL) as u64);
        let ssd_bytes = self.ssd_bytes.unwrap_or((2 * share).max(LEAST_SSD).next_multiple_of(1 << 20));
        if share + share / 8 > ssd_bytes {
            return Err(Usage(format!(
                "{} KiB on each SSD do not fit into --ssd-size; make --size, --clients or --replicas smaller",
                share / K
            )));
        }
        let plan = Plan {
            ssds,
            clients,
            nodes: self.nodes,
            replicas: self.replicas,
            rw: self.rw,
            unit_blocks,
            units,
            depth: self.iodepth,
            zipf_permille: self.zipf_permille,
            preset: self.preset.clone(),
            pace: Pace::REAL,
            ssd_bytes,
            link: self.link,
            seed: self.seed,
            fail: self.fail,
        };
        let needed = memory::estimate(&plan);
        if needed > self.memory {
            let [needed, limit] = [needed, self.memory].map(|bytes| bytes >> 20);
            return Err(Usage(format!(
                "{clients} clients and {ssds} SSDs take about {needed} MiB of memory, and --memory is \
                 {limit} MiB: make --size or a range smaller"
            )));
        }
        Ok(plan)
    }

    /// Runs one world.
    ///
    /// # Errors
    /// If an SSD refuses a command, a connection breaks, or a read returns wrong data.
    pub fn run(&self, plan: &Plan, measured: &mut Measured) -> Result<Row, WorldError> {
        let mut world = World::new(plan)?;
        if !plan.rw.is_write() {
            world.fill()?;
        }
        let begin = world.now() + self.warmup;
        let end = begin + self.runtime;
        let before = world.sent_blocks();
        let mut latencies = Histogram::new(3).expect("three digits");
        let mut counts = Counts::new(begin, self.runtime);
        if let Some(fail) = plan.fail {
            world.fail_at(fail, begin + fail.at);
        }
        world.run(end, |(start, at): Ended| {
            if at >= begin && at < end {
                counts.ended(at);
                latencies.record(at.since(start).as_ns().max(1)).expect("it has no upper limit");
            }
        })?;
        let sent: Vec<u64> = world.sent_blocks().iter().zip(before).map(|(now, then)| now - then).collect();
        let mut row = self.row(plan, &world, &latencies, (&sent, &mut measured.0));
        let course = plan.fail.zip(world.course());
        row.failure = course.map(|(fail, course)| Failure::of(fail, course, &counts, end));
        Ok(row)
    }

    fn row(
        &self,
        plan: &Plan,
        world: &World,
        latencies: &Histogram<u64>,
        (sent, bounds): (&[u64], &mut Bounds),
    ) -> Row {
        let requests = latencies.len();
        let a_second = |count: u64| {
            let ps = u128::from(self.runtime.as_ps());
            u64::try_from(u128::from(count) * 1_000_000_000_000 / ps).unwrap_or(u64::MAX)
        };
        let iops = a_second(requests);
        let ssds = bounds.ssds(plan);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate, not negative")]
        let whole = |rate: f64| rate as u64;
        let ssds_iops = ssds.map(whole);
        let at = |quantile| latencies.value_at_quantile(quantile);
        let (sum, most) = (sent.iter().sum::<u64>(), sent.iter().max().copied().unwrap_or(0));
        Row {
            clients: plan.clients,
            ssds: plan.ssds,
            nodes: plan.nodes,
            replicas: plan.replicas,
            rw: plan.rw,
            bs: self.bs,
            zipf_permille: self.zipf_permille,
            iodepth: self.iodepth,
            requests,
            iops,
            mb_per_s: a_second(requests * self.bs) / 1_000_000,
            ssds_iops,
            wires_iops: bound::wires(plan).map(whole),
            share_permille: ssds_iops.map(|all| iops * 1000 / all.max(1)),
            p50_ns: at(0.5),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: latencies.max(),
            load_permille: most * 1000 * sent.len() as u64 / sum.max(1),
            steps: world.steps(),
            trace: format!("{:016x}", world.trace()),
            failure: None,
        }
    }
}

/// Rates of the SSDs' models that earlier points measured.
#[derive(Debug, Default)]
pub struct Measured(Bounds);

/// The curves as files: their names, each with its bytes, as SVG and PNG.
///
/// # Errors
/// If a drawing cannot be made.
pub fn curves(rows: &[Row]) -> Result<Vec<(String, Vec<u8>)>, String> {
    let mut files = Vec::new();
    for figure in drawing::FIGURES {
        let marks = drawing::marks(&figure, rows);
        files.push((format!("{}.svg", figure.name), svg::svg(&marks).into_bytes()));
        let png = image::png(&marks).map_err(|cause| cause.to_string())?;
        files.push((format!("{}.png", figure.name), png));
    }
    Ok(files)
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The results of a run: for people, and as JSON (`docs/bench-report.md`).

use super::cpu::{Busy, CpuTime};
use super::ideal::Ideal;
use super::latency::Timed;
use super::lateness::Lateness;
use super::load::Load;
use super::rate::RateSummary;
use super::served::{Served, shares};
use super::words::{Bounce, Buffers};
use gnstor_console::outln;
use gnstor_console::{human_bytes, print_json};
use serde::{Deserialize, Serialize};

/// Number of the JSON's form.
pub(super) const SCHEMA: u32 = 1;

/// Everything that a run found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Number of this object's form.
    pub schema: u32,
    /// The load.
    pub load: Load,
    /// The device that executed device code.
    pub device: DeviceSummary,
    /// The part of the HCA on the device.
    pub agent: AgentSummary,
    /// The array.
    pub array: ArraySummary,
    /// The emulated parts.
    pub emulated: Vec<String>,
    /// Ctrl-C ended it: the figures are those so far, and nothing was read back.
    pub interrupted: bool,
    /// Seconds of the measured part.
    pub elapsed_s: f64,
    /// Reads and writes together, a second.
    pub iops: f64,
    /// Decimal gigabytes a second, reads and writes together.
    pub gbps: f64,
    /// The reads.
    pub read: Option<Timed>,
    /// The writes.
    pub write: Option<Timed>,
    /// The bound of the model.
    pub ideal: Option<Ideal>,
    /// Results of the schedule, if the rate is limited; `None` after Ctrl-C.
    #[serde(default)]
    pub rate: Option<RateSummary>,
    /// Results of the checks; `None` without checks.
    pub verify: Option<Verify>,
    /// I/Os that failed, by status.
    pub errors: Vec<ErrorSummary>,
    /// The emulator against its model.
    pub late: Late,
    /// CPU time of this process (initiator, emulator and daemon) in the launch: warm-up, measured part and
    /// drain.
    pub cpu: CpuTime,
    /// Threads that never sleep, against cores.
    pub busy: Busy,
    /// Counters of the parts that have some, over the same time.
    pub stages: StagesSummary,
}

/// The device that executed device code.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeviceSummary {
    /// `cuda` or `host`.
    pub kind: String,
    /// Name of the device.
    pub name: String,
    /// Why it was taken.
    pub why: String,
}

/// The array.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ArraySummary {
    /// SSDs.
    pub ssds: usize,
    /// Preset of the SSDs; `unknown` on a running array.
    pub preset: String,
    /// Address of the running array; null where the array is the run's own.
    #[serde(default)]
    pub running: Option<String>,
    /// Logical capacity of each.
    pub ssd_bytes: u64,
    /// Modelled link, bytes a second each way; 0: not limited.
    pub link_bytes_per_s: u64,
    /// Latency of the modelled link, one way.
    pub link_latency_us: f64,
    /// Share of the SSDs' logical capacity that was written before the load began.
    pub fill_share: f64,
    /// `fresh`: no SSD has collected; `collecting`: some have, while filling or in the load; `unknown` on a
    /// running array. No load here is long enough for a steady state.
    pub state: String,
    /// What each SSD served in the launch: warm-up, measured part and drain. One that no longer answers is
    /// missing.
    pub served: Vec<Served>,
}

/// Results of the checks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Verify {
    /// I/Os that ended well: warm-up, measured part and drain.
    pub ios: u64,
    /// Of these: reads that brought what was written last, and writes that were found when all was read back.
    pub verified_ios: u64,
    /// Number of blocks compared byte by byte. For all others every sector's header is checked.
    pub whole_blocks: u64,
    /// Replicas of every block that were read back after writing.
    pub replicas_read_back: u32,
    /// The first fault.
    pub first_wrong: Option<String>,
}

/// I/Os that failed with one status.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ErrorSummary {
    /// Device status, as a kernel sees it.
    pub status: u32,
    /// DW0 of one of them.
    pub dw0: u32,
    /// Meaning of the status.
    pub what: String,
    /// Number of such I/Os. Each ended the work of one thread.
    pub count: u64,
}

/// Responses later than the model says, by two measures (`docs/bench.md`).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Late {
    /// Responses delivered.
    pub responses: u64,
    /// Number of late responses.
    pub late: u64,
    /// Share of late responses; null if the SSDs have no modelled time.
    pub share: Option<f64>,
    /// Commands whose client waited longer than the model gives the command alone. In older reports: 0.
    #[serde(default)]
    pub client_late: u64,
    /// Share of the responses whose client waited longer; null where the SSDs have no modelled time.
    #[serde(default)]
    pub client_share: Option<f64>,
    /// Distribution of the lateness, if the agent counts it.
    pub lateness: Option<Lateness>,
}

/// The resident part of the HCA, and what it takes from the device.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AgentSummary {
    /// The agent's blocks, one for each pair of rings.
    pub blocks: u32,
    /// Multiprocessors of the device; null if the CPU is the device.
    pub multiprocessors: Option<u32>,
    /// Share of the multiprocessors that a block of the agent is on; a block does not fill one.
    pub share: Option<f64>,
}

/// Counters.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct StagesSummary {
    /// Reads that another replica served after a refusal.
    pub retries: u64,
    /// Responses that named no command in flight.
    pub protocol_errors: u64,
    /// Command ids, request slots and pool blocks still taken after the run.
    pub leaked: u64,
    /// Command capsules that reached SSDs.
    pub capsules: u64,
    /// RDMA operations that moved data, for each I/O with its replicas. A read or write that an SSD has
    /// served has one descriptor, which takes one operation.
    pub rdma_per_io: Option<f64>,
    /// Bytes that left the array.
    pub pushed_bytes: u64,
    /// Bytes that were moved to the array.
    pub pulled_bytes: u64,
    /// Connections that broke.
    pub broken: u64,
    /// SENDs that met no receive.
    pub rnr: u64,
    /// Mean real time from the HCA's taking of a command to the array's seeing it, us.
    pub fetch_us: f64,
    /// Mean real time of a copy, from the array's asking for it to its seeing the end, us.
    pub copy_us: f64,
    /// Records that the central engine flushed to its log.
    pub log_records: u64,
}

/// An argument's value as on the command line.
pub(super) fn word(value: impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}

impl Report {
    /// The reads, or the writes of a load that only writes.
    pub(super) fn timed(&self) -> Option<&Timed> {
        self.read.as_ref().or(self.write.as_ref())
    }

    /// Prints the report for a person, or as JSON.
    pub fn print(&self, json: bool) {
        if json {
            return print_json(self);
        }
        outln!();
        self.print_load();
        self.print_latency();
        self.print_model();
        self.print_checks();
        self.print_machine();
        outln!("  emulated    {}", self.emulated.join("\n              "));
    }

    /// Prints the load and the array.
    fn print_load(&self) {
        let load = &self.load;
        outln!(
            "  load        {}: {} of {}, {} x {} in flight, volumes of {}, {} replicas",
            word(load.mode),
            word(load.rw),
            human_bytes(load.bs),
            load.clients,
            load.iodepth,
            human_bytes(load.size),
            load.replicas
        );
        if load.buffers == Buffers::Pieces {
            outln!("  buffers     in pieces, a command for each");
        }
        match load.bounce {
            Some(Bounce::Batch) => outln!("  bounce      copied by the driver, one batch at a time"),
            Some(Bounce::Kernel) => outln!("  bounce      copied by a kernel, one launch at a time"),
            None => {}
        }
        let array = &self.array;
        let (ssds, full) = (array.ssds, array.fill_share * 100.0);
        match &array.running {
            Some(address) => outln!("  array       {ssds} SSDs of the running array at {address}"),
            None => outln!(
                "  array       {ssds} SSDs, preset {}, {}, {full:.1} % full",
                array.preset,
                array.state
            ),
        }
        if self.interrupted {
            outln!("  interrupted figures so far");
        }
    }

    /// Rate and latency of reads and writes.
    fn print_latency(&self) {
        if let Some(RateSummary { asked_iops, due, begun }) = self.rate {
            outln!(
                "  rate        {asked_iops} IOPS asked for; {begun} of {due} requests that were due began"
            );
        }
        for (what, timed) in [("read", &self.read), ("write", &self.write)] {
            let Some(timed) = timed else { continue };
            let us = &timed.latency_us;
            outln!(
                "  {what:<11} {:.0} IOPS, {:.3} GB/s, {} in {:.2} s",
                timed.iops,
                timed.gbps,
                timed.ios,
                self.elapsed_s
            );
            outln!(
                "  latency     mean {:.1} us, p50 {:.1}, p90 {:.1}, p99 {:.1}",
                us.mean,
                us.p50,
                us.p90,
                us.p99
            );
            outln!("              p99.9 {:.1}, p99.99 {:.1}, max {:.1}", us.p99_9, us.p99_99, us.max);
        }
    }

    /// Prints the bound of the model, and how far the emulator is behind it.
    fn print_model(&self) {
        if let Some(ideal) = &self.ideal {
            let (percent, limit) = (ideal.ratio * 100.0, &ideal.limit);
            // A core-bound run has no ratio.
            let measured =
                if self.busy.core_bound { String::new() } else { format!("; measured {percent:.1} %") };
            outln!("  ideal       {:.0} IOPS, {:.3} GB/s ({limit}){measured}", ideal.iops, ideal.gbps);
        }
        match self.late.share {
            Some(share) => {
                outln!("  late        {:.2} % of responses later than the model says", share * 100.0)
            }
            None => outln!("  late        not counted: no modelled time is known"),
        }
        if let Some(share) = self.late.client_share {
            let percent = share * 100.0;
            outln!(
                "              {percent:.2} % of commands longer for the client than the model gives them"
            );
        }
        if let Some(lateness) = self.late.lateness.as_ref().filter(|_| self.late.share.is_some()) {
            outln!("  seen        {}", lateness.line());
        }
        if let Some((least, most)) = shares(&self.array.served) {
            outln!("  SSDs        {:.1} % to {:.1} % of the commands each", least * 100.0, most * 100.0);
        }
        let stages = &self.stages;
        if let Some(operations) = stages.rdma_per_io {
            outln!("  RDMA        {operations:.2} operations an I/O");
        }
        outln!(
            "  emulator    command to the array {:.1} us, copy {:.1} us (means)",
            stages.fetch_us,
            stages.copy_us
        );
    }

    /// Prints what was verified, and what failed.
    fn print_checks(&self) {
        match &self.verify {
            Some(Verify { ios, verified_ios, whole_blocks, replicas_read_back, .. }) => {
                outln!("  verified    {verified_ios} of {ios} I/Os, {whole_blocks} blocks in full");
                if *replicas_read_back != 0 {
                    outln!("              {replicas_read_back} replicas of every block read back");
                }
            }
            None => outln!("  verified    nothing (--verify off)"),
        }
        for error in &self.errors {
            outln!("  failed      {} x {}", error.count, error.what);
        }
    }

    /// CPU time, cores and device.
    fn print_machine(&self) {
        let mut threads: Vec<_> = self.cpu.threads.iter().collect();
        threads.sort_by(|a, b| b.1.total_cmp(a.1));
        let threads: Vec<_> =
            threads.iter().take(3).map(|(name, seconds)| format!("{name} {seconds:.2}")).collect();
        outln!(
            "  CPU time    {:.2} s user, {:.2} s system ({})",
            self.cpu.user_s,
            self.cpu.system_s,
            threads.join(", ")
        );
        if self.busy.core_bound {
            outln!("  core-bound  {} busy threads on {} cores", self.busy.threads, self.busy.cores);
        }
        outln!("  device      {} ({})", self.device.name, self.device.why);
        let AgentSummary { blocks, multiprocessors, share } = &self.agent;
        match multiprocessors.zip(*share) {
            Some((all, share)) => {
                let percent = share * 100.0;
                outln!("  agent       {blocks} blocks on {all} multiprocessors, {percent:.1} %");
            }
            None => outln!("  agent       {blocks} blocks"),
        }
    }
}

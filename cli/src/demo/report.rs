// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Results of the demo.

use super::BLOCK;
use crate::demo_kernel::Findings;
use gnstor_console::{human_bytes, outln, print_json};
use hdrhistogram::Histogram;
use serde::Serialize;

/// Results of the demo; `--json` prints them.
#[derive(Debug, Serialize)]
pub struct DemoReport {
    /// `cuda` or `host`.
    pub device: String,
    /// Name of the device, and why it was taken.
    pub device_name: String,
    /// Why this device.
    pub device_why: String,
    /// Number of SSDs.
    pub ssds: u16,
    /// Preset of the SSDs.
    pub preset: String,
    /// Reads of the kernel.
    pub ios: u64,
    /// Bytes the kernel read.
    pub bytes: u64,
    /// Every block that the kernel read has the file's hash, and every replica holds the file.
    pub verified: bool,
    /// Replicas that were read back and compared as a whole.
    pub replicas_checked: u32,
    /// NVMe status of the read-only client's write.
    pub refused_write_status: u16,
    /// NVMe status of the stranger's read.
    pub refused_read_status: u16,
    /// The rules that refused.
    pub refused_rules: [String; 2],
    /// Throughput of the kernel, decimal gigabytes per second.
    pub gbps: f64,
    /// Median latency of a read.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p99_9_us: f64,
    /// Slowest.
    pub max_us: f64,
    /// Share of responses that the emulator delivered later than its model says; null if the SSDs have no
    /// modelled time.
    pub late_share: Option<f64>,
    /// Share of commands whose client waited longer than the model gives them; null as above.
    pub client_late_share: Option<f64>,
    /// Reads that another replica served after a refusal.
    pub retries: u64,
    /// SHA-256 of the file.
    pub sha256: String,
    /// Bytes of the channel's queues and of its pool.
    pub channel_bytes: (usize, usize),
    /// The emulated parts.
    pub emulated: Vec<String>,
}

/// Prints the report for a person, or as JSON.
pub fn print(report: &DemoReport, json: bool) {
    if json {
        return print_json(report);
    }
    outln!();
    outln!(
        "  verified    {} blocks = {}, sha256 {}...",
        report.ios,
        human_bytes(report.bytes),
        &report.sha256[..16]
    );
    outln!("  array       {} SSDs, preset {}", report.ssds, report.preset);
    outln!("  replicas    {} of every block read back and compared", report.replicas_checked);
    outln!("  throughput  {:.3} GB/s, {:.0} reads/s", report.gbps, report.gbps * 1e9 / 4096.0);
    outln!(
        "  latency     p50 {:.1} us, p99 {:.1} us, p99.9 {:.1} us, max {:.1} us",
        report.p50_us,
        report.p99_us,
        report.p99_9_us,
        report.max_us
    );
    match report.late_share {
        Some(share) => outln!("  late        {:.2} % of responses later than the model says", share * 100.0),
        None => outln!("  late        not counted: the SSDs have no modelled time"),
    }
    if let Some(share) = report.client_late_share {
        let percent = share * 100.0;
        outln!("              {percent:.2} % of commands longer for the client than the model gives them");
    }
    let [write, read] = &report.refused_rules;
    outln!(
        "  refused     write {:04x}h (rule {write}), read {:04x}h (rule {read})",
        report.refused_write_status,
        report.refused_read_status
    );
    outln!("  device      {} ({})", report.device_name, report.device_why);
    outln!("  emulated    {}", report.emulated.join("\n              "));
}

/// Throughput and latencies of the kernel's reads.
pub(super) struct Timing {
    pub(super) gbps: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) p99_9_us: f64,
    pub(super) max_us: f64,
}

impl Timing {
    #[expect(clippy::cast_precision_loss, reason = "for display")]
    pub(super) fn of(findings: &Findings) -> Self {
        let mut histogram = Histogram::<u64>::new_with_bounds(1, 3_600_000_000_000, 3)
            .expect("bounds and digits are allowed");
        for (start, end) in findings.start_ns.iter().zip(&findings.end_ns) {
            histogram.saturating_record(end.saturating_sub(*start).max(1));
        }
        let first = findings.start_ns.iter().min().copied().unwrap_or(0);
        let last = findings.end_ns.iter().max().copied().unwrap_or(0);
        let bytes = findings.hashes.len() * BLOCK;
        let us = |ns: u64| ns as f64 / 1000.0;
        Self {
            gbps: bytes as f64 / last.saturating_sub(first).max(1) as f64,
            p50_us: us(histogram.value_at_quantile(0.5)),
            p99_us: us(histogram.value_at_quantile(0.99)),
            p99_9_us: us(histogram.value_at_quantile(0.999)),
            max_us: us(histogram.max()),
        }
    }
}

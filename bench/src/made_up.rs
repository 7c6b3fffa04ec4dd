// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reports of runs that never ran, for tests of what is made from them.

use crate::args::parsed;
use crate::cpu::{Busy, CpuTime};
use crate::ideal::Ideal;
use crate::latency::{Latency, Timed, no_latencies};
use crate::load::Load;
use crate::report::{AgentSummary, ArraySummary, DeviceSummary, Late, Report, SCHEMA, StagesSummary};
use crate::suite::{Done, Kept};

/// A run of this load, on enough cores, at half of its ideal. Its p50, p99, p99.9 and maximum are 1, 2, 4
/// and 8 times the mean.
pub(crate) fn report(words: &[&str], mean_us: f64) -> Report {
    let load = Load::new(&parsed(words)).expect("a load that can be run");
    let iops = f64::from(load.clients * load.iodepth) * 1e6 / mean_us;
    #[expect(clippy::cast_precision_loss, reason = "a few KiB")]
    let gbps = iops * load.bs as f64 / 1e9;
    let timed = || Timed { ios: 1000, iops, gbps, latency_us: latency(mean_us), histogram: no_latencies() };
    Report {
        schema: SCHEMA,
        device: DeviceSummary { kind: "host".into(), name: "made up".into(), why: "a test".into() },
        agent: AgentSummary { blocks: 1, multiprocessors: None, share: None },
        array: array(load.ssd_bytes),
        emulated: Vec::new(),
        interrupted: false,
        elapsed_s: 1.0,
        iops,
        gbps,
        read: (load.read_percent != 0).then(timed),
        write: (load.read_percent != 100).then(timed),
        ideal: Some(Ideal { iops: 2.0 * iops, gbps: 2.0 * gbps, limit: "ssds".into(), ratio: 0.5 }),
        rate: None,
        verify: None,
        errors: Vec::new(),
        late: Late {
            responses: 1000,
            late: 0,
            share: Some(0.0),
            client_late: 0,
            client_share: Some(0.0),
            lateness: None,
        },
        cpu: CpuTime::default(),
        busy: Busy { threads: 2, cores: 16, core_bound: false },
        stages: stages(),
        load,
    }
}

/// p50, p99, p99.9 and maximum are 1, 2, 4 and 8 times the mean.
fn latency(mean_us: f64) -> Latency {
    Latency {
        mean: mean_us,
        p50: mean_us,
        p90: 1.5 * mean_us,
        p99: 2.0 * mean_us,
        p99_9: 4.0 * mean_us,
        p99_99: 6.0 * mean_us,
        max: 8.0 * mean_us,
    }
}

/// Four fresh SSDs.
fn array(ssd_bytes: u64) -> ArraySummary {
    ArraySummary {
        ssds: 4,
        preset: "gnstor-980pro".into(),
        running: None,
        ssd_bytes,
        link_bytes_per_s: 0,
        link_latency_us: 0.0,
        fill_share: 0.1,
        state: "fresh".into(),
        served: Vec::new(),
    }
}

/// Channels that are clean after the run.
fn stages() -> StagesSummary {
    StagesSummary {
        retries: 0,
        protocol_errors: 0,
        leaked: 0,
        capsules: 1000,
        rdma_per_io: Some(1.0),
        pushed_bytes: 0,
        pulled_bytes: 0,
        broken: 0,
        rnr: 0,
        fetch_us: 0.0,
        copy_us: 0.0,
        log_records: 0,
    }
}

/// A row of a suite with these runs.
pub(crate) fn kept(name: &str, runs: impl IntoIterator<Item = Report>) -> Kept {
    let runs = runs.into_iter().map(|run| Done::Load(Box::new(run))).collect();
    Kept { name: name.into(), runs, ..Kept::default() }
}

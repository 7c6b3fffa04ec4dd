// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report's parts beside the load: counters, and the emulated parts.

use super::harness::{Harness, Outcome, Phase, Stages};
use super::lateness;
use super::load::Load;
use super::rate::{Pace, RateSummary};
use super::report::{AgentSummary, ArraySummary, Late, StagesSummary};
use super::served::Served;
use super::words::Mode;
use gnstor_base::time::Span;
use gnstor_console::describe_hca;

/// The array, after a launch that began with these counters and ended with those.
pub(super) fn array(harness: &Harness, before: &Stages, after: &Stages) -> ArraySummary {
    let (load, link) = (harness.load(), harness.link());
    let written = load.size * u64::from(load.clients) * u64::from(load.replicas);
    let collected = after.served.iter().flatten().any(|ssd| ssd.moved_pages != 0);
    #[expect(clippy::cast_precision_loss, reason = "figures to print")]
    let (fill_share, link_latency_us) = (
        written as f64 / (harness.ssd_bytes() as f64 * harness.ssds() as f64).max(1.0),
        link.latency.as_ns() as f64 / 1e3,
    );
    let served = after.served.iter().zip(&before.served);
    ArraySummary {
        ssds: harness.ssds(),
        preset: match harness.running() {
            Some(_) => "unknown".into(),
            None => harness.preset().name.clone(),
        },
        running: harness.running(),
        ssd_bytes: harness.ssd_bytes(),
        link_bytes_per_s: link.bytes_per_second,
        link_latency_us,
        fill_share,
        state: match collected {
            _ if harness.running().is_some() => "unknown",
            true => "collecting",
            false => "fresh",
        }
        .into(),
        served: served.filter_map(|(after, before)| Some((*after)?.since(&(*before)?))).collect(),
    }
}

/// What came of the schedule of each client; `None` after Ctrl-C, when it is not known how much was due.
pub(super) fn rate(load: &Load, pace: Pace, phase: &Phase, outcome: &Outcome) -> Option<RateSummary> {
    let ns = u64::try_from((phase.warmup + phase.runtime).as_nanos()).expect("at most days");
    let lanes = outcome.lanes.iter().flatten();
    let begun = lanes.map(|lane| lane.ios.iter().sum::<u64>() + u64::from(lane.status != 0)).sum();
    let clients = u64::from(load.clients);
    let (asked_iops, due) = (u64::from(pace.iops()) * clients, pace.due(ns) * clients);
    (!outcome.interrupted).then_some(RateSummary { asked_iops, due, begun })
}

/// Responses against the model.
pub(super) fn late(before: &Stages, after: &Stages, timeless: bool) -> Late {
    let (b, a) = (&before.agent, &after.agent);
    let responses = a.responses - b.responses;
    let (late, client_late) = (a.late - b.late, a.client_late - b.client_late);
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    let share = |count: u64| (responses != 0 && !timeless).then(|| count as f64 / responses as f64);
    let lateness = lateness::between(&b.lateness, &a.lateness);
    Late { responses, late, share: share(late), client_late, client_share: share(client_late), lateness }
}

/// The resident part of the HCA.
pub(super) fn agent(harness: &Harness, multiprocessors: u32) -> AgentSummary {
    let blocks = harness.agent_blocks();
    let share = (multiprocessors != 0).then(|| f64::from(blocks) / f64::from(multiprocessors));
    AgentSummary { blocks, multiprocessors: (multiprocessors != 0).then_some(multiprocessors), share }
}

/// Counters of a launch.
pub(super) fn stages(before: &Stages, after: &Stages, array: &ArraySummary, ios: u64) -> StagesSummary {
    let (b, a) = (&before.engine, &after.engine);
    let channels = |f: fn(&libgnstor::ChannelStats) -> u64| {
        after.channels.iter().map(f).sum::<u64>() - before.channels.iter().map(f).sum::<u64>()
    };
    StagesSummary {
        retries: channels(|c| c.retries),
        protocol_errors: channels(|c| c.protocol_errors.into()),
        leaked: after.channels.iter().map(|c| u64::from(c.leaked)).sum(),
        capsules: a.capsules - b.capsules,
        rdma_per_io: per_io(array, ios),
        pushed_bytes: a.pushed_bytes - b.pushed_bytes,
        pulled_bytes: a.pulled_bytes - b.pulled_bytes,
        broken: a.broken - b.broken,
        rnr: a.rnr - b.rnr,
        fetch_us: mean_us(a.fetch_time, b.fetch_time, a.capsules - b.capsules),
        copy_us: mean_us(a.copy_time, b.copy_time, a.copies - b.copies),
        log_records: after.log_records - before.log_records,
    }
}

#[expect(clippy::cast_precision_loss, reason = "for display")]
fn per_io(array: &ArraySummary, ios: u64) -> Option<f64> {
    let operations: u64 = array.served.iter().map(Served::commands).sum();
    (ios != 0 && !array.served.is_empty()).then(|| operations as f64 / ios as f64)
}

#[expect(clippy::cast_precision_loss, reason = "for display")]
fn mean_us(after: Span, before: Span, count: u64) -> f64 {
    (after.as_ps() - before.as_ps()) as f64 / 1e6 / count.max(1) as f64
}

/// Sentences about what was not real.
pub(super) fn emulated(harness: &Harness) -> Vec<String> {
    let name = &harness.preset().name;
    let timing = if harness.preset().is_null() { "no modelled time" } else { "timing modelled" };
    let link = harness.link();
    let link = match link.bytes_per_second {
        0 => "link (not limited, in process)".to_owned(),
        rate => {
            format!(
                "link ({} MB/s and {} ns one way modelled, in process)",
                rate / 1_000_000,
                link.latency.as_ns()
            )
        }
    };
    let mut all = vec![describe_hca(harness.unordered())];
    match harness.running() {
        Some(daemon) => {
            all.push(format!("SSDs of the array at {daemon} (as gnstor up or gnstor ssd prints)"))
        }
        None => all.extend([link, format!("SSDs (preset {name}: {timing}, data in memory)")]),
    }
    match harness.load().mode {
        Mode::Gnstor => {}
        Mode::Gd | Mode::GdDeengine => {
            all.push("CPU's queues (in host memory, which the emulated HCA polls)".into())
        }
        Mode::Basic => all.push(
            "CPU's queues and its buffer (in host memory, which the emulated HCA polls and fills)".into(),
        ),
    }
    if harness.load().central_engine {
        all.push(
            "central engine (runs in the clients' threads, log in memory: cheaper than one across a network)"
                .into(),
        );
    }
    if harness.device().kind() == "host" {
        all.push("GPU (the same device code on the CPU, as fibers)".into());
    }
    all
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The simulator's initiator is the device headers' twin. The same requests and completions give the same
//! capsules on each queue pair, byte for byte. They give the same ends of requests.
//!
//! ```text
//!   seed --> trace --Initiator--> what it sends, run by run  -+
//!              `--- text ---> device/twin.cpp: one warp of    +-> equal
//!                             the headers, as fibers ---------+
//! ```
//! One thing is renamed: which lane of a warp gets which sequence, where several begin a write in one pass.
//! The lanes draw them by an atomic, and CUDA does not say which lane of a warp is first.
//!
//! `GNSTOR_TRACES=1000` plays so many seeds, `GNSTOR_TRACE_SEED=N` only that one.

mod device;
mod trace;

use gnstor_base::testing::deadline;
use std::collections::HashMap;
use trace::{Run, Trace};

/// Number of seeds in the short form of the test.
const TRACES: u64 = 25;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Pairs of sequences that stand for the same part of a write: one of the device, one of the twin.
#[derive(Default)]
struct Names {
    twins: HashMap<u64, u64>,
    devices: HashMap<u64, u64>,
}

impl Names {
    /// Whether the two sequences can be the same part: neither was paired with another one before.
    fn agree(&mut self, device: u64, twin: u64) -> bool {
        *self.twins.entry(device).or_insert(twin) == twin
            && *self.devices.entry(twin).or_insert(device) == device
    }
}

/// The first difference between two runs, as a sentence.
fn difference(names: &mut Names, twin: &Run, device: &Run) -> Option<String> {
    for (ssd, (twins, devices)) in twin.sent.iter().zip(&device.sent).enumerate() {
        for at in 0..twins.len().max(devices.len()) {
            let (Some(twin), Some(device)) = (twins.get(at), devices.get(at)) else {
                return Some(format!("SSD {ssd}, SEND {at}: {:?} and {:?}", twins.get(at), devices.get(at)));
            };
            if !names.agree(device.sequence(), twin.sequence()) || device.named(twin.sequence()) != *twin {
                return Some(format!("SSD {ssd}, SEND {at}:\n  twin   {twin:?}\n  device {device:?}"));
            }
        }
    }
    (twin.ended != device.ended)
        .then(|| format!("requests that ended:\n  twin   {:?}\n  device {:?}", twin.ended, device.ended))
}

#[test]
fn the_twin_sends_what_the_device_headers_send() {
    let _deadline = deadline();
    let seeds = match number("GNSTOR_TRACE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..1 + number("GNSTOR_TRACES").unwrap_or(TRACES),
    };
    let program = device::build();
    let traces: Vec<Trace> = seeds.map(Trace::new).collect();
    let text: String = traces.iter().map(|trace| trace.text.as_str()).collect();
    let mut runs = device::play(&program, text);
    let mut seen = trace::Seen::default();
    for trace in &traces {
        let mut names = Names::default();
        for (number, twin) in trace.runs.iter().enumerate() {
            let device = runs.next().unwrap_or_else(|| panic!("seed {}: the program has ended", trace.seed));
            if let Some(what) = difference(&mut names, twin, &device) {
                println!("the twin: {twin:?}\nthe device: {device:?}");
                let steps: Vec<&str> = trace.text.split_inclusive("run\n").take(number + 1).collect();
                panic!("seed {}, run {number}: {what}\n{}", trace.seed, steps.concat());
            }
        }
        seen.add(&trace.seen);
    }
    println!("{} traces: {seen:?}", traces.len());
    if traces.len() as u64 >= TRACES {
        seen.assert_all();
    }
}

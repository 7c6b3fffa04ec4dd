// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processor time of the parts of a measurement. On few cores an attacker takes from the load what it takes
//! of the processor, whatever the array does.

use gnstor_tests::command::cpu_seconds;
use std::time::{Duration, Instant};

/// Busy time of all processors of the machine since it started, in seconds.
fn of_machine() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").expect("Linux has it");
    let fields = stat.lines().next().expect("a line").split_whitespace().skip(1);
    let ticks: Vec<u64> = fields.map(|field| field.parse().expect("ticks")).collect();
    // user, nice and system; irq, softirq and steal. What guests take is part of user.
    ticks.iter().take(8).enumerate().filter(|(at, _)| ![3, 4].contains(at)).map(|(_, n)| n).sum::<u64>()
        as f64
        / 100.0
}

/// Cores that each part takes, on average.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cores {
    array: f64,
    attackers: f64,
    machine: f64,
    over: f64,
}

impl Cores {
    pub(crate) fn add(&mut self, more: Self) {
        self.array += more.array;
        self.attackers += more.attackers;
        self.machine += more.machine;
        self.over += more.over;
    }

    /// In words.
    pub(crate) fn summary(&self) -> String {
        let [array, attackers, machine] =
            [self.array, self.attackers, self.machine].map(|seconds| seconds / self.over);
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        format!(
            "cores: array {array:.2}, attackers {attackers:.2}, all of the machine {machine:.2} of {cores}"
        )
    }
}

/// Measures from its start on.
pub(crate) struct Watch {
    array: Vec<u32>,
    attackers: Vec<u32>,
    begun: Instant,
    before: [f64; 3],
}

impl Watch {
    pub(crate) fn start(array: &[u32], attackers: &[u32]) -> Self {
        let (array, attackers) = (array.to_vec(), attackers.to_vec());
        let before = Self::now(&array, &attackers);
        Self { array, attackers, begun: Instant::now(), before }
    }

    fn now(array: &[u32], attackers: &[u32]) -> [f64; 3] {
        let of = |all: &[u32]| all.iter().map(|&pid| cpu_seconds(pid)).sum();
        [of(array), of(attackers), of_machine()]
    }

    /// The processes must not have been waited for.
    pub(crate) fn stop(self) -> Cores {
        let now = Self::now(&self.array, &self.attackers);
        let [array, attackers, machine] = [0, 1, 2].map(|part| now[part] - self.before[part]);
        Cores {
            array,
            attackers,
            machine,
            over: self.begun.elapsed().max(Duration::from_millis(1)).as_secs_f64(),
        }
    }
}

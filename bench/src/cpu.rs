// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU time of this process, and of its threads by name.

use super::load::Load;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// CPU seconds. Before they are subtracted: since the process began.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CpuTime {
    /// Time in the process's own code.
    pub user_s: f64,
    /// Time in the kernel for the process.
    pub system_s: f64,
    /// CPU time by thread name, if the kernel reports it.
    pub threads: BTreeMap<String, f64>,
}

/// Threads that never sleep while a load runs, and the cores for them.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Busy {
    /// Engines, proxies, and the device if the CPU executes it.
    pub threads: usize,
    /// Cores that this process may use.
    pub cores: usize,
    /// There are more such threads than cores, so the figures show how threads share cores.
    pub core_bound: bool,
}

impl Busy {
    pub(super) fn of(load: &Load, engines: usize, device: &str) -> Self {
        let proxies = if load.by_cpu() { load.clients as usize } else { 0 };
        let threads = engines + proxies + usize::from(device == "host");
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { threads, cores, core_bound: threads > cores }
    }
}

/// CPU seconds of a thread by its folder in /proc.
fn ran_s(task: &Path) -> Option<f64> {
    let text = std::fs::read_to_string(task.join("schedstat")).ok()?;
    Some(text.split_whitespace().next()?.parse::<f64>().ok()? / 1e9)
}

/// CPU seconds of the calling thread; 0 where the kernel does not tell.
pub(super) fn this_thread_s() -> f64 {
    ran_s(Path::new("/proc/thread-self")).unwrap_or(0.0)
}

impl CpuTime {
    /// The current values.
    pub(super) fn now() -> Self {
        let usage = getrusage(UsageWho::RUSAGE_SELF);
        #[expect(clippy::cast_precision_loss, reason = "seconds to print")]
        let seconds = |us: i64| us as f64 / 1e6;
        let (user_s, system_s) = usage.map_or((0.0, 0.0), |u| {
            (seconds(u.user_time().num_microseconds()), seconds(u.system_time().num_microseconds()))
        });
        let mut threads = BTreeMap::new();
        for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
            let name = std::fs::read_to_string(task.path().join("comm"));
            if let (Ok(name), Some(seconds)) = (name, ran_s(&task.path())) {
                *threads.entry(name.trim().to_owned()).or_insert(0.0) += seconds;
            }
        }
        Self { user_s, system_s, threads }
    }

    /// Difference to `before`.
    pub(super) fn since(&self, before: &Self) -> Self {
        let spent = |name: &String, seconds: f64| seconds - before.threads.get(name).unwrap_or(&0.0);
        let threads = self.threads.iter().map(|(name, &seconds)| (name.clone(), spent(name, seconds)));
        Self {
            user_s: self.user_s - before.user_s,
            system_s: self.system_s - before.system_s,
            threads: threads.filter(|(_, seconds)| *seconds >= 0.001).collect(),
        }
    }
}

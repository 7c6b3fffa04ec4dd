// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shared by the benches of this crate: options, a layer in RAM, and the machine that figures belong to.
#![allow(dead_code, clippy::allow_attributes, reason = "each bench uses a part of it")]

pub(crate) mod closed_loop;
pub(crate) mod skew;
pub(crate) mod state;
pub(crate) mod watched;

use gnstor_base::time::{Span, Time};
use gnstor_flash::{Faults, MediaConfig, Power, RamStore, Store};
use gnstor_ftl::{Collection, CommitError, DUMP_BYTES, Ftl, FtlConfig, NewBlock, OpenError, Target};
use gnstor_model::Preset;
use gnstor_proto::slba::{Stamp, Vid};
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

/// Whether the option `--name` was given.
pub(crate) fn flag(name: &str) -> bool {
    std::env::args().any(|arg| arg == name)
}

/// The value of the option `--name`.
pub(crate) fn option<T: FromStr>(name: &str, default: T) -> T {
    let value = std::env::args().skip_while(|arg| arg != name).nth(1);
    value.map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{name} {value} makes no sense")))
}

/// The load average, and how many cores there are: figures without it mean little.
pub(crate) fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let load: Vec<String> = read("/proc/loadavg").split(' ').take(3).map(Into::into).collect();
    let cpu = read("/proc/cpuinfo");
    let model =
        cpu.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split(": ").nth(1));
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    format!("{} x {cores}, load average {}", model.unwrap_or("unknown CPU"), load.join(" "))
}

/// Time of this thread on a core, without the time of other processes.
pub(crate) fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// RAM media and a RAM store for this many logical pages.
pub(crate) fn in_ram(preset: &Preset, logical_pages: u64, spare_frames: u32) -> Result<FtlConfig, OpenError> {
    let power = Arc::new(Power::steady());
    let bytes = FtlConfig::store_bytes(preset, logical_pages, DUMP_BYTES)?;
    let store: Arc<dyn Store> = Arc::new(RamStore::new(bytes, Arc::clone(&power)));
    Ok(FtlConfig {
        preset: preset.clone(),
        logical_pages,
        media: MediaConfig::Ram { shared: false },
        store,
        faults: Arc::new(Faults::none()),
        power,
        spare_frames,
        collection: Collection::default(),
        dump_bytes: DUMP_BYTES,
        seed: 1,
    })
}

/// Time after which a stalled write is tried again.
const SOON: Span = Span::from_ns(100_000);

/// One writer of one volume.
pub(crate) struct Writer {
    pub(crate) vid: Vid,
    pub(crate) sequence: u64,
    pub(crate) stalls: u64,
    blocks: Vec<NewBlock>,
}

impl Writer {
    pub(crate) fn new() -> Self {
        Self { vid: Vid::MIN, sequence: 0, stalls: 0, blocks: Vec::new() }
    }

    /// Writes blocks with the present contents of the frames. Returns when the model has them, and when the
    /// layer took them.
    pub(crate) fn write(&mut self, ftl: &Ftl, now: Time, accepted: Time, vbas: Range<u32>) -> (Time, Time) {
        self.sequence += 1;
        let stamp = Stamp { lease_epoch: 1, sequence: self.sequence };
        let target =
            Target { vid: self.vid, generation: 1, vba: vbas.start, stamp, only_mapped: false, fills: false };
        self.blocks.clear();
        let mut at = now;
        while self.blocks.len() < vbas.len() {
            match ftl.take_frame() {
                Some(frame) => self.blocks.push(NewBlock { frame, sum: 0 }),
                None => at = at.max(ftl.maintain(at)),
            }
        }
        let mut patience = 1000;
        loop {
            match ftl.commit(at, accepted.max(at), &target, &self.blocks) {
                Ok(committed) => {
                    return (committed.done, at);
                }
                Err(CommitError::Stalled) => {
                    self.stalls += 1;
                    // If nothing is due, the controller would try again soon, and so does this.
                    let next = ftl.maintain(at);
                    patience -= u32::from(next == Time::NEVER);
                    assert_ne!(patience, 0, "a write stalls for ever: {:?} {:?}", ftl.stats(), ftl.health());
                    at = if next == Time::NEVER { at + SOON } else { next };
                }
                Err(error) => panic!("no faults, within the logical capacity: {error}"),
            }
        }
    }
}

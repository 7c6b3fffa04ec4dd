// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures the cost of memory that outlives its process. It is the CPU time of a 4 KiB write with the null
//! preset and a data file, in pairs with a volatile SSD.
//!
//! `cargo bench -p gnstor-ftl --bench kept -- [--dir /dev/shm] [--mib 256] [--writes 20000] [--pairs 40]`
//!
//! A write copies 4 KiB into its frame, is committed, and pays for its share of programs, journal and
//! collection. The two SSDs take turns, so that other work on the machine affects both alike.
//!
//! `--side volatile|kept --pairs N` makes one of the two SSDs, writes N times, and prints no figure. Two such
//! runs under `valgrind --tool=callgrind`, with other N, give the instructions of a write.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

mod common;

use common::{Writer, cpu_ns, machine, option};
use gnstor_base::time::Time;
use gnstor_flash::{DataFile, FileStore, MediaConfig};
use gnstor_ftl::{DUMP_BYTES, Ftl, FtlConfig, geometry_for};
use gnstor_model::Preset;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

struct Side {
    ftl: Ftl,
    writer: Writer,
    written: u64,
}

impl Side {
    fn new(path: &Path, pages: u64, is_kept: bool) -> Self {
        let preset = Preset::by_name("null").expect("a preset of gnstor-model");
        let mut config = common::in_ram(&preset, pages, 8192 + 2 * preset.buffer_pages).expect("a size");
        let geometry = geometry_for(&preset, pages).expect("a size");
        let bytes = FtlConfig::store_bytes(&preset, pages, DUMP_BYTES).expect("a size");
        let file = DataFile::create(path, &geometry, bytes, "a bench").expect("room for a data file");
        let file = Arc::new(if is_kept { file } else { file.volatile() });
        config.store = Arc::new(FileStore::new(Arc::clone(&file), Arc::clone(&config.power)));
        config.media = MediaConfig::File(file);
        let ftl = Ftl::format(&config).expect("memory").ftl;
        assert_eq!(ftl.flash().kept().is_some(), is_kept);
        let mut side = Self { ftl, writer: Writer::new(), written: 0 };
        side.write(pages * 2, pages);
        side
    }

    /// CPU and time of this thread for each of so many writes, in ns.
    #[expect(clippy::cast_precision_loss, reason = "figures to print")]
    fn write(&mut self, writes: u64, pages: u64) -> [f64; 2] {
        let data = [7; 4096];
        let (cpu, since) = (cpu_ns(), Instant::now());
        for _ in 0..writes {
            self.written += 1;
            // In order, so that nothing is collected and each window has the same work.
            let vba = u32::try_from(self.written % pages).expect("less than 16 TiB");
            if let Some(frame) = self.ftl.take_frame() {
                self.ftl.flash().write_frame(frame, &data);
                self.ftl.give_frame(frame);
            }
            let now = Time::from_ns(self.written * 1000);
            self.writer.write(&self.ftl, now, now, vba..vba + 1);
        }
        let wall = since.elapsed().as_nanos() as f64;
        [(cpu_ns() - cpu) as f64 / writes as f64, wall / writes as f64]
    }
}

fn main() {
    let dir: String = option("--dir", "/dev/shm".into());
    let (mib, writes, pairs) =
        (option("--mib", 256u64), option("--writes", 20_000u64), option("--pairs", 40usize));
    let folder = tempfile::tempdir_in(&dir).expect("a folder for the data files");
    let side: String = option("--side", "both".into());
    if side != "both" {
        let mut alone = Side::new(&folder.path().join("alone"), mib << 8, side == "kept");
        for _ in 0..pairs {
            alone.write(writes, mib << 8);
        }
        return;
    }
    println!("{mib} MiB in {dir}, null, {pairs} pairs of {writes} writes; {}", machine());
    let pages = mib << 8;
    let mut volatile = Side::new(&folder.path().join("volatile"), pages, false);
    let mut kept = Side::new(&folder.path().join("kept"), pages, true);
    let mut figures = [[Vec::new(), Vec::new()], [Vec::new(), Vec::new()]];
    for pair in 0..pairs {
        let (one, other) = if pair % 2 == 0 {
            let one = volatile.write(writes, pages);
            (one, kept.write(writes, pages))
        } else {
            let other = kept.write(writes, pages);
            (volatile.write(writes, pages), other)
        };
        for kind in 0..2 {
            figures[kind][0].push(one[kind]);
            figures[kind][1].push(other[kind]);
        }
    }
    // Takes the fastest tenth, in which the machine was otherwise idle.
    let at = |values: &mut Vec<f64>, percent: usize| {
        values.sort_by(f64::total_cmp);
        values[values.len() * percent / 100]
    };
    for (kind, name) in ["CPU", "time"].into_iter().enumerate() {
        for percent in [2, 10, 25, 50] {
            let [one, other] = figures[kind].each_mut().map(|values| at(values, percent));
            let difference = (other / one - 1.0) * 100.0;
            println!(
                "{name:<5} percentile {percent:>2}: volatile {one:7.0} ns  kept {other:7.0} ns  \
                 {difference:+.2} %"
            );
        }
    }
    // This comes last: after it the ring is not the journal's any more.
    push_alone(&kept);
}

/// The part of the cost that each commit pays: its transaction goes to the ring.
fn push_alone(side: &Side) {
    const TRANSACTION: [u8; 56] = [1; 56];
    const ROUNDS: u32 = 2000;
    let mut tail = side.ftl.flash().kept().expect("it has some").tail();
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let since = Instant::now();
        (0..1000).for_each(|_| tail.push(std::hint::black_box(&TRANSACTION)));
        best = best.min(since.elapsed().as_secs_f64() * 1e6);
        tail.drop_front(56_000, 1);
    }
    println!("a transaction of 56 bytes to the ring: {best:.1} ns");
}

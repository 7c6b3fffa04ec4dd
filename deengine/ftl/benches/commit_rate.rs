// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures the CPU time of one commit and of one read of 4 KiB, with the null preset. It also measures reads
//! on two threads, with and without a writer beside them.
//!
//! `cargo bench -p gnstor-ftl --bench commit_rate -- [--gib 1] [--writes N] [--reads N] [--json]`
//!
//! No call waits for modelled time, so the figures are the layer's own cost. The figure of a commit includes
//! its share of collection and journal. It does not include moving the data into the frame.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock and has threads")]

mod common;

use common::{Writer, cpu_ns, flag, in_ram, machine, option};
use gnstor_base::time::Time;
use gnstor_flash::Fetch;
use gnstor_ftl::{Extent, Ftl};
use gnstor_model::Preset;
use gnstor_proto::placement::mix64;
use gnstor_proto::slba::Vid;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

fn main() {
    let (gib, writes, reads) =
        (option("--gib", 1u64), option("--writes", 1_000_000u64), option("--reads", 4_000_000u64));
    let preset = Preset::by_name("null").expect("a preset of gnstor-model");
    let config = in_ram(&preset, gib << 18, 4096).expect("a size that can be");
    let ftl = Ftl::format(&config).expect("memory").ftl;
    let blocks = u32::try_from(ftl.logical_pages()).expect("less than 16 TiB");
    let mut writer = Writer::new();
    if !flag("--json") {
        println!("{gib} GiB, null; {}", machine());
    }
    report("commit, first write", u64::from(blocks), || {
        (0..blocks).for_each(|vba| _ = writer.write(&ftl, Time::ZERO, Time::ZERO, vba..vba + 1));
    });
    report("commit, first random overwrites (collection begins)", u64::from(blocks), || {
        overwrite(&ftl, &mut writer, u64::from(blocks), 1);
    });
    let before = ftl.stats();
    report("commit, random overwrite, steady", writes, || overwrite(&ftl, &mut writer, writes, 2));
    let after = ftl.stats();
    if !flag("--json") {
        #[expect(clippy::cast_precision_loss, reason = "a figure to print")]
        let each = |count: u64| count as f64 / writes as f64;
        println!(
            "    of these, for each commit: {:.2} pages moved, {:.4} erases; {} checkpoints, {} stalls",
            each(after.moved_pages - before.moved_pages),
            each(after.erases - before.erases),
            after.checkpoints - before.checkpoints,
            after.stalls - before.stalls
        );
    }
    report("read: extent, fetch, unpin; random", reads, || look(&ftl, blocks, reads, 3, 0));
    report("read, asked for 8 ahead", reads, || look(&ftl, blocks, reads, 4, 8));
    for writing in [false, true] {
        read_on_two_threads(&ftl, &mut writer, blocks, reads, writing);
    }
}

/// Reads on two threads, with or without a writer beside them.
fn read_on_two_threads(ftl: &Ftl, writer: &mut Writer, blocks: u32, reads: u64, writing: bool) {
    let stop = AtomicBool::new(false);
    let what = if writing { "read on 2 threads beside a writer, each" } else { "read on 2 threads, each" };
    let mut written = 0u64;
    std::thread::scope(|scope| {
        let beside = writing.then(|| {
            let stop = &stop;
            scope.spawn(move || {
                let mut count = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    overwrite(ftl, writer, 100, 5 + count);
                    count += 100;
                }
                count
            })
        });
        report(what, reads, || {
            std::thread::scope(|readers| {
                for seed in 0..2 {
                    readers.spawn(move || look(ftl, blocks, reads, seed, 8));
                }
            });
        });
        stop.store(true, Ordering::Relaxed);
        written = beside.map_or(0, |thread| thread.join().expect("the writer"));
    });
    if writing && !flag("--json") {
        println!("    {written} commits meanwhile");
    }
}

fn report(what: &str, ops: u64, run: impl FnOnce()) {
    let (start, cpu) = (Instant::now(), cpu_ns());
    run();
    #[expect(clippy::cast_precision_loss, reason = "figures to print")]
    let (wall, cpu) =
        (start.elapsed().as_secs_f64() * 1e9 / ops as f64, (cpu_ns() - cpu) as f64 / ops as f64);
    if flag("--json") {
        println!(r#"{{"bench":"commit_rate","what":"{what}","wall_ns":{wall:.1},"cpu_ns":{cpu:.1}}}"#);
    } else {
        println!("{what:<52} {wall:>9.1} ns wall {cpu:>9.1} ns CPU of this thread");
    }
}

fn overwrite(ftl: &Ftl, writer: &mut Writer, count: u64, seed: u64) {
    let blocks = ftl.logical_pages();
    for step in 0..count {
        let vba = u32::try_from(mix64(mix64(seed) ^ step) % blocks).expect("a block");
        writer.write(ftl, Time::ZERO, Time::ZERO, vba..vba + 1);
    }
}

fn look(ftl: &Ftl, blocks: u32, count: u64, seed: u64, ahead: u64) {
    let vid = Vid::MIN;
    let block =
        |step: u64| u32::try_from(mix64(mix64(seed ^ 0xBEEF) ^ step) % u64::from(blocks)).expect("a block");
    let mut probes: Vec<_> = (0..ahead).map(|step| ftl.probe(vid, block(step))).collect();
    for step in 0..count {
        let vba = block(step);
        let extent = if ahead == 0 {
            ftl.extent(vid, 1, vba)
        } else {
            let nth = usize::try_from(step % ahead).expect("a few");
            let probe = std::mem::replace(&mut probes[nth], ftl.probe(vid, block(step + ahead)));
            let middle = usize::try_from((step + ahead / 2) % ahead).expect("a few");
            ftl.prefetch_record(&probes[middle]);
            ftl.extent_at(&probe, vid, 1, vba)
        };
        let Extent::Page(page, _) = extent else { panic!("block {vba} is written: {extent:?}") };
        assert!(matches!(ftl.fetch(page), Fetch::Here(_)), "RAM media");
        ftl.unpin(page);
    }
}

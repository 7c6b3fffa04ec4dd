// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures a rebuild of the map from out-of-band records. Its time is linear in pages, so the result is
//! nanoseconds for each page, at two sizes.
//!
//! `cargo bench -p gnstor-ftl --bench rebuild -- [--small-gib 2] [--large-gib 8] [--json]`
//!
//! The medium is RAM, all logical pages are written with any data, and checkpoint and journal are zeroed. The
//! layer uses as many threads as the process may run on; `taskset -c 0` gives one thread. The bench prints
//! the number of threads.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

mod common;

use common::{Writer, flag, in_ram, machine, option};
use gnstor_base::time::Time;
use gnstor_ftl::{Ftl, FtlConfig, Origin};
use gnstor_model::Preset;
use std::sync::Arc;
use std::time::Instant;

fn main() {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if !flag("--json") {
        println!("rebuild with {threads} readers; {}", machine());
    }
    for gib in [option("--small-gib", 2), option("--large-gib", 8)] {
        measure(gib, threads);
    }
}

fn measure(gib: u64, threads: usize) {
    let preset = Preset::by_name("null").expect("a preset of gnstor-model");
    let logical_pages = gib << 18;
    let config = in_ram(&preset, logical_pages, 4096).expect("a size that can be");
    let ftl = Ftl::format(&config).expect("memory").ftl;
    let mut writer = Writer::new();
    for vba in (0..u32::try_from(logical_pages).expect("less than 16 TiB")).step_by(16) {
        writer.write(&ftl, Time::ZERO, Time::ZERO, vba..vba + 16);
    }
    ftl.shut_down().expect("no faults");
    let flash = Arc::clone(ftl.flash());
    drop(ftl);
    erase_system_area(&config, logical_pages, &preset);
    let start = Instant::now();
    let opened = Ftl::open_on(flash, &config, |_, _, _| true, &|_, _| {}).expect("a rebuild");
    let took = start.elapsed().as_secs_f64();
    assert!(matches!(opened.boot.origin, Origin::Rebuilt(_)), "{:?}", opened.boot);
    assert_eq!(opened.boot.mapped, logical_pages, "all that was written is there");
    let pages = opened.ftl.flash().geometry().pages();
    #[expect(clippy::cast_precision_loss, reason = "a figure to print")]
    let ns = took * 1e9 / pages as f64;
    if flag("--json") {
        println!(
            "{{\"bench\":\"rebuild\",\"gib\":{gib},\"pages\":{pages},\"threads\":{threads},\
             \"wall_s\":{took:.4},\"ns_per_page\":{ns:.1}}}"
        );
    } else {
        println!(
            "{gib} GiB: {pages} pages in {took:.3} s, {ns:.1} ns a page (with the checkpoint at its end)"
        );
    }
}

/// Journal and checkpoints become zeros: they are the end of the store.
fn erase_system_area(config: &FtlConfig, logical_pages: u64, preset: &Preset) {
    let sizes = FtlConfig::sizes(preset, logical_pages, config.dump_bytes).expect("a size that can be");
    let zeros = vec![0; 1 << 20];
    let ring = sizes.journal_at();
    for at in (ring..config.store.len()).step_by(zeros.len()) {
        let bytes =
            usize::try_from(config.store.len() - at).map_or(zeros.len(), |left| left.min(zeros.len()));
        config.store.write(at, &zeros[..bytes]).expect("a store in RAM");
    }
    config.store.sync().expect("a store in RAM");
}

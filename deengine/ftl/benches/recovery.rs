// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Time of a restore after a power failure: checkpoint, journal, dump, on one core, from the page cache.
//!
//! ```text
//!   made without writing data: map --> checkpoint | journal: host writes and moves | dump: tail and pages
//!   measured, again and again: Ftl::open over that file; its writes to the system area are undone afterwards
//! ```
//! `cargo bench -p gnstor-ftl --bench recovery -- [--gib 16 | --tib 1] [--preset gnstor-980pro] [--dir DIR]
//! [--journal-mib N] [--moves 6] [--volumes 16] [--dump-pages N] [--fill 97] [--rounds 3] [--json]`
//!
//! Journal and dump are by default the worst possible ones. Writes stall when 15/16 of the ring are full, the
//! dump's tail included. Where no write stalls, three quarters are full: a checkpoint begins when the ring is
//! half full and counts from three quarters on. The dump has as many pages as its energy budget allows.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

mod common;

use common::{flag, machine, option, state::Made, state::Plan, watched::Mark, watched::Watched};
use gnstor_flash::{DataFile, Faults, FileStore, MediaConfig, Power};
use gnstor_ftl::{Collection, DUMP_BYTES, Ftl, FtlConfig, Origin, geometry_for, reserved_superblocks};
use gnstor_model::Preset;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

fn main() {
    let gib: u64 = if flag("--tib") { option::<u64>("--tib", 1) << 10 } else { option("--gib", 16) };
    let name: String = option("--preset", "gnstor-980pro".into());
    let preset = Preset::by_name(&name).expect("a preset of gnstor-model");
    let folder: String = option("--dir", std::env::temp_dir().display().to_string());
    let path = PathBuf::from(folder).join(format!("recovery-{}.ssd", std::process::id()));
    let logical_pages = gib << 18;
    let sizes = FtlConfig::sizes(&preset, logical_pages, DUMP_BYTES).expect("a size that can be");
    let geometry = geometry_for(&preset, logical_pages).expect("a size that can be");
    let plan = Plan {
        fill_percent: option("--fill", 97),
        journal_bytes: option::<u64>("--journal-mib", 0) << 20,
        moves: option("--moves", 6),
        volumes: option("--volumes", 16),
        free_superblocks: reserved_superblocks(&preset, &geometry, logical_pages),
        dump_pages: option("--dump-pages", u32::MAX),
    };
    let made = make(&path, &preset, logical_pages, &plan);
    if !flag("--json") {
        println!(
            "{name}, {gib} GiB logical, {} blocks mapped ({} %); {}",
            made.mapped,
            plan.fill_percent,
            machine()
        );
        println!(
            "journal {} MiB of {} ({} %): {} host writes, {} moves, {} TRIMs; {} volumes; dump {} pages, \
             {:.1} MiB of {}; map {} MiB",
            made.journal_bytes >> 20,
            sizes.journal_bytes >> 20,
            100 * made.journal_bytes / sizes.journal_bytes,
            made.writes,
            made.moved,
            made.trims,
            plan.volumes,
            made.dump_pages,
            mib(made.dump_bytes),
            DUMP_BYTES >> 20,
            sizes.map_words >> 17,
        );
    }
    for _ in 0..option("--rounds", 3) {
        measure(&path, &preset, logical_pages, &made);
    }
    std::fs::remove_file(&path).expect("the file made above");
}

fn config(file: Arc<DataFile>, store: Arc<Watched>, preset: &Preset, logical_pages: u64) -> FtlConfig {
    FtlConfig {
        preset: preset.clone(),
        logical_pages,
        media: MediaConfig::File(file),
        store,
        faults: Arc::new(Faults::none()),
        power: Arc::new(Power::steady()),
        spare_frames: 4 * preset.buffer_pages.max(1024),
        collection: Collection::default(),
        dump_bytes: DUMP_BYTES,
        seed: 1,
    }
}

fn make(path: &Path, preset: &Preset, logical_pages: u64, plan: &Plan) -> Made {
    let geometry = geometry_for(preset, logical_pages).expect("a size that can be");
    let bytes = FtlConfig::store_bytes(preset, logical_pages, DUMP_BYTES).expect("a size that can be");
    // A file that is a hole stays sparse: no disk need have room for its data.
    std::fs::File::create(path).and_then(|file| file.set_len(4096)).expect("a hole");
    let file = Arc::new(DataFile::create(path, &geometry, bytes, "bench").expect("a new file"));
    let start = Instant::now();
    let store = Arc::new(FileStore::new(file, Arc::new(Power::steady())));
    let sizes = FtlConfig::sizes(preset, logical_pages, DUMP_BYTES).expect("a size that can be");
    let made = common::state::make(store, sizes, &geometry, logical_pages, plan);
    eprintln!("made in {:.1} s", start.elapsed().as_secs_f64());
    made
}

fn measure(path: &Path, preset: &Preset, logical_pages: u64, made: &Made) {
    let file = Arc::new(DataFile::open(path).expect("the file made above"));
    let store = FileStore::new(Arc::clone(&file), Arc::new(Power::steady()));
    let sizes = FtlConfig::sizes(preset, logical_pages, DUMP_BYTES).expect("a size that can be");
    let store = Arc::new(Watched::new(store, &sizes));
    store.warm();
    let config = config(file, Arc::clone(&store), preset, logical_pages);
    let start = Mark::now();
    let opened = Ftl::open(&config, |_, _, _| true, &|_, _| {}).expect("what was made");
    let [took, cpu] = Mark::now().since(&start);
    let boot = opened.boot;
    assert_eq!(boot.origin, Origin::Dump, "{boot:?}");
    assert_eq!((boot.mapped, boot.last), (made.mapped, made.last), "{boot:?}");
    assert!(
        opened.ftl.map().scan(0, 64).all(|(vid, vba, page)| opened.ftl.map().get(vid, vba) == Some(page))
    );
    let phases = store.phases(start);
    #[expect(clippy::cast_precision_loss, reason = "figures to print")]
    let (read_gb, rate) = (boot.bytes_read as f64 / 1e9, internal_rate(preset) / 1e9);
    let modelled = if rate > 0.0 { read_gb / rate } else { 0.0 };
    let peak = peak_mib();
    if flag("--json") {
        let fields: Vec<String> = phases
            .iter()
            .map(|(name, [s, cpu])| format!(r#""{name}_s":{s:.4},"{name}_cpu_s":{cpu:.4}"#))
            .collect();
        println!(
            "{{\"bench\":\"recovery\",\"preset\":\"{}\",\"logical_pages\":{logical_pages},\"replayed\":{},\
             \"rewritten\":{},\"journal_bytes\":{},\"dump_bytes\":{},\"wall_s\":{took:.4},\
             \"cpu_s\":{cpu:.4},{},\"modelled_s\":{modelled:.4},\"peak_mib\":{peak}}}",
            preset.name,
            boot.replayed,
            boot.rewritten,
            made.journal_bytes,
            made.dump_bytes,
            fields.join(",")
        );
    } else {
        let fields: Vec<String> =
            phases.iter().map(|(name, [s, cpu])| format!("{name} {s:.3} ({cpu:.3})")).collect();
        println!("open {took:.3} s (CPU {cpu:.3} s) = {}", fields.join(" + "));
        println!(
            "  {} transactions replayed, {} pages rewritten, peak memory {peak} MiB; modelled: \
             {read_gb:.2} GB at {rate:.1} GB/s = {modelled:.3} s",
            boot.replayed, boot.rewritten
        );
    }
    drop(opened.ftl);
    store.take_back();
}

/// Highest rate of the flash in bytes/s: that of all channels, or of all planes sensing, whichever is lower.
/// The link to the host has no part in a restore. 0 if nothing takes time.
#[expect(clippy::cast_precision_loss, reason = "a figure to print")]
fn internal_rate(preset: &Preset) -> f64 {
    if preset.is_null() {
        return 0.0;
    }
    let shape = &preset.shape;
    let channels = u64::from(shape.channels) * preset.channel_bytes_per_s;
    let planes = if preset.independent_planes { shape.planes } else { 1 };
    let sensing = u64::from(shape.channels * shape.dies_per_channel * planes * shape.sense_pages) * 4096;
    (channels as f64).min(sensing as f64 / preset.sense_ns as f64 * 1e9)
}

#[expect(clippy::cast_precision_loss, reason = "a figure to print")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn peak_mib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("VmHWM"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)).and_then(|kib| kib.parse::<u64>().ok());
    kib.unwrap_or(0) >> 10
}

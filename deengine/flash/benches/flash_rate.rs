// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures the CPU time of the steps that each page takes: pin, key, fetch and unpin at random; place and
//! program; erase.
//!
//! `cargo bench -p gnstor-flash --bench flash_rate [-- FOLDER]`. With a folder it also measures a file in it.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use gnstor_flash::{
    Block, DataFile, Faults, Fetch, Flash, FlashConfig, Geometry, MediaConfig, Oob, Power, Ppa, Shape, Unit,
};
use gnstor_proto::placement::mix64;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

const SHAPE: Shape =
    Shape { channels: 8, dies_per_channel: 4, planes: 2, unit_pages: 8, sense_pages: 4, rows: 128 };

fn per_op(what: &str, ops: u64, run: impl FnOnce()) {
    let start = Instant::now();
    run();
    let ns = start.elapsed().as_secs_f64() * 1e9;
    println!("{what:<44} {:>10.1} ns", ns / ops as f64);
}

fn main() {
    let folder = std::env::args().skip(1).find(|arg| !arg.starts_with("--"));
    // 1 GiB of pages, so that records (16 MiB) are seldom in a near cache.
    let geometry = Geometry::for_pages(SHAPE, 1 << 18).expect("a shape that can be");
    let media = match &folder {
        None => MediaConfig::Ram { shared: false },
        Some(folder) => {
            let path = Path::new(folder).join("flash_rate.ssd");
            MediaConfig::File(Arc::new(DataFile::create(&path, &geometry, 0, "bench").expect("a new file")))
        }
    };
    let config = FlashConfig {
        geometry: geometry.clone(),
        spare_frames: 4096,
        media,
        faults: Arc::new(Faults::none()),
        power: Arc::new(Power::steady()),
    };
    let flash = Flash::new(config).expect("media");
    let pages = geometry.pages();
    for round in 0..2 {
        per_op(if round == 0 { "write a page (memory is new)" } else { "write a page" }, pages, || {
            fill(&flash)
        });
        if round == 0 {
            per_op("erase, for each page", pages, || {
                (0..geometry.blocks()).for_each(|block| flash.erase(Block(block)).expect("no faults"));
            });
        }
    }
    let reads = if folder.is_some() { 200_000 } else { 10_000_000 };
    let page = |step: u64| Ppa(u32::try_from(mix64(step) % pages).expect("few pages"));
    per_op("pin, key, fetch, unpin a random page", reads, || {
        let mut waiting = std::collections::HashMap::new();
        for step in 0..reads {
            let at = page(step);
            // Pages that a pipeline of requests has looked up and will read next.
            flash.prefetch(page(step + 8));
            flash.pin(at);
            assert!(flash.key(at).is_some());
            match flash.fetch(at) {
                Fetch::Here(_) => flash.unpin(at),
                Fetch::Loading(ticket) => _ = waiting.insert(ticket, at),
                Fetch::Unreadable => panic!("no faults"),
            }
            while waiting.len() > if step + 1 == reads { 0 } else { 128 } {
                if let Some(loaded) = flash.poll_loaded() {
                    flash.release(loaded.ticket);
                    flash.unpin(waiting.remove(&loaded.ticket).expect("a load of ours"));
                }
            }
        }
    });
    if let Some(folder) = folder {
        std::fs::remove_file(Path::new(&folder).join("flash_rate.ssd")).expect("the file made above");
    }
}

/// Places and programs all pages, with 64 units in flight; the data is the frames' old content.
fn fill(flash: &Flash) {
    let geometry = flash.geometry();
    let finish = |unit: Unit| while flash.finish_program(unit).is_pending() {};
    for unit in (0..geometry.units()).map(Unit) {
        for page in geometry.pages_of(unit) {
            let frame = flash.take_frame().expect("enough frames");
            flash.place(page, frame, &Oob { vid: 1, vba: page.0, seq: u64::from(page.0), ..Oob::default() });
        }
        flash.start_program(unit);
        if unit.0 >= 64 {
            finish(Unit(unit.0 - 64));
        }
    }
    (geometry.units() - 64..geometry.units()).map(Unit).for_each(finish);
}

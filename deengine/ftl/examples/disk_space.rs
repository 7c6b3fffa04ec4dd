// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Prints the disk space that data files of several capacities take: the table of `docs/disk-space.md`.
//!
//! `disk_space DIR` makes each file in DIR, one after the other, and removes it again.

use gnstor_flash::DataFile;
use gnstor_ftl::{DUMP_BYTES, FtlConfig, geometry_for};
use gnstor_model::Preset;
use std::os::unix::fs::MetadataExt;

fn main() {
    let folder = std::env::args().nth(1).expect("give a folder for the files");
    let preset = Preset::by_name("gnstor-980pro").expect("a preset of this project");
    println!("capacity, file, du, flash and records, system area");
    for mib in [64u64, 256, 1024, 16_384] {
        let pages = mib << 8;
        let file = FtlConfig::data_file_bytes(&preset, pages, DUMP_BYTES).expect("a possible size");
        let system = FtlConfig::store_bytes(&preset, pages, DUMP_BYTES).expect("a possible size");
        let geometry = geometry_for(&preset, pages).expect("a possible size");
        let path = std::path::Path::new(&folder).join(format!("disk-space-{mib}.gns"));
        drop(DataFile::create(&path, &geometry, system, "").expect("a data file"));
        let disk = std::fs::metadata(&path).expect("the new file").blocks() * 512;
        std::fs::remove_file(path).expect("the new file");
        println!("{mib} MiB, {file}, {disk}, {}, {system}", geometry.pages() * (4096 + 64));
    }
}

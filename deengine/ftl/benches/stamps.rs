// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How many stamps a core compares, by digests of 64 blocks. The volume was written in order, and then a
//! quarter of it at random.
//!
//! `cargo bench -p gnstor-ftl --bench stamps -- [--blocks 1000000] [--rounds 5]`
//!
//! A repair computes the same digests on both SSDs, each on a core of its own.

mod common;

use common::{cpu_ns, in_ram, machine, option};
use gnstor_base::time::Time;
use gnstor_ftl::{Ftl, NewBlock, Target};
use gnstor_model::Preset;
use gnstor_proto::placement::mix64;
use gnstor_proto::pull::LEAF;
use gnstor_proto::slba::{Stamp, Vid};

fn write(ftl: &Ftl, vid: Vid, vba: u32, sequence: u64) {
    let frame = ftl.take_frame().expect("a frame");
    let stamp = Stamp { lease_epoch: 1, sequence };
    let target = Target { vid, generation: 1, vba, stamp, only_mapped: false, fills: false };
    let block = NewBlock { frame, sum: vba };
    ftl.commit(Time::ZERO, Time::ZERO, &target, &[block]).expect("room");
}

fn main() {
    let blocks: u32 = option("--blocks", 1_000_000);
    let rounds = option("--rounds", 5u32);
    let vid = Vid::new(5).expect("a number");
    let preset = Preset::by_name("null").expect("a preset of gnstor-model");
    let config = in_ram(&preset, u64::from(blocks) * 5 / 4, 65_536).expect("a size");
    let ftl = Ftl::format(&config).expect("memory").ftl;
    (0..blocks).for_each(|vba| write(&ftl, vid, vba, u64::from(vba) + 1));
    for round in 0..u64::from(blocks) / 4 {
        let vba = u32::try_from(mix64(round) % u64::from(blocks)).expect("below the blocks");
        write(&ftl, vid, vba, u64::from(blocks) + round + 1);
        ftl.maintain(Time::ZERO);
    }
    println!("{}", machine());
    let mut sum = 0u64;
    for _ in 0..rounds {
        let begun = cpu_ns();
        for first in (0..blocks).step_by(LEAF as usize) {
            let leaf: Vec<u32> = (first..blocks.min(first + LEAF)).collect();
            ftl.announce_rows(vid, &leaf);
            sum = sum.wrapping_add(ftl.commits().digest(vid, 1, &leaf));
        }
        let ns = cpu_ns() - begun;
        let rate = f64::from(blocks) * 1e3 / ns as f64;
        println!("{blocks} stamps: {:.1} ns each, {rate:.1} M/s a core (digest {sum:016x})", 1e3 / rate);
    }
}

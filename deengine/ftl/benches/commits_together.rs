// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures how long a commit holds the layer's lock, for different numbers of commits announced together.
//! The commits are of several volumes in random order, as the cores of an SSD under load make them.
//!
//! `cargo bench -p gnstor-ftl --bench commits_together -- [--gib 7] [--hold 48] [--rounds 12]`
//!
//! It takes the best round for each number, because other work on the machine makes rounds slower.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![expect(clippy::cast_precision_loss, reason = "figures to print")]

mod common;

use common::{in_ram, machine, option};
use gnstor_base::time::Time;
use gnstor_ftl::{Commits, Ftl, NewBlock, Target};
use gnstor_model::Preset;
use gnstor_proto::placement::mix64;
use gnstor_proto::slba::{Stamp, Vid};
use std::time::Instant;

const VOLUMES: u16 = 32;
const BLOCKS: u32 = 8192;
/// Number of commits in a round.
const COMMITS: usize = 40_000;
/// Commits announced together, twice this number ahead; 0: none.
const TOGETHER: [usize; 7] = [0, 2, 4, 8, 16, 32, 64];

fn main() {
    let (gib, hold, rounds) = (option("--gib", 7u64), option("--hold", 48usize), option("--rounds", 12u32));
    let preset = Preset::by_name("null").expect("a preset of gnstor-model");
    println!("{gib} GiB, null, {VOLUMES} volumes of {BLOCKS} blocks, {hold} commits a hold; {}", machine());
    for together in TOGETHER {
        let ftl =
            Ftl::format(&in_ram(&preset, gib << 18, 4096).expect("a size that can be")).expect("memory").ftl;
        let mut sequence = 0;
        let mut write = |vid, vba| {
            sequence += 1;
            let stamp = Stamp { lease_epoch: 1, sequence };
            let vid = Vid::new(vid).expect("not zero");
            let frame = ftl.take_frame().expect("nothing is under way");
            (
                Target { vid, generation: 1, vba, stamp, only_mapped: false, fills: false },
                NewBlock { frame, sum: 0 },
            )
        };
        for (vid, vba) in (1..=VOLUMES).flat_map(|vid| (0..BLOCKS).map(move |vba| (vid, vba))) {
            let (target, block) = write(vid, vba);
            ftl.commit(Time::ZERO, Time::ZERO, &target, &[block]).expect("there is room");
        }
        let mut dice = 1;
        let mut best = f64::MAX;
        for _ in 0..rounds {
            let (mut held, mut done) = (0.0, 0);
            while done < COMMITS {
                let jobs: Vec<_> = (0..hold)
                    .map(|_| {
                        dice = mix64(dice);
                        let vba = u32::try_from((dice >> 20) % u64::from(BLOCKS)).expect("a block");
                        write(u16::try_from(dice % u64::from(VOLUMES)).expect("a volume") + 1, vba)
                    })
                    .collect();
                let start = Instant::now();
                commit(&ftl, &jobs, together);
                held += start.elapsed().as_secs_f64();
                done += hold;
            }
            best = f64::min(best, held * 1e9 / done as f64);
        }
        println!("{together:>3} announced together   {best:>7.1} ns a commit");
    }
}

fn commit(ftl: &Ftl, jobs: &[(Target, NewBlock)], together: usize) {
    let mut commits = ftl.commits();
    let mut ahead = jobs.chunks(together.max(1));
    let announce = |commits: &mut Commits<'_>, group: Option<&[(Target, NewBlock)]>| {
        if together > 0 {
            commits.announce(group.unwrap_or_default().iter().map(|(target, _)| (target.vid, target.vba)));
        }
    };
    (0..Commits::AHEAD).for_each(|_| announce(&mut commits, ahead.next()));
    for group in jobs.chunks(together.max(1)) {
        announce(&mut commits, ahead.next());
        for (target, block) in group {
            commits
                .commit(Time::ZERO, Time::ZERO, target, std::slice::from_ref(block))
                .expect("there is room");
        }
    }
    commits.advance(Time::ZERO);
}

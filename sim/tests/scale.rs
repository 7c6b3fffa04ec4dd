// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small worlds: they repeat themselves, and their figures are those of the models.

use gnstor_base::testing::deadline;
use gnstor_base::time::Span;
use gnstor_deengine::Preset;
use gnstor_fabric::link::LinkConfig;
use gnstor_sim::load::Rw;
use gnstor_sim::scale::{Measured, Range, Row, Sweep};

fn sweep(rw: Rw) -> Sweep {
    let one = |count| Range { first: count, last: count };
    Sweep {
        clients: one(2),
        ssds: one(3),
        nodes: 1,
        replicas: 2,
        rw,
        bs: 4096,
        iodepth: 32,
        size: 1 << 20,
        ssd_bytes: None,
        preset: Preset::by_name("gnstor-980pro").unwrap(),
        link: LinkConfig::PAPER_200GBE,
        warmup: Span::from_ns(200_000),
        runtime: Span::from_ms(2),
        seed: 1,
        memory: 1 << 30,
    }
}

fn rows(sweep: &Sweep) -> Vec<Row> {
    let mut measured = Measured::default();
    sweep.plans().unwrap().iter().map(|plan| sweep.run(plan, &mut measured).unwrap()).collect()
}

#[test]
fn a_seed_is_the_same_run_twice_in_one_process_and_another_seed_is_not() {
    let _deadline = deadline();
    for rw in [Rw::Randread, Rw::Randwrite, Rw::Read, Rw::Write] {
        let first = rows(&sweep(rw));
        println!("{first:?}");
        assert_eq!(first, rows(&sweep(rw)), "{rw:?}");
        assert_ne!(first[0].trace, rows(&Sweep { seed: 2, ..sweep(rw) })[0].trace, "{rw:?}");
        assert!(first[0].requests > 100, "{rw:?}: {first:?}");
    }
}

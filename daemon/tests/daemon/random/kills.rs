// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SSDs are killed and start again beside a drain. None loses anything, so each group has its copies at the
//! end, and the SSD has left.

use super::cases;
use crate::bench::{Bench, write};
use crate::deadline::{Deadline, LIMIT};
use crate::shrink::{newest, of_replicas, serving};
use gnstor_daemon::core::request::Request;
use gnstor_fleet::map::Map;
use gnstor_proto::placement::map3::State3;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Stop(u16),
    Start(u16),
    StopAll,
    StartAll,
    Execute { ssd: usize, commands: u8 },
    RunUntilQuiet,
    Pass(u64),
    Daemon,
}

fn kill(ssds: usize) -> impl Strategy<Value = Step> {
    let index = 0..u16::try_from(ssds).expect("few");
    prop_oneof![
        2 => index.clone().prop_map(Step::Stop),
        3 => index.prop_map(Step::Start),
        1 => Just(Step::StopAll),
        2 => Just(Step::StartAll),
        4 => (0..ssds, 1u8..6).prop_map(|(ssd, commands)| Step::Execute { ssd, commands }),
        4 => Just(Step::RunUntilQuiet),
        4 => (0u64..400).prop_map(Step::Pass),
        1 => Just(Step::Daemon),
    ]
}

fn stop(bench: &mut Bench, ssd: u16) {
    if !bench.array.ssd(ssd.into()).dead {
        bench.lose(ssd);
        bench.array.ssd(ssd.into()).restart();
    }
}

fn start(bench: &mut Bench, ssd: u16) {
    if bench.array.ssd(ssd.into()).dead {
        bench.find(ssd);
    }
}

fn step(bench: &mut Bench, step: &Step) {
    let all = 0..u16::try_from(bench.array.len()).expect("few");
    match *step {
        Step::Stop(ssd) => stop(bench, ssd),
        Step::Start(ssd) => start(bench, ssd),
        Step::StopAll => all.for_each(|ssd| stop(bench, ssd)),
        Step::StartAll => all.for_each(|ssd| start(bench, ssd)),
        Step::Execute { ssd, commands } => {
            for _ in 0..commands {
                bench.execute(ssd);
            }
        }
        Step::RunUntilQuiet => bench.run_until_quiet(),
        Step::Pass(ms) => bench.pass(ms),
        Step::Daemon => {
            all.for_each(|ssd| start(bench, ssd));
            let (array, now) = (bench.array.clone(), bench.now);
            *bench = Bench::cold(&array, now);
            bench.run_for(3_000);
        }
    }
}

/// Makes the steps beside a drain of this SSD, and checks that it leaves and no copy is missing then.
fn leaves_beside(ssds: usize, drained: u16, (takes, replicas): (u32, u8), steps: &[Step]) {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(ssds);
    bench.ask(of_replicas("other", replicas)).unwrap();
    (0..ssds).for_each(|ssd| bench.array.ssd(ssd).fill.takes = takes);
    bench.ask(write("a", 7, 2_000)).unwrap();
    bench.ask(Request::Drain { ssd: drained }).unwrap();
    steps.iter().for_each(|kill| step(&mut bench, kill));
    let all = 0..u16::try_from(ssds).expect("few");
    all.clone().for_each(|ssd| start(&mut bench, ssd));
    for _ in 0..3 {
        bench.run_for(60_000);
        let fleet = bench.core.fleet().unwrap();
        for ssd in fleet.ssds.iter().filter(|ssd| ssd.flaps) {
            bench.core.resume(bench.now, ssd.index).unwrap();
        }
        bench.pass(0);
    }
    bench.run_for(60_000);
    assert_eq!(bench.stopped, None);
    let map = newest(&bench);
    let is_in = |ssd: u16| map.ssds[usize::from(ssd)].state == State3::In;
    let is_kept = map.ssds[usize::from(drained)].weight > 1;
    let fleet = bench.core.fleet().unwrap();
    let state = || fleet.ssds.iter().map(|ssd| (ssd.state, ssd.away.clone(), ssd.leave_waits.clone()));
    assert!(is_kept || !is_in(drained), "it has not left: {:?}", state().collect::<Vec<_>>());
    let rules = Map::of(&map).expect("a small array");
    for (row, places) in rules.rows.iter().enumerate() {
        assert_eq!(places.copies(2).len(), 2, "group {row}: {places:?} {:?}", state().collect::<Vec<_>>());
        assert_eq!(places.incoming, None, "group {row}");
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn an_ssd_leaves_and_no_copy_is_missing_whichever_ssds_are_killed_meanwhile(
        ssds in 3usize..6, drained in 0u16..3, takes in 0u32..6, replicas in 1u8..3,
        steps in proptest::collection::vec(kill(5), 1..40),
    ) {
        let fits = |kill: &Step| match *kill {
            Step::Stop(ssd) | Step::Start(ssd) => usize::from(ssd) < ssds,
            Step::Execute { ssd, .. } => ssd < ssds,
            _ => true,
        };
        let steps: Vec<Step> = steps.into_iter().filter(fits).collect();
        leaves_beside(ssds, drained, (takes, replicas), &steps);
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All copies have lost writes, and an operator has them merged (rule 17).

use crate::bench::{Bench, Outcome, create_with, refused};
use crate::deadline::{Deadline, LIMIT};
use crate::lose_data::{is_whole, with_single};
use crate::shrink::{DROP_MS, newest, serving, states};
use gnstor_daemon::core::request::Request;
use gnstor_daemon::core::{Reply, Salvageable};
use gnstor_proto::placement::map3::State3;
use gnstor_proto::status::GrpcCode::FailedPrecondition;

const AT_S: u32 = 1_800_000_000;

fn salvage(dry_run: bool) -> Request {
    Request::Salvage { dry_run, at_s: AT_S }
}

fn merged(outcome: Outcome) -> Salvageable {
    match outcome {
        Ok(Reply::Salvage(of)) => of,
        other => panic!("{other:?}"),
    }
}

/// All SSDs and the daemon lost their power.
fn after_a_cut(bench: Bench, ssds: usize) -> Bench {
    let (array, now) = (bench.array.clone(), bench.now);
    (0..ssds).for_each(|ssd| array.ssd(ssd).lose_writes());
    let mut bench = Bench::cold(&array, now);
    bench.run_for(5_000);
    assert_eq!(states(&bench), vec![State3::Absent; ssds]);
    bench
}

fn dark(ssds: usize) -> Bench {
    let mut bench = serving(ssds);
    bench.ask(create_with("pair", 64 * 16, None)).unwrap();
    bench.run_for(1_000);
    after_a_cut(bench, ssds)
}

fn notes(bench: &Bench, ssds: usize) -> Vec<u32> {
    let of = |ssd: usize| {
        let table = &bench.array.ssd(ssd).table;
        table.values().find(|entry| entry.name == "pair").expect("the volume").salvaged_s
    };
    (0..ssds).map(of).collect()
}

#[test]
fn all_copies_are_merged_and_serve_and_the_volume_says_so() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = dark(4);
    bench.run_for(60_000);
    assert_eq!(states(&bench), vec![State3::Absent; 4], "only the operator can say so");
    assert!(bench.core.fleet().unwrap().ssds.iter().all(|ssd| ssd.is_lossy));
    let seen = merged(bench.ask(salvage(true)));
    assert_eq!(seen.ssds, [0, 1, 2, 3]);
    let pair = seen.volumes.iter().find(|lost| lost.volume == "pair").expect("it is dark");
    assert_eq!(pair.blocks, 64 * 16);
    bench.run_for(5_000);
    assert_eq!(
        (states(&bench), notes(&bench, 4)),
        (vec![State3::Absent; 4], vec![0; 4]),
        "nothing was changed"
    );

    assert_eq!(merged(bench.ask(salvage(false))), seen);
    bench.run_for(20_000);
    is_whole(&mut bench, 4);
    assert_eq!(notes(&bench, 4), [AT_S; 4]);
    assert!(newest(&bench).ssds.iter().all(|ssd| ssd.incarnation == 2));
    refused(&bench.ask(salvage(false)), FailedPrecondition, &["nothing to salvage"]);
    // No map between took a copy away, and the note was there before the merge.
    let log = bench.array.ssd(0).vote.log.clone();
    let log = log.lock().unwrap();
    let fills = |map: &gnstor_proto::placement::map3::FleetMap3| {
        map.rows.iter().all(|row| row.places[..2].iter().flatten().filter(|at| at.filling).count() == 2)
    };
    assert!(log.active_from(0).any(fills), "all of them merge");
}

#[test]
fn a_set_that_is_not_whole_is_not_merged_and_the_missing_ssd_is_named() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = dark(4);
    bench.lose(2);
    bench.run_for(DROP_MS);
    for dry_run in [true, false] {
        let words = ["SSD 0, 1, 3", "SSD 2 is missing", "start it again", "gnstor fleet replace 2"];
        refused(&bench.ask(salvage(dry_run)), FailedPrecondition, &words);
    }
    bench.run_for(5_000);
    assert_eq!(states(&bench), vec![State3::Absent; 4]);
    bench.find(2);
    bench.run_for(2_000);
    merged(bench.ask(salvage(false)));
    bench.run_for(20_000);
    is_whole(&mut bench, 4);
}

#[test]
fn where_nothing_is_lost_nothing_is_merged() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = with_single(4);
    refused(&bench.ask(salvage(false)), FailedPrecondition, &["nothing to salvage"]);
    // It has the last copies, and is only away.
    bench.lose(3);
    bench.run_for(DROP_MS);
    refused(&bench.ask(salvage(false)), FailedPrecondition, &["nothing to salvage", "SSD 3 is missing"]);
    bench.find(3);
    bench.run_for(10_000);
    is_whole(&mut bench, 4);
}

/// SSDs and daemons are lost after any number of commands, and SSDs lose their power once more.
#[test]
fn a_salvage_that_is_cut_off_goes_on_or_is_asked_for_again() {
    let _deadline = Deadline::after(LIMIT);
    for commands in 0..60usize {
        let mut bench = dark(3);
        (0..3).for_each(|ssd| bench.array.ssd(ssd).fill.takes = 3);
        bench.send(salvage(false));
        for turn in 0..commands {
            bench.execute(turn % 3);
            if turn % 3 == 2 {
                bench.pass(100);
            }
        }
        let lost = u16::try_from(commands % 3).expect("few");
        bench.lose(lost);
        bench.run_for(DROP_MS);
        if commands % 2 == 0 {
            bench.array.ssd(lost.into()).lose_writes();
        }
        let (array, now) = (bench.array.clone(), bench.now);
        let mut bench = if commands % 5 < 3 { Bench::cold(&array, now) } else { bench };
        bench.find(lost);
        bench.run_for(20_000);
        if states(&bench).contains(&State3::Absent) {
            merged(bench.ask(salvage(false)));
            bench.run_for(20_000);
        }
        is_whole(&mut bench, 3);
        assert_eq!(notes(&bench, 3), [AT_S; 3]);
    }
}

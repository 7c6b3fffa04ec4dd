// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An operator's orders to the repairs of the SSDs.

use crate::array::{Fault, SimArray};
use crate::bench::{Bench, create, refused};
use crate::deadline::{Deadline, LIMIT};
use crate::shrink::{DROP_MS, serving};
use gnstor_daemon::core::request::Request;
use gnstor_daemon::core::rights::Caller;
use gnstor_daemon::core::{RepairView, Reply};
use gnstor_proto::scrub::{Order, ScrubState};
use gnstor_proto::status::GrpcCode::{FailedPrecondition, PermissionDenied};
use gnstor_proto::status::Refusal;

fn repair(bench: &mut Bench, order: Option<Order>) -> Vec<RepairView> {
    match bench.ask(Request::Repair { order }) {
        Ok(Reply::Repairs(views)) => views,
        other => panic!("{other:?}"),
    }
}

fn states(views: &[RepairView]) -> Vec<Option<ScrubState>> {
    views.iter().map(|view| view.says.as_ref().ok().map(|log| log.state)).collect()
}

#[test]
fn each_ssd_that_is_there_takes_an_order_and_says_how_far_it_is() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    assert_eq!(states(&repair(&mut bench, None)), [Some(ScrubState::Never); 4]);
    let running = Some(ScrubState::Running);
    assert_eq!(states(&repair(&mut bench, Some(Order::ScrubStart))), [running; 4]);
    bench.lose(2);
    bench.run_for(DROP_MS);
    let views = repair(&mut bench, Some(Order::ScrubStop));
    let stopped = Some(ScrubState::Stopped);
    assert_eq!(states(&views), [stopped, stopped, None, stopped]);
    assert_eq!(views[2].says, Err("pulled".into()));
    bench.array.ssd(1).faults.push_back(Fault::Refuse(Refusal::NotServing));
    bench.array.ssd(3).faults.push_back(Fault::LostBefore);
    let views = repair(&mut bench, Some(Order::ScrubStart));
    assert_eq!(views[1].refused.as_deref(), Some(Refusal::NotServing.sentence()));
    assert!(states(&views)[1] == stopped && views[0].refused.is_none(), "{views:?}");
    assert!(views[3].says.as_ref().is_err_and(|why| why.contains("pulled")), "{views:?}");
}

#[test]
fn an_ssd_that_is_back_gets_the_share_that_the_others_have() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    let views = repair(&mut bench, Some(Order::Share(40)));
    assert!(views.iter().all(|view| view.says.as_ref().is_ok_and(|log| log.share == 40)), "{views:?}");
    bench.lose(3);
    bench.run_for(DROP_MS);
    bench.array.ssd(3).restart();
    bench.find(3);
    bench.run_for(10_000);
    assert_eq!(bench.array.ssd(3).scrub.share, 40);
}

#[test]
fn fills_are_paused_on_each_ssd_and_on_one_that_comes_back_until_they_are_resumed() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    bench.ask(create("more")).unwrap();
    let views = repair(&mut bench, Some(Order::FillPause));
    assert!(views.iter().all(|view| view.says.as_ref().is_ok_and(|log| log.is_fill_paused)), "{views:?}");
    assert!(bench.core.fleet().unwrap().fills_paused);
    bench.lose(3);
    bench.run_for(DROP_MS);
    bench.array.ssd(3).restart();
    bench.find(3);
    bench.run_for(10_000);
    assert!(bench.array.ssd(3).scrub.is_fill_paused);
    let views = repair(&mut bench, Some(Order::FillResume));
    assert!(views.iter().all(|view| view.says.as_ref().is_ok_and(|log| !log.is_fill_paused)), "{views:?}");
    assert!(!bench.core.fleet().unwrap().fills_paused);
    bench.lose(2);
    bench.run_for(DROP_MS);
    bench.array.ssd(2).restart();
    bench.find(2);
    bench.run_for(10_000);
    assert!(!bench.array.ssd(2).scrub.is_fill_paused);
}

/// SSD 3 runs on while it does not answer, so it still has the order that it got before.
#[test]
fn fills_that_are_resumed_while_an_ssd_does_not_answer_go_on_there_too() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    repair(&mut bench, Some(Order::FillPause));
    bench.lose(3);
    bench.run_for(DROP_MS);
    repair(&mut bench, Some(Order::FillResume));
    assert!(bench.array.ssd(3).scrub.is_fill_paused, "it was not reached");
    bench.find(3);
    bench.run_for(10_000);
    assert!(!bench.array.ssd(3).scrub.is_fill_paused);
}

/// SSD 3 runs on, and another map may give it places. It does not connect anew for that.
#[test]
fn an_ssd_that_is_out_of_the_map_takes_orders_too() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    repair(&mut bench, Some(Order::FillPause));
    bench.ask(Request::Fail { ssd: 3, lose_data: false }).unwrap();
    bench.run_for(10_000);
    let views = repair(&mut bench, Some(Order::FillResume));
    assert!(views[3].says.as_ref().is_err_and(|why| why.contains("out of the map")), "{views:?}");
    assert!(!bench.array.ssd(3).scrub.is_fill_paused);
    for order in [Order::FillPause, Order::Share(40)] {
        repair(&mut bench, Some(order));
    }
    bench.ask(Request::Resume { ssd: 3, lose_data: false }).unwrap();
    bench.run_for(10_000);
    let scrub = bench.array.ssd(3).scrub;
    assert!(scrub.is_fill_paused && scrub.share == 40, "{scrub:?}");
    repair(&mut bench, Some(Order::ScrubStart));
    assert_eq!(bench.array.ssd(3).scrub.state, ScrubState::Running);
}

#[test]
fn an_ssd_that_goes_while_it_is_asked_holds_up_no_reply() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(4);
    let ticket = bench.send(Request::Repair { order: None });
    bench.lose(1);
    bench.run_for(DROP_MS);
    match bench.replies.get(&ticket) {
        Some(Ok(Reply::Repairs(views))) => assert!(views.len() == 4 && views[1].says.is_err(), "{views:?}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn orders_are_for_administrators_of_an_array_with_voters() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = serving(3);
    let caller = Caller { admin: false, ..Caller::local(0) };
    let ticket = bench.send_as(caller.clone().into(), Request::Repair { order: Some(Order::ScrubStart) });
    refused(&bench.replies[&ticket], PermissionDenied, &["administrators"]);
    let ticket = bench.send_as(caller.into(), Request::Repair { order: None });
    bench.run_until_quiet();
    assert!(bench.replies[&ticket].is_ok(), "looking is for each caller");
    let mut old = Bench::start(&SimArray::new(3), 0);
    refused(&old.ask(Request::Repair { order: None }), FailedPrecondition, &["gnstor cp"]);
}

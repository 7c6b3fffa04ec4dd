// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client id that is given again, or ends: what SSDs hear of its earlier holders, and when.

mod restarted;

use super::rights::{Party, share};
use crate::array::{Fault, SimArray};
use crate::bench::{Bench, config, create, created, opened, read, refused};
use crate::deadline::{Deadline, LIMIT};
use crate::shrink::{DROP_MS, serving};
use gnstor_daemon::core::request::Request;
use gnstor_daemon::core::rights::{Caller, Right};
use gnstor_daemon::core::{Command, CoreConfig, Quotas, Reply, Stop, Ticket};
use gnstor_proto::slba::ClientId;
use gnstor_proto::status::{GrpcCode, Refusal};
use gnstor_proto::vendor::opcode;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How long an id without opens outlives its connection, ms.
const IDLE_MS: u64 = 30_000;

/// A client id and the serial of its registration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Held {
    id: ClientId,
    serial: u64,
}

fn register(bench: &mut Bench, caller: Caller) -> Held {
    let ticket = bench.send_as(Arc::new(caller), Request::Register);
    match bench.replies[&ticket] {
        Ok(Reply::Client { client: id, serial }) => Held { id, serial },
        ref other => panic!("no id: {other:?}"),
    }
}

/// A daemon of SSDs with a volume, which has few ids to give.
fn bench(ssds: usize) -> Bench {
    let quotas = Quotas { ids: ClientId::new(2).unwrap(), ..Quotas::default() };
    let mut bench = Bench::cold_with(&SimArray::new(ssds), 0, CoreConfig { quotas, ..config() });
    bench.run_until_quiet();
    created(bench.ask(create("v")));
    bench
}

/// The id of one client is given to another one.
fn given_again(bench: &mut Bench) -> Held {
    let former = register(bench, Caller::local(1));
    bench.core.closed(bench.now, 1);
    loop {
        let next = register(bench, Caller::local(2));
        if next.id == former.id {
            assert!(next.serial > former.serial);
            return next;
        }
    }
}

fn opens(bench: &mut Bench, held: Held) -> Ticket {
    bench.send_as(Arc::new(Caller::local(2)), read("v", held.id.get()))
}

/// What the SSD has heard of the id.
fn heard(bench: &Bench, ssd: usize, id: ClientId) -> Option<u64> {
    bench.array.ssd(ssd).ends.get(&id.get()).copied()
}

/// An entry of this SSD names the id.
fn names(bench: &Bench, ssd: usize, id: ClientId) -> bool {
    bench.array.ssd(ssd).active().iter().any(|entry| entry.readers.contains(&id))
}

/// Executes the SSD's commands. None may have it name an id whose earlier holders it has not ended.
fn run_in_order(bench: &mut Bench, ssd: usize, held: Held) {
    while bench.execute(ssd) {
        let is_told = heard(bench, ssd, held.id) == Some(held.serial);
        assert!(is_told || !names(bench, ssd, held.id), "SSD {ssd} is told too late");
    }
}

#[test]
fn each_ssd_ends_the_earlier_holders_of_an_id_before_an_entry_names_it() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench(2);
    let held = given_again(&mut bench);
    assert!((0..2).all(|ssd| heard(&bench, ssd, held.id).is_none()), "nothing names it yet");
    let open = opens(&mut bench, held);
    // Commands of different orders may overtake each other, so the entry is not even sent before.
    for ssd in 0..2 {
        let waits: Vec<_> = bench.queues[ssd].iter().map(|(_, command)| command.name()).collect();
        assert_eq!(waits, ["CLIENT END"], "SSD {ssd}");
    }
    (0..2).for_each(|ssd| run_in_order(&mut bench, ssd, held));
    opened(&bench.replies[&open]);
    assert!((0..2).all(|ssd| names(&bench, ssd, held.id)));
    // Once is enough.
    created(bench.ask(share("v", "ben", Right::Read)));
    assert!((0..2).all(|ssd| bench.array.ssd(ssd).counts[&opcode::CLIENT_END] == 1));
}

#[test]
fn an_ssd_that_is_away_holds_up_no_open_and_ends_the_holders_when_it_is_back() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench(2);
    let held = given_again(&mut bench);
    bench.lose(1);
    let open = opens(&mut bench, held);
    bench.run_until_quiet();
    opened(&bench.replies[&open]);
    assert_eq!((heard(&bench, 0, held.id), heard(&bench, 1, held.id)), (Some(held.serial), None));
    bench.array.ssd(1).dead = false;
    bench.find(1);
    for _ in 0..4 {
        run_in_order(&mut bench, 1, held);
        bench.run_for(2_000);
    }
    assert!(names(&bench, 1, held.id), "it is up to date");
}

/// An SSD that has restarted has forgotten what it heard. Its entries still name the id.
#[test]
fn an_ssd_that_is_back_ends_the_holders_before_it_gets_the_map_or_the_term() {
    let _deadline = Deadline::after(LIMIT);
    for (of_voters, away_ms) in [(false, 0), (true, 0), (true, 2 * DROP_MS)] {
        let mut bench = if of_voters { serving(4) } else { bench(4) };
        if of_voters {
            created(bench.ask(create("v")));
        }
        let held = register(&mut bench, Caller::local(2));
        let open = opens(&mut bench, held);
        bench.run_until_quiet();
        opened(&bench.replies[&open]);
        bench.lose(3);
        bench.run_for(away_ms);
        {
            let mut ssd = bench.array.ssd(3);
            ssd.ends.clear();
            ssd.counts.clear();
        }
        bench.find(3);
        let is_serving = |bench: &Bench| {
            let counts = &bench.array.ssd(3).counts;
            [opcode::MAP_SET, opcode::ACTIVATE, opcode::TERM_TAKE]
                .iter()
                .any(|code| counts.contains_key(code))
        };
        let mut steps = 0;
        while !is_serving(&bench) {
            bench.execute(3);
            let is_told = heard(&bench, 3, held.id) == Some(held.serial);
            assert!(is_told || !is_serving(&bench), "{of_voters} {away_ms}");
            steps += 1;
            if steps % 8 == 0 {
                bench.run_for(1);
            }
            assert!(steps < 10_000, "it is never asked");
        }
    }
}

#[test]
fn a_client_end_that_is_lost_has_the_entry_come_later() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench(2);
    let held = given_again(&mut bench);
    bench.array.ssd(1).faults.push_back(Fault::LostBefore);
    let open = opens(&mut bench, held);
    bench.run_until_quiet();
    refused(&bench.replies[&open], GrpcCode::Unavailable, &["SSD 1"]);
    assert!(!names(&bench, 1, held.id) && heard(&bench, 1, held.id).is_none());
    bench.run_for(5_000);
    let open = opens(&mut bench, held);
    (0..2).for_each(|ssd| run_in_order(&mut bench, ssd, held));
    opened(&bench.replies[&open]);
    assert_eq!(heard(&bench, 1, held.id), Some(held.serial));
}

#[test]
fn an_ssd_of_an_earlier_version_gets_the_entry_and_one_of_a_newer_daemon_deposes_this_one() {
    let _deadline = Deadline::after(LIMIT);
    for is_earlier in [true, false] {
        let mut bench = bench(2);
        let held = given_again(&mut bench);
        if is_earlier {
            bench.array.ssd(1).ends_no_clients = true;
        } else {
            bench.array.ssd(1).faults.push_back(Fault::Refuse(Refusal::StaleTerm));
        }
        let open = opens(&mut bench, held);
        bench.run_until_quiet();
        match is_earlier {
            true => _ = opened(&bench.replies[&open]),
            false => assert!(matches!(bench.stopped, Some(Stop::Deposed(_))), "{:?}", bench.stopped),
        }
    }
}

#[test]
fn an_id_that_ends_ends_on_each_ssd_unless_its_client_may_come_back_with_it() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench(3);
    let anna = Party::new(&mut bench, "anna", 1);
    let other = register(&mut bench, Caller::local(2));
    bench.lose(2);
    (1..=2).for_each(|connection| bench.core.closed(bench.now, connection));
    bench.run_for(IDLE_MS - 1);
    assert_eq!(heard(&bench, 0, anna.id), None, "its client may come back");
    bench.run_for(1_000);
    let over = Some((1 << 32 | 1) + 1);
    assert_eq!([0, 1, 2].map(|ssd| heard(&bench, ssd, anna.id)), [over, over, None]);
    assert_eq!([0, 1].map(|ssd| heard(&bench, ssd, other.id)), [None; 2], "no name was proven");
    bench.find(2);
    bench.run_for(2_000);
    assert_eq!(heard(&bench, 2, anna.id), over, "it was away");
}

#[test]
fn many_ids_that_end_together_leave_the_ssds_to_others() {
    let _deadline = Deadline::after(LIMIT);
    let quotas = Quotas { connection_ids: 300, ..Quotas::default() };
    let mut bench = Bench::cold_with(&SimArray::new(2), 0, CoreConfig { quotas, ..config() });
    bench.run_until_quiet();
    let ids: Vec<_> = (0..300).map(|_| Party::new(&mut bench, "anna", 1).id).collect();
    bench.core.closed(bench.now, 1);
    bench.pass(IDLE_MS);
    let is_end = |command: &Command| matches!(command, Command::ClientEnd(_));
    let under_way = bench.queues.iter().flatten().filter(|(_, command)| is_end(command)).count();
    assert_eq!(under_way, 2 * 8);
    bench.run_until_quiet();
    for ssd in 0..2 {
        assert!(ids.iter().all(|id| heard(&bench, ssd, *id).is_some()), "SSD {ssd}");
    }
}

/// An SSD that hangs does not answer, and is not away yet.
#[test]
fn an_ssd_that_hangs_keeps_no_end_from_the_others_and_hears_of_an_id_once() {
    let _deadline = Deadline::after(LIMIT);
    let quotas = Quotas {
        connection_ids: 100,
        principal_ids: 100,
        ids: ClientId::new(100).unwrap(),
        ..Quotas::default()
    };
    let mut bench = Bench::cold_with(&SimArray::new(2), 0, CoreConfig { quotas, ..config() });
    bench.run_until_quiet();
    let mut ids: Vec<ClientId> = Vec::new();
    for connection in 1..=5 {
        let anna = || Caller { name: "anna".into(), single: false, ..Caller::local(connection) };
        ids = (0..100).map(|_| register(&mut bench, anna()).id).collect();
        bench.core.closed(bench.now, connection);
        bench.pass(IDLE_MS);
        while bench.execute(0) {}
        let is_told = |id: &ClientId| heard(&bench, 0, *id) > Some((1 << 32) + 100 * (connection - 1));
        assert!(ids.iter().all(is_told), "round {connection}");
    }
    assert_eq!(bench.queues[1].len(), 8);
    bench.run_until_quiet();
    assert!(ids.iter().all(|id| heard(&bench, 1, *id) == heard(&bench, 0, *id)));
    let told = bench.array.ssd(1).counts[&opcode::CLIENT_END];
    assert!(told <= 108, "{told} commands for 100 ids");
}

#[test]
fn an_end_that_is_lost_or_refused_is_told_again_while_the_ssd_stays() {
    let _deadline = Deadline::after(LIMIT);
    for fault in [Fault::LostBefore, Fault::Refuse(Refusal::InvalidField)] {
        let mut bench = bench(2);
        let anna = Party::new(&mut bench, "anna", 1);
        bench.core.closed(bench.now, 1);
        bench.array.ssd(1).faults.push_back(fault);
        bench.pass(IDLE_MS);
        bench.run_until_quiet();
        assert_eq!((heard(&bench, 0, anna.id).is_some(), heard(&bench, 1, anna.id)), (true, None));
        bench.run_for(config().retry_ms - 1);
        assert_eq!(heard(&bench, 1, anna.id), None, "not at once");
        bench.run_for(1);
        assert!(heard(&bench, 1, anna.id).is_some());
    }
}

#[test]
fn the_return_of_an_ssd_waits_for_no_end_of_a_change_that_is_under_way() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = bench(2);
    let (first, second) = (register(&mut bench, Caller::local(2)), register(&mut bench, Caller::local(2)));
    opens(&mut bench, first);
    bench.run_until_quiet();
    bench.lose(1);
    bench.run_until_quiet();
    bench.array.ssd(1).dead = false;
    bench.array.ssd(1).counts.clear();
    bench.find(1);
    let is_end = |command: &Command| matches!(command, Command::ClientEnd(_));
    while !bench.queues[1].iter().any(|(_, command)| is_end(command)) {
        assert!(bench.execute(1), "it is asked to end the first");
    }
    // A change has the SSD end the earlier holders of one more id, and that is lost.
    opens(&mut bench, second);
    let is_of_second =
        |command: &Command| matches!(command, Command::ClientEnd(end) if end.client == second.id);
    assert!(bench.queues[1].iter().any(|(_, command)| is_of_second(command)));
    while bench.execute_but(1, is_of_second) {}
    assert!(bench.array.ssd(1).counts.contains_key(&opcode::MAP_SET), "it has its map");
    bench.array.ssd(1).faults.push_back(Fault::LostBefore);
    while bench.execute(1) {}
    assert_eq!(bench.array.ssd(1).counts[&opcode::MAP_GET], 1, "its return has not begun again");
    bench.run_for(5_000);
    assert!(names(&bench, 1, first.id), "it is up to date");
}

#[test]
fn an_ssd_that_is_back_ends_many_holders_some_at_a_time() {
    let _deadline = Deadline::after(LIMIT);
    let quotas = Quotas { connection_ids: 200, ..Quotas::default() };
    let mut bench = Bench::cold_with(&SimArray::new(2), 0, CoreConfig { quotas, ..config() });
    bench.run_until_quiet();
    created(bench.ask(create("v")));
    let held: Vec<_> = (0..200).map(|_| register(&mut bench, Caller::local(2))).collect();
    for one in &held {
        opens(&mut bench, *one);
        bench.run_until_quiet();
    }
    bench.lose(1);
    bench.run_until_quiet();
    {
        let mut ssd = bench.array.ssd(1);
        (ssd.dead, ssd.ends) = (false, BTreeMap::new());
        ssd.counts.clear();
    }
    bench.find(1);
    while !bench.array.ssd(1).counts.contains_key(&opcode::MAP_SET) {
        assert!(bench.queues[1].len() <= 64, "{} at once", bench.queues[1].len());
        assert!(bench.execute(1));
    }
    assert!(held.iter().all(|one| heard(&bench, 1, one.id) == Some(one.serial)));
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A daemon that starts does not know the serials of ids that an earlier one gave. A call proves them.

use super::{Held, heard, names, opens, register};
use crate::array::SimArray;
use crate::bench::{Bench, create, created, opened, read};
use crate::deadline::{Deadline, LIMIT};
use gnstor_daemon::core::request::Request;
use gnstor_daemon::core::rights::{Caller, ClientProof};
use gnstor_daemon::core::{Reply, Ticket};
use gnstor_proto::status::GrpcCode;
use std::sync::Arc;

/// A caller with the secret of this registration. `single`: the daemon asks for no names.
fn prover(held: Held, single: bool, connection: u64) -> Arc<Caller> {
    let client = ClientProof::Of(held.id, held.serial);
    Arc::new(Caller { client, single, ..Caller::local(connection) })
}

fn keep(bench: &mut Bench, caller: Arc<Caller>, held: Held) -> Ticket {
    let ticket = bench.send_as(caller, Request::Keep { client: held.id });
    bench.run_until_quiet();
    ticket
}

/// A daemon of two SSDs that an earlier one has left with an open volume. SSD 1 was away when the id was
/// given, and has heard nothing of it.
fn restarted() -> (Bench, Held) {
    let array = SimArray::new(2);
    let mut first = Bench::start(&array, 0);
    created(first.ask(create("v")));
    let held = register(&mut first, Caller::local(1));
    first.lose(1);
    let open = opens(&mut first, held);
    first.run_until_quiet();
    opened(&first.replies[&open]);
    array.ssd(1).dead = false;
    (Bench::start(&array, 0), held)
}

#[test]
fn after_a_restart_each_ssd_ends_the_earlier_holders_when_a_call_proves_the_serial() {
    let _deadline = Deadline::after(LIMIT);
    for single in [false, true] {
        let (mut bench, held) = restarted();
        assert!(
            names(&bench, 1, held.id) && heard(&bench, 1, held.id).is_none(),
            "the daemon cannot know it"
        );
        let kept = keep(&mut bench, prover(held, single, 1), held);
        assert_eq!(bench.replies[&kept], Ok(Reply::Done));
        assert_eq!([0, 1].map(|ssd| heard(&bench, ssd, held.id)), [Some(held.serial); 2], "single: {single}");
        // An SSD that comes back later hears it before its map.
        bench.lose(1);
        bench.array.ssd(1).ends.clear();
        bench.find(1);
        bench.run_for(2_000);
        assert_eq!(heard(&bench, 1, held.id), Some(held.serial));
    }
}

#[test]
fn after_a_restart_the_highest_serial_that_is_proven_counts() {
    let _deadline = Deadline::after(LIMIT);
    let (mut bench, held) = restarted();
    let earlier = Held { serial: held.serial - 1, ..held };
    keep(&mut bench, prover(earlier, false, 1), held);
    assert_eq!(heard(&bench, 1, held.id), Some(earlier.serial), "it may be the present one");
    let kept = keep(&mut bench, prover(held, false, 2), held);
    assert_eq!((bench.replies[&kept].is_ok(), heard(&bench, 1, held.id)), (true, Some(held.serial)));
    let refused = keep(&mut bench, prover(earlier, false, 1), held);
    assert_eq!(bench.replies[&refused].as_ref().unwrap_err().code, GrpcCode::PermissionDenied);
    assert_eq!(heard(&bench, 1, held.id), Some(held.serial));
}

/// Where callers prove no names, an id that was forgotten comes back with an Open.
#[test]
fn an_open_with_a_forgotten_id_ends_the_earlier_holders_first() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(2);
    let mut bench = Bench::start(&array, 0);
    created(bench.ask(create("v")));
    let held = register(&mut bench, Caller::local(1));
    bench.core.closed(bench.now, 1);
    bench.run_for(60_000);
    assert_eq!((bench.core.clients(), heard(&bench, 0, held.id)), (0, None));
    let open = bench.send_as(prover(held, true, 2), read("v", held.id.get()));
    for ssd in 0..2 {
        super::run_in_order(&mut bench, ssd, held);
        assert!(names(&bench, ssd, held.id));
    }
    opened(&bench.replies[&open]);
    // Its client may come back with it again, so its own registration does not end.
    bench.core.closed(bench.now, 2);
    bench.run_for(120_000);
    assert_eq!((bench.core.clients(), heard(&bench, 1, held.id)), (0, Some(held.serial)));
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SSD keeps the serials that were proven in memory only: what that means for an id that was given again.

mod client_end;

use super::*;
use crate::tests::smart_counters::Kept;

fn ask(harness: &Harness) {
    let random = Box::new(counter());
    let asks = Authentication { manager_key: manager_key(), group: Group::Null, random };
    harness.ssd().require_authentication(asks);
}

fn secret(host: Host) -> Secret {
    manager_key().of_host(&host.nqn())
}

#[test]
fn after_a_restart_of_the_ssd_an_older_registration_is_believed_until_the_newer_one_is_proven() {
    let (kept, mut harness) = Kept::new();
    ask(&harness);
    let (older, newer) = (host(20, 3), host(20, 4));
    proven(&mut harness, ADMIN, newer);
    assert_eq!(refusal(&begin(&mut harness, OTHER, older)), Some(Refusal::ConnectRefused));

    let mut harness = kept.restart(harness);
    ask(&harness);
    // A name without its secret gets nothing, now as before.
    begin(&mut harness, SECOND, older);
    assert_eq!(
        prove(&mut harness, SECOND, older, Secret::new([1; 32])).unwrap_err(),
        Failure::Authentication
    );
    harness.worker(SECOND).close_queue(Time::ZERO, SECOND);
    harness.closed.clear();
    proven(&mut harness, OTHER, older);
    assert_eq!(harness.closed, []);
    // The owner connects anew, as each client does after its SSD was away. That ends the other one for good.
    begin(&mut harness, ADMIN, newer);
    prove(&mut harness, ADMIN, newer, secret(newer)).expect("its own secret");
    assert_eq!(harness.closed, [OTHER]);
    assert_eq!(refusal(&begin(&mut harness, OTHER, older)), Some(Refusal::ConnectRefused));
}

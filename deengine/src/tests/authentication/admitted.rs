// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When the SSD tells the transport that a host is admitted.

use super::*;

/// Until then the transport takes its queue pair for one that may have to give way.
#[test]
fn a_host_is_admitted_once_it_has_proven_who_it_is() {
    let mut harness = asking(Group::Null);
    begin(&mut harness, ADMIN, host(7, 1));
    assert_eq!(harness.admitted, [], "Connect alone proves nothing");
    let seven = host(7, 0x1_0000_0001);
    let (cntlid, session) = proven(&mut harness, QueueKey(70), seven);
    assert_eq!(harness.admitted, [(QueueKey(70), seven.identity)]);
    assert!(connect_io(&mut harness, QUEUE, seven, cntlid, &[0; 40]).is_some(), "without a proof");
    assert_eq!(harness.admitted.len(), 1);
    let proof = session.prove(cntlid, 1, 1);
    assert_eq!(connect_io(&mut harness, WRITER, seven, cntlid, proof.as_bytes()), None);
    assert_eq!(harness.admitted, [(QueueKey(70), seven.identity), (WRITER, seven.identity)]);
}

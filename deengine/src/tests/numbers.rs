// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers in capsules that a host chooses freely.

use super::*;

/// A command id is a name that the host gives; the SSD finds no command by it but for Abort.
#[test]
fn a_command_id_that_is_in_use_on_its_queue_and_on_others_is_answered_as_often_as_it_was_sent() {
    let mut harness = Harness::new();
    assert_eq!(refusal(&harness.write(3, &[7])), None);
    harness.hold = true;
    for key in [WRITER, READER, WRITER, READER] {
        let sqe = Sqe { cid: 9.into(), ..harness.io(io::READ, key, 3, 1) };
        let now = harness.now;
        harness.capsule(now, key, &sqe);
    }
    harness.pump();
    harness.release(|_| 0);
    for key in [WRITER, WRITER, READER, READER] {
        assert_eq!(refusal(&harness.take(key, 9).expect("an answer")), None);
        assert_eq!(harness.peek(key, 0).to_vec(), block(7));
    }
    assert!(harness.completions.is_empty());
    assert_eq!(harness.in_flight(), 0);
}

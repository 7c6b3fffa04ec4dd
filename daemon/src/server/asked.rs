// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls that wait for the core. Connections take turns: one with many calls delays another by one call.
//!
//! ```text
//!   gRPC --calls--> waiting, by connection --one at a time--> core <--at once-- answers and losses of SSDs
//! ```
//! If its caller has given up a call, the queue drops it. Otherwise a caller could make the core work at no
//! cost to itself.

use super::input::Input;
use crate::core::request::Request;
use gnstor_base::round_robin::RoundRobin;

/// Calls that wait.
#[derive(Debug, Default)]
pub(super) struct Asked(RoundRobin<u64, Input>);

impl Asked {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds an input of a connection. Inputs of one connection stay in order.
    pub(super) fn push(&mut self, input: Input) {
        let connection = match &input {
            Input::Request { caller, .. } => caller.connection,
            Input::Closed { connection } => *connection,
            Input::Completed { .. } | Input::Presence { .. } => 0,
        };
        self.0.push(connection, input);
    }

    /// The next call that has a caller, or the end of a connection.
    pub(super) fn next(&mut self) -> Option<Input> {
        while let Some((_, mut input)) = self.0.pop() {
            if let Input::Request { request, reply, .. } = &mut input
                && reply.is_closed()
            {
                // A Release is carried out: it frees what others wait for. But its client may have opened the
                // volume anew meanwhile, on another connection. So it says nothing of the writes, unless it
                // names its lease.
                let Request::Release { all_acknowledged, lease_epoch, .. } = request else { continue };
                *all_acknowledged &= lease_epoch.is_some();
            }
            return Some(input);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Page;
    use crate::core::request::VolumeName;
    use crate::core::rights::Caller;
    use crate::deadline::{Deadline, LIMIT};
    use gnstor_proto::slba::ClientId;
    use std::sync::Arc;
    use tokio::sync::oneshot;

    type Answered = oneshot::Receiver<Result<crate::core::Reply, crate::core::failure::Failure>>;

    fn call(connection: u64, request: Request) -> (Input, Answered) {
        let (reply, answered) = oneshot::channel();
        (Input::Request { caller: Arc::new(Caller::local(connection)), request, reply }, answered)
    }

    fn connection_of(input: &Input) -> u64 {
        match input {
            Input::Request { caller, .. } => caller.connection,
            Input::Closed { connection } => 100 + connection,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn connections_take_turns_and_a_connection_ends_behind_its_calls() {
        let _deadline = Deadline::after(LIMIT);
        let (mut asked, mut callers) = (Asked::default(), Vec::new());
        for connection in [1, 1, 1, 2, 1] {
            let (input, answered) = call(connection, Request::List(Page::ALL));
            asked.push(input);
            callers.push(answered);
        }
        asked.push(Input::Closed { connection: 2 });
        let order: Vec<u64> =
            std::iter::from_fn(|| asked.next()).map(|input| connection_of(&input)).collect();
        assert_eq!(order, [1, 2, 1, 102, 1, 1]);
        assert!(asked.is_empty());
    }

    #[test]
    fn a_call_that_was_given_up_is_dropped_but_for_a_release() {
        let _deadline = Deadline::after(LIMIT);
        let mut asked = Asked::default();
        let name = VolumeName::new("v").expect("a name");
        let client = ClientId::new(1).expect("an id");
        for request in [
            Request::List(Page::ALL),
            Request::Release { name, client, all_acknowledged: true, lease_epoch: None },
            Request::Room,
        ] {
            asked.push(call(1, request).0);
        }
        let (kept, _answered) = call(1, Request::Register);
        asked.push(kept);
        let left: Vec<Input> = std::iter::from_fn(|| asked.next()).collect();
        assert!(matches!(
            &left[..],
            [
                Input::Request { request: Request::Release { all_acknowledged: false, .. }, .. },
                Input::Request { request: Request::Register, .. }
            ]
        ));
    }
}

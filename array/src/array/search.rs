// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The search for an array's SSDs in other processes, when the array starts: how long it waits for which of
//! them.
//!
//! | an SSD | waits for it |
//! |---|---|
//! | does not answer | the caller's patience |
//! | is being restored | the same where a majority of the SSDs is there, else ten minutes |
//! | is not the one that is looked for, or proves nothing | not at all |
//!
//! The array starts without the SSDs that were not reached. If SSDs of the last kind leave less than a
//! majority, the start fails and says why. Then a key, a certificate or the order of addresses is probably
//! wrong.

use crate::absent::AbsentQueue;
use crate::remote_ssd::{NotThere, RECOVERY, RemoteSsd};
use gnstor_fabric::admin::ChannelError;
use gnstor_fabric::host_queue::HostQueue;
use std::time::{Duration, Instant};

/// Longest wait for an SSD's answer to a question.
pub(super) const ADMIN_DEADLINE: Duration = Duration::from_secs(5);
/// Pause between two rounds of tries.
const PAUSE: Duration = Duration::from_millis(100);

/// An SSD that was reached.
#[derive(Debug)]
pub(super) struct There {
    pub(super) queue: HostQueue,
    pub(super) model: String,
    /// Bytes for blocks.
    pub(super) bytes: u64,
}

/// What is known of one SSD.
type Found = Result<There, NotThere>;

/// Each SSD, in order. `Err` beside one: it is not there, and may come later.
pub(super) type Searched = Vec<(RemoteSsd, Result<There, AbsentQueue>)>;

/// Whether the search waits for an SSD that is not there.
fn waits(why: &NotThere, elapsed: Duration, patience: Duration, is_majority: bool) -> bool {
    match why {
        NotThere::Absent(_) => elapsed < patience,
        NotThere::Recovering => elapsed < patience || !is_majority && elapsed < RECOVERY,
        NotThere::Refused(_) => false,
    }
}

/// Looks for all SSDs.
///
/// # Errors
/// No SSD is there, or less than a majority, and one of the others is refused.
#[expect(clippy::disallowed_methods, reason = "a bounded wait in real time for other processes")]
pub(super) fn search(mut remotes: Vec<RemoteSsd>, patience: Duration) -> Result<Searched, ChannelError> {
    let start = Instant::now();
    let mut found: Vec<Found> = remotes.iter_mut().map(look).collect();
    loop {
        let there = found.iter().filter(|found| found.is_ok()).count();
        let is_majority = there > remotes.len() / 2;
        let is_awaited = |found: &Found| match found {
            Ok(_) => false,
            Err(why) => waits(why, start.elapsed(), patience, is_majority),
        };
        if !found.iter().any(is_awaited) {
            return ended(remotes, found, is_majority);
        }
        std::thread::sleep(PAUSE);
        for (remote, found) in remotes.iter_mut().zip(&mut found) {
            if is_awaited_again(found) {
                *found = look(remote);
            }
        }
    }
}

/// Whether another try may find what the last one did not.
fn is_awaited_again(found: &Found) -> bool {
    matches!(found, Err(NotThere::Absent(_) | NotThere::Recovering))
}

/// What the search found, once it waits for no SSD any more.
fn ended(remotes: Vec<RemoteSsd>, found: Vec<Found>, is_majority: bool) -> Result<Searched, ChannelError> {
    let is_nothing = !found.iter().any(Result::is_ok);
    let mut all = Vec::new();
    for (remote, found) in remotes.into_iter().zip(found) {
        let peer = remote.name();
        let cause = match found {
            Ok(there) => {
                all.push((remote, Ok(there)));
                continue;
            }
            Err(NotThere::Refused(why)) if !is_majority => return Err(why),
            Err(NotThere::Recovering) if is_nothing => return Err(ChannelError::NotReady { peer }),
            Err(NotThere::Absent(cause)) if is_nothing => {
                return Err(ChannelError::Refused { peer, cause });
            }
            Err(NotThere::Absent(cause)) => cause,
            Err(NotThere::Recovering) => "it is being restored".into(),
            Err(NotThere::Refused(why)) => why.to_string(),
        };
        all.push((remote, Err(AbsentQueue { peer, cause })));
    }
    Ok(all)
}

/// Asks one SSD for its model and its capacity.
fn look(remote: &mut RemoteSsd) -> Found {
    let mut queue = remote.look()?;
    match asked(&mut queue) {
        Ok((model, bytes)) => Ok(There { queue, model, bytes }),
        // An SSD on its way up, or down, may end a connection that it has just taken.
        Err(why) => Err(NotThere::Absent(why.to_string())),
    }
}

fn asked(queue: &mut HostQueue) -> Result<(String, u64), ChannelError> {
    Ok((queue.identify(ADMIN_DEADLINE)?.model, queue.capacity_bytes(ADMIN_DEADLINE)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    #[test]
    fn an_ssd_that_is_restored_holds_up_a_start_only_where_no_majority_is_there() {
        let _deadline = deadline();
        let patience = Duration::from_secs(2);
        let at = |why: &NotThere, seconds, is_majority| {
            waits(why, Duration::from_secs(seconds), patience, is_majority)
        };
        let restored = NotThere::Recovering;
        assert_eq!([1, 3].map(|seconds| at(&restored, seconds, true)), [true, false]);
        assert_eq!([1, 3, 599, 601].map(|seconds| at(&restored, seconds, false)), [true, true, true, false]);
        let absent = NotThere::Absent(String::new());
        assert_eq!([1, 3].map(|seconds| at(&absent, seconds, false)), [true, false]);
        let refused = NotThere::Refused(ChannelError::NotReady { peer: String::new() });
        assert!(!at(&refused, 0, false));
    }
}

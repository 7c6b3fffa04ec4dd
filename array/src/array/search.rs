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

use super::ports::ADMIN_DEADLINE;
use crate::absent::AbsentQueue;
use crate::remote_ssd::{NotThere, RECOVERY, RemoteSsd};
use gnstor_fabric::admin::ChannelError;
use gnstor_fabric::host_queue::HostQueue;
use std::time::{Duration, Instant};

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
enum Found {
    Yes(There),
    No(NotThere),
}

/// Whether the search waits for an SSD that is not there.
fn waits(why: &NotThere, elapsed: Duration, patience: Duration, is_majority: bool) -> bool {
    match why {
        NotThere::Absent(_) => elapsed < patience,
        NotThere::Recovering => elapsed < patience || !is_majority && elapsed < RECOVERY,
        NotThere::Refused(_) => false,
    }
}

/// Looks for all SSDs. `Err` beside one: it is not there, and may come later.
///
/// # Errors
/// No SSD is there, or less than a majority, and one of the others is refused.
#[expect(clippy::disallowed_methods, reason = "a bounded wait in real time for other processes")]
pub(super) fn search(
    mut remotes: Vec<RemoteSsd>,
    patience: Duration,
) -> Result<Vec<(RemoteSsd, Result<There, AbsentQueue>)>, ChannelError> {
    let start = Instant::now();
    let mut found: Vec<Found> = remotes.iter_mut().map(look).collect();
    loop {
        let there = found.iter().filter(|found| matches!(found, Found::Yes(_))).count();
        let is_majority = there > remotes.len() / 2;
        let is_awaited = |found: &Found| match found {
            Found::Yes(_) => false,
            Found::No(why) => waits(why, start.elapsed(), patience, is_majority),
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
    matches!(found, Found::No(NotThere::Absent(_) | NotThere::Recovering))
}

/// What the search found, once it waits for no SSD any more.
fn ended(
    remotes: Vec<RemoteSsd>,
    found: Vec<Found>,
    is_majority: bool,
) -> Result<Vec<(RemoteSsd, Result<There, AbsentQueue>)>, ChannelError> {
    let is_nothing = !found.iter().any(|found| matches!(found, Found::Yes(_)));
    let mut all = Vec::new();
    for (remote, found) in remotes.into_iter().zip(found) {
        let peer = remote.name();
        let cause = match found {
            Found::Yes(there) => {
                all.push((remote, Ok(there)));
                continue;
            }
            Found::No(NotThere::Refused(why)) if !is_majority => return Err(why),
            Found::No(NotThere::Recovering) if is_nothing => return Err(ChannelError::NotReady { peer }),
            Found::No(NotThere::Absent(cause)) if is_nothing => {
                return Err(ChannelError::Refused { peer, cause });
            }
            Found::No(NotThere::Absent(cause)) => cause,
            Found::No(NotThere::Recovering) => "it is being restored".into(),
            Found::No(NotThere::Refused(why)) => why.to_string(),
        };
        all.push((remote, Err(AbsentQueue { peer, cause })));
    }
    Ok(all)
}

/// Asks one SSD for its model and its capacity.
fn look(remote: &mut RemoteSsd) -> Found {
    let there = remote.look().and_then(|mut queue| match asked(&mut queue) {
        Ok((model, bytes)) => Ok(There { queue, model, bytes }),
        // An SSD on its way up, or down, may end a connection that it has just taken.
        Err(why) => Err(NotThere::Absent(why.to_string())),
    });
    there.map_or_else(Found::No, Found::Yes)
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

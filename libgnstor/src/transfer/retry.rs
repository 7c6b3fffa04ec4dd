// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Host calls that run again: because a connection broke, or because the fleet map has changed.

use super::blame::blamed;
use super::kernels::Item;
use super::{Target, Transfers, Verb, Work, rounds};
use crate::error::Error;
use crate::io_failure::IoFailure;
use gnstor_gnor::abi::GN_QP_BROKEN;
use gnstor_gnor::session::Wait;
use gnstor_proto::placement::Rows;
use gnstor_proto::status::{Detail, Refusal};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Time between two tries to reconnect.
const REST: Duration = Duration::from_millis(100);
/// Pause after which a call that was refused because of its map runs again, even without a newer map: the SSD
/// may have been behind.
const AGAIN: Duration = Duration::from_millis(20);

/// Moves the data of a host call, from block `vba` on. Requests that ended because of a broken connection or
/// another map run again until the deadline. A write then keeps its stamp, so an SSD that has the write
/// completes it and does not apply it again (protocol rule 6). Other calls of the client go on while this one
/// waits for a lost SSD.
#[expect(clippy::disallowed_methods, reason = "a blocking call with a deadline in real time")]
pub(crate) fn transfer(
    all: &Mutex<Transfers>,
    target: Target<'_>,
    vba: u32,
    mut work: Work<'_>,
) -> Result<(), Error> {
    let lock = || all.lock().expect("no panic while held");
    let mut items = lock().plan(&target, vba, &work);
    let begun = Instant::now();
    let most = Duration::from_nanos(target.file.timeout_ns.saturating_mul(rounds(&items)));
    let left = || most.saturating_sub(begun.elapsed());
    let mut file = target.file;
    loop {
        let epoch = target.maps.current().epoch();
        let failed = {
            let transfers = lock();
            target.again.take_found(&transfers);
            let failed = transfers.run(target, file, &items, &mut work)?;
            if failed.iter().any(is_broken) {
                target.again.note_broken(&transfers).map_err(Error::Protocol)?;
            }
            failed
        };
        let Some(decisive) = decisive(&failed) else { return Ok(()) };
        let &Item { vba, status, dw0, dw1, .. } = decisive;
        let ssd = blamed(&target, work.verb(), decisive);
        let failure = || IoFailure { what: work.verb().name(), vba, status, dw0, dw1, ssd: ssd.clone() };
        if !runs_again(decisive) {
            return Err(failure().into());
        }
        let better = if failed.iter().any(is_broken) {
            back_in_time(lock, target, epoch, left)
        } else {
            // The refusal does not say whether the client's or the SSD's map is older.
            left() > AGAIN && target.session.wait_for_map(epoch, false, AGAIN) != Wait::Found
        };
        if !better {
            return Err(failure().into());
        }
        tracing::info!("{} requests to block {vba} and others are sent again", failed.len());
        // Data that a read brought must be copied while the lock is held.
        if work.verb() != Verb::Read {
            items = failed;
        }
        if work.verb() == Verb::Flush {
            let members = target.maps.flushed();
            items.retain(|item| members.contains(&item.vba));
            if items.is_empty() {
                return Ok(());
            }
        }
        file.timeout_ns = u64::try_from(left().as_nanos()).unwrap_or(u64::MAX);
    }
}

/// The failure that decides how a call goes on. It is the first one that a new connection or another map
/// cannot cure, otherwise the first. A failure that ends the call may break connections. Other requests then
/// fail for that reason only.
fn decisive(failed: &[Item]) -> Option<&Item> {
    failed.iter().find(|item| !runs_again(item)).or(failed.first())
}

fn runs_again(item: &Item) -> bool {
    is_broken(item) || awaits_map(item)
}

fn is_broken(item: &Item) -> bool {
    item.status & GN_QP_BROKEN != 0
}

/// Whether an SSD has refused the request because of its map, or of its own.
fn awaits_map(item: &Item) -> bool {
    let refusal = Detail::from_dw0(item.dw0).refusal();
    let by_map = matches!(
        refusal,
        Some(
            Refusal::StaleMap
                | Refusal::MapBehind
                | Refusal::WrongTarget
                | Refusal::NotServing
                // The first does not serve any more, so another one was asked. It has the older map, too.
                | Refusal::AskTheFirst
                | Refusal::GroupWaits
                | Refusal::NeedsSalvage
        )
    );
    item.status < 1 << 16 && item.replica == 0 && by_map
}

/// Waits until the channel reaches more SSDs than it did, or the client goes by another map. False: not in
/// time, or never.
fn back_in_time<'a>(
    lock: impl Fn() -> MutexGuard<'a, Transfers>,
    target: Target<'_>,
    epoch: u64,
    left: impl Fn() -> Duration,
) -> bool {
    let again = target.again;
    loop {
        if left() <= REST {
            return false;
        }
        match again.wait_change(epoch, left() - REST) {
            Wait::Late => return false,
            Wait::Hopeless(why) => {
                tracing::warn!("the connections to the SSDs are not made anew: {why}");
                return false;
            }
            Wait::Moved => return true,
            Wait::Found => {}
        }
        let transfers = lock();
        // Another call may have used the found SSD meanwhile.
        let renewed = if again.has_found() { again.renew(&transfers, left()) } else { Ok(true) };
        drop(transfers);
        match renewed {
            Ok(true) => return true,
            Ok(false) => std::thread::sleep(REST.min(left())),
            Err(why) => {
                tracing::warn!("the connections to the SSDs are not made anew: {why}");
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};
    use gnstor_gnor::abi::GN_TIMED_OUT;

    #[test]
    fn a_call_that_ends_says_why_and_not_which_connection_broke_beside_it() {
        let _deadline = Deadline::after(LIMIT);
        let item = |vba: u32, status: u32| Item { vba, status, ..Item::default() };
        let (broken, refused) = (GN_QP_BROKEN | 0x0D15, 0x4286);
        let mixed = [item(1, broken), item(2, refused), item(3, GN_TIMED_OUT)];
        assert_eq!(decisive(&mixed).map(|item| item.vba), Some(2));
        assert_eq!(decisive(&mixed[..1]).map(|item| item.vba), Some(1), "it is sent again");
        assert!(decisive(&[]).is_none());
    }
}

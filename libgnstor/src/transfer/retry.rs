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
use std::cell::Cell;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Time between two tries to reconnect.
const REST: Duration = Duration::from_millis(100);
/// Pause after which a call that was refused because of its map runs again, even without a newer map: the SSD
/// may have been behind.
const AGAIN: Duration = Duration::from_millis(20);

/// The time of a host call. Waits for its turn, behind other calls and kernels, do not count.
struct Time<'a> {
    all: &'a Mutex<Transfers>,
    begun: Instant,
    most: Duration,
    waited: Cell<Duration>,
}

impl Time<'_> {
    fn left(&self) -> Duration {
        self.most.saturating_add(self.waited.get()).saturating_sub(self.begun.elapsed())
    }

    /// Does a part of the call when it is its turn.
    #[expect(clippy::disallowed_methods, reason = "measures a wait in real time")]
    fn turn<R>(&self, part: impl FnOnce(&Transfers) -> R) -> R {
        let from = Instant::now();
        let transfers = self.all.lock().expect("no panic while held");
        let count = |wait| self.waited.set(self.waited.get() + wait);
        count(from.elapsed());
        transfers.waited.take();
        let result = part(&transfers);
        count(transfers.waited.take());
        result
    }
}

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
    let mut items = all.lock().expect("no panic while held").plan(&target, vba, &work);
    let most = Duration::from_nanos(target.file.timeout_ns.saturating_mul(rounds(&items)));
    let time = Time { all, begun: Instant::now(), most, waited: Cell::default() };
    let left = || time.left();
    let mut file = target.file;
    loop {
        let epoch = target.maps.current().epoch();
        let failed = time.turn(|transfers| {
            target.again.take_found(transfers);
            let failed = transfers.run(target, file, &items, &mut work)?;
            if failed.iter().any(is_broken) {
                target.again.note_broken(transfers).map_err(Error::Protocol)?;
            }
            Ok::<_, Error>(failed)
        })?;
        let Some(decisive) = decisive(&failed) else { return Ok(()) };
        let &Item { vba, status, dw0, dw1, .. } = decisive;
        let ssd = blamed(&target, work.verb(), decisive);
        let failure = || IoFailure { what: work.verb().name(), vba, status, dw0, dw1, ssd: ssd.clone() };
        if !runs_again(decisive) {
            return Err(failure().into());
        }
        let better = if failed.iter().any(is_broken) {
            back_in_time(&time, target, epoch)
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
fn back_in_time(time: &Time<'_>, target: Target<'_>, epoch: u64) -> bool {
    let (again, left) = (target.again, || time.left());
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
        // Another call may have used the found SSD meanwhile.
        let renewed = time.turn(|transfers| match again.has_found() {
            true => again.renew(transfers, left()),
            false => Ok(true),
        });
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
    #![expect(clippy::disallowed_methods, reason = "waits in real time")]
    use super::*;
    use crate::deadline::{Deadline, LIMIT};
    use gnstor_fabric::device::{Choice, Device, Residency};
    use gnstor_fabric::runtime::TransportThreads;
    use gnstor_fabric::transport::{RcTransport, TransportConfig};
    use gnstor_gnor::abi::GN_TIMED_OUT;
    use gnstor_gnor::node::Node;
    use std::sync::mpsc;

    #[test]
    fn the_waits_of_a_call_for_another_call_and_for_a_kernel_do_not_count() {
        let _deadline = Deadline::after(LIMIT);
        let transports = vec![RcTransport::new(TransportConfig::default())];
        let engine = TransportThreads::start(transports).expect("a thread");
        let device = Device::open(Choice::Host).expect("the host device is always there");
        let node = Node::new(engine.handle(), &device, Residency::TwoKernels).expect("a node starts");
        let memory = || device.alloc(64).expect("host memory");
        let (staging, control, tainted) = (memory(), memory(), Cell::default());
        let all = Mutex::new(Transfers { staging, key: 0, control, tainted, waited: Cell::default() });
        let (most, each) = (Duration::from_secs(9), Duration::from_millis(300));
        let time = Time { all: &all, begun: Instant::now(), most, waited: Cell::default() };
        let (begun, has_begun) = mpsc::channel();
        std::thread::scope(|scope| {
            let (all, node) = (&all, &node);
            scope.spawn(move || {
                let (call, kernel) = (all.lock().expect("no panic"), node.launch_lock());
                begun.send(()).expect("it waits");
                std::thread::sleep(each);
                drop(call);
                std::thread::sleep(each);
                drop(kernel);
            });
            has_begun.recv().expect("it has both");
            time.turn(|transfers| drop(transfers.launch_lock(node)));
        });
        let (left, waited) = (time.left(), time.waited.get());
        assert!(waited > each + each / 2, "{waited:?}");
        assert!(left + time.begun.elapsed() >= most + waited, "{left:?}");
    }

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

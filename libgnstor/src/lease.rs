// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The lease of a volume that is open for writing: a thread renews it, and says which SSDs the client
//! reaches.

use crate::client::Client;
use crate::error::Error;
use crate::manager::VolumeInfo;
use gnstor_proto::grpc;
use gnstor_proto::placement::Rows as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A lease that is renewed.
#[derive(Debug)]
pub(crate) struct Lease {
    stop: Sender<()>,
    thread: JoinHandle<()>,
    lost: Arc<Mutex<Option<String>>>,
    in_doubt: Arc<AtomicBool>,
}

/// Whether the daemon has answered that there is nothing to renew.
fn refuses_renewal(e: &Error) -> bool {
    use tonic::Code::{FailedPrecondition, InvalidArgument, NotFound, PermissionDenied};
    let Error::Daemon(status) = e else { return false };
    matches!(status.code(), FailedPrecondition | InvalidArgument | NotFound | PermissionDenied)
}

/// Time from a failed renewal to the next try.
const RENEW_AGAIN: Duration = Duration::from_millis(500);
/// Time between two checks of the SSDs that are reached.
const LOOK: Duration = Duration::from_millis(50);

impl Lease {
    /// Begins to renew.
    #[expect(clippy::disallowed_methods, reason = "the renewal thread is the runtime part of this module")]
    pub(crate) fn start(client: &Arc<Client>, info: &VolumeInfo, length: Duration) -> Self {
        let (stop, stopped) = mpsc::channel();
        let lost = Arc::new(Mutex::new(None));
        let rpc = Arc::clone(&client.rpc);
        let request = grpc::RenewRequest {
            name: info.name.clone(),
            client_id: client.id.get().into(),
            lease_epoch: info.lease_epoch,
            lease_ms: u32::try_from(length.as_millis()).unwrap_or(u32::MAX),
            reaches: None,
            in_doubt: false,
            follows_drains: true,
        };
        let in_doubt = Arc::new(AtomicBool::new(false));
        let doubt = Arc::clone(&in_doubt);
        let (reachable, maps) = (client.session.reachable_ssds(), Arc::clone(&client.maps));
        let report = Arc::clone(&lost);
        let thread = std::thread::spawn(move || {
            let mut pause = length / 3;
            let (mut request, mut reported) = (request, Reported { reaches: u64::MAX, epoch: 0 });
            loop {
                let begun = Instant::now();
                while begun.elapsed() < pause
                    && !reported.lacks(reachable.now(), maps.current().epoch())
                    && request.in_doubt == doubt.load(Ordering::Relaxed)
                {
                    let rest = LOOK.min(pause.saturating_sub(begun.elapsed()));
                    let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(rest) else { return };
                }
                pause = length / 3;
                reported = Reported { reaches: reachable.now(), epoch: maps.current().epoch() };
                request.reaches = Some(reported.reaches);
                request.in_doubt = doubt.load(Ordering::Relaxed);
                match rpc.wait("the renewal of a lease", rpc.volumes().renew(request.clone())) {
                    Ok(_) => {}
                    // A daemon that is away, or waits for an SSD, may serve again before the lease ends; when
                    // it ends, the SSDs say so.
                    Err(e) if !refuses_renewal(&e) => {
                        pause = pause.min(RENEW_AGAIN);
                        tracing::warn!("renewing {}: {e}", request.name);
                    }
                    Err(e) => {
                        *report.lock().expect("no panic while held") = Some(e.to_string());
                        return;
                    }
                }
            }
        });
        Self { stop, thread, lost, in_doubt }
    }

    /// Why the lease is not renewed any longer.
    pub(crate) fn lost(&self) -> Option<String> {
        self.lost.lock().expect("no panic while held").clone()
    }

    /// After a failed write: has the thread tell the daemon at once that replicas may differ.
    pub(crate) fn put_in_doubt(&self) {
        self.in_doubt.store(true, Ordering::Relaxed);
    }

    /// Stops the renewals.
    pub(crate) fn end(self) {
        drop(self.stop);
        let _ = self.thread.join();
    }
}

/// The last report to the daemon: the SSDs that the client reaches, and when. A new one is sent at once when
/// * an SSD is reachable again. The daemon waits for that report before it gives the SSD places. A writer
///   that does not send it loses its lease;
/// * a new map is in use. The daemon may have lost an SSD that this client still reaches.
struct Reported {
    /// A bit is cleared when its SSD is lost.
    reaches: u64,
    /// Epoch of the map; 0: none.
    epoch: u64,
}

impl Reported {
    /// Whether the daemon must hear which SSDs are reached now, under the map of this epoch.
    fn lacks(&mut self, reached: u64, epoch: u64) -> bool {
        let lacks = reached & !self.reaches != 0 || (self.epoch != 0 && self.epoch != epoch);
        self.reaches &= reached;
        lacks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ssd_that_was_lost_and_is_reached_again_is_told_of_and_a_loss_is_not() {
        let _deadline = crate::deadline::Deadline::after(crate::deadline::LIMIT);
        let mut reported = Reported { reaches: u64::MAX, epoch: 0 };
        assert!(!reported.lacks(0b1111, 7), "the first renewal says so in its turn");
        for lost in 0..4 {
            let without = 0b1111 & !(1 << lost);
            assert!(!reported.lacks(without, 7), "SSD {lost} is lost");
            assert!(!reported.lacks(without, 7));
            assert!(reported.lacks(0b1111, 7), "SSD {lost} is back");
            reported = Reported { reaches: 0b1111, epoch: 7 };
            assert!(!reported.lacks(0b1111, 7), "that was said");
        }
    }

    #[test]
    fn under_a_new_map_it_is_said_again_what_is_reached() {
        let _deadline = crate::deadline::Deadline::after(crate::deadline::LIMIT);
        let mut reported = Reported { reaches: 0b1111, epoch: 7 };
        assert!(!reported.lacks(0b1111, 7) && reported.lacks(0b1111, 8));
        reported = Reported { reaches: 0b1111, epoch: 8 };
        assert!(!reported.lacks(0b1111, 8));
    }
}

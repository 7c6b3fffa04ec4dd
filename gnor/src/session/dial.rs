// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connects admin queues to SSDs. Each call blocks, so it has a thread of its own.

use super::{Connector, KATO, NotDialled, Path, SsdAddress, Unreached};
use gnstor_auth::Secret;
use gnstor_fabric::admin::ChannelError;
use gnstor_fabric::host_queue::{Credentials, HostQueue, SsdPath};
use gnstor_fabric::runtime::TransportHandle;
use gnstor_fabric::transport::ExecutorId;
use gnstor_proto::fabrics::Host;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Most SSDs of a link that are dialled at the same time.
const AT_ONCE: usize = 16;
/// Time for each further SSD of a link after one was silent. SSDs that are dialled at once have it together.
const AFTER_SILENCE: Duration = Duration::from_millis(200);

/// Dials SSDs.
#[derive(Debug)]
pub(super) struct Dialler {
    pub(super) transport: TransportHandle,
    pub(super) executor: ExecutorId,
    pub(super) host: Host,
    pub(super) secret: Option<Secret>,
    pub(super) connector: Arc<dyn Connector>,
}

impl Dialler {
    /// Connects new admin queues to these SSDs, and authenticates. The session's present queues go on
    /// meanwhile: one host may have several. Client and SSDs compute at the same time where there are cores.
    pub(super) fn dial(
        &self,
        ssds: &[usize],
        deadline: Duration,
        mut each: impl FnMut(usize, Result<Path, NotDialled>),
    ) {
        let mut within = deadline;
        let mut links = ssds.iter().copied().zip(self.connector.link(ssds, deadline));
        loop {
            let some: Vec<_> = links.by_ref().take(AT_ONCE).collect();
            if some.is_empty() {
                return;
            }
            let (tell, dialled) = mpsc::channel();
            let together = AFTER_SILENCE * u32::try_from(AT_ONCE).expect("a few");
            std::thread::scope(|scope| {
                for (ssd, link) in some {
                    let tell = tell.clone();
                    let dial = move || {
                        let dialled = link.map_err(NotDialled::Link);
                        let _ = tell.send((ssd, dialled.and_then(|address| self.connect(address, within))));
                    };
                    let thread = std::thread::Builder::new().name("gn-dial".into());
                    if let Err(e) = thread.spawn_scoped(scope, dial) {
                        let why = format!("no thread can be started: {e}");
                        each(ssd, Err(NotDialled::Link(Unreached { why, for_good: false, was_cut: false })));
                    }
                }
                drop(tell);
                for (ssd, dialled) in dialled {
                    if let Err(NotDialled::Admin(ChannelError::Timeout { .. })) = &dialled {
                        within = deadline.min(together);
                    }
                    each(ssd, dialled);
                }
            });
        }
    }

    fn connect(&self, address: SsdAddress, deadline: Duration) -> Result<Path, NotDialled> {
        let path = SsdPath {
            transport: &self.transport,
            executor: self.executor,
            port: address.port,
            subnqn: &address.subnqn,
        };
        let who = Credentials { host: self.host, secret: self.secret.clone() };
        let admin = HostQueue::connect(&path, who, KATO, deadline).map_err(NotDialled::Admin)?;
        Ok(Path::new(address, admin))
    }
}

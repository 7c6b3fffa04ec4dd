// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connects admin queues to SSDs. Each call blocks, so it has a thread of its own.

use super::{Connector, KATO, NotDialled, Path, SsdAddress};
use gnstor_auth::Secret;
use gnstor_fabric::admin::ChannelError;
use gnstor_fabric::host_queue::{Credentials, HostQueue, SsdPath};
use gnstor_fabric::runtime::TransportHandle;
use gnstor_fabric::transport::ExecutorId;
use gnstor_proto::fabrics::Host;
use std::sync::Arc;
use std::time::Duration;

/// Deadline of each further SSD of a link after one was silent.
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
    /// meanwhile: one host may have several.
    pub(super) fn dial(
        &self,
        ssds: &[usize],
        deadline: Duration,
        mut each: impl FnMut(usize, Result<Path, NotDialled>),
    ) {
        let mut within = deadline;
        for (&ssd, link) in ssds.iter().zip(self.connector.link(ssds, deadline)) {
            let dialled = link.map_err(NotDialled::Link).and_then(|address| self.connect(address, within));
            if let Err(NotDialled::Admin(ChannelError::Timeout { .. })) = &dialled {
                within = AFTER_SILENCE;
            }
            each(ssd, dialled);
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

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The admin queue to an SSD that is not there when its daemon starts.

use gnstor_fabric::admin::{AdminQueue, Capsule, ChannelError};
use gnstor_proto::nvme::Cqe;

/// Every command fails, so the daemon takes the SSD for lost, and dials it again and again.
#[derive(Debug)]
pub(crate) struct AbsentQueue {
    pub(crate) peer: String,
    pub(crate) cause: String,
}

impl AbsentQueue {
    fn error(&self) -> ChannelError {
        ChannelError::Refused { peer: self.peer.clone(), cause: self.cause.clone() }
    }
}

impl AdminQueue for AbsentQueue {
    fn send(&mut self, _: &Capsule) -> Result<(), ChannelError> {
        Err(self.error())
    }

    fn poll(&mut self) -> Result<Option<Cqe>, ChannelError> {
        Err(self.error())
    }

    fn read(&mut self, _: usize, data: &mut [u8]) {
        data.fill(0);
    }

    fn give_up(&mut self, _: &ChannelError) {}
}

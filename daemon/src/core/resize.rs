// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Resize: a volume gets more blocks. It never gets fewer, since an SSD takes no entry with fewer: blocks
//! that a client still writes would be gone.
//!
//! The blocks are reserved at once. Where some SSD does not take the change, it is repeated until each has:
//! an SSD that has taken it cannot go back. Clients that have the volume open keep the size that they know.

use super::failure::Failure;
use super::request::Resize;
use super::volume::{Change, Purpose, Then};
use super::{Core, Reply, Ticket};
use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::status::GrpcCode::{InvalidArgument, ResourceExhausted, Unavailable};

impl Core {
    pub(super) fn resize(&mut self, now: u64, ticket: Ticket, request: &Resize) {
        let (name, term) = (&request.name, self.term.number());
        let Some(volume) = self.named(ticket, name) else { return };
        let (vid, mut entry) = (volume.entry.vid, volume.basis(now, term));
        let (has, wants) = (entry.capacity_blocks, request.capacity_blocks);
        if wants == has && volume.behind.is_empty() {
            let view = self.volumes[&vid].view(now);
            return self.reply(ticket, Ok(Reply::Volume(view)));
        }
        let bytes = |blocks: u64| blocks * u64::from(BLOCK_BYTES);
        if wants < has {
            let message = format!(
                "volume {name} cannot be made smaller: it has {} bytes, and {} are asked for; copy it into a \
                 smaller one",
                bytes(has),
                bytes(wants)
            );
            return self.fail(ticket, InvalidArgument, message);
        }
        if let Some(message) = self.needs_everyone(name, "resized") {
            return self.fail(ticket, Unavailable, message);
        }
        if let Some(message) = self.lacks_copies(name, entry.replicas, "get more blocks") {
            return self.fail(ticket, Unavailable, message);
        }
        entry.capacity_blocks = wants;
        if self.capacity.as_ref().is_some_and(|capacity| capacity.has_holes(entry.replicas)) {
            let message = format!(
                "volume {name} cannot get more blocks: with its {} replicas some blocks have no SSD, because \
                 the fleet map has lost SSDs; bring them back or add others",
                entry.replicas
            );
            return self.fail(ticket, Unavailable, message);
        }
        if let Some(capacity) = &mut self.capacity
            && let Err(largest) = capacity.grow(&entry, has)
        {
            let message = format!(
                "volume {name} cannot have {} bytes: with {} replicas it can have {} at most; delete volumes, \
                 or add SSDs",
                bytes(wants),
                entry.replicas,
                bytes(largest)
            );
            return self.reply(ticket, Err(Failure::new(ResourceExhausted, message)));
        }
        self.volumes.get_mut(&vid).expect("it is named").most_blocks = wants;
        self.put(vid, entry, Purpose::Change(Change { ticket, then: Then::Resized }));
    }
}

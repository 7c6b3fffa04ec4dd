// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands for the owner of many queues, who takes their answers later: Keep Alive, MAP GET.

use super::{Asked, HostQueue, MAX_DATA};
use crate::admin::{AdminQueue, Capsule, ChannelError, Data, PIECE_BYTES};
use gnstor_proto::nvme::{Cqe, Sqe};
use gnstor_proto::status::Status;
use gnstor_proto::vendor::opcode;
use std::time::Instant;

/// Offset at which a map is stored: after the data of other commands.
const MAP_AT: usize = PIECE_BYTES;

impl HostQueue {
    /// Largest number of bytes of a map that [`Self::ask_map`] brings.
    pub const MAP_ROOM: usize = MAX_DATA - MAP_AT;

    /// The next answer of any command, if one has come. It does not wait.
    ///
    /// # Errors
    /// [`ChannelError::Broken`].
    pub fn next_answer(&mut self) -> Result<Option<Cqe>, ChannelError> {
        AdminQueue::poll(self)
    }

    /// Whether this is the answer of that Keep Alive.
    ///
    /// # Errors
    /// [`ChannelError::Refused`] for an error status.
    pub fn is_alive(&self, asked: &Asked, cqe: &Cqe) -> Result<bool, ChannelError> {
        let is_its = asked.is_answered_by(cqe);
        if is_its {
            self.require(cqe, "Keep Alive")?;
        }
        Ok(is_its)
    }

    /// Sends MAP GET for the first bytes of the SSD's fleet map. Only one may be in flight, since all use the
    /// same place for their data.
    ///
    /// # Errors
    /// [`ChannelError::Broken`].
    ///
    /// # Panics
    /// If `bytes` exceeds [`Self::MAP_ROOM`] or is not a multiple of a dword.
    #[expect(clippy::disallowed_methods, reason = "a deadline in real time")]
    pub fn ask_map(&mut self, bytes: usize) -> Result<Asked, ChannelError> {
        assert!(bytes <= Self::MAP_ROOM && bytes.is_multiple_of(4), "{bytes} bytes of a map");
        let dwords = u32::try_from(bytes / 4).expect("checked above");
        let cid = self.pair.next_index();
        let sqe = Sqe {
            opcode: opcode::MAP_GET,
            nsid: 1.into(),
            cid: cid.into(),
            cdw10: dwords.into(),
            ..Sqe::default()
        };
        self.send(&Capsule { sqe, at: MAP_AT, data: Data::In(bytes) })?;
        Ok(Asked { cid, at: Instant::now() })
    }

    /// The data that MAP GET for this number of bytes brought: the first part of the map, and the map's
    /// length. `None`: the SSD has no map or returned none.
    pub fn map(&mut self, cqe: &Cqe, bytes: usize) -> Option<(Vec<u8>, usize)> {
        let length = usize::try_from(cqe.dw0.get()).ok().filter(|&length| length != 0)?;
        if !Status(cqe.status_word()).is_success() {
            return None;
        }
        let mut data = vec![0; bytes.min(length).min(Self::MAP_ROOM)];
        self.pair.read_data_at(MAP_AT, &mut data);
        Some((data, length))
    }
}

impl Asked {
    /// Whether this is the answer of that command.
    pub fn is_answered_by(&self, cqe: &Cqe) -> bool {
        self.cid == cqe.cid.get()
    }
}

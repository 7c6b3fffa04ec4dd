// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CLIENT END: the daemon says that earlier registrations of a client id are over (rule 16 of the fleet).

use crate::nvme::Sqe;
use crate::slba::ClientId;
use crate::vendor::opcode;
use zerocopy::byteorder::little_endian::U32;

/// The command, which has no data. An SSD with a manager key believes no lower serial of the id any more. It
/// closes the queues of hosts that have one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientEnd {
    /// The id.
    pub client: ClientId,
    /// Lowest serial of a registration that is not over. Not 0.
    pub serial: u64,
    /// Term of the daemon.
    pub term: u64,
}

impl ClientEnd {
    /// Encodes the command. The queue adds flags, id and data pointer.
    pub fn command(&self) -> Sqe {
        let mut sqe = Sqe { opcode: opcode::CLIENT_END, nsid: 1.into(), ..Sqe::default() };
        [sqe.cdw2, sqe.cdw3] = halves(self.serial);
        sqe.cdw12 = u32::from(self.client.get()).into();
        [sqe.cdw14, sqe.cdw15] = halves(self.term);
        sqe
    }

    /// Decodes the command. `None`: a field has a value that is not allowed.
    pub fn of(sqe: &Sqe) -> Option<Self> {
        let word = |low: U32, high: U32| u64::from(low.get()) | u64::from(high.get()) << 32;
        let client = u16::try_from(sqe.cdw12.get()).ok().and_then(ClientId::new)?;
        let (serial, term) = (word(sqe.cdw2, sqe.cdw3), word(sqe.cdw14, sqe.cdw15));
        (serial != 0).then_some(Self { client, serial, term })
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low and the high half are meant")]
fn halves(value: u64) -> [U32; 2] {
    [(value as u32).into(), ((value >> 32) as u32).into()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};
    use zerocopy::IntoBytes;

    #[test]
    fn golden_client_end() {
        let _deadline = Deadline::after(LIMIT);
        let client = ClientId::new(0x0102).expect("an id");
        let end = ClientEnd { client, serial: 0x0304_0506_0708_090A, term: 0x0B_0000_000C };
        let sqe = end.command();
        let bytes = sqe.as_bytes();
        assert_eq!((bytes[0], bytes[4]), (0xE0, 1));
        assert_eq!(bytes[8..16], [0x0A, 9, 8, 7, 6, 5, 4, 3]);
        assert_eq!(bytes[48..64], [2, 1, 0, 0, 0, 0, 0, 0, 0x0C, 0, 0, 0, 0x0B, 0, 0, 0]);
        assert_eq!(ClientEnd::of(&sqe), Some(end));
        let bent = |change: fn(&mut Sqe)| {
            let mut bent = sqe;
            change(&mut bent);
            ClientEnd::of(&bent)
        };
        assert_eq!(bent(|sqe| (sqe.cdw2, sqe.cdw3) = (0.into(), 0.into())), None, "no serial");
        for id in [0, 0xFFFF, 0x1_0001] {
            assert_eq!(ClientEnd::of(&Sqe { cdw12: id.into(), ..sqe }), None, "{id:x} is no client id");
        }
    }
}

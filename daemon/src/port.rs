// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the core's commands to the bytes of an admin command, and back. The contract is
//! `gnstor_proto::vendor`.

use crate::core::{Answer, Command};
use gnstor_fabric::admin::{AdminChannel, ChannelError, Payload};
use gnstor_proto::log_page::{self, FLASH_FILLING, FLASH_MAGIC, FlashPage};
use gnstor_proto::nvme::{self, Cqe, KeyedSgl, Sqe};
use gnstor_proto::placement::FleetMap;
use gnstor_proto::slba::Vid;
use gnstor_proto::status::{Detail, Refusal, Status};
use gnstor_proto::vendor::{ENTRY_BYTES, VolumeEntry, opcode};
use std::time::Duration;
use zerocopy::{FromBytes, IntoBytes};

/// Entries in one page of VOLUME LIST: 64 KiB, what any of our controllers transfers at once.
pub const LIST_ENTRIES: usize = 16;
/// First try of MAP GET; the answer's length sizes the second one.
const MAP_FIRST_BYTES: usize = 64 << 10;
/// Longest map: what one descriptor can name, in whole dwords.
const MAP_MAX_BYTES: usize = KeyedSgl::MAX_BYTES as usize & !3;

/// One SSD as the daemon reaches it.
pub struct SsdPort {
    /// Index in the fleet map.
    pub index: u16,
    /// Subsystem NQN, for clients.
    pub subnqn: String,
    /// Transport, for clients: `tcp` or `inproc`.
    pub transport: String,
    /// Address, for clients: `host:port` for `tcp`.
    pub address: String,
    /// Capacity in bytes.
    pub capacity_bytes: u64,
    /// Model, for people.
    pub model: String,
    /// The daemon's own admin connection.
    pub channel: Box<dyn AdminChannel>,
    /// Makes another when that one breaks, and returns within seconds. `None`: the SSD cannot go away, or
    /// not come back.
    pub reconnect: Option<Reconnect>,
}

/// Connects with an SSD anew.
pub type Reconnect = Box<dyn FnMut() -> Result<Box<dyn AdminChannel>, ChannelError> + Send>;

impl std::fmt::Debug for SsdPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SsdPort")
            .field("index", &self.index)
            .field("subnqn", &self.subnqn)
            .finish_non_exhaustive()
    }
}

/// The submission entry of a command that carries `bytes` bytes of data.
pub fn encode(command: &Command, bytes: usize) -> Sqe {
    let dwords = u32::try_from(bytes / 4).expect("a transfer is far below 16 GiB");
    let mut sqe = Sqe { nsid: 1.into(), cdw10: dwords.into(), ..Sqe::default() };
    sqe.opcode = match command {
        Command::Add(_) => opcode::VOLUME_ADD,
        Command::Chmod(_) => opcode::VOLUME_CHMOD,
        Command::Delete { .. } => opcode::VOLUME_DELETE,
        Command::List { .. } => opcode::VOLUME_LIST,
        Command::MapSet(_) => opcode::MAP_SET,
        Command::MapGet => opcode::MAP_GET,
    };
    match command {
        Command::Delete { vid, generation, version, term } => {
            sqe.cdw12 = u32::from(vid.get()).into();
            sqe.cdw13 = (*generation).into();
            [sqe.cdw2, sqe.cdw3] = halves(*version).map(Into::into);
            [sqe.cdw14, sqe.cdw15] = halves(*term).map(Into::into);
        }
        Command::List { from } => sqe.cdw12 = u32::from(from.get()).into(),
        // The term and the version of an entry or a map are in its bytes.
        Command::Add(_) | Command::Chmod(_) | Command::MapSet(_) | Command::MapGet => {}
    }
    sqe
}

/// Executes one command and waits for its end, at most `deadline` for each exchange.
pub fn execute(channel: &mut dyn AdminChannel, command: &Command, deadline: Duration) -> Answer {
    let answer = match command {
        Command::Add(entry) | Command::Chmod(entry) => {
            let raw = entry.encode();
            exchange(channel, command, ENTRY_BYTES, Payload::Out(raw.as_bytes()), deadline)
                .map(|_| Answer::Done)
        }
        Command::Delete { .. } => {
            exchange(channel, command, 0, Payload::None, deadline).map(|_| Answer::Done)
        }
        Command::MapSet(map) => map_set(channel, command, map, deadline),
        Command::MapGet => map_get(channel, command, deadline),
        Command::List { from } => list(channel, command, *from, deadline),
    };
    answer.unwrap_or_else(|answer| answer)
}

/// Whether the SSD still answers. Any completion counts, a failed one too.
///
/// # Errors
/// As [`AdminChannel::execute`].
pub fn keep_alive(channel: &mut dyn AdminChannel, deadline: Duration) -> Result<(), ChannelError> {
    let sqe = Sqe { opcode: nvme::admin::KEEP_ALIVE, ..Sqe::default() };
    channel.execute(sqe, Payload::None, deadline).map(drop)
}

/// Whether the SSD says that acknowledged writes may be missing, so that it serves no reads. `None`: it does
/// not say.
///
/// # Errors
/// As [`AdminChannel::execute`].
pub fn is_filling(channel: &mut dyn AdminChannel, deadline: Duration) -> Result<Option<bool>, ChannelError> {
    let mut bytes = [0; size_of::<FlashPage>()];
    let sqe = log_page::get_log(log_page::FLASH, u32::try_from(bytes.len()).expect("a small page"));
    let cqe = channel.execute(sqe, Payload::In(&mut bytes), deadline)?;
    let page = FlashPage::read_from_bytes(&bytes).ok();
    let page = page.filter(|page| Status(cqe.status_word()).is_success() && page.magic == FLASH_MAGIC);
    Ok(page.map(|page| page.flags.get() & FLASH_FILLING != 0))
}

/// One exchange: DW0 of a successful completion, or the answer that the command failed with.
fn exchange(
    channel: &mut dyn AdminChannel,
    command: &Command,
    bytes: usize,
    payload: Payload<'_>,
    deadline: Duration,
) -> Result<u32, Answer> {
    let cqe = channel
        .execute(encode(command, bytes), payload, deadline)
        .map_err(|e| Answer::Lost(e.to_string()))?;
    if Status(cqe.status_word()).is_success() {
        return Ok(cqe.dw0.get());
    }
    Err(refusal(&cqe).map_or_else(
        || Answer::Lost(format!("{} failed with NVMe status {}", command.name(), Status(cqe.status_word()))),
        Answer::Refused,
    ))
}

/// The refusal a completion speaks of: the detail word if it agrees with the status, else the first with
/// that status.
fn refusal(cqe: &Cqe) -> Option<Refusal> {
    let status = Status(cqe.status_word());
    let named = Detail::from_dw0(cqe.dw0.get()).refusal().filter(|r| r.status() == status);
    named.or_else(|| Refusal::ALL.iter().copied().find(|r| r.status() == status))
}

fn map_set(
    channel: &mut dyn AdminChannel,
    command: &Command,
    map: &[u8],
    deadline: Duration,
) -> Result<Answer, Answer> {
    if map.len() > MAP_MAX_BYTES {
        return Err(Answer::Lost(format!(
            "a fleet map of {} bytes is too long: use fewer placement groups",
            map.len()
        )));
    }
    let mut padded = map.to_vec();
    padded.resize(map.len().next_multiple_of(4), 0);
    exchange(channel, command, padded.len(), Payload::Out(&padded), deadline).map(|_| Answer::Done)
}

fn map_get(channel: &mut dyn AdminChannel, command: &Command, deadline: Duration) -> Result<Answer, Answer> {
    let mut buffer = vec![0; MAP_FIRST_BYTES];
    // A second try with the right length; a third only if the map changed in between.
    for _ in 0..3 {
        let bytes = buffer.len();
        let length = exchange(channel, command, bytes, Payload::In(&mut buffer), deadline)? as usize;
        if length == 0 {
            return Ok(Answer::Map(None));
        }
        if length > MAP_MAX_BYTES {
            return Err(Answer::Lost(format!("the SSD says its fleet map is {length} bytes long")));
        }
        if length <= bytes {
            let map = FleetMap::decode(&buffer[..length]);
            return map
                .map(|map| Answer::Map(Some(map)))
                .map_err(|e| Answer::Lost(format!("its fleet map: {e}")));
        }
        buffer = vec![0; length.next_multiple_of(4)];
    }
    Err(Answer::Lost("the SSD's fleet map changes while it is read".into()))
}

fn list(
    channel: &mut dyn AdminChannel,
    command: &Command,
    from: Vid,
    deadline: Duration,
) -> Result<Answer, Answer> {
    let mut buffer = vec![0; LIST_ENTRIES * ENTRY_BYTES];
    let bytes = buffer.len();
    let count = exchange(channel, command, bytes, Payload::In(&mut buffer), deadline)? as usize;
    if count > LIST_ENTRIES {
        return Err(Answer::Lost(format!("VOLUME LIST says {count} entries where {LIST_ENTRIES} fit")));
    }
    let mut entries: Vec<VolumeEntry> = Vec::with_capacity(count);
    for raw in buffer.chunks_exact(ENTRY_BYTES).take(count) {
        let entry =
            VolumeEntry::decode(raw).map_err(|e| Answer::Lost(format!("an entry of VOLUME LIST: {e}")))?;
        // Paging goes on behind the last entry, so the order is what makes it end.
        let lowest = entries.last().map_or(from.get(), |last| last.vid.get().saturating_add(1));
        if entry.vid.get() < lowest {
            return Err(Answer::Lost(
                "the entries of VOLUME LIST are not in order of their volume ids".into(),
            ));
        }
        entries.push(entry);
    }
    Ok(Answer::Table { entries, more: count == LIST_ENTRIES })
}

#[expect(clippy::cast_possible_truncation, reason = "the low and the high half are meant")]
fn halves(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};

    #[test]
    fn golden_delete() {
        let _deadline = Deadline::after(LIMIT);
        let command = Command::Delete {
            vid: Vid::new(0x0102).unwrap(),
            generation: 3,
            version: 0x1_0000_0002,
            term: 0x5_0000_0004,
        };
        let sqe = encode(&command, 0);
        let bytes = sqe.as_bytes();
        assert_eq!((bytes[0], bytes[4]), (0xC4, 1));
        assert_eq!(bytes[8..16], [2, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(bytes[40..64], [0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0]);
    }

    #[test]
    fn golden_list() {
        let _deadline = Deadline::after(LIMIT);
        let sqe = encode(&Command::List { from: Vid::new(7).unwrap() }, LIST_ENTRIES * ENTRY_BYTES);
        assert_eq!((sqe.opcode, sqe.cdw10.get(), sqe.cdw12.get()), (0xC2, 16_384, 7));
    }

    #[test]
    fn a_status_without_detail_is_still_understood() {
        let _deadline = Deadline::after(LIMIT);
        let mut cqe = Cqe::default();
        cqe.set_status_word(Refusal::StaleTerm.status().0);
        assert_eq!(refusal(&cqe), Some(Refusal::StaleTerm));
        cqe.set_status_word(Refusal::UnknownVolume.status().0);
        cqe.dw0 = Detail::new(Refusal::NotTheDaemon, None).to_dw0().into();
        assert_eq!(refusal(&cqe), Some(Refusal::NotTheDaemon));
        cqe.set_status_word(0x06);
        assert_eq!(refusal(&cqe), None);
    }
}

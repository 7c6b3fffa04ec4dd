// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the core's commands to the bytes of an admin command, and back. The contract is
//! `gnstor_proto::vendor`.

pub mod connector;
mod gone;
mod repair;
mod voting;

use crate::core::{Answer, Command};
use gnstor_fabric::admin::{AdminQueue, Ask, ChannelError, Data, Dialogue, Reply, WINDOW_BYTES};
use gnstor_fleet::set::SsdSet;
use gnstor_proto::nvme::{Cqe, Sqe};
use gnstor_proto::placement::{AnyMap, MAP_BYTES};
use gnstor_proto::slba::Vid;
use gnstor_proto::status::{Detail, Refusal, Status};
use gnstor_proto::vendor::{ENTRY_BYTES, LIST_TOMBSTONES, VolumeEntry, opcode};
use gnstor_proto::voting::HELD_MAP_BYTES;
use zerocopy::IntoBytes;

/// Entries in one page of VOLUME LIST: 64 KiB, what any of our controllers transfers at once.
pub const LIST_ENTRIES: usize = 16;
/// Buffer for the first MAP GET. The length in its answer sizes the second one.
const MAP_FIRST_BYTES: usize = 64 << 10;
/// Longest map: one command can move as much.
const MAP_MAX_BYTES: usize = MAP_BYTES;
const _: () = assert!(MAP_BYTES <= WINDOW_BYTES);
/// A second MAP GET has the right length; a third is needed if the map changed in between.
const MAP_TRIES: u32 = 3;
/// The order of the fleet map's commands; those of volumes have their volume's id.
const MAP_ORDER: u64 = 1 << 16;
const _: () = assert!(LIST_ENTRIES * ENTRY_BYTES == gnstor_fabric::admin::PIECE_BYTES);

/// How the daemon reaches one SSD.
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
    /// The daemon's own admin queue.
    pub queue: Box<dyn AdminQueue>,
    /// Makes another queue when this one breaks. It may block, and returns within seconds. `None`: the SSD
    /// cannot go away, or cannot come back.
    pub reconnect: Option<Reconnect>,
}

/// Connects with an SSD anew.
pub type Reconnect = Box<dyn FnMut() -> Result<Box<dyn AdminQueue>, ChannelError> + Send>;

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
        // The bytes of these commands are in `voting`, `repair` and `gnstor_proto::client_end`.
        Command::Identify
        | Command::TermTake { .. }
        | Command::MapHold { .. }
        | Command::Activate(_)
        | Command::FillLog
        | Command::ScrubLog
        | Command::Repair(_)
        | Command::ClientEnd(_)
        | Command::Settle(_) => 0,
        Command::Add(_) => opcode::VOLUME_ADD,
        Command::Chmod(_) => opcode::VOLUME_CHMOD,
        Command::Delete { .. } => opcode::VOLUME_DELETE,
        Command::List { .. } | Command::ListGone { .. } => opcode::VOLUME_LIST,
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
        Command::ListGone { from, skip } => {
            sqe.cdw12 = (u32::from(*skip) << 16 | u32::from(from.get())).into();
            sqe.cdw13 = LIST_TOMBSTONES.into();
        }
        // The term and the version of an entry or a map are in its bytes.
        _ => {}
    }
    sqe
}

/// An SSD executes commands of the same order in the order given: those of one volume, and those of the fleet
/// map. Commands of different orders may overtake each other (decision 46).
pub fn order(command: &Command) -> Option<u64> {
    match command {
        Command::Add(entry) | Command::Chmod(entry) => Some(entry.vid.get().into()),
        Command::Delete { vid, .. } => Some(vid.get().into()),
        Command::MapSet(_)
        | Command::MapGet
        | Command::TermTake { .. }
        | Command::MapHold { .. }
        | Command::Activate(_) => Some(MAP_ORDER),
        Command::Settle(of) => Some(of.vid.get().into()),
        Command::List { .. }
        | Command::ListGone { .. }
        | Command::Identify
        | Command::FillLog
        | Command::ScrubLog
        | Command::ClientEnd(_)
        | Command::Repair(_) => None,
    }
}

/// A command in progress at one SSD.
#[derive(Debug)]
pub struct Talk {
    command: Command,
    /// MAP GET: size of the buffer.
    room: usize,
    /// MAP GET: number of tries.
    tries: u32,
    /// TERM TAKE: the answers so far.
    taking: voting::Taking,
}

impl Talk {
    /// A command to be carried out.
    ///
    /// # Errors
    /// The answer of a command that cannot be sent.
    pub fn start(command: Command) -> Result<Self, Answer> {
        let (bytes, room) = match &command {
            Command::MapSet(map) => (map.len(), MAP_MAX_BYTES),
            Command::MapHold { map, .. } | Command::Activate(map) => (map.bytes.len(), HELD_MAP_BYTES),
            _ => (0, MAP_MAX_BYTES),
        };
        if bytes > room {
            return Err(Answer::Lost(format!(
                "a fleet map of {bytes} bytes is too long, {room} is the most: use fewer placement groups"
            )));
        }
        Ok(Self { command, room: MAP_FIRST_BYTES, tries: 0, taking: voting::Taking::default() })
    }

    /// DW0 of a successful completion, or the answer that the command failed with.
    fn dw0(&self, cqe: &Cqe) -> Result<u32, Answer> {
        let status = Status(cqe.status_word());
        if status.is_success() {
            return Ok(cqe.dw0.get());
        }
        let unknown = || Answer::Lost(format!("{} failed with NVMe status {status}", self.command.name()));
        Err(match refusal(cqe) {
            None => unknown(),
            Some(refusal) if matches!(self.command, Command::TermTake { .. }) => {
                voting::higher_term(cqe, refusal)
            }
            Some(refusal) => Answer::Refused(refusal),
        })
    }
}

impl Dialogue for Talk {
    type Answer = Answer;

    fn order(&self) -> Option<u64> {
        order(&self.command)
    }

    fn ask(&self) -> Ask {
        if let Some(ask) = self.ask_voter().or_else(|| self.ask_of_repair()) {
            return ask;
        }
        let data = match &self.command {
            Command::ClientEnd(end) => return Ask { sqe: end.command(), data: Data::None },
            Command::Add(entry) | Command::Chmod(entry) => Data::Out(entry.encode().as_bytes().to_vec()),
            Command::Delete { .. } => Data::None,
            Command::MapSet(map) => {
                let mut padded = map.to_vec();
                padded.resize(map.len().next_multiple_of(4), 0);
                Data::Out(padded)
            }
            Command::MapGet => Data::In(self.room),
            _ => Data::In(LIST_ENTRIES * ENTRY_BYTES),
        };
        Ask { sqe: encode(&self.command, data.bytes()), data }
    }

    fn replied(&mut self, reply: Reply) -> Option<Answer> {
        let dw0 = match self.dw0(&reply.cqe) {
            Ok(dw0) => dw0,
            Err(answer) => return Some(answer),
        };
        match &self.command {
            Command::Add(_)
            | Command::Chmod(_)
            | Command::Delete { .. }
            | Command::MapSet(_)
            | Command::Repair(_)
            | Command::ClientEnd(_)
            | Command::Activate(_) => Some(Answer::Done),
            Command::MapHold { .. } => Some(Answer::Held(SsdSet::of_words([dw0, reply.cqe.dw1.get()]))),
            Command::Identify => Some(voting::says(&reply)),
            Command::FillLog => Some(repair::fill(&reply)),
            Command::ScrubLog => Some(repair::scrub(&reply)),
            Command::Settle(_) => Some(repair::settled(dw0, &reply)),
            Command::TermTake { .. } => self.taken(dw0, &reply),
            Command::List { from } => Some(table(*from, dw0 as usize, &reply.data).unwrap_or_else(|a| a)),
            Command::ListGone { .. } => Some(gone::page(dw0 as usize, &reply.data).unwrap_or_else(|a| a)),
            Command::MapGet => self.map(dw0 as usize, &reply.data),
        }
    }

    fn lost(&mut self, error: &ChannelError) -> Answer {
        Answer::Lost(error.to_string())
    }
}

impl Talk {
    /// A map of `length` bytes, of which `data` has as many as fit. `None`: it is asked for again.
    fn map(&mut self, length: usize, data: &[u8]) -> Option<Answer> {
        if length == 0 {
            return Some(Answer::Map(None));
        }
        if length > MAP_MAX_BYTES {
            return Some(Answer::Lost(format!("the SSD says its fleet map is {length} bytes long")));
        }
        if let Some(map) = data.get(..length) {
            let map = AnyMap::decode(map);
            return Some(
                map.map_or_else(
                    |e| Answer::Lost(format!("its fleet map: {e}")),
                    |map| Answer::Map(Some(map)),
                ),
            );
        }
        self.tries += 1;
        if self.tries == MAP_TRIES {
            return Some(Answer::Lost("the SSD's fleet map changes while it is read".into()));
        }
        self.room = length.next_multiple_of(4);
        None
    }
}

/// The refusal in a completion: the detail word if it agrees with the status, otherwise the first refusal
/// with that status.
pub(crate) fn refusal(cqe: &Cqe) -> Option<Refusal> {
    let status = Status(cqe.status_word());
    let named = Detail::from_dw0(cqe.dw0.get()).refusal().filter(|r| r.status() == status);
    named.or_else(|| Refusal::ALL.iter().copied().find(|r| r.status() == status))
}

/// A page of the table, from this id on.
fn table(from: Vid, count: usize, data: &[u8]) -> Result<Answer, Answer> {
    if count > LIST_ENTRIES {
        return Err(Answer::Lost(format!("VOLUME LIST says {count} entries where {LIST_ENTRIES} fit")));
    }
    let mut entries: Vec<VolumeEntry> = Vec::with_capacity(count);
    for raw in data.chunks_exact(ENTRY_BYTES).take(count) {
        let entry =
            VolumeEntry::decode(raw).map_err(|e| Answer::Lost(format!("an entry of VOLUME LIST: {e}")))?;
        // Paging goes on after the last entry, so only ascending entries guarantee an end.
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

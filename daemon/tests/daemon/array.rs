// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A simulated SSD: the vendor commands of `gnstor_proto::vendor` on bytes, and faults on demand. It shares
//! no code with the daemon beyond `proto`, so that a wrong reading of the contract shows.

mod ssds;

pub(crate) use ssds::{SSD_BYTES, SimArray};

use crate::repair::SimFill;
use crate::voter::SimVote;
use gnstor_fabric::admin::{Capsule, ChannelError, Data};
use gnstor_proto::nvme::admin::{GET_LOG_PAGE, IDENTIFY, KEEP_ALIVE};
use gnstor_proto::nvme::{Cqe, Sqe};
use gnstor_proto::placement::{AnyMap, Rows};
use gnstor_proto::repair::FILL_LID;
use gnstor_proto::scrub::{SCRUB_LID, ScrubLog};
use gnstor_proto::slba::Vid;
use gnstor_proto::status::{Detail, Refusal};
use gnstor_proto::vendor::{
    ENTRY_BYTES, GET_HELD, LIST_TOMBSTONES, RawTombstone, TOMBSTONE_BYTES, VolumeEntry, WRITE_LEASE_MS,
    opcode, takes_lease,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use zerocopy::{FromBytes as _, IntoBytes};

/// A fault of the next command.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// The command never arrives.
    LostBefore,
    /// The command is executed, and its completion is lost.
    LostAfter,
    /// The command is refused.
    Refuse(Refusal),
    /// The command takes this long in real time, and later commands do not wait for it.
    Delay(Duration),
}

/// The durable state of an SSD.
#[derive(Default, Debug)]
pub(crate) struct SimSsd {
    pub(crate) table: BTreeMap<Vid, VolumeEntry>,
    pub(crate) map: Option<AnyMap>,
    /// The highest term of a command.
    pub(super) term: u64,
    /// The SSD's identity, and what it granted and holds as a voter.
    pub(crate) vote: SimVote,
    /// Deleted volumes stay in the table for this number of commands.
    pub(crate) sweep_commands: u32,
    sweeps: BTreeMap<Vid, u32>,
    /// The last generation of volumes that were swept.
    tombstones: BTreeMap<Vid, u32>,
    /// Volumes that are swept, by id and generation.
    pub(crate) gone: BTreeMap<(Vid, u32), VolumeEntry>,
    /// Faults of the next commands, one after the other.
    pub(crate) faults: VecDeque<Fault>,
    /// Every command is lost.
    pub(crate) dead: bool,
    /// The SSD says that acknowledged writes may be missing.
    pub(crate) filling: bool,
    /// Number of bytes by which its capacity is smaller than the others'.
    pub(crate) lacks_bytes: u64,
    /// State of its scrub, and the share of its repairs.
    pub(crate) scrub: ScrubLog,
    /// The places that it fills.
    pub(crate) fill: SimFill,
    /// Commands taken, by opcode.
    pub(crate) counts: BTreeMap<u8, u32>,
    /// The lowest serial of each client id that is not over.
    pub(crate) ends: BTreeMap<u16, u64>,
    /// It does not know CLIENT END.
    pub(crate) ends_no_clients: bool,
}

impl SimSsd {
    /// The volumes that serve I/O.
    pub(crate) fn active(&self) -> Vec<VolumeEntry> {
        self.table.values().filter(|e| !e.deleting).cloned().collect()
    }

    fn sweep(&mut self) {
        for left in self.sweeps.values_mut() {
            *left = left.saturating_sub(1);
        }
        let done: Vec<_> = self.sweeps.iter().filter(|(_, left)| **left == 0).map(|(&vid, _)| vid).collect();
        for vid in done {
            self.sweeps.remove(&vid);
            let dead = self.table.remove(&vid).expect("what is swept is in the table");
            self.tombstones.insert(vid, dead.generation);
            self.gone.insert((vid, dead.generation), dead);
        }
    }

    pub(super) fn check_term(&mut self, term: u64) -> Result<(), Refusal> {
        if term < self.term {
            return Err(Refusal::StaleTerm);
        }
        if term - self.term > 1 << 32 {
            return Err(Refusal::InvalidField);
        }
        self.term = term;
        Ok(())
    }

    /// Executes a capsule, or fails as `fault` says. Returns its completion, and the bytes that it brings.
    pub(crate) fn carry_out(
        &mut self,
        capsule: &Capsule,
        fault: Option<Fault>,
    ) -> Result<(Cqe, Vec<u8>), ChannelError> {
        let broken = || ChannelError::Broken { peer: "the SSD".into(), cause: "pulled".into() };
        if self.dead {
            return Err(broken());
        }
        let mut cqe = Cqe { cid: capsule.sqe.cid, ..Cqe::default() };
        let mut brought = Vec::new();
        match capsule.sqe.opcode {
            KEEP_ALIVE => return Ok((cqe, brought)),
            GET_LOG_PAGE if capsule.sqe.cdw10.get() & 0xFF == u32::from(FILL_LID) => {
                brought = self.fill_log();
                assert_eq!(brought.len(), capsule.data.bytes());
                return Ok((cqe, brought));
            }
            GET_LOG_PAGE if capsule.sqe.cdw10.get() & 0xFF == u32::from(SCRUB_LID) => {
                brought = self.scrub.encode();
                assert_eq!(brought.len(), capsule.data.bytes());
                return Ok((cqe, brought));
            }
            GET_LOG_PAGE => {
                brought = vec![0; capsule.data.bytes()];
                brought[..8].copy_from_slice(&[b'G', b'N', b'L', b'F', 1, 0, u8::from(self.filling), 0]);
                return Ok((cqe, brought));
            }
            _ => {}
        }
        let result = match fault {
            Some(Fault::LostBefore) => return Err(broken()),
            Some(Fault::Refuse(refusal)) => Err(refusal),
            Some(Fault::LostAfter | Fault::Delay(_)) | None => {
                self.command(&capsule.sqe, &capsule.data, &mut brought)
            }
        };
        self.sweep();
        match result {
            Ok(dw0) => cqe.dw0 = dw0.into(),
            Err(refusal) => {
                cqe.dw0 = Detail::new(refusal, None).to_dw0().into();
                cqe.set_status_word(refusal.status().0);
                if capsule.sqe.opcode == opcode::TERM_TAKE {
                    cqe.dw1 = self.highest_term().into();
                }
            }
        }
        if matches!(fault, Some(Fault::LostAfter)) { Err(broken()) } else { Ok((cqe, brought)) }
    }

    fn command(&mut self, sqe: &Sqe, payload: &Data, brought: &mut Vec<u8>) -> Result<u32, Refusal> {
        if sqe.opcode == IDENTIFY {
            assert_eq!((sqe.nsid.get(), sqe.cdw10.get(), payload.bytes()), (0, 1, 4096));
            *brought = self.identify();
            return Ok(0);
        }
        assert_eq!(sqe.nsid.get(), 1, "the vendor commands carry namespace 1");
        let bytes = payload.bytes();
        if let Data::In(bytes) = payload {
            brought.resize(*bytes, 0);
        }
        assert_eq!(sqe.cdw10.get() as usize * 4, bytes, "CDW10 is the number of dwords");
        assert_eq!(sqe.cdw11.get(), 0);
        let has_words = [opcode::VOLUME_DELETE, opcode::TERM_TAKE, opcode::REPAIR, opcode::CLIENT_END];
        if !has_words.contains(&sqe.opcode) {
            let of_gone = sqe.opcode == opcode::VOLUME_LIST && sqe.cdw13.get() == LIST_TOMBSTONES;
            let cdw13 = if of_gone { 0.into() } else { sqe.cdw13 };
            let unused = [sqe.cdw2, sqe.cdw3, cdw13, sqe.cdw14, sqe.cdw15];
            assert!(unused.iter().all(|dw| dw.get() == 0), "unused dwords are zero");
        }
        *self.counts.entry(sqe.opcode).or_default() += 1;
        match (sqe.opcode, payload) {
            (opcode::VOLUME_ADD, Data::Out(data)) => self.add(data),
            (opcode::VOLUME_CHMOD, Data::Out(data)) => self.chmod(data),
            (opcode::VOLUME_DELETE, Data::None) => self.delete(sqe),
            (opcode::VOLUME_LIST, Data::In(_)) if sqe.cdw13.get() > 0 => Ok(self.list_gone(sqe, brought)),
            (opcode::VOLUME_LIST, Data::In(_)) => Ok(self.list(sqe, brought)),
            (opcode::MAP_SET, Data::Out(data)) => self.map_set(data),
            (opcode::TERM_TAKE, Data::In(_)) => self.take_term(sqe, brought),
            (opcode::MAP_HOLD, Data::Out(data)) => self.hold(data),
            (opcode::ACTIVATE, Data::Out(data)) => self.activate(data),
            (opcode::SETTLE, Data::Out(data)) => self.settle(data),
            (opcode::REPAIR, Data::None) => self.take_order(sqe),
            (opcode::CLIENT_END, Data::None) if !self.ends_no_clients => self.end_client(sqe),
            (opcode::MAP_GET, Data::In(_)) => {
                let map = if sqe.cdw12.get() == GET_HELD { self.held() } else { self.map.clone() };
                let map = map.map(|map| map.encode().unwrap()).unwrap_or_default();
                let fits = map.len().min(brought.len());
                brought[..fits].copy_from_slice(&map[..fits]);
                Ok(u32::try_from(map.len()).unwrap())
            }
            _ => Err(Refusal::InvalidOpcode),
        }
    }

    fn add(&mut self, data: &[u8]) -> Result<u32, Refusal> {
        let entry = decoded(data)?;
        self.check_term(entry.term)?;
        let dead = self.tombstones.get(&entry.vid);
        match self.table.get(&entry.vid) {
            Some(old) if old.deleting => Err(Refusal::SweepPending),
            Some(_) => Err(Refusal::VolumeExists),
            None if dead.is_some_and(|&dead| entry.generation <= dead) => Err(Refusal::StaleVersion),
            None => {
                self.table.insert(entry.vid, entry);
                Ok(0)
            }
        }
    }

    fn chmod(&mut self, data: &[u8]) -> Result<u32, Refusal> {
        let entry = decoded(data)?;
        self.check_term(entry.term)?;
        if !self.ends_no_clients {
            self.vote.log.lock().unwrap().holders_ended(&entry, &self.ends);
        }
        let old = self.table.get_mut(&entry.vid).ok_or(Refusal::VolumeAbsent)?;
        if old.deleting {
            return Err(Refusal::Deleting);
        }
        if entry.version <= old.version {
            return Err(Refusal::StaleVersion);
        }
        let fixed = |e: &VolumeEntry| (e.generation, e.replicas, e.chunk_shift, e.factor);
        let shrinks = entry.capacity_blocks < old.capacity_blocks;
        if fixed(&entry) != fixed(old) || shrinks || entry.lease_epoch < old.lease_epoch || entry.deleting {
            return Err(Refusal::InvalidField);
        }
        if matches!(self.map, Some(AnyMap::Three(_))) {
            let log = Arc::clone(&self.vote.log);
            log.lock().unwrap().entry_follows(self.vote.index(), old, &entry);
        }
        *old = entry;
        Ok(0)
    }

    fn delete(&mut self, sqe: &Sqe) -> Result<u32, Refusal> {
        let join = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        self.check_term(join(sqe.cdw14.get(), sqe.cdw15.get()))?;
        let vid = u16::try_from(sqe.cdw12.get()).ok().and_then(Vid::new).ok_or(Refusal::InvalidField)?;
        if !self.table.contains_key(&vid) && self.tombstones.get(&vid) == Some(&sqe.cdw13.get()) {
            return Ok(0);
        }
        let entry = self.table.get_mut(&vid).ok_or(Refusal::VolumeAbsent)?;
        if entry.generation != sqe.cdw13.get() {
            return Err(Refusal::VolumeAbsent);
        }
        if entry.deleting {
            return Ok(0);
        }
        let version = join(sqe.cdw2.get(), sqe.cdw3.get());
        if version <= entry.version {
            return Err(Refusal::StaleVersion);
        }
        entry.deleting = true;
        entry.version = version;
        entry.term = self.term;
        self.sweeps.insert(vid, self.sweep_commands + 1);
        Ok(0)
    }

    fn end_client(&mut self, sqe: &Sqe) -> Result<u32, Refusal> {
        let join = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        if join(sqe.cdw14.get(), sqe.cdw15.get()) < self.term {
            return Err(Refusal::StaleTerm);
        }
        let (id, serial) = (sqe.cdw12.get(), join(sqe.cdw2.get(), sqe.cdw3.get()));
        assert!(id > 0 && serial > 0);
        let known = self.ends.entry(u16::try_from(id).unwrap()).or_default();
        *known = serial.max(*known);
        Ok(0)
    }

    fn list(&self, sqe: &Sqe, data: &mut [u8]) -> u32 {
        data.fill(0);
        let from = Vid::new(u16::try_from(sqe.cdw12.get()).unwrap()).unwrap();
        let mut count = 0;
        for (entry, room) in self.table.range(from..).zip(data.chunks_exact_mut(ENTRY_BYTES)) {
            room.copy_from_slice(entry.1.encode().as_bytes());
            count += 1;
        }
        count
    }

    fn list_gone(&self, sqe: &Sqe, data: &mut [u8]) -> u32 {
        let (from, skip) = (sqe.cdw12.get() & 0xFFFF, sqe.cdw12.get() >> 16);
        let from = Vid::new(u16::try_from(from).unwrap()).unwrap();
        let of = self.gone.range((from, 0)..).enumerate();
        let left = of.filter(|(at, ((vid, _), _))| *vid != from || *at >= skip as usize).map(|(_, of)| of);
        let mut count = 0;
        for (((vid, generation), entry), room) in left.zip(data.chunks_exact_mut(TOMBSTONE_BYTES)) {
            let mut raw = RawTombstone::read_from_bytes(&[0; TOMBSTONE_BYTES]).unwrap();
            (raw.magic, raw.format) = (RawTombstone::MAGIC, RawTombstone::FORMAT.into());
            (raw.vid, raw.generation) = (vid.get().into(), (*generation).into());
            raw.request_ids.iter_mut().zip(&entry.request_ids).for_each(|(to, id)| *to = *id);
            room.copy_from_slice(raw.as_bytes());
            count += 1;
        }
        count
    }

    fn map_set(&mut self, data: &[u8]) -> Result<u32, Refusal> {
        let map = AnyMap::decode(data).map_err(|_| Refusal::InvalidField)?;
        self.check_term(map.term())?;
        if self.map.as_ref().is_some_and(|old| map.epoch() < old.epoch()) {
            return Err(Refusal::StaleVersion);
        }
        if let AnyMap::Three(map) = &map {
            self.vote.log.lock().unwrap().given(map);
        }
        self.map = Some(map);
        Ok(0)
    }
}

/// The entry of an ADD or CHMOD.
fn decoded(data: &[u8]) -> Result<VolumeEntry, Refusal> {
    let entry = VolumeEntry::decode(data).map_err(|_| Refusal::InvalidField)?;
    assert!(takes_lease(entry.lease_ms, &WRITE_LEASE_MS), "an SSD refuses a lease of {} ms", entry.lease_ms);
    Ok(entry)
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The simulated SSDs of one array, and connections to them.

use super::{Fault, SimSsd};
use crate::voter::{MapLog, SimVote};
use gnstor_daemon::SsdPort;
use gnstor_daemon::core::{Answer, Command};
use gnstor_daemon::port::Talk;
use gnstor_fabric::admin::{AdminQueue, Capsule, ChannelError, Exchange};
use gnstor_proto::fabrics::ssd_subnqn;
use gnstor_proto::nvme::Cqe;
use gnstor_proto::nvme::admin::{GET_LOG_PAGE, KEEP_ALIVE};
use gnstor_proto::placement::map3::State3;
use gnstor_proto::placement::{AnyMap, Rows};
use gnstor_proto::slba::Vid;
use gnstor_proto::vendor::VolumeEntry;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The array. Clones share the same SSDs.
#[derive(Clone, Debug)]
pub(crate) struct SimArray(Vec<Arc<Mutex<SimSsd>>>);

/// The lease epoch of a volume that is to be deleted.
/// Capacity of each SSD.
pub(crate) const SSD_BYTES: u64 = 1 << 30;

impl SimArray {
    pub(crate) fn new(ssds: usize) -> Self {
        let log = Arc::<Mutex<MapLog>>::default();
        let ssd = |index| {
            let vote = SimVote::new(u16::try_from(index).unwrap(), Arc::clone(&log));
            Arc::new(Mutex::new(SimSsd { vote, ..SimSsd::default() }))
        };
        Self((0..ssds).map(ssd).collect())
    }

    /// The same SSDs, and an empty one after them.
    pub(crate) fn and_an_empty_one(&self) -> Self {
        let log = Arc::clone(&self.ssd(0).vote.log);
        let vote = SimVote::new(u16::try_from(self.len()).unwrap(), log);
        let empty = Arc::new(Mutex::new(SimSsd { vote, ..SimSsd::default() }));
        Self(self.0.iter().cloned().chain([empty]).collect())
    }

    /// The same SSDs but the last one.
    pub(crate) fn without_the_last(&self) -> Self {
        Self(self.0[..self.len() - 1].to_vec())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn ssd(&self, index: usize) -> MutexGuard<'_, SimSsd> {
        self.0[index].lock().unwrap()
    }

    pub(crate) fn queue(&self, index: usize) -> SimQueue {
        SimQueue { ssd: self.0[index].clone(), taken: Vec::new(), brought: BTreeMap::new() }
    }

    /// Makes an SSD execute one command alone.
    pub(crate) fn execute(&self, index: usize, command: Command) -> Answer {
        let mut exchange = Exchange::new(format!("SSD {index}"), 1_000);
        match Talk::start(command) {
            Ok(talk) => exchange.give((), talk),
            Err(answer) => return answer,
        }
        while let Some(capsule) = exchange.next(0) {
            let mut ssd = self.ssd(index);
            let fault = if ssd.dead { None } else { ssd.faults.pop_front() };
            match ssd.carry_out(&capsule, fault) {
                Ok((cqe, brought)) => {
                    exchange.completed(cqe, |_, data| data.copy_from_slice(&brought)).unwrap()
                }
                Err(error) => drop(exchange.end(error)),
            }
        }
        exchange.pop().expect("each command has an answer").1
    }

    /// Checks that an SSD which takes part, and says that its places have filled, has each volume. A fill
    /// copies the blocks of the volumes in the SSD's table: of another one it would serve zeros.
    pub(crate) fn fills_all_volumes(&self, index: usize) {
        let Some(map) = self.ssd(index).map.clone() else { return };
        let takes_part = |ssd: &usize| map.state(u16::try_from(*ssd).unwrap()) == Some(State3::In);
        if !takes_part(&index) {
            return;
        }
        let told = self.ssd(index).vote.log.lock().unwrap().told.clone();
        let entry = |ssd: usize, of: (Vid, u32)| {
            self.ssd(ssd).table.get(&of.0).filter(|e| e.generation == of.1).cloned()
        };
        // If it is marked here another SSD may have begun the deletion.
        let lives = |ssd: usize, of: (Vid, u32)| {
            entry(ssd, of).is_some_and(|e| !e.deleting && e.lease_epoch != u32::MAX)
        };
        let others: Vec<usize> = (0..self.len()).filter(|ssd| *ssd != index).filter(takes_part).collect();
        let is_everywhere = |of: &(Vid, u32)| !others.is_empty() && others.iter().all(|&ssd| lives(ssd, *of));
        for of in told.into_iter().filter(is_everywhere) {
            assert!(
                entry(index, of).is_some(),
                "SSD {index} says that it has filled, and lacks volume {of:?}"
            );
        }
    }

    pub(crate) fn ports(&self) -> Vec<SsdPort> {
        let port = |index: usize| SsdPort {
            index: u16::try_from(index).unwrap(),
            subnqn: ssd_subnqn(u16::try_from(index).unwrap()),
            transport: "tcp".into(),
            address: format!("127.0.0.1:{}", 4420 + index),
            capacity_bytes: SSD_BYTES,
            model: "simulated".into(),
            queue: Box::new(self.queue(index)),
            reconnect: None,
        };
        (0..self.len()).map(port).collect()
    }

    /// As [`Self::ports`], but a broken connection is made again.
    pub(crate) fn lasting_ports(&self) -> Vec<SsdPort> {
        let mut ports = self.ports();
        for (index, port) in ports.iter_mut().enumerate() {
            let array = self.clone();
            port.reconnect = Some(Box::new(move || {
                let peer = format!("SSD {index}");
                if array.ssd(index).dead {
                    return Err(ChannelError::Refused { peer, cause: "no SSD listens there".into() });
                }
                Ok(Box::new(array.queue(index)))
            }));
        }
        ports
    }

    /// The newest map that an SSD has.
    pub(crate) fn newest(&self) -> Option<AnyMap> {
        let maps = (0..self.len()).filter_map(|index| self.ssd(index).map.clone());
        maps.max_by_key(Rows::epoch)
    }

    /// The newest map leaves this SSD out, or names another one in its place.
    pub(crate) fn is_out(&self, index: usize) -> bool {
        let number = u16::try_from(index).unwrap();
        let Some(map) = self.newest() else { return false };
        let is_other = matches!(&map, AnyMap::Three(map)
            if map.ssds.get(index).is_none_or(|known| !known.is(&self.ssd(index).vote.uuid)));
        is_other || map.state(number) == Some(State3::Out)
    }

    /// The entries that serve I/O, the same on every SSD that the newest map does not leave out.
    ///
    /// # Panics
    /// If two SSDs differ.
    pub(crate) fn agreed(&self) -> Vec<VolumeEntry> {
        let there: Vec<usize> = (0..self.len()).filter(|&index| !self.is_out(index)).collect();
        let first = self.ssd(there[0]).active();
        for &index in &there[1..] {
            assert_eq!(self.ssd(index).active(), first, "SSD {index} differs from SSD {}", there[0]);
        }
        first
    }
}

/// A connection to a simulated SSD.
#[derive(Debug)]
pub(crate) struct SimQueue {
    ssd: Arc<Mutex<SimSsd>>,
    /// Capsules, their faults, and when they are carried out.
    taken: Vec<(Instant, Capsule, Option<Fault>)>,
    /// Bytes that completed commands have brought, by offset in the window.
    brought: BTreeMap<usize, Vec<u8>>,
}

impl AdminQueue for SimQueue {
    #[expect(clippy::disallowed_methods, reason = "delays are in real time")]
    fn send(&mut self, capsule: &Capsule) -> Result<(), ChannelError> {
        let mut ssd = self.ssd.lock().unwrap();
        let is_probe = matches!(capsule.sqe.opcode, KEEP_ALIVE | GET_LOG_PAGE);
        let fault = if is_probe || ssd.dead { None } else { ssd.faults.pop_front() };
        let delay = if let Some(Fault::Delay(delay)) = fault { delay } else { Duration::ZERO };
        self.taken.push((Instant::now() + delay, capsule.clone(), fault));
        Ok(())
    }

    #[expect(clippy::disallowed_methods, reason = "delays are in real time")]
    fn poll(&mut self) -> Result<Option<Cqe>, ChannelError> {
        let now = Instant::now();
        let Some(due) = self.taken.iter().position(|(at, ..)| *at <= now) else { return Ok(None) };
        let (_, capsule, fault) = self.taken.remove(due);
        let done = self.ssd.lock().unwrap().carry_out(&capsule, fault);
        let (cqe, brought) = done.inspect_err(|_| self.taken.clear())?;
        self.brought.insert(capsule.at, brought);
        Ok(Some(cqe))
    }

    fn read(&mut self, at: usize, data: &mut [u8]) {
        data.copy_from_slice(&self.brought[&at]);
    }

    fn give_up(&mut self, _: &ChannelError) {
        self.taken.clear();
    }
}

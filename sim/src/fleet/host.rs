// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host of a client, as far as maps go. It asks one SSD after another for the fleet map, by real MAP GETs
//! on its admin queues. The intervals are the product's.

use crate::client::Client;
use crate::port::{Memory, lock, memory};
use crate::ssd::{SsdActor, io_qp};
use gnstor_base::time::{Span, Time};
use gnstor_proto::nvme::{Cqe, FLAGS_SGL, KeyedSgl, Sqe};
use gnstor_proto::placement::AnyMap;
use gnstor_proto::vendor::opcode;
use std::collections::BTreeMap;

/// Intervals of questions, calm and for a second after something failed.
const CALM: Span = Span::from_ms(100);
const URGENT: Span = Span::from_ms(10);
const URGENT_FOR: Span = Span::from_ms(1_000);
/// Room for a map.
const MAP_BYTES: u32 = 256 << 10;

/// The host of one client.
#[derive(Debug)]
pub(super) struct Host {
    /// The client's number.
    client: u32,
    ask_at: Time,
    urgent_until: Time,
    next_ssd: usize,
    index: u16,
    /// The SSDs that have yet to answer, and the room for their answers.
    asked: BTreeMap<u16, Memory>,
}

impl Host {
    pub(super) fn new(client: u32) -> Self {
        let (ask_at, urgent_until) = (Time::ZERO, Time::ZERO);
        Self { client, ask_at, urgent_until, next_ssd: client as usize, index: 0, asked: BTreeMap::new() }
    }

    /// Asks if it is time. Returns the time of the next call.
    pub(super) fn step(&mut self, now: Time, client: &mut Client, ssds: &mut [SsdActor]) -> Time {
        if client.suspects() {
            self.urgent_until = now + URGENT_FOR;
            self.ask_at = self.ask_at.min(now);
        }
        if now >= self.ask_at {
            let count = ssds.len();
            let mut turn = (0..count).map(|step| (self.next_ssd + step) % count);
            let free = turn.find(|&ssd| !client.is_without(ssd) && !self.asked.contains_key(&index(ssd)));
            if let Some(ssd) = free {
                self.ask(&ssds[ssd]);
                self.next_ssd = ssd + 1;
            }
            self.ask_at = now + if now < self.urgent_until { URGENT } else { CALM };
        }
        self.ask_at
    }

    fn ask(&mut self, ssd: &SsdActor) {
        let room = memory(MAP_BYTES as usize);
        let qpn = io_qp(self.client) - 1;
        ssd.port.lend(qpn, Some(Memory::clone(&room)));
        self.asked.insert(ssd.index, room);
        self.index = self.index.wrapping_add(1);
        let sqe = Sqe {
            opcode: opcode::MAP_GET,
            flags: FLAGS_SGL,
            nsid: 1.into(),
            cdw10: (MAP_BYTES / 4).into(),
            dptr: KeyedSgl::keyed(0, MAP_BYTES, 1),
            ..Sqe::default()
        };
        ssd.port.send(qpn, self.index, false, &sqe);
    }

    /// An SSD answered. Returns its map if it is newer than `epoch`.
    pub(super) fn answered(&mut self, ssd: &SsdActor, cqe: &Cqe, epoch: u64) -> Option<AnyMap> {
        let room = self.asked.remove(&ssd.index)?;
        ssd.port.lend(io_qp(self.client) - 1, None);
        let room = lock(&room);
        let bytes = room.get(..cqe.dw0.get() as usize).filter(|bytes| !bytes.is_empty())?;
        let map = AnyMap::decode(bytes).ok().filter(|_| cqe.status_word() == 0)?;
        use gnstor_proto::placement::Rows as _;
        (map.epoch() > epoch).then_some(map)
    }

    /// Number of the client.
    pub(super) fn client(&self) -> u32 {
        self.client
    }
}

fn index(ssd: usize) -> u16 {
    u16::try_from(ssd).expect("at most 64")
}

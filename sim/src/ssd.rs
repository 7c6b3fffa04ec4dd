// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The actor of one SSD: the RC transport and the firmware of the product, in virtual time.
//!
//! ```text
//!   clients --Port--> RcTransport --capsules, link--> Worker: firmware, translation layer, modelled flash
//!           <-------- acks, responses <------------- effects
//! ```

use crate::port::{Arrived, Port};
use gnstor_base::time::{Span, Time};
use gnstor_deengine::{Pace, Preset, Ssd, SsdConfig, SsdError, SsdMedia};
use gnstor_fabric::transport::{ConnId, Connect, ExecutorId, PeerAsk, RcTransport};
use gnstor_proto::fabrics::{
    self, CNTLID_ANY, CmRequest, ConnectData, ConnectFields, Identity, PropertyFields, fctype, property,
};
use gnstor_proto::nvme::{self, Cqe, KeyedSgl, Sqe};
use gnstor_proto::vendor::{VolumeEntry, opcode};
use std::collections::VecDeque;
use std::sync::mpsc;
use zerocopy::IntoBytes;

/// Largest number of steps at one moment. If an SSD needs more, it waits for a thread that does not exist
/// here.
const MOST_STEPS: u32 = 10_000;
/// How far the clock advances if an SSD is still due after that many steps.
const NUDGE: Span = Span::from_ns(1000);
/// Interval at which an idle engine is stepped. If an engine is not stepped for a second, it believes that
/// its process was stopped.
const HEARTBEAT: Span = Span::from_ms(500);
/// Longest wait for the answer to a command that sets up the world.
const SETUP: Span = Span::from_ms(10_000);

/// The queue pair of the daemon's commands. Those of clients follow, two for each client.
const DAEMON_QP: u32 = 1;

/// The first queue pair of daemon and SSDs in arrays with a fleet. Numbers are not used again.
const CONTROL_QP: u32 = 1 << 24;

/// Whether daemon or SSDs use this queue pair.
pub(crate) const fn is_control(qpn: u32) -> bool {
    qpn >= CONTROL_QP
}

/// A connection to an SSD.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) qpn: u32,
    pub(crate) conn: Option<ConnId>,
}

/// The queue pair for a client's I/O.
pub(crate) const fn io_qp(client: u32) -> u32 {
    2 * client + 3
}

/// The client that uses this queue pair for its I/O.
pub(crate) const fn client_of(qpn: u32) -> Option<u32> {
    if qpn >= 3 && qpn < CONTROL_QP && qpn % 2 == 1 { Some((qpn - 3) / 2) } else { None }
}

/// Why a world cannot be set up, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// The SSD cannot be made.
    #[error("SSD {0}: {1}")]
    Ssd(usize, SsdError),
    /// An SSD refused a command that sets up the world.
    #[error("SSD {ssd} answered {what} with status {status:#06x}")]
    Setup {
        /// Number of the SSD.
        ssd: usize,
        /// The command.
        what: &'static str,
        /// Status word; all ones: no answer.
        status: u16,
    },
    /// An SSD refused a read or write.
    #[error("SSD {ssd} refused a command of client {client} with status {status:#06x}, reason {reason}")]
    Refused {
        /// Number of the SSD.
        ssd: usize,
        /// Number of the client.
        client: usize,
        /// Status word.
        status: u16,
        /// The detail of the refusal (docs/statuses.md).
        reason: u32,
    },
    /// A request ended with an error that the initiator itself found.
    #[error("a request of client {client} failed with status {status:#010x}")]
    Failed {
        /// Number of the client.
        client: usize,
        /// Status: `GN_*` in `gnor/cuda/gnor/abi.h`.
        status: u32,
    },
    /// A queue pair broke.
    #[error("the queue pair of client {client} to SSD {ssd} broke")]
    Broken {
        /// Number of the SSD.
        ssd: usize,
        /// Number of the client.
        client: usize,
    },
    /// A read returned the data of another block or of another write.
    #[error("client {client} read block {block} and got the data of another block or of another write")]
    WrongData {
        /// Number of the client.
        client: usize,
        /// The block.
        block: u32,
    },
    /// The daemon of the array with the SSD that fails refused, or stopped.
    #[error("the daemon: {0}")]
    Daemon(String),
    /// The daemon did not do its part of the set-up.
    #[error("the daemon did not {0} within 10 s of virtual time")]
    Late(&'static str),
    /// No actor is due any more, and clients wait for requests.
    #[error("nothing is to happen any more, and {0} requests wait: a part of the array has lost a command")]
    Stuck(u64),
    /// The load would take longer than the world's clock can count.
    #[error("the volumes were not written within {0} s of virtual time")]
    FillTooLong(u64),
}

/// An SSD and its engine.
pub(crate) struct SsdActor {
    pub(crate) number: usize,
    /// Index in its array.
    pub(crate) index: u16,
    /// Number of the next queue pair of a daemon or an SSD.
    next_qp: u32,
    asks: Option<mpsc::Receiver<Vec<PeerAsk>>>,
    /// The fleet changed something, so it has to be stepped.
    is_touched: bool,
    engine: RcTransport,
    executor: ExecutorId,
    pub(crate) port: Port,
    arrived: VecDeque<(u32, Arrived)>,
    /// Number of times at which the SSD was still due after its steps.
    pub(crate) nudges: u64,
}

/// A queue that a host connects.
#[derive(Clone, Copy)]
struct NewQueue {
    qpn: u32,
    qid: u16,
    /// Its controller, or [`CNTLID_ANY`].
    cntlid: u16,
    /// Entries.
    depth: u16,
}

impl NewQueue {
    fn admin(qpn: u32) -> Self {
        Self { qpn, qid: 0, cntlid: CNTLID_ANY, depth: 32 }
    }
}

impl SsdActor {
    /// An empty SSD with this index in its array. Its engine shares a link with the other SSDs of its node.
    pub(crate) fn new(
        number: usize,
        index: u16,
        mut engine: RcTransport,
        (preset, pace): (Preset, Pace),
        capacity_bytes: u64,
    ) -> Result<Self, WorldError> {
        let serial = format!("SIM{number}");
        let config = SsdConfig { index, preset, capacity_bytes, serial, media: SsdMedia::Ram };
        let ssd = Ssd::format(config).map_err(|cause| WorldError::Ssd(number, cause))?;
        let mut worker = ssd.into_workers(1).remove(0);
        worker.set_pace(pace);
        let regions = worker.regions();
        engine.add_target(Box::new(worker), regions);
        let port = Port::default();
        let executor = engine.add_other(Box::new(port.clone()));
        let arrived = VecDeque::new();
        Ok(Self {
            number,
            index,
            next_qp: CONTROL_QP,
            asks: None,
            is_touched: false,
            engine,
            executor,
            port,
            arrived,
            nudges: 0,
        })
    }

    /// From now on its questions to other SSDs are kept for [`Self::asked`].
    pub(crate) fn keep_asks(&mut self) {
        let (carrier, asks) = mpsc::channel();
        self.engine.carry_asks(Some(carrier));
        self.asks = Some(asks);
    }

    /// The questions since the last call.
    pub(crate) fn asked(&self) -> Vec<PeerAsk> {
        self.asks.iter().flat_map(|asks| asks.try_iter().flatten()).collect()
    }

    /// Hands the answer to a question to the SSD; `None`: there is none.
    pub(crate) fn answer(&mut self, now: Time, asked: &PeerAsk, answer: Option<(&Cqe, &[u8])>) {
        self.is_touched = true;
        let data = answer.map_or(&[][..], |(_, data)| data);
        self.engine.answer_ask(now, asked, answer.map(|(cqe, _)| cqe), data);
    }

    /// Nothing reaches the SSD any more, and nothing leaves it.
    pub(crate) fn cut_off(&mut self) {
        self.engine.set_silent(0, true);
    }

    /// Whether the fleet gave it something to do since the last call.
    pub(crate) fn take_touch(&mut self) -> bool {
        std::mem::take(&mut self.is_touched) || self.port.has_requests()
    }

    /// Connects an admin queue of a daemon or another SSD.
    pub(crate) fn dial(&mut self, now: Time, depth: u16) -> Result<Line, u16> {
        let qpn = self.next_qp;
        self.next_qp += 2;
        let (reply, answer) = mpsc::channel();
        let hsqsize_z = (depth - 1).into();
        let request = CmRequest { hrqsize: depth.into(), hsqsize_z, ..CmRequest::default() };
        let port = gnstor_fabric::transport::Port::Local(0);
        let conn = self.engine.connect(now, Connect { executor: self.executor, qpn, port, request }, reply);
        match answer.recv() {
            Ok(Ok(())) => Ok(Line { qpn, conn: Some(conn) }),
            Ok(Err(reason)) => Err(reason),
            Err(_) => Err(u16::MAX),
        }
    }

    /// Ends a connection.
    pub(crate) fn hang_up(&mut self, now: Time, line: Line) {
        if let Some(conn) = line.conn {
            self.is_touched = true;
            self.engine.close(now, conn);
        }
    }

    /// Does all that is due at `now`. Returns the time of the next step.
    pub(crate) fn step(&mut self, now: Time) -> Time {
        for _ in 0..MOST_STEPS {
            self.engine.step(now);
            let next = self.engine.next_event().unwrap_or(Time::NEVER);
            if next > now && !self.port.has_requests() {
                return next.min(now + HEARTBEAT);
            }
        }
        self.nudges += 1;
        now + NUDGE
    }

    /// The arrivals for clients, oldest first. The caller gives the list back, empty.
    pub(crate) fn arrived(&mut self) -> VecDeque<(u32, Arrived)> {
        let mut list = std::mem::take(&mut self.arrived);
        self.port.take(&mut list);
        list
    }

    pub(crate) fn keep(&mut self, list: VecDeque<(u32, Arrived)>) {
        debug_assert!(list.is_empty());
        self.arrived = list;
    }

    fn fail(&self, what: &'static str, status: u16) -> WorldError {
        WorldError::Setup { ssd: self.number, what, status }
    }

    fn connect(&mut self, now: Time, queue: NewQueue) -> Result<(), WorldError> {
        let NewQueue { qpn, qid, cntlid, depth } = queue;
        let cntlid = if cntlid == CNTLID_ANY { 0 } else { cntlid };
        let (reply, answer) = mpsc::channel();
        let request = CmRequest {
            qid: qid.into(),
            cntlid: cntlid.into(),
            hrqsize: depth.into(),
            hsqsize_z: (depth - 1).into(),
            ..CmRequest::default()
        };
        let port = gnstor_fabric::transport::Port::Local(0);
        self.engine.connect(now, Connect { executor: self.executor, qpn, port, request }, reply);
        match answer.recv() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(reason)) => Err(self.fail("a connection request", reason)),
            Err(_) => Err(self.fail("a connection request", u16::MAX)),
        }
    }

    /// Sends a command with real data and waits for its answer. Returns the answer and its time.
    fn command(
        &mut self,
        mut now: Time,
        qpn: u32,
        (mut sqe, data, what): (Sqe, &[u8], &'static str),
    ) -> Result<(Time, Cqe), WorldError> {
        sqe.flags = nvme::FLAGS_SGL;
        sqe.dptr = KeyedSgl::keyed(0, u32::try_from(data.len()).expect("small"), 1);
        self.port.set_data(data);
        self.port.send(qpn, 0, false, &sqe);
        let deadline = now + SETUP;
        while now < deadline {
            let next = self.step(now);
            let mut list = self.arrived();
            let answer = list.drain(..).find_map(|(of, arrived)| match arrived {
                Arrived::Response(cqe) if of == qpn => Some(cqe),
                _ => None,
            });
            self.keep(list);
            match answer {
                Some(cqe) if cqe.status_word() == 0 => {
                    self.port.set_data(&[]);
                    return Ok((now, cqe));
                }
                Some(cqe) => return Err(self.fail(what, cqe.status_word())),
                None => now = next,
            }
        }
        Err(self.fail(what, u16::MAX))
    }

    fn open(
        &mut self,
        now: Time,
        queue: NewQueue,
        identity: Identity,
        index: u16,
    ) -> Result<(Time, u16), WorldError> {
        self.connect(now, queue)?;
        let NewQueue { qpn, qid, cntlid, depth } = queue;
        let fields =
            ConnectFields { qid: qid.into(), sqsize_z: (depth - 1).into(), ..ConnectFields::default() };
        let sqe = fabrics::command(fctype::CONNECT, &fields);
        let data = ConnectData::new(identity, cntlid, &fabrics::ssd_subnqn(index));
        let (now, cqe) = self.command(now, qpn, (sqe, data.as_bytes(), "Connect"))?;
        let id = u16::try_from(cqe.dw0.get() & 0xFFFF).expect("16 bits");
        if qid != 0 {
            return Ok((now, id));
        }
        // CC: enabled, with the entry sizes of I/O queues.
        let value = (1 | 6 << 16 | 4 << 20).into();
        let enable = PropertyFields { offset: property::CC.into(), value, ..PropertyFields::default() };
        let enable = fabrics::command(fctype::PROPERTY_SET, &enable);
        let (now, _) = self.command(now, qpn, (enable, &[], "Property Set"))?;
        Ok((now, id))
    }

    /// Gives the SSD its map and its volumes, as the daemon does.
    pub(crate) fn found(
        &mut self,
        mut now: Time,
        index: u16,
        map: &[u8],
        volumes: &[VolumeEntry],
    ) -> Result<Time, WorldError> {
        (now, _) = self.open(now, NewQueue::admin(DAEMON_QP), Identity::Daemon, index)?;
        let mut map = map.to_vec();
        map.resize(map.len().next_multiple_of(4), 0);
        (now, _) =
            self.command(now, DAEMON_QP, (vendor(opcode::MAP_SET, map.len()), &map, "the fleet map"))?;
        for volume in volumes {
            let entry = volume.encode();
            let add = vendor(opcode::VOLUME_ADD, entry.as_bytes().len());
            (now, _) = self.command(now, DAEMON_QP, (add, entry.as_bytes(), "a volume"))?;
        }
        Ok(now)
    }

    /// Opens a session of a client: its admin queue, and a queue for `entries` commands.
    pub(crate) fn admit(
        &mut self,
        now: Time,
        client: u32,
        identity: Identity,
        (entries, index): (u16, u16),
    ) -> Result<Time, WorldError> {
        let (now, id) = self.open(now, NewQueue::admin(io_qp(client) - 1), identity, index)?;
        let queue = NewQueue { qpn: io_qp(client), qid: 1, cntlid: id, depth: entries };
        let (now, _) = self.open(now, queue, identity, index)?;
        Ok(now)
    }
}

/// A vendor command of the daemon with `bytes` of data.
fn vendor(opcode: u8, bytes: usize) -> Sqe {
    let dwords = u32::try_from(bytes / 4).expect("small");
    Sqe { opcode, nsid: 1.into(), cdw10: dwords.into(), ..Sqe::default() }
}

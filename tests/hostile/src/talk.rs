// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A TCP connection to an array that records its frames, and a conversation that keeps the rules.
#![expect(clippy::disallowed_methods, reason = "a program of its own, which waits in real time")]

use crate::frames::{self, Got, kind};
use crate::line::Line;
use gnstor_auth::SessionKey;
use gnstor_proto::fabrics::{
    self, CmRequest, ConnectData, ConnectFields, Host, Identity, PropertyFields, fctype, property,
};
use gnstor_proto::nvme::{self, KeyedSgl, ReadWrite, Sqe};
use gnstor_proto::slba::ClientId;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// Longest wait for an answer.
const ANSWER: Duration = Duration::from_millis(500);
/// Longest wait for room in the stream.
const WRITE: Duration = Duration::from_millis(500);

/// A TCP connection to an array.
#[derive(Debug)]
pub struct Talk {
    stream: Line,
    inbox: Vec<u8>,
    /// Frames sent.
    pub sent: Vec<Vec<u8>>,
    /// Memory that the array may read and write.
    pub(crate) memory: Vec<u8>,
    /// The client that it claims to be.
    pub client: ClientId,
    /// Number of that client's registration; 0 for a client that did not register.
    pub serial: u64,
    /// Key of the admin queue that was proven last, and the number of proofs that were made with it.
    pub(crate) session: Option<(SessionKey, u64)>,
    cid: u16,
}

/// A connection request for queue `qid` with `depth` entries.
pub fn request(qid: u16, depth: u16) -> CmRequest {
    CmRequest {
        qid: qid.into(),
        hrqsize: depth.into(),
        hsqsize_z: (depth - 1).into(),
        cntlid: fabrics::CNTLID_ANY.into(),
        ..CmRequest::default()
    }
}

impl Talk {
    /// Connects.
    ///
    /// # Errors
    /// The operating system's.
    pub fn connect(address: SocketAddr) -> std::io::Result<Self> {
        let stream = Line::connect(address)?;
        stream.tcp().set_write_timeout(Some(WRITE))?;
        let client = ClientId::new(0x7E).expect("an id");
        let memory = vec![0; 16 << 10];
        let (inbox, sent) = (Vec::new(), Vec::new());
        Ok(Self { stream, inbox, sent, memory, client, serial: 0, session: None, cid: 0 })
    }

    /// The host that it claims to be.
    pub(crate) fn host(&self) -> Host {
        Host { serial: self.serial, ..Host::from(Identity::Client(self.client)) }
    }

    /// Sends bytes, which need not be a frame.
    ///
    /// # Errors
    /// An error of the operating system; also if the array takes nothing for half a second.
    pub fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// Asks for new keys of TLS.
    pub(crate) fn ask_for_keys(&mut self) -> std::io::Result<()> {
        self.stream.ask_for_keys()
    }

    /// Waits for the first bytes of the array, which need not be a frame.
    ///
    /// # Errors
    /// An error of the operating system; also if nothing comes in this time.
    pub fn first_byte(&mut self, within: Duration) -> std::io::Result<()> {
        self.stream.tcp().set_read_timeout(Some(within))?;
        self.stream.read_exact(&mut [0])
    }

    fn record(&mut self, frame: Vec<u8>) -> std::io::Result<()> {
        self.send(&frame)?;
        self.sent.push(frame);
        Ok(())
    }

    /// The next frame of the array, if it comes within this time.
    ///
    /// # Errors
    /// An error of the operating system, or the end of the stream.
    pub fn receive(&mut self, within: Duration) -> std::io::Result<Option<Got>> {
        let until = Instant::now() + within;
        loop {
            if let Some(length) = self.inbox.first_chunk().map(|bytes| u32::from_le_bytes(*bytes) as usize)
                && self.inbox.len() >= 4 + length
                && length >= 5
            {
                let frame: Vec<u8> = self.inbox.drain(..4 + length).skip(4).collect();
                let conn = u32::from_le_bytes(*frame[1..].first_chunk().expect("five bytes"));
                return Ok(Some(Got { kind: frame[0], conn, fields: frame[5..].to_vec() }));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.stream.tcp().set_read_timeout(Some(left))?;
            let mut buffer = [0; 8192];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(ErrorKind::ConnectionAborted.into()),
                Ok(n) => self.inbox.extend_from_slice(&buffer[..n]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Ok(None),
                Err(e) => return Err(e),
            }
        }
    }

    /// Answers a transfer as the rules say.
    fn answer(&mut self, got: &Got) -> std::io::Result<()> {
        let (conn, tag) = (got.conn, got.word(0));
        match got.kind {
            kind::TO_OWNER => {
                let (at, data) = (got.word(4) as usize, got.fields.get(21..).unwrap_or_default());
                if let Some(memory) = self.memory.get_mut(at..at + data.len()) {
                    memory.copy_from_slice(data);
                }
                self.record(frames::done(conn, tag, 0, &[]))
            }
            kind::FROM_OWNER => {
                let (at, bytes) = (got.word(4) as usize, got.word(16) as usize);
                let data = self.memory.get(at..at + bytes).map(<[u8]>::to_vec);
                self.record(frames::done(conn, tag, u32::from(data.is_none()), &data.unwrap_or_default()))
            }
            _ => Ok(()),
        }
    }

    /// Waits for a frame of this kind and connection. Meanwhile it answers transfers.
    fn until(&mut self, kind: u8, conn: u32) -> std::io::Result<Option<Got>> {
        let end = Instant::now() + ANSWER;
        while let Some(got) = self.receive(end.saturating_duration_since(Instant::now()))? {
            self.answer(&got)?;
            if (got.kind, got.conn) == (kind, conn) {
                return Ok(Some(got));
            }
        }
        Ok(None)
    }

    /// Opens a queue pair. Returns whether the array accepted it.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn open(&mut self, conn: u32, ssd: u16, qid: u16) -> std::io::Result<bool> {
        self.open_with(conn, ssd, &request(qid, 32))
    }

    /// As [`Self::open`], with a request of the caller's.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn open_with(&mut self, conn: u32, ssd: u16, request: &CmRequest) -> std::io::Result<bool> {
        self.record(frames::connect(conn, ssd, request))?;
        Ok(self.until(kind::ACCEPT, conn)?.is_some_and(|got| got.half(0) == Some(0)))
    }

    /// Sends a command and waits for its response.
    ///
    /// # Errors
    /// The operating system's.
    pub fn command(&mut self, conn: u32, sqe: Sqe) -> std::io::Result<Option<Got>> {
        self.post(conn, sqe)?;
        self.until(kind::RESPONSE, conn)
    }

    /// Sends a command.
    ///
    /// # Errors
    /// The operating system's.
    pub fn post(&mut self, conn: u32, mut sqe: Sqe) -> std::io::Result<()> {
        self.cid = self.cid.wrapping_add(1);
        sqe.cid = self.cid.into();
        sqe.flags = nvme::FLAGS_SGL;
        let capsule: [u8; 64] = zerocopy::transmute!(sqe);
        self.record(frames::send(conn, &capsule))
    }

    /// Connects queue `qid` of controller `cntlid` over a queue pair that is open. Returns the controller. If
    /// the host has proven itself, the proof of an I/O queue goes with it.
    ///
    /// # Errors
    /// The operating system's.
    pub fn connect_queue(&mut self, conn: u32, ssd: u16, qid: u16, cntlid: u16) -> std::io::Result<u16> {
        let mut data = ConnectData::new(self.host(), cntlid, &fabrics::ssd_subnqn(ssd));
        if let Some((key, proofs)) = self.session.as_mut().filter(|_| qid > 0) {
            *proofs += 1;
            data.proof = zerocopy::transmute!(key.prove(cntlid, qid, *proofs));
        }
        self.memory[..1024].copy_from_slice(data.as_bytes());
        let fields = ConnectFields { qid: qid.into(), sqsize_z: 31.into(), ..ConnectFields::default() };
        let mut sqe = fabrics::command(fctype::CONNECT, &fields);
        sqe.dptr = KeyedSgl::keyed(0, 1024, 1);
        let got = self.command(conn, sqe)?;
        Ok(got.map_or(0, |got| u16::try_from(got.word(0) & 0xFFFF).expect("16 bits")))
    }

    /// A conversation that keeps the rules: an admin queue, an I/O queue, and commands of each kind.
    ///
    /// # Errors
    /// The operating system's.
    pub fn conversation(&mut self, ssd: u16) -> std::io::Result<()> {
        if !self.open(1, ssd, 0)? {
            return Ok(());
        }
        let cntlid = self.connect_queue(1, ssd, 0, fabrics::CNTLID_ANY)?;
        self.command(1, enable())?;
        self.command(1, identify())?;
        if !self.open(2, ssd, 1)? {
            return Ok(());
        }
        self.connect_queue(2, ssd, 1, cntlid)?;
        for opcode in [nvme::io::READ, nvme::io::WRITE, nvme::io::COMPARE, nvme::io::DATASET_MANAGEMENT] {
            let mut sqe = Sqe { opcode, nsid: 1.into(), ..Sqe::default() };
            ReadWrite { blocks: 2, ..ReadWrite::decode(&Sqe::default()) }.encode(&mut sqe);
            sqe.dptr = KeyedSgl::keyed(0, 8192, 1);
            self.command(2, sqe)?;
        }
        self.record(frames::close(2))?;
        self.record(frames::close(1))
    }
}

/// Property Set that enables the controller.
pub fn enable() -> Sqe {
    set_cc(property::CC_ENABLE | 6 << 16 | 4 << 20)
}

/// Property Set of CC.
pub fn set_cc(value: u64) -> Sqe {
    let (offset, value) = (property::CC.into(), value.into());
    fabrics::command(fctype::PROPERTY_SET, &PropertyFields { offset, value, ..PropertyFields::default() })
}

/// Identify Controller, to the first page of memory.
pub fn identify() -> Sqe {
    let cdw10 = u32::from(nvme::cns::CONTROLLER).into();
    let dptr = KeyedSgl::keyed(4096, 4096, 1);
    Sqe { opcode: nvme::admin::IDENTIFY, cdw10, dptr, ..Sqe::default() }
}

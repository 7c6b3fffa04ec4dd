// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A wire between client and SSD that changes writes while it is told to. It flips a bit in a block of data,
//! replaces the data and its sum, or redirects the write to another block.

use gnstor_fabric::tcp::data_sum;
use gnstor_proto::nvme::{ReadWrite, Sqe, io};
use gnstor_proto::slba::{Address, Slba};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of a `Done` frame before its data: length, type, connection, tag, status, sum.
const HEAD: usize = 4 + 1 + 4 + 4 + 4 + 4;
const DONE: u8 = 7;
/// Bytes of a `Send` frame before its capsule.
const SEND_HEAD: usize = 4 + 1 + 4;
const SEND: u8 = 3;

/// The byte with which an attacker on the wire fills each block.
pub(crate) const FORGED: u8 = 0x66;

#[derive(Default)]
struct State {
    /// Block of data, counted from now, in which a bit is flipped; 0 for none.
    flips: AtomicU64,
    forges: AtomicBool,
    diverts: AtomicBool,
    bent: AtomicU64,
}

/// The wire. Its threads end when their streams end.
pub(crate) struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
}

impl Proxy {
    pub(crate) fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it has one");
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let ssd = TcpStream::connect(to).expect("the SSD is there");
                for stream in [&client, &ssd] {
                    stream.set_nodelay(true).expect("a socket");
                }
                let (from, into) =
                    (ssd.try_clone().expect("a socket"), client.try_clone().expect("a socket"));
                std::thread::spawn(move || pass(from, into, |_| {}));
                let state = Arc::clone(&shared);
                std::thread::spawn(move || pass(client, ssd, |frame| state.bend(frame)));
            }
        });
        Self { address, state }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Flips a bit in one block of data: the first one from now on, the second, and so on.
    pub(crate) fn flip(&self, nth: u64) {
        self.state.flips.store(nth, Ordering::SeqCst);
    }

    pub(crate) fn forge(&self, forges: bool) {
        self.state.forges.store(forges, Ordering::SeqCst);
    }

    /// Sets whether writes go to the next block instead of their own.
    pub(crate) fn divert(&self, diverts: bool) {
        self.state.diverts.store(diverts, Ordering::SeqCst);
    }

    /// Number of frames that the wire has changed.
    pub(crate) fn bent(&self) -> u64 {
        self.state.bent.load(Ordering::SeqCst)
    }
}

impl State {
    fn bend(&self, frame: &mut [u8]) {
        if self.diverts.load(Ordering::SeqCst) && frame[4] == SEND {
            self.divert(&mut frame[SEND_HEAD..]);
        }
        if frame[4] != DONE || frame.len() != HEAD + 4096 {
            return;
        }
        let counted = |left: u64| left.checked_sub(1);
        let flips = self.flips.fetch_update(Ordering::SeqCst, Ordering::SeqCst, counted) == Ok(1);
        let forges = self.forges.load(Ordering::SeqCst);
        if !(flips || forges) {
            return;
        }
        if flips {
            frame[HEAD + 1234] ^= 0x08;
        }
        if forges {
            frame[HEAD..].fill(FORGED);
            let sum = data_sum(&frame[HEAD..]).to_le_bytes();
            frame[HEAD - sum.len()..HEAD].copy_from_slice(&sum);
        }
        self.bent.fetch_add(1, Ordering::SeqCst);
    }
}

impl State {
    fn divert(&self, capsule: &mut [u8]) {
        let mut sqe = Sqe::read_from_bytes(capsule).expect("64 bytes");
        if sqe.opcode != io::WRITE {
            return;
        }
        let mut write = ReadWrite::decode(&sqe);
        let address = write.slba.unpack().expect("an honest client's");
        write.slba = Slba::pack(Address { vba: address.vba + 1, ..address });
        write.encode(&mut sqe);
        capsule.copy_from_slice(sqe.as_bytes());
        self.bent.fetch_add(1, Ordering::SeqCst);
    }
}

/// Passes whole frames on. `bend` may change them.
fn pass(mut from: TcpStream, mut into: TcpStream, mut bend: impl FnMut(&mut [u8])) {
    loop {
        let mut length = [0; 4];
        if from.read_exact(&mut length).is_err() {
            break;
        }
        let mut frame = length.to_vec();
        frame.resize(4 + u32::from_le_bytes(length) as usize, 0);
        if from.read_exact(&mut frame[4..]).is_err() {
            break;
        }
        bend(&mut frame);
        if into.write_all(&frame).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(std::net::Shutdown::Both), into.shutdown(std::net::Shutdown::Both));
}

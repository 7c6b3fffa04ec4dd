// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A TCP proxy before an SSD. It cuts connections in the middle, closes them at once, or refuses their queue.

use gnstor_hostile::frames;
use gnstor_proto::fabrics::cm_reject;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The proxy.
pub(super) struct Proxy {
    pub(super) address: String,
    /// Both streams of each connection, and whether the proxy discards what the SSD sends.
    connections: Arc<Mutex<Vec<Pair>>>,
    /// Next connections that it closes at once.
    pub(super) away: Arc<AtomicUsize>,
    /// Next connections whose first queue it refuses, as an SSD without room does.
    pub(super) full: Arc<AtomicUsize>,
    /// Next connections that it ends when their first queue is accepted.
    pub(super) short: Arc<AtomicUsize>,
}

struct Pair {
    client: TcpStream,
    ssd: TcpStream,
    deaf: Arc<AtomicBool>,
}

impl Proxy {
    pub(super) fn before(ssd: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let connections: Arc<Mutex<Vec<Pair>>> = Arc::default();
        let list = Arc::clone(&connections);
        let away: Arc<AtomicUsize> = Arc::default();
        let turned = Arc::clone(&away);
        let full: Arc<AtomicUsize> = Arc::default();
        let refused = Arc::clone(&full);
        let short: Arc<AtomicUsize> = Arc::default();
        let cut = Arc::clone(&short);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let one_less = |left: usize| left.checked_sub(1);
                if turned.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
                    continue;
                }
                let Ok(to) = TcpStream::connect(&ssd) else { continue };
                let again = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
                let pair = Pair { client: again(&client), ssd: again(&to), deaf: Arc::default() };
                let (deaf, always) = (Arc::clone(&pair.deaf), Arc::default());
                let (from, back) = (again(&client), again(&to));
                let is_next = |count: &AtomicUsize| {
                    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
                };
                let first = match () {
                    () if is_next(&refused) => FirstAccept::Refuse,
                    () if is_next(&cut) => FirstAccept::End,
                    () => FirstAccept::Pass,
                };
                std::thread::spawn(move || pump(from, to, &always, FirstAccept::Pass));
                std::thread::spawn(move || pump(back, client, &deaf, first));
                list.lock().expect("no panic while held").push(pair);
            }
        });
        Self { address, connections, away, full, short }
    }

    /// Number of connections so far.
    pub(super) fn count(&self) -> usize {
        self.connections.lock().expect("no panic while held").len()
    }

    /// Cuts all connections but the first `kept`. Before that, it discards what SSDs send for `silence`.
    pub(super) fn cut(&self, kept: usize, silence: Duration) {
        let connections = self.connections.lock().expect("no panic while held");
        let cut = connections.iter().skip(kept);
        cut.clone().for_each(|pair| pair.deaf.store(true, Ordering::Relaxed));
        std::thread::sleep(silence);
        cut.for_each(|Pair { client, ssd, .. }| {
            let _ = (client.shutdown(Shutdown::Both), ssd.shutdown(Shutdown::Both));
        });
    }
}

/// The head of a frame that accepts a queue: its length and its type. The connection and the answer follow.
const ACCEPT: [u8; 5] = [7, 0, 0, 0, frames::kind::ACCEPT];

/// What the proxy does with the first answer to a Connect.
#[derive(Clone, Copy, PartialEq)]
enum FirstAccept {
    Pass,
    /// Says that the SSD has no room.
    Refuse,
    /// Ends the connection behind it.
    End,
}

/// Copies bytes until one side ends. Discards them while `deaf` is set.
fn pump(mut from: TcpStream, mut to: TcpStream, deaf: &AtomicBool, mut first: FirstAccept) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let at = bytes[..count].windows(ACCEPT.len() + 6).position(|frame| frame.starts_with(&ACCEPT));
        if let (Some(at), FirstAccept::Refuse) = (at, first) {
            bytes[at + 9..at + 11].copy_from_slice(&cm_reject::NO_RESOURCES.to_le_bytes());
            first = FirstAccept::Pass;
        }
        if at.is_some() && first == FirstAccept::End {
            let _ = to.write_all(&bytes[..count]);
            break;
        }
        if !deaf.load(Ordering::Relaxed) && to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

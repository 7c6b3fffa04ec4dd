// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls whose connection is cut after the daemon has carried them out, and before the answer is there. Reads
//! and changes with a request id are asked for again.

use gnstor_tests::command::{BUILD_LIMIT, Up, gnstor};
use gnstor_tests::within;
use serde_json::Value;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

const FRAME_HEAD: usize = 9;
const HEADERS: u8 = 1;

/// A way to the daemon that cuts connections.
struct Cutter {
    address: SocketAddr,
    /// For each next connection: at the answer of which of its calls it is cut, from 1 on.
    plan: Arc<Mutex<VecDeque<u32>>>,
    cut: Arc<AtomicUsize>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Cutter {
    fn before(daemon: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let (plan, cut, ends) = (Arc::default(), Arc::default(), Arc::new(AtomicBool::new(false)));
        let daemon: SocketAddr = daemon.parse().expect("an address");
        let (plans, cuts, over) = (Arc::clone(&plan), Arc::clone(&cut), Arc::clone(&ends));
        let serve = move || {
            while let Ok((client, _)) = listener.accept() {
                if over.load(Ordering::Acquire) {
                    return;
                }
                let at = plan_of(&plans);
                let served = TcpStream::connect(daemon).expect("the daemon is there");
                carry(client, served, at, Arc::clone(&cuts));
            }
        };
        let thread = Some(std::thread::Builder::new().spawn(serve).expect("a thread"));
        Self { address, plan, cut, ends, thread }
    }

    /// The next connections are cut at these calls. Returns the number of cuts that `work` met.
    fn cuts<T>(&self, plan: &[u32], work: impl FnOnce(&str) -> T) -> (T, usize) {
        *self.plan.lock().expect("not poisoned") = plan.iter().copied().collect();
        let before = self.cut.load(Ordering::Acquire);
        let done = work(&self.address.to_string());
        (done, self.cut.load(Ordering::Acquire) - before)
    }
}

impl Drop for Cutter {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        drop(TcpStream::connect(self.address));
        self.thread.take().map(JoinHandle::join);
    }
}

fn plan_of(plans: &Mutex<VecDeque<u32>>) -> Option<u32> {
    plans.lock().expect("not poisoned").pop_front()
}

/// Carries bytes both ways. Before the answer to call `at` it closes both connections.
fn carry(client: TcpStream, daemon: TcpStream, at: Option<u32>, cuts: Arc<AtomicUsize>) {
    let (mut up, mut to_daemon) = (client.try_clone().expect("a copy"), daemon.try_clone().expect("a copy"));
    std::thread::Builder::new()
        .spawn(move || {
            // It ends when one end closes.
            drop(std::io::copy(&mut up, &mut to_daemon));
            drop(to_daemon.shutdown(Shutdown::Write));
        })
        .expect("a thread");
    std::thread::Builder::new()
        .spawn(move || {
            if answers(&client, &daemon, at).is_err_and(|e| e.kind() == ErrorKind::Interrupted) {
                cuts.fetch_add(1, Ordering::AcqRel);
            }
            drop(client.shutdown(Shutdown::Both));
            drop(daemon.shutdown(Shutdown::Both));
        })
        .expect("a thread");
}

/// Passes the daemon's frames on, until the first one of the answer to call `at`.
#[expect(clippy::big_endian_bytes, reason = "lengths and streams of HTTP/2 are big-endian")]
fn answers(mut client: &TcpStream, mut daemon: &TcpStream, at: Option<u32>) -> std::io::Result<()> {
    // Calls have the streams 1, 3, 5 and so on.
    let stream = at.map(|nth| 2 * nth - 1);
    loop {
        let mut head = [0; FRAME_HEAD];
        daemon.read_exact(&mut head)?;
        let [a, b, c, kind, _, of @ ..] = head;
        if kind == HEADERS && Some(u32::from_be_bytes(of)) == stream {
            return Err(ErrorKind::Interrupted.into());
        }
        let mut content = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        daemon.read_exact(&mut content)?;
        client.write_all(&[&head[..], &content].concat())?;
    }
}

#[test]
fn a_read_whose_connection_is_cut_before_its_answer_is_asked_again() {
    within(BUILD_LIMIT, || {
        let up = Up::start(&["--ssds", "3"]);
        gnstor(&["volume", "create", "v", "--size", "1MiB", "--array", &up.daemon]).worked();
        let way = Cutter::before(&up.daemon);
        // `status` and `fleet show` have one connection. `volume list` registers first.
        for (words, plan) in [
            (&["status"][..], &[1, 1, 1][..]),
            (&["status"], &[2]),
            (&["fleet", "show"], &[1, 1, 1]),
            (&["rebuild", "status"], &[1, 1]),
            (&["volume", "list"], &[1, 2, 1, 1]),
            (&["volume", "show", "v"], &[2, 1]),
        ] {
            let (ended, cuts) = way.cuts(plan, |at| gnstor(&[words, &["--array", at]].concat()));
            ended.worked();
            assert_eq!(cuts, plan.len(), "{words:?}");
        }
        drop(way);
        up.end("-TERM");
    });
}

/// The daemon has made or deleted the volume when the answer is lost.
#[test]
fn a_change_with_a_request_id_whose_answer_is_lost_is_asked_again_and_made_once() {
    within(BUILD_LIMIT, || {
        let up = Up::start(&["--ssds", "2", "--map-format", "2"]);
        let way = Cutter::before(&up.daemon);
        let create = |at: &str| gnstor(&["volume", "create", "v", "--size", "1MiB", "--json", "--array", at]);
        let (made, cuts) = way.cuts(&[2, 1], create);
        assert_eq!(cuts, 2);
        let all = gnstor(&["volume", "list", "--json", "--array", &up.daemon]).json();
        let numbers = |volume: &Value| (volume["vid"].clone(), volume["generation"].clone());
        assert_eq!(all.as_array().map(Vec::len), Some(1), "{all}");
        assert_eq!(numbers(&made.json()), numbers(&all[0]), "the answer is about the volume that was made");
        way.cuts(&[], create).0.failed(&["\"v\""]);
        let delete = |at: &str| gnstor(&["volume", "delete", "v", "--array", at]);
        let (gone, cuts) = way.cuts(&[2, 1], delete);
        gone.worked();
        assert_eq!(cuts, 2);
        way.cuts(&[], delete).0.failed(&["\"v\""]);
        // A change without a request id is asked for once. Its caller hears that the answer is not known.
        create(&up.daemon).worked();
        let share = |at: &str| gnstor(&["volume", "share", "v", "anna", "read", "--array", at]);
        let (ended, cuts) = way.cuts(&[2], share);
        ended.failed(&["cannot reach the daemon"]);
        assert_eq!(cuts, 1);
        drop(way);
        up.end("-TERM");
    });
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The data port with TLS and SSDs in their own processes. The tests check which clients connect, what an
//! attacker on the wire can change, and which ports listen.

use crate::beside::{Attackers, Summary};
use crate::load::Load;
use crate::{IO_TIMEOUT, allocated_mib, guest_with, number, resident_mib, ssd_address};
use gnstor_hostile::attacks::{self, Attack};
use gnstor_hostile::hello::client_hello;
use gnstor_hostile::random::Random;
use gnstor_hostile::talk::Talk;
use gnstor_tests::command::{BUILD_LIMIT, SsdProcess, Up, gnstor, gnstor_with, until};
use gnstor_tests::folder::Folder;
use gnstor_tests::{BLOCK, assert_same, pattern, volume, within};
use libgnstor::{Credentials, Rights};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Certificates of a CA.
pub(crate) struct Certs(Folder);

impl Certs {
    /// For a daemon, SSDs and these callers.
    pub(crate) fn new(callers: &[&str]) -> Self {
        let certs = Self(Folder::new());
        gnstor(&["certs", "init", &certs.path("")]).worked();
        for server in ["daemon", "ssd"] {
            gnstor(&["certs", "issue", &certs.path(""), server, "--server", "127.0.0.1"]).worked();
        }
        for caller in callers {
            gnstor(&["certs", "issue", &certs.path(""), caller]).worked();
        }
        certs
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    pub(crate) fn of(&self, who: &str) -> Credentials {
        Credentials {
            tls_ca: Some(self.path("ca.crt").into()),
            tls_cert: Some(self.path(&format!("{who}.crt")).into()),
            tls_key: Some(self.path(&format!("{who}.key")).into()),
            ..Credentials::default()
        }
    }
}

pub(crate) fn array(certs: &Certs) -> Up {
    let (ca, cert, key) = (certs.path("ca.crt"), certs.path("daemon.crt"), certs.path("daemon.key"));
    Up::start(&["--ssds", "2", "--tls", &cert, &key, "--client-ca", &ca])
}

/// Kind of the first TLS record in the answer; `None`: the array had no room for the handshake.
fn first_answer_to_a_hello(address: SocketAddr) -> Option<u8> {
    let mut stream = TcpStream::connect(address).expect("the port is open");
    stream.set_read_timeout(Some(IO_TIMEOUT)).expect("a socket");
    stream.write_all(&client_hello(&mut Random::new(1))).ok()?;
    let mut kind = [0];
    stream.read_exact(&mut kind).ok().map(|()| kind[0])
}

#[test]
fn data_goes_by_tls_and_hostile_clients_without_a_certificate_reach_no_ssd() {
    within(BUILD_LIMIT, || {
        let certs = Certs::new(&["anna"]);
        let up = array(&certs);
        let address = ssd_address(&up);
        let guest = guest_with(&up.daemon, "anna", certs.of("anna"));
        assert!(guest.client.ssds().iter().all(|ssd| ssd.transport == "tls"), "{:?}", guest.client.ssds());
        volume(&guest.client, "v", 1 << 20, 2);
        let file = guest.client.open("v", Rights::Write).unwrap();
        let before = allocated_mib(up.pid());
        let time = Duration::from_secs(4);
        let attackers: Vec<_> = (0..2)
            .map(|seed| std::thread::spawn(move || attacks::run(address, &[0, 1], seed, time, None, None)))
            .collect();
        let mut back = vec![0; 16 * BLOCK];
        for round in 0..64 {
            let (data, at) = (pattern(round, back.len()), round % 16 * back.len() as u64);
            file.write_at(at, &data).expect("no error is allowed");
            file.read_at(at, &mut back).expect("no error is allowed");
            assert_same("what was written", &back, &data);
        }
        let frames: u64 = attackers.into_iter().map(|a| a.join().expect("it ends").frames).sum();
        assert!(frames > 20, "the attackers did something: {frames} frames");
        // The attackers' handshakes have taken all places of this host.
        until("a handshake goes on, and so costs the array work", || {
            first_answer_to_a_hello(address) == Some(0x16)
        });
        let now = allocated_mib(up.pid());
        assert!(now < before + 128, "the attackers take memory: {now} MiB rather than {before} MiB");
        // A client without TLS gets no connection.
        let mut plain = Talk::connect(address).expect("the port is open");
        assert!(!plain.open(1, 0, 0).unwrap_or(false));
        // The command uses the same files for data connections.
        let (ca, cert, key) = (certs.path("ca.crt"), certs.path("anna.crt"), certs.path("anna.key"));
        let environment =
            [("GNSTOR_TLS_CA", ca.as_str()), ("GNSTOR_TLS_CERT", &cert), ("GNSTOR_TLS_KEY", &key)];
        let (from, to) = (certs.path("anna.crt"), certs.path("copy"));
        let cp = |args: &[&str]| {
            let fixed = ["cp", "--device", "host", "--array", &up.daemon];
            gnstor_with(&[&fixed[..], args].concat(), &environment)
        };
        cp(&[&from, "gn://copy"]).worked();
        cp(&["gn://copy", &to]).worked();
        assert_eq!(std::fs::read(&from).unwrap(), std::fs::read(&to).unwrap());
        drop(file);
        drop(guest);
        up.end("-TERM");
    });
}

/// A certificate only admits the connection. Then the client bends frames inside TLS, and asks for new keys
/// without end.
#[test]
fn an_honest_load_beside_hostile_clients_with_a_certificate_has_no_error() {
    let time = Duration::from_secs(number("GNSTOR_HOSTILE_SECONDS", 6));
    within(BUILD_LIMIT + 3 * time, move || {
        let certs = Certs::new(&["anna", "mallory"]);
        let up = array(&certs);
        let guest = guest_with(&up.daemon, "anna", certs.of("anna"));
        volume(&guest.client, "v", 1 << 20, 2);
        let mut load = Load::new(guest.client.open("v", Rights::Write).unwrap());
        let before = allocated_mib(up.pid());
        let files = [certs.path("ca.crt"), certs.path("mallory.crt"), certs.path("mallory.key")];
        let [ca, cert, key] = files.each_ref();
        let first = ["--tls", ca, cert, key, "--ssds", "0,1"];
        let address = ssd_address(&up);
        for only in [None, Some(Attack::KeyUpdates)] {
            let attackers = [0, 1].map(|seed| Attackers::start_as(&first, address, time, seed, only));
            let mut beside = load.run(time);
            let summaries = attackers.map(Attackers::wait);
            let [resident, now] = [resident_mib(up.pid()), allocated_mib(up.pid())];
            println!(
                "summary inside TLS, {only:?}: {}; {resident} MiB in RAM, {now} MiB allocated, {before} MiB before",
                beside.summary()
            );
            summaries.iter().for_each(|summary| println!("{}", summary.said));
            assert!(summaries.iter().all(|summary| summary.sent > 50), "the attackers came through TLS");
            Summary::assert_attacked(&summaries, false);
            assert!(beside.errors.is_empty(), "no error is allowed: {:?}", beside.errors);
            assert!(now < before + 128, "the attackers take memory: {now} MiB rather than {before} MiB");
        }
        drop((load, guest));
        up.end("-TERM");
    });
}

#[test]
fn an_ssd_and_its_daemon_prove_themselves_by_certificates_before_any_frame() {
    within(BUILD_LIMIT, || {
        let (certs, strangers) = (Certs::new(&["anna"]), Certs::new(&[]));
        let (ca, cert, key) = (certs.path("ca.crt"), certs.path("ssd.crt"), certs.path("ssd.key"));
        let settings = ["--preset", "null", "--size", "64MiB", "--tls", &cert, &key, "--client-ca", &ca];
        let ssd = SsdProcess::start("127.0.0.1:0", &settings);
        let at = ssd.address();
        let up = |extra: &[&str]| {
            let fixed = ["up", "--listen", "127.0.0.1:0", "--groups", "256", "--json", "--ssd-at", &at];
            gnstor(&[&fixed[..], extra].concat())
        };
        let daemon = ["--tls", &certs.path("daemon.crt"), &certs.path("daemon.key")];
        up(&[&daemon[..], &["--ssd-ca", &strangers.path("ca.crt")]].concat())
            .failed(&["TLS: invalid peer certificate"]);
        up(&["--ssd-ca", &ca]).failed(&["CertificateRequired"]);
        let other = ["--tls", &strangers.path("daemon.crt"), &strangers.path("daemon.key"), "--ssd-ca", &ca];
        up(&other).failed(&["TLS"]);
        let up = Up::start_as(&[&["--ssd-at", &at, "--ssd-ca", &ca], &daemon[..]].concat());
        let guest = guest_with(&up.daemon, "anna", certs.of("anna"));
        volume(&guest.client, "v", 1 << 20, 1);
        let file = guest.client.open("v", Rights::Write).unwrap();
        let (data, mut back) = (pattern(1, 8 * BLOCK), vec![0; 8 * BLOCK]);
        file.write_at(0, &data).unwrap();
        file.read_at(0, &mut back).unwrap();
        assert_same("what was written", &back, &data);
    });
}

/// A wire that passes bytes on, and flips a bit of a long record from the client while it is told to.
struct Wire {
    address: SocketAddr,
    flips: Arc<AtomicBool>,
    flipped: Arc<AtomicU64>,
    /// The bytes that the client has sent, and the ones that it was sent.
    heard: [Arc<Mutex<Vec<u8>>>; 2],
}

impl Wire {
    fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it has one");
        let (flips, flipped) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let heard: [Arc<Mutex<Vec<u8>>>; 2] = Default::default();
        let shared = (Arc::clone(&flips), Arc::clone(&flipped), heard.clone());
        let wire = Self { address, flips: shared.0, flipped: shared.1, heard: shared.2 };
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let ssd = TcpStream::connect(to).expect("the SSD is there");
                let (back_from, back_into) = (ssd.try_clone().unwrap(), client.try_clone().unwrap());
                let [heard, answered] = heard.clone();
                std::thread::spawn(move || {
                    pass(back_from, back_into, |bytes| answered.lock().unwrap().extend_from_slice(bytes));
                });
                let (flips, flipped) = (Arc::clone(&flips), Arc::clone(&flipped));
                std::thread::spawn(move || {
                    pass(client, ssd, |bytes| {
                        heard.lock().unwrap().extend_from_slice(bytes);
                        if bytes.len() > BLOCK && flips.swap(false, Ordering::SeqCst) {
                            bytes[BLOCK / 2] ^= 4;
                            flipped.fetch_add(1, Ordering::SeqCst);
                        }
                    });
                });
            }
        });
        wire
    }
}

fn pass(mut from: TcpStream, mut into: TcpStream, mut bend: impl FnMut(&mut [u8])) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        bend(&mut buffer[..count]);
        if into.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(std::net::Shutdown::Both), into.shutdown(std::net::Shutdown::Both));
}

#[test]
fn a_bit_that_flips_under_tls_ends_the_connection_and_changes_nothing() {
    within(BUILD_LIMIT, || {
        let certs = Certs::new(&["anna"]);
        let (ca, cert, key) = (certs.path("ca.crt"), certs.path("ssd.crt"), certs.path("ssd.key"));
        let settings = ["--preset", "null", "--size", "64MiB", "--tls", &cert, &key, "--client-ca", &ca];
        let ssd = SsdProcess::start("127.0.0.1:0", &settings);
        let wire = Wire::start(ssd.address().parse().expect("an address"));
        let daemon = ["--tls", &certs.path("daemon.crt"), &certs.path("daemon.key")];
        let at = wire.address.to_string();
        let up = Up::start_as(&[&["--ssd-at", &at, "--ssd-ca", &ca], &daemon[..]].concat());
        let guest = guest_with(&up.daemon, "anna", certs.of("anna"));
        volume(&guest.client, "v", 1 << 20, 1);
        let file = guest.client.open("v", Rights::Write).unwrap();
        let (old, new) = (pattern(1, 8 * BLOCK), pattern(2, 8 * BLOCK));
        file.write_at(0, &old).unwrap();
        wire.flips.store(true, Ordering::SeqCst);
        // The connection ends. A client that connects anew may finish the write; otherwise the write fails.
        let result = file.write_at(0, &new);
        assert!(wire.flipped.load(Ordering::SeqCst) > 0, "a bit was flipped");
        drop(file);
        drop(guest);
        let guest = guest_with(&up.daemon, "anna", certs.of("anna"));
        let mut back = vec![0; old.len()];
        guest.client.open("v", Rights::Read).unwrap().read_at(0, &mut back).unwrap();
        for (block, got) in back.chunks(BLOCK).enumerate() {
            let at = block * BLOCK..(block + 1) * BLOCK;
            let is_old = got == &old[at.clone()] && result.is_err();
            assert!(is_old || got == &new[at], "block {block} is neither old nor new; {result:?}");
        }
        println!("  the write ended as {result:?}, within {IO_TIMEOUT:?}");
    });
}

#[test]
fn a_wire_hears_the_data_without_tls_and_with_it_only_how_much_there_is() {
    within(BUILD_LIMIT, || {
        let certs = Certs::new(&["anna"]);
        let (ca, cert, key) = (certs.path("ca.crt"), certs.path("ssd.crt"), certs.path("ssd.key"));
        let (own_cert, own_key) = (certs.path("daemon.crt"), certs.path("daemon.key"));
        let null = ["--preset", "null", "--size", "64MiB"];
        let with_tls = [&null[..], &["--tls", &cert, &key, "--client-ca", &ca]].concat();
        let daemon = ["--ssd-ca", ca.as_str(), "--tls", &own_cert, &own_key];
        for (settings, tls) in [(&null[..], &[][..]), (&with_tls, &daemon)] {
            let ssd = SsdProcess::start("127.0.0.1:0", settings);
            let wire = Wire::start(ssd.address().parse().expect("an address"));
            let up = Up::start_as(&[&["--ssd-at", &wire.address.to_string()], tls].concat());
            let secured = !tls.is_empty();
            let who = if secured { certs.of("anna") } else { Credentials::default() };
            let guest = guest_with(&up.daemon, "anna", who);
            volume(&guest.client, "v", 1 << 20, 1);
            let file = guest.client.open("v", Rights::Write).unwrap();
            let data = pattern(3, 8 * BLOCK);
            let mut back = vec![0; data.len()];
            for way in 0..2 {
                wire.heard.iter().for_each(|heard| heard.lock().unwrap().clear());
                match way {
                    0 => file.write_at(0, &data).unwrap(),
                    _ => file.read_at(0, &mut back).unwrap(),
                }
                let heard = wire.heard[way].lock().unwrap().clone();
                assert!(heard.len() > data.len(), "{} bytes are heard", heard.len());
                let is_read = heard.windows(256).any(|part| *part == data[BLOCK..BLOCK + 256]);
                assert_eq!(is_read, !secured, "data and answers are read on the wire: {way}");
            }
            assert_same("what was read", &back, &data);
        }
    });
}

#[test]
fn an_ssd_that_others_reach_needs_tls_or_says_that_it_is_insecure() {
    within(BUILD_LIMIT, || {
        let certs = Certs::new(&[]);
        let (cert, key) = (certs.path("ssd.crt"), certs.path("ssd.key"));
        let ssd = |extra: &[&str]| {
            gnstor(
                &[&["ssd", "--listen", "0.0.0.0:0", "--preset", "null", "--size", "64MiB"], extra].concat(),
            )
        };
        for extra in [&["--no-auth"][..], &["--manager-key", "none.key"]] {
            let ended = ssd(extra);
            assert_eq!(ended.code, 2, "{extra:?}: {}", ended.stderr);
            ended.failed(&["--tls CERT KEY", "--insecure"]);
        }
        // The command warns about this before it serves.
        let small = ["--preset", "null", "--size", "64MiB"];
        let open = SsdProcess::start("0.0.0.0:0", &[&small[..], &["--insecure"]].concat());
        let meaning = "insecure: an attacker on the wire reads and changes what is sent";
        until("it says what that means", || open.complaints().join("\n").contains(meaning));
        open.end("-TERM");
        let believes_all = ssd(&["--no-auth", "--tls", &cert, &key]);
        assert_eq!(believes_all.code, 2, "{}", believes_all.stderr);
        believes_all.failed(&["--client-ca", "--insecure", "change and delete"]);
        ssd(&["--client-ca", &cert]).not_understood(&["--tls"]);
        ssd(&["--tls", &key, &key, "--insecure"]).failed(&["certificate"]);
        let far = gnstor(&["up", "--listen", "127.0.0.1:0", "--ssd-at", "10.255.255.1:4421"]);
        assert_eq!(far.code, 2, "{}", far.stderr);
        far.failed(&["--ssd-ca", "--insecure"]);
    });
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An honest client beside hostile ones, and on a wire that flips bits.
#![expect(
    clippy::disallowed_methods,
    reason = "times are measured, and each side works on threads of its own"
)]

mod proxy;

use gnstor_hostile::attacks::{self, Attack};
use gnstor_hostile::talk::Talk;
use gnstor_tests::command::{SsdProcess, Up};
use gnstor_tests::{BLOCK, assert_same, io_failure, node, pattern, volume, within};
use libgnstor::{Client, ConnectOptions, RcTransport, Rights, TransportConfig, TransportThreads};
use proxy::Proxy;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(300);
/// Deadline of one I/O: the machine may be loaded.
const IO_TIMEOUT: Duration = Duration::from_secs(20);

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

/// A client and the engine it works on, which is dropped last.
struct Guest {
    client: Arc<Client>,
    _engine: TransportThreads,
}

fn guest(daemon: &str, name: &str) -> Guest {
    let engine = TransportThreads::start(vec![RcTransport::new(TransportConfig::default())])
        .expect("an engine starts");
    let mut options = ConnectOptions::new(daemon.to_owned());
    options.name = name.into();
    options.io_timeout = IO_TIMEOUT;
    let client = Client::connect(&node(engine.handle()), &options).expect("a client connects over TCP");
    Guest { client, _engine: engine }
}

fn ssd_address(up: &Up) -> SocketAddr {
    let address = up.serving["fabric"].as_str().expect("an address");
    address.parse().expect("an address and a port")
}

/// Writes and reads back until it is told to stop; each time it took, ms.
fn checked_load(file: &libgnstor::File, first: u64, stop: &AtomicBool) -> Vec<f64> {
    let mut times = Vec::new();
    let mut back = vec![0; 16 * BLOCK];
    for round in first.. {
        if stop.load(Ordering::Acquire) {
            break;
        }
        let (data, at) = (pattern(round, back.len()), round % 16 * back.len() as u64);
        let start = Instant::now();
        file.write_at(at, &data).expect("no error is allowed");
        file.read_at(at, &mut back).expect("no error is allowed");
        times.push(start.elapsed().as_secs_f64() * 1e3);
        assert_same("what was written", &back, &data);
    }
    times
}

/// Rounds a second, median, 99 % and longest time in ms.
fn summary(times: &mut [f64], over: Duration) -> String {
    times.sort_by(f64::total_cmp);
    let at = |part: f64| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of the length")]
        let place = (times.len() as f64 * part) as usize;
        times[place.min(times.len() - 1)]
    };
    let rate = times.len() as f64 / over.as_secs_f64();
    format!("{rate:7.1} rounds/s, p50 {:.2} ms, p99 {:.2} ms, longest {:.2} ms", at(0.5), at(0.99), at(1.0))
}

fn resident_mib(up: &Up) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", up.pid())).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("KiB") / 1024
}

#[test]
fn an_honest_load_beside_hostile_clients_has_no_error() {
    within(LIMIT + Duration::from_secs(number("GNSTOR_HOSTILE_SECONDS", 12)), || {
        let time = Duration::from_secs(number("GNSTOR_HOSTILE_SECONDS", 12));
        let seed = number("GNSTOR_HOSTILE_SEED", 1);
        let up = Up::start(&["--ssds", "2"]);
        let address = ssd_address(&up);
        let guest = guest(&up.daemon, "honest");
        volume(&guest.client, "v", 1 << 20, 2);
        let file = guest.client.open("v", Rights::Write).unwrap();
        let alone = time / 4;
        let load = |first, over: Duration| {
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let load = scope.spawn(|| checked_load(&file, first, &stop));
                std::thread::sleep(over);
                stop.store(true, Ordering::Release);
                load.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        };
        let mut quiet = load(0, alone);
        let before = resident_mib(&up);
        let attackers: Vec<_> = (0..2)
            .map(|i| std::thread::spawn(move || attacks::run(address, seed.wrapping_mul(1000) + i, time)))
            .collect();
        let mut beside = load(1 << 20, time);
        let most = resident_mib(&up);
        let tallies: Vec<_> = attackers.into_iter().map(|a| a.join().expect("it ends")).collect();
        println!("seed {seed}, {} s", time.as_secs());
        println!("  alone:           {}", summary(&mut quiet, alone));
        println!("  beside attacks:  {}", summary(&mut beside, time));
        println!("  array's memory:  {before} MiB before, {most} MiB at the end of the attacks");
        for (place, attack) in Attack::ALL.iter().enumerate() {
            let count: u64 = tallies.iter().map(|tally| tally.attacks[place]).sum();
            println!("  {count:6} times {attack:?}");
        }
        let frames: u64 = tallies.iter().map(|tally| tally.frames).sum();
        println!("  {frames} frames, 0 errors of the honest load");
        assert!(frames > 1000, "the attackers did something");
        assert!(most < before + 256, "the attackers take memory");
        // A new client is let in, and finds what was written.
        let (mut last, mut back) = (vec![0; 1 << 20], vec![0; 1 << 20]);
        file.read_at(0, &mut last).unwrap();
        drop(file);
        let other = self::guest(&up.daemon, "other");
        other.client.open("v", Rights::Read).unwrap().read_at(0, &mut back).unwrap();
        assert_same("after the attacks", &back, &last);
        up.end("-TERM");
    });
}

#[test]
fn a_write_whose_data_changes_on_the_way_fails_and_changes_nothing() {
    within(LIMIT, || {
        let ssd = SsdProcess::start("127.0.0.1:0", &["--preset", "null", "--size", "64MiB", "--index", "0"]);
        let proxy = Proxy::start(ssd.address().parse().expect("an address"));
        let up = Up::start_as(&["--ssd-at", &proxy.address().to_string()]);
        let guest = guest(&up.daemon, "writer");
        volume(&guest.client, "v", 1 << 20, 1);
        let file = guest.client.open("v", Rights::Write).unwrap();
        let old = pattern(1, 8 * BLOCK);
        file.write_at(0, &old).unwrap();
        proxy.flip(true);
        let failure = io_failure(file.write_at(0, &pattern(2, 8 * BLOCK)));
        proxy.flip(false);
        assert!(proxy.flipped() > 0, "a bit was flipped");
        // Data Transfer Error, of the NVMe base specification.
        assert_eq!(failure.nvme_status().map(|status| status.0), Some(0x0004), "{failure}");
        let mut back = vec![0; old.len()];
        file.read_at(0, &mut back).unwrap();
        assert_same("the old content", &back, &old);
        let new = pattern(3, 8 * BLOCK);
        file.write_at(0, &new).unwrap();
        file.read_at(0, &mut back).unwrap();
        assert_same("a write after that", &back, &new);
    });
}

/// The median of single reads, us.
fn read_us(file: &libgnstor::File) -> f64 {
    let mut back = vec![0; BLOCK];
    let (start, mut times) = (Instant::now(), Vec::new());
    while start.elapsed() < Duration::from_millis(1500) {
        let begun = Instant::now();
        file.read_at(0, &mut back).expect("it can be read");
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

#[test]
fn idle_connections_cost_an_active_client_little() {
    within(LIMIT, || {
        let up = Up::start(&["--ssds", "1"]);
        let address = ssd_address(&up);
        let guest = guest(&up.daemon, "reader");
        volume(&guest.client, "v", 1 << 20, 1);
        let file = guest.client.open("v", Rights::Write).unwrap();
        file.write_at(0, &pattern(1, BLOCK)).unwrap();
        let _ = read_us(&file);
        let (alone, memory) = (read_us(&file), resident_mib(&up));
        println!("  read beside     0 idle connections: {alone:8.1} us, array's memory {memory} MiB");
        let mut idle: Vec<TcpStream> = Vec::new();
        for count in [1000, 5000] {
            while idle.len() < count {
                idle.push(TcpStream::connect(address).expect("it is let in"));
            }
            // The array is to take them in before the reads are measured.
            let mut last = Talk::connect(address).expect("it is let in");
            assert!(last.open(1, 0, 0).expect("it is answered"));
            let (took, now) = (read_us(&file), resident_mib(&up));
            println!("  read beside {count:5} idle connections: {took:8.1} us, array's memory {now} MiB");
            assert!(took < 20.0 * alone, "{took} us rather than {alone} us");
            assert!(now < memory + 64, "{now} MiB rather than {memory} MiB");
        }
    });
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An honest client beside hostile ones, and on a wire that flips bits.
#![expect(
    clippy::disallowed_methods,
    reason = "times are measured, and each side works on threads of its own"
)]

mod proxy;
mod tls;

use gnstor_hostile::attacks::Attack;
use gnstor_hostile::talk::Talk;
use gnstor_tests::command::{Guard, HOSTILE, SsdProcess, Up, wait};
use gnstor_tests::{BLOCK, assert_same, io_failure, node, pattern, volume, within};
use libgnstor::{
    Client, ConnectOptions, Credentials, RcTransport, Rights, TransportConfig, TransportThreads,
};
use proxy::Proxy;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
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
    guest_with(daemon, name, Credentials::default())
}

fn guest_with(daemon: &str, name: &str, credentials: Credentials) -> Guest {
    let engine = TransportThreads::start(vec![RcTransport::new(TransportConfig::default())])
        .expect("an engine starts");
    let mut options = ConnectOptions::new(daemon.to_owned());
    options.name = name.into();
    options.credentials = credentials;
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

/// Hostile clients in a process of their own, which gives way where the processor is short: what they take of
/// the array is measured, not what they take of the machine.
struct Attackers(Guard);

impl Attackers {
    fn start(address: SocketAddr, time: Duration, seed: u64, only: Option<Attack>) -> Self {
        let mut command = Command::new("nice");
        command.args(["-n", "19"]).arg(&*HOSTILE).arg(address.to_string());
        command.arg(time.as_secs().to_string()).arg(seed.to_string());
        command.args(only.map(|attack| format!("{attack:?}")));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        Self(Guard(command.spawn().expect("nice runs the hostile client")))
    }

    /// What they did, in words, and how many frames they sent.
    fn wait(mut self) -> (String, u64) {
        let code = wait(&mut self.0, LIMIT).expect("they end in time");
        let mut said = String::new();
        self.0.0.stdout.take().expect("piped").read_to_string(&mut said).expect("text");
        assert_eq!(code, 0, "{said}");
        let frames = said.split_whitespace().next().and_then(|word| word.parse().ok());
        (said.clone(), frames.unwrap_or_else(|| panic!("{said}")))
    }
}

/// A checked load on one file, which goes on where it was.
struct Load {
    file: Arc<libgnstor::File>,
    next: u64,
}

impl Load {
    /// Loads for so long; the times of the rounds, ms.
    fn run(&mut self, over: Duration) -> Vec<f64> {
        let stop = AtomicBool::new(false);
        let (file, first) = (&self.file, self.next);
        let times = std::thread::scope(|scope| {
            let load = scope.spawn(|| checked_load(file, first, &stop));
            std::thread::sleep(over);
            stop.store(true, Ordering::Release);
            load.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        self.next += times.len() as u64;
        times
    }
}

/// A new client is let in, and finds what was written.
fn another_client_reads(up: &Up, file: &libgnstor::File) {
    let (mut last, mut back) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    file.read_at(0, &mut last).unwrap();
    let other = guest(&up.daemon, "other");
    other.client.open("v", Rights::Read).unwrap().read_at(0, &mut back).unwrap();
    assert_same("after the attacks", &back, &last);
}

#[test]
fn an_honest_load_beside_hostile_clients_has_no_error() {
    within(LIMIT + Duration::from_secs(3 * number("GNSTOR_HOSTILE_SECONDS", 12)), || {
        let time = Duration::from_secs(number("GNSTOR_HOSTILE_SECONDS", 12));
        let seed = number("GNSTOR_HOSTILE_SEED", 1);
        let up = Up::start(&["--ssds", "2"]);
        let address = ssd_address(&up);
        let guest = guest(&up.daemon, "honest");
        volume(&guest.client, "v", 1 << 20, 2);
        let mut load = Load { file: Arc::new(guest.client.open("v", Rights::Write).unwrap()), next: 0 };
        let alone = time / 8;
        let _ = load.run(alone / 4);
        let mut quiet = load.run(alone);
        let before = resident_mib(&up);
        let attackers =
            [0, 1].map(|i| Attackers::start(address, time, seed.wrapping_mul(1000).wrapping_add(i), None));
        let mut beside = load.run(time);
        let most = resident_mib(&up);
        let told = attackers.map(Attackers::wait);
        quiet.extend(load.run(alone));
        println!("seed {seed}, {} s", time.as_secs());
        println!("  alone:           {}", summary(&mut quiet, 2 * alone));
        println!("  beside attacks:  {}", summary(&mut beside, time));
        println!("  array's memory:  {before} MiB before, {most} MiB at the end of the attacks");
        told.iter().for_each(|(words, _)| println!("{words}"));
        println!("  0 errors of the honest load");
        assert!(told.iter().all(|(_, frames)| *frames > 500), "the attackers did something");
        assert!(most < before + 256, "the attackers take memory");
        another_client_reads(&up, &load.file);
        drop(load);
        up.end("-TERM");
    });
}

/// What runs beside the load.
#[derive(Clone, Copy, Debug)]
enum Beside {
    /// Two hostile clients, both in this way.
    Attack(Attack),
    /// A thread that computes, and asks the array for nothing: what the load keeps then is a matter of the
    /// machine alone. An attack makes the array's engine such a thread.
    Computing,
}

impl Beside {
    /// The attacks that `GNSTOR_HOSTILE_ONLY` names (`Deaf,Connects`), otherwise all, and the thread.
    fn chosen() -> Vec<Self> {
        let only = std::env::var("GNSTOR_HOSTILE_ONLY").unwrap_or_default();
        let named = |attack: &Attack| {
            let name = format!("{attack:?}");
            only.is_empty() || only.split(',').any(|wanted| wanted.eq_ignore_ascii_case(&name))
        };
        Attack::ALL.into_iter().filter(named).map(Self::Attack).chain([Self::Computing]).collect()
    }
}

/// Seconds of processor time that a process has taken, from `/proc`.
fn cpu_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let behind_name = stat.rsplit(')').next().expect("a name in brackets");
    // utime and stime are fields 14 and 15, in hundredths; the third field is the first behind the name.
    let ticks =
        behind_name.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().expect("ticks"));
    ticks.sum::<u64>() as f64 / 100.0
}

/// Times of the load in a slice without and in one beside something, over all pairs.
#[derive(Default)]
struct Measured {
    quiet: Vec<f64>,
    beside: Vec<f64>,
    ratios: Vec<f64>,
    frames: u64,
    /// Processor time of the array, without and beside, s.
    cpu: [f64; 2],
}

impl Measured {
    fn pair(&mut self, load: &mut Load, up: &Up, what: Beside, (seed, slice): (u64, Duration)) {
        let start = cpu_seconds(up.pid());
        let alone = load.run(slice);
        self.cpu[0] += cpu_seconds(up.pid()) - start;
        // What runs beside begins a little before, and ends after the load that is measured.
        let time = slice + Duration::from_secs(1);
        let address = ssd_address(up);
        let stop = AtomicBool::new(false);
        let attacked = std::thread::scope(|scope| {
            let mut attackers = Vec::new();
            match what {
                Beside::Attack(attack) => attackers
                    .extend([0, 1].map(|i| Attackers::start(address, time, 2 * seed + i, Some(attack)))),
                Beside::Computing => {
                    _ = scope.spawn(|| {
                        while !stop.load(Ordering::Relaxed) {
                            std::hint::spin_loop()
                        }
                    })
                }
            }
            std::thread::sleep(Duration::from_millis(100));
            let start = cpu_seconds(up.pid());
            let attacked = load.run(slice);
            self.cpu[1] += cpu_seconds(up.pid()) - start;
            stop.store(true, Ordering::Relaxed);
            self.frames += attackers.into_iter().map(|attackers| attackers.wait().1).sum::<u64>();
            attacked
        });
        self.ratios.push(attacked.len() as f64 / alone.len().max(1) as f64);
        self.quiet.extend(alone);
        self.beside.extend(attacked);
    }

    /// Prints it; what the load keeps, the median of the pairs.
    fn report(&mut self, what: Beside, slice: Duration) -> f64 {
        self.ratios.sort_by(f64::total_cmp);
        let (pairs, ratio) = (self.ratios.len(), self.ratios[self.ratios.len() / 2]);
        let over = slice * u32::try_from(pairs).expect("a few");
        let of = |seconds: f64| seconds / over.as_secs_f64();
        println!("{what:?}: keeps {ratio:.2} of {pairs} pairs' median, 0 errors, {} frames", self.frames);
        println!("  alone:  {}", summary(&mut self.quiet, over));
        println!("  beside: {}", summary(&mut self.beside, over));
        println!("  the array took {:.2} of a core alone, {:.2} beside", of(self.cpu[0]), of(self.cpu[1]));
        ratio
    }
}

/// Every attack for itself, in pairs of a time without and a time beside it. No round may fail. What the load
/// keeps is a matter of the machine, too: `GNSTOR_HOSTILE_KEEP` is what it must keep, in percent. Without it,
/// only a load that nearly stands still is a failure.
#[test]
fn the_load_beside_each_attack_has_no_error_and_goes_on() {
    within(LIMIT + Duration::from_secs(300), || {
        let pairs = number("GNSTOR_HOSTILE_PAIRS", 1);
        let slice = Duration::from_millis(number("GNSTOR_HOSTILE_SLICE_MS", 1000));
        let keep = number("GNSTOR_HOSTILE_KEEP", 10);
        let up = Up::start(&["--ssds", "2"]);
        let guest = guest(&up.daemon, "honest");
        volume(&guest.client, "v", 1 << 20, 2);
        let mut load = Load { file: Arc::new(guest.client.open("v", Rights::Write).unwrap()), next: 0 };
        let _ = load.run(slice / 2);
        let mut poor = Vec::new();
        for what in Beside::chosen() {
            let mut measured = Measured::default();
            (0..pairs).for_each(|pair| measured.pair(&mut load, &up, what, (pair, slice)));
            let ratio = measured.report(what, slice);
            if ratio * 100.0 < keep as f64 {
                poor.push(format!("{what:?} leaves {ratio:.2}"));
            }
        }
        assert!(poor.is_empty(), "{poor:?}");
        another_client_reads(&up, &load.file);
        drop(load);
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

/// Idle connections of a process of its own: each process has a descriptor of each.
struct Idle {
    _process: Guard,
}

impl Idle {
    fn hold(address: SocketAddr, count: u64) -> Self {
        let mut command = Command::new(&*HOSTILE);
        command.arg("hold").arg(address.to_string()).args([count.to_string(), "600".into()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = Guard(command.spawn().expect("the hostile client runs"));
        let mut line = String::new();
        let stdout = child.0.stdout.as_mut().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        assert!(line.contains(" connections"), "{count} connections are let in: {line}");
        Self { _process: child }
    }
}

/// Reads beside idle connections, in turn with reads without any. `GNSTOR_IDLE=10000` and
/// `GNSTOR_IDLE_PAIRS=5` give the figures of the documents. The time of a handshake is shorter than that of a
/// measurement, so the array closes the connections of each turn while the next one runs.
#[test]
fn idle_connections_cost_an_active_client_little() {
    within(LIMIT, || {
        let (count, pairs) = (number("GNSTOR_IDLE", 2000), number("GNSTOR_IDLE_PAIRS", 1));
        let up = Up::start(&["--ssds", "1"]);
        let address = ssd_address(&up);
        let guest = guest(&up.daemon, "reader");
        volume(&guest.client, "v", 1 << 20, 1);
        let file = guest.client.open("v", Rights::Write).unwrap();
        file.write_at(0, &pattern(1, BLOCK)).unwrap();
        let _ = read_us(&file);
        let memory = resident_mib(&up);
        let (mut most, mut ratios) = (memory, Vec::new());
        for _ in 0..pairs {
            let alone = read_us(&file);
            let idle = Idle::hold(address, count);
            // The array is to take them in before the reads are measured.
            let mut last = Talk::connect(address).expect("it is let in");
            assert!(last.open(1, 0, 0).expect("it is answered"));
            let (took, now) = (read_us(&file), resident_mib(&up));
            println!(
                "  read: {alone:7.1} us alone, {took:7.1} us beside {count} idle; {memory} and {now} MiB"
            );
            most = most.max(now);
            ratios.push(took / alone);
            drop(idle);
        }
        ratios.sort_by(f64::total_cmp);
        let ratio = ratios[ratios.len() / 2];
        println!("  {ratio:.3} of the time alone, median of {pairs} pairs; {} MiB more", most - memory);
        assert!(ratio < 20.0, "{ratio} times as long");
        assert!(most < memory + 64, "{most} MiB rather than {memory} MiB");
    });
}

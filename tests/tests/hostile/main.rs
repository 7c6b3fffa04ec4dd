// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An honest client beside hostile ones, and on a wire that flips bits.
#![expect(
    clippy::disallowed_methods,
    reason = "times are measured, and each side works on threads of its own"
)]

// Tests begin in the order of their names, so the longest one comes first.
mod attack;
mod beside;
mod calls;
mod connects;
mod cpu;
mod deep;
mod hellos;
mod http2;
mod insiders;
mod load;
mod proxy;
mod returns;
mod strangers;
mod tls;

use gnstor_hostile::talk::Talk;
use gnstor_tests::command::{Guard, HOSTILE, SsdProcess, Up};
use gnstor_tests::folder::Folder;
use gnstor_tests::{BLOCK, assert_same, io_failure, node, pattern, volume, within};
use libgnstor::{
    Client, ConnectOptions, Credentials, RcTransport, Rights, TransportConfig, TransportThreads,
};
use proxy::Proxy;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(300);
/// Deadline of one I/O: the machine may be loaded.
const IO_TIMEOUT: Duration = Duration::from_secs(20);

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

/// A client with its engine, which is dropped last.
struct Guest {
    client: Arc<Client>,
    _engine: TransportThreads,
}

fn guest(daemon: &str, name: &str) -> Guest {
    guest_with(daemon, name, Credentials::default())
}

fn guest_with(daemon: &str, name: &str, credentials: Credentials) -> Guest {
    try_guest(daemon, name, credentials).expect("a client connects over TCP")
}

fn try_guest(daemon: &str, name: &str, credentials: Credentials) -> Result<Guest, libgnstor::Error> {
    // If a connection breaks, the log says why. The first of several tests sets the log up.
    let filter = tracing_subscriber::EnvFilter::try_from_env("GNSTOR_LOG")
        .unwrap_or_else(|_| "warn,gnstor_fabric=debug".into());
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_test_writer().try_init();
    let engine = TransportThreads::start(vec![RcTransport::new(TransportConfig::default())])
        .expect("an engine starts");
    let mut options = ConnectOptions::new(daemon.to_owned());
    options.name = name.into();
    options.credentials = credentials;
    options.io_timeout = IO_TIMEOUT;
    let client = Client::connect(&node(engine.handle()), &options)?;
    Ok(Guest { client, _engine: engine })
}

fn ssd_address(up: &Up) -> SocketAddr {
    let address = up.serving["fabric"].as_str().expect("an address");
    address.parse().expect("an address and a port")
}

/// Memory of the process that is in RAM, in MiB.
fn resident_mib(pid: u32) -> u64 {
    status_mib(pid, "VmRSS:")
}

/// Private memory that the process has mapped for writing, in MiB. Pools of fixed size count whole from the
/// start. So it grows with what peers make the process allocate, and not with the pages of a pool that a load
/// touches first.
fn allocated_mib(pid: u32) -> u64 {
    status_mib(pid, "VmData:")
}

fn status_mib(pid: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find(|line| line.starts_with(field)).expect("a line");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("KiB") / 1024
}

#[test]
fn a_write_whose_data_changes_on_the_way_changes_nothing_unless_its_sum_changes_too() {
    within(LIMIT, || {
        // Client and daemon prove who they are, which does not protect the frames after that.
        let folder = Folder::new();
        let key = folder.path().join("manager.key").display().to_string();
        let size = ["--preset", "null", "--size", "64MiB", "--index", "0", "--manager-key", &key];
        let ssd = SsdProcess::start("127.0.0.1:0", &size);
        let proxy = Proxy::start(ssd.address().parse().expect("an address"));
        let up = Up::start_as(&["--ssd-at", &proxy.address().to_string(), "--manager-key", &key]);
        let guest = guest(&up.daemon, "writer");
        volume(&guest.client, "v", 1 << 20, 1);
        let file = guest.client.open("v", Rights::Write).unwrap();
        let old = pattern(1, 8 * BLOCK);
        file.write_at(0, &old).unwrap();
        // The first block of the command is right, and none of the eight is written.
        proxy.flip(2);
        let failure = io_failure(file.write_at(0, &pattern(2, 8 * BLOCK)));
        assert_eq!(proxy.bent(), 1, "a bit of one block was flipped");
        // Data Transfer Error, of the NVMe base specification.
        assert_eq!(failure.nvme_status().map(|status| status.0), Some(0x0004), "{failure}");
        let mut back = vec![0; old.len()];
        file.read_at(0, &mut back).unwrap();
        assert_same("the old content", &back, &old);
        let new = pattern(3, 8 * BLOCK);
        file.write_at(0, &new).unwrap();
        file.read_at(0, &mut back).unwrap();
        assert_same("a write after that", &back, &new);
        // An attacker changes the sum as well. Only TLS prevents that.
        let before = proxy.bent();
        proxy.forge(true);
        file.write_at(0, &new).expect("the SSD notices nothing");
        proxy.forge(false);
        assert!(proxy.bent() >= before + 8, "blocks were forged");
        file.read_at(0, &mut back).unwrap();
        assert_same("what the attacker wrote", &back, &vec![proxy::FORGED; 8 * BLOCK]);
        // A proof at Connect does not protect later frames either: the wire redirects a write of block 2 to
        // block 3.
        proxy.divert(true);
        file.write_at(2 * BLOCK as u64, &new[..BLOCK]).expect("the SSD notices nothing");
        proxy.divert(false);
        file.read_at(0, &mut back).unwrap();
        assert_same("block 3", &back[3 * BLOCK..4 * BLOCK], &new[..BLOCK]);
        assert_same("block 2", &back[2 * BLOCK..3 * BLOCK], &[proxy::FORGED; BLOCK]);
    });
}

/// The median of single reads, in us.
fn read_us(file: &libgnstor::File) -> f64 {
    let mut back = vec![0; BLOCK];
    let (start, mut times) = (Instant::now(), Vec::new());
    while start.elapsed() < Duration::from_millis(700) {
        let begun = Instant::now();
        file.read_at(0, &mut back).expect("it can be read");
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Idle connections, held by a process of its own because each process has a limit of descriptors.
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

/// Reads beside idle connections, in turn with reads without them. `GNSTOR_IDLE=10000` and
/// `GNSTOR_IDLE_PAIRS=5` give the figures of the documents. The time for a handshake is shorter than a
/// measurement. So the array closes the connections of each turn during the next turn.
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
        let memory = resident_mib(up.pid());
        let (mut most, mut ratios) = (memory, Vec::new());
        for _ in 0..pairs {
            let alone = read_us(&file);
            let idle = Idle::hold(address, count);
            // The array must accept the idle connections before the reads are measured.
            let mut last = Talk::connect(address).expect("it is let in");
            assert!(last.open(1, 0, 0).expect("it is answered"));
            let (took, now) = (read_us(&file), resident_mib(up.pid()));
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

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The common parts of the end-to-end tests: an array, nodes and clients on the host device, and a deadline
//! for each test.
//!
//! ```text
//!   within      runs a test body with a deadline: it fails and never hangs
//!   small_array, node, client, volume      the parts that most tests need
//!   pattern     bytes that depend on their position
//!   command     the gnstor command in processes of its own
//!   folder      data files that leave nothing behind
//!   raw_queue   a queue pair that sends any 64 bytes
//!   kernels     a user's kernels, on the host device
//!   pages       small pages, so that tests take less time
//! ```

pub mod command;
pub mod folder;
pub mod kernels;
pub mod pages;
pub mod raw_queue;

use gnstor_array::media;
use gnstor_array::power::Threads;
use gnstor_array::{Array, ArrayConfig, MapFormat, Ssds};
use gnstor_fabric::link::LinkConfig;
use libgnstor::{
    Choice, Client, ConnectOptions, CreateOptions, Device, Error, Fabric, IoFailure, Node, RcTransport,
    Residency, TransportConfig, TransportHandle, TransportThreads, VolumeInfo,
};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Bytes of a block.
pub const BLOCK: usize = 4096;
/// Bytes of the default chunk.
pub const CHUNK: usize = 64 << 10;
/// Logical capacity of each SSD of a [`small_array`].
pub const SSD_BYTES: u64 = 64 << 20;
/// Deadline of one I/O of a [`client`].
pub const IO_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs `body` and returns its result. A panic of `body` becomes a panic of the caller.
///
/// # Panics
/// If `body` has not ended within `limit`.
#[expect(
    clippy::disallowed_methods,
    reason = "the body needs a thread of its own, so that it can be given up"
)]
pub fn within<R: Send + 'static>(limit: Duration, body: impl FnOnce() -> R + Send + 'static) -> R {
    pages::small_pages();
    let (done, ended) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let result = body();
        // The caller may have given up by now.
        let _ = done.send(());
        result
    });
    if let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(limit) {
        panic!("not done within {limit:?}");
    }
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Whether to run the long forms of tests: `GNSTOR_LONG=1`.
pub fn long() -> bool {
    std::env::var_os("GNSTOR_LONG").is_some_and(|value| !value.is_empty())
}

/// The configuration of a [`small_array`].
///
/// # Panics
/// Never: the preset is there.
pub fn small_config(ssds: u16) -> ArrayConfig {
    let null = media::preset("null").expect("the preset without modelled time");
    ArrayConfig {
        ssds: Ssds::Here(media::in_memory(ssds, &null, SSD_BYTES)),
        has_witness: false,
        listen: any_port(),
        fabric_listen: None,
        link: LinkConfig::UNLIMITED,
        patience: gnstor_array::PATIENCE,
        out_after: Some(gnstor_array::OUT_AFTER),
        groups: 256,
        map_format: MapFormat::default(),
        threads: Threads { engines: 3 },
        manager_key: None,
        replaces_key: false,
        openings: Arc::default(),
    }
}

/// A free port of the loopback interface.
pub fn any_port() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

/// An array without modelled time.
///
/// # Panics
/// When it does not start.
pub fn small_array(ssds: u16) -> Array {
    Array::start(&small_config(ssds)).expect("an array starts")
}

/// A node on the host device.
///
/// # Panics
/// When it cannot be made.
pub fn node(engine: TransportHandle) -> Arc<Node> {
    let device = Device::open(Choice::Host).expect("the host device is always there");
    Arc::new(Node::new(engine, &device, Residency::TwoKernels).expect("a node starts"))
}

/// Options of a client on the array's own engine.
pub fn options(array: &Array, name: &str) -> ConnectOptions {
    let mut options = ConnectOptions::new(array.daemon_address().to_string());
    options.name = name.into();
    options.fabric = Fabric::InProcess;
    options.io_timeout = IO_TIMEOUT;
    options
}

/// A client on the array's own engine.
///
/// # Panics
/// When it does not connect.
pub fn client(array: &Array, node: &Arc<Node>, name: &str) -> Arc<Client> {
    Client::connect(node, &options(array, name)).expect("a client connects")
}

/// Makes a volume of this size and number of replicas.
///
/// # Panics
/// If the daemon does not make it.
pub fn volume(client: &Client, name: &str, capacity_bytes: u64, replicas: u32) -> VolumeInfo {
    let options = CreateOptions { capacity_bytes, replicas, ..CreateOptions::default() };
    client.create(name, &options).expect("a volume is made")
}

/// Bytes that depend on their position: every eight are a function of `seed` and of their offset.
pub fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut all = vec![0; bytes];
    for (i, eight) in (0..).zip(all.chunks_mut(8)) {
        let word = gnstor_proto::placement::mix64(seed << 40 ^ i).to_le_bytes();
        eight.copy_from_slice(&word[..eight.len()]);
    }
    all
}

/// Reads one copy. On a busy machine an SSD may be late with its serving lease, and a copy has no other.
///
/// # Panics
/// The copy does not serve within the limit of a command.
pub fn read_copy(file: &libgnstor::File, replica: u32, at: u64, into: &mut [u8]) {
    let mut last = String::new();
    command::until(&format!("copy {replica} at byte {at} serves"), || {
        let Err(why) = file.read_replica_at(replica, at, into) else { return true };
        if why.to_string() != last {
            last = why.to_string();
            eprintln!("copy {replica} at byte {at}: {last}");
        }
        false
    });
}

/// Checks that two buffers are equal. If not, a short sentence says where they differ first.
///
/// # Panics
/// If they differ.
pub fn assert_same(what: &str, got: &[u8], want: &[u8]) {
    assert_eq!(got.len(), want.len(), "{what}: another length");
    if let Some(at) = got.iter().zip(want).position(|(a, b)| a != b) {
        let wrong = got.chunks(BLOCK).zip(want.chunks(BLOCK)).filter(|(a, b)| a != b).count();
        panic!(
            "{what}: byte {at} (block {}) is {:#04x}, not {:#04x}; {wrong} blocks differ",
            at / BLOCK,
            got[at],
            want[at]
        );
    }
}

/// The I/O failure in an error.
///
/// # Panics
/// When it worked, or failed otherwise.
pub fn io_failure(result: Result<(), Error>) -> IoFailure {
    match result {
        Err(Error::Io(failure)) => failure,
        Err(other) => panic!("not an I/O failure: {other}"),
        Ok(()) => panic!("the I/O was not refused"),
    }
}

/// Checks an error of the daemon or of the library: these words in its sentence, and this number for C.
///
/// # Panics
/// If it is another error.
pub fn assert_error<T: std::fmt::Debug>(result: Result<T, Error>, errno: i32, words: &[&str]) {
    let error = result.expect_err("this must fail");
    let sentence = error.to_string();
    for word in words {
        assert!(sentence.contains(word), "'{word}' is missing in: {sentence}");
    }
    assert!(!sentence.contains('\n'), "more than a line: {sentence}");
    assert_eq!(error.errno(), errno, "{sentence}");
}

/// A client of an array in another process, over TCP.
#[derive(Debug)]
pub struct Guest {
    /// The client.
    pub client: Arc<Client>,
    /// The client's engine, dropped last.
    _engine: TransportThreads,
}

impl Guest {
    /// Connects to the daemon at this address.
    ///
    /// # Panics
    /// If it does not connect.
    pub fn connect(daemon: &str, name: &str) -> Self {
        Self::connect_for(daemon, name, IO_TIMEOUT)
    }

    /// As [`Self::connect`], with this deadline for each I/O.
    ///
    /// # Panics
    /// If it does not connect.
    pub fn connect_for(daemon: &str, name: &str, io_timeout: Duration) -> Self {
        let engine = TransportThreads::start(vec![RcTransport::new(TransportConfig::default())]);
        let engine = engine.expect("an engine starts");
        let mut options = ConnectOptions::new(daemon.to_owned());
        options.name = name.into();
        options.io_timeout = io_timeout;
        let client = Client::connect(&node(engine.handle()), &options).expect("a client connects over TCP");
        Self { client, _engine: engine }
    }
}

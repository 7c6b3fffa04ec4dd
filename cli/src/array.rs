// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An array in this process: an engine with emulated SSDs, the daemon, and a TCP door for clients in other processes.

use gnstor_daemon::{Daemon, DaemonConfig, DaemonError, SsdPort};
use gnstor_deengine::preset::Preset;
use gnstor_deengine::{Ssd, SsdConfig};
use gnstor_fabric::admin::ChannelError;
use gnstor_fabric::engine::tcp::Wire;
use gnstor_fabric::engine::{Engine, EngineConfig, Port};
use gnstor_fabric::host_queue::HostQueue;
use gnstor_fabric::link::LinkConfig;
use gnstor_fabric::runtime::{EngineError, EngineHandle, EngineThread};
use gnstor_proto::fabrics::{Identity, ssd_subnqn};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// What an array is made of.
#[derive(Clone, Debug)]
pub struct ArrayConfig {
    /// Number of SSDs.
    pub ssds: u16,
    /// Preset of every SSD.
    pub preset: Preset,
    /// Logical capacity of every SSD.
    pub ssd_bytes: u64,
    /// Where the daemon listens.
    pub listen: SocketAddr,
    /// Where clients of other processes reach the SSDs; `None`: they cannot.
    pub fabric_listen: Option<SocketAddr>,
    /// The modelled link of clients in this process.
    pub link: LinkConfig,
    /// Placement groups.
    pub groups: u32,
}

/// Why an array does not start.
#[derive(Debug, thiserror::Error)]
pub enum ArrayError {
    /// No SSDs, or too many.
    #[error("an array has 1 to 64 SSDs, not {0}")]
    SsdCount(u16),
    /// Not a number of placement groups.
    #[error("{0} placement groups are not possible: use a power of two up to {MAX_GROUPS}")]
    Groups(u32),
    /// Memory for the media, or a thread.
    #[error("{what}: {cause}")]
    Os {
        /// What was tried.
        what: String,
        /// The error.
        cause: std::io::Error,
    },
    /// An SSD.
    #[error(transparent)]
    Admin(#[from] ChannelError),
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The daemon.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
}

/// Most placement groups of a fleet map.
const MAX_GROUPS: u32 = 1 << 24;

/// Whether an array of so many SSDs can be.
///
/// # Errors
/// [`ArrayError::SsdCount`].
pub fn check_ssds(ssds: u16) -> Result<(), ArrayError> {
    if (1..=64).contains(&ssds) { Ok(()) } else { Err(ArrayError::SsdCount(ssds)) }
}

/// A running array. Dropping it stops it: daemon first, then the SSDs.
#[derive(Debug)]
pub struct Array {
    daemon: Option<Daemon>,
    daemon_address: SocketAddr,
    door: Option<Door>,
    engine: EngineThread,
    ssds: u16,
}

#[derive(Debug)]
struct Door {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

const ADMIN_DEADLINE: Duration = Duration::from_secs(5);

impl Array {
    /// Starts an array; it serves when this returns.
    ///
    /// # Errors
    /// [`ArrayError`]: no memory, a port in use.
    pub fn start(config: &ArrayConfig) -> Result<Self, ArrayError> {
        check_ssds(config.ssds)?;
        if !config.groups.is_power_of_two() || config.groups > MAX_GROUPS {
            return Err(ArrayError::Groups(config.groups));
        }
        let os = |what: &str| {
            let what = what.to_owned();
            move |cause| ArrayError::Os { what, cause }
        };
        // The ports first: a port in use is the likeliest error and needs no SSDs to be found.
        let door = config.fabric_listen.map(TcpListener::bind).transpose();
        let door = door.map_err(os(&format!("listening on {}", config.fabric_listen.unwrap_or(config.listen))))?;
        let mut engine = Engine::new(EngineConfig { link: config.link, ..EngineConfig::default() });
        for index in 0..config.ssds {
            let ssd = Ssd::new(SsdConfig {
                index,
                preset: config.preset,
                capacity_bytes: config.ssd_bytes,
                serial: format!("GN{index:06}"),
            });
            let ssd = ssd.map_err(os(&format!("making SSD {index} of {} bytes", config.ssd_bytes)))?;
            let regions = vec![ssd.media(), ssd.scratch()];
            engine.add_target(Box::new(ssd), regions);
        }
        let engine = EngineThread::start(engine).map_err(os("starting the engine"))?;
        let handle = engine.handle();
        let soft = handle.call(|e, _| e.add_soft())?;
        let fabric_address = door.as_ref().and_then(|d| d.local_addr().ok());
        let mut ports = Vec::new();
        for index in 0..config.ssds {
            let subnqn = ssd_subnqn(index);
            let port = Port::Local(index);
            let mut queue =
                HostQueue::connect(&handle, soft, port, &subnqn, Identity::Daemon, Duration::ZERO, ADMIN_DEADLINE)?;
            let model = queue.identify(ADMIN_DEADLINE)?.model;
            ports.push(SsdPort {
                index,
                subnqn,
                transport: if fabric_address.is_some() { "tcp" } else { "inproc" }.into(),
                address: fabric_address.map(|a| a.to_string()).unwrap_or_default(),
                capacity_bytes: config.ssd_bytes,
                model,
                channel: Box::new(queue),
            });
        }
        let mut daemon_config = DaemonConfig::default();
        daemon_config.core.groups = config.groups;
        let daemon = Daemon::start(config.listen, ports, daemon_config)?;
        let door = door.map(|listener| Door::open(listener, handle)).transpose().map_err(os("opening the TCP door"))?;
        let daemon_address = daemon.local_addr();
        Ok(Self { daemon: Some(daemon), daemon_address, door, engine, ssds: config.ssds })
    }

    /// Where the daemon listens, or listened.
    pub fn daemon_address(&self) -> SocketAddr {
        self.daemon_address
    }

    /// Where the SSDs are reached over TCP.
    pub fn fabric_address(&self) -> Option<SocketAddr> {
        self.door.as_ref().map(|d| d.address)
    }

    /// The engine, for clients in this process and for fault injection.
    pub fn engine(&self) -> EngineHandle {
        self.engine.handle()
    }

    /// Number of SSDs.
    pub fn ssds(&self) -> u16 {
        self.ssds
    }

    /// The daemon still serves.
    pub fn is_serving(&self) -> bool {
        self.daemon.as_ref().is_some_and(Daemon::is_serving)
    }

    /// Stops the daemon only; the SSDs go on.
    ///
    /// # Errors
    /// What ended it before.
    pub fn stop_daemon(&mut self) -> Result<(), DaemonError> {
        self.daemon.take().map_or(Ok(()), Daemon::stop)
    }
}

impl Door {
    #[expect(clippy::disallowed_methods, reason = "the accepting thread is the runtime part of this module")]
    fn open(listener: TcpListener, engine: EngineHandle) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !asked.load(Ordering::Acquire) {
                match listener.accept() {
                    Ok((stream, from)) => match Wire::new(stream) {
                        Ok(wire) => engine.cast(move |e, _| _ = e.add_peer(wire)),
                        Err(e) => tracing::warn!("client {from}: {e}"),
                    },
                    Err(_) => std::thread::sleep(Duration::from_millis(5)),
                }
            }
        });
        Ok(Self { address, stop, thread: Some(thread) })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An array: transports with emulated SSDs or with links to SSDs elsewhere, and the daemon. A TCP listener
//! accepts clients of other processes.
//!
//! ```text
//!   Ssds::Here   daemon --> engine: SSD 0..n <-- listener <-- clients
//!   Ssds::At     daemon --> engine: links ----> gnstor ssd, one process each <-- clients
//! ```

mod ports;
mod search;

use crate::degraded::make_array;
use crate::held_key::GivenKey;
use crate::listener::Listener;
use crate::media::{About, Made, MediaError, Plan};
use crate::peers::{Peers, PeersConfig};
use crate::power::{Powered, Threads};
use gnstor_auth::Secret;
use gnstor_daemon::core::MapFormat;
use gnstor_daemon::{Access, Connector, Daemon, DaemonConfig, DaemonError, Look, Openings};
use gnstor_fabric::admin::ChannelError;
use gnstor_fabric::host_queue::Credentials;
use gnstor_fabric::link::LinkConfig;
use gnstor_fabric::runtime::{TransportError, TransportHandle};
use gnstor_fabric::tcp::ClientTls;
use ports::{Elsewhere, Joining, TransportAddress, elsewhere, embedded};
use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

/// Where the SSDs of an array run.
#[derive(Clone, Debug)]
pub enum Ssds {
    /// In this process. The position of a plan is the SSD's number.
    Here(Vec<Plan>),
    /// In processes of their own (`gnstor ssd`), at these addresses; the address's place is the SSD's number.
    At(Vec<String>),
}

impl Ssds {
    fn count(&self) -> usize {
        match self {
            Self::Here(plans) => plans.len(),
            Self::At(addresses) => addresses.len(),
        }
    }
}

/// The configuration of an array.
#[derive(Clone, Debug)]
pub struct ArrayConfig {
    /// The SSDs.
    pub ssds: Ssds,
    /// The last of these SSDs votes and holds no blocks.
    pub has_witness: bool,
    /// Address of the daemon.
    pub listen: SocketAddr,
    /// Address at which clients of other processes reach this process's SSDs; `None`: they cannot.
    pub fabric_listen: Option<SocketAddr>,
    /// The modelled link of clients in this process.
    pub link: LinkConfig,
    /// Placement groups.
    pub groups: u32,
    /// Time in which SSDs of other processes have to answer at the start ([`crate::PATIENCE`]).
    pub patience: Duration,
    /// How long the places of a lost SSD are kept for it; `None`: for ever.
    pub out_after: Option<Duration>,
    /// Format of a fresh array's fleet map.
    pub map_format: MapFormat,
    /// Threads that serve the SSDs of this process; see [`crate::power::default_engines`].
    pub threads: Threads,
    /// The array's manager key; `None` if the SSDs ask for no proof.
    pub manager_key: Option<Secret>,
    /// Whether the key replaces the one that this process's SSDs had before.
    pub replaces_key: bool,
    /// The daemon's record of how often each SSD was opened.
    pub openings: Arc<Openings>,
}

/// Why an array does not start.
#[derive(Debug, thiserror::Error)]
pub enum ArrayError {
    /// No SSDs, or too many.
    #[error("an array has 1 to 64 SSDs, not {0}")]
    SsdCount(usize),
    /// The number of placement groups is not valid.
    #[error("{0} placement groups are not possible: use a power of two up to {MAX_GROUPS}")]
    Groups(u32),
    /// Memory for the media, or a thread.
    #[error("{what}: {cause}")]
    Os {
        /// The attempted action.
        what: String,
        /// The error.
        cause: std::io::Error,
    },
    /// An SSD's contents.
    #[error(transparent)]
    Media(#[from] MediaError),
    /// An SSD.
    #[error(transparent)]
    Admin(#[from] ChannelError),
    /// The engine.
    #[error(transparent)]
    RcTransport(#[from] TransportError),
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
pub fn check_ssds(ssds: usize) -> Result<(), ArrayError> {
    if (1..=64).contains(&ssds) { Ok(()) } else { Err(ArrayError::SsdCount(ssds)) }
}

/// A running array. Dropping it stops it: daemon first, then the SSDs.
#[derive(Debug)]
pub struct Array {
    daemon: Option<Daemon>,
    daemon_address: SocketAddr,
    listener: Option<Listener>,
    peers: Option<Peers>,
    powered: Option<Powered>,
    ssds: Vec<SsdSummary>,
    openings: Arc<Openings>,
}

/// The report about an SSD of an array.
#[derive(Clone, Debug, serde::Serialize)]
pub struct SsdSummary {
    /// Number.
    pub index: u16,
    /// Logical capacity.
    pub bytes: u64,
    /// Model.
    pub model: String,
    /// Address of the SSD for clients of other processes; empty if they cannot reach it.
    pub address: String,
    /// Further facts about an SSD that this process runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub here: Option<About>,
}

impl Array {
    /// Starts an array; it serves when this returns.
    ///
    /// # Errors
    /// [`ArrayError`]: no memory, a port in use, an SSD that is not there.
    pub fn start(config: &ArrayConfig) -> Result<Self, ArrayError> {
        Self::start_with(config, Access::default())
    }

    /// Starts an array whose daemon asks for these proofs of its callers. With TLS its SSDs are reached by
    /// TLS, too.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_with(config: &ArrayConfig, access: Access) -> Result<Self, ArrayError> {
        Self::start_secured(config, access, None)
    }

    /// The same, with TLS to SSDs in other processes if `tls` is given.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_secured(
        config: &ArrayConfig,
        access: Access,
        ssd_tls: Option<ClientTls>,
    ) -> Result<Self, ArrayError> {
        let tls = access.server_tls().map_err(DaemonError::Tls)?;
        check_ssds(config.ssds.count())?;
        if !config.groups.is_power_of_two() || config.groups > MAX_GROUPS {
            return Err(ArrayError::Groups(config.groups));
        }
        // The ports first: a port in use is the likeliest error and needs no SSDs to be found.
        let listener = bind(config)?;
        let made = make_ssds(config)?;
        let daemon = Credentials::daemon(config.manager_key.as_ref());
        let abouts: Vec<About> = made.iter().map(|made| made.about.clone()).collect();
        let powered = Powered::on(made, 0, config.link, config.threads).map_err(os("starting the engine"))?;
        let handle = powered.transport();
        let peers = start_peers(config, &handle)?;
        let soft = handle.call(|e, _| e.add_soft())?;
        let fabric_address = listener.as_ref().and_then(|d| d.local_addr().ok());
        let mut connector = None;
        let Elsewhere { ports, ssds, assumed } = match &config.ssds {
            Ssds::Here(_) => {
                let at = TransportAddress { address: fabric_address, is_tls: tls.is_some() };
                let (ports, ssds) = embedded(&handle, soft, at, abouts, &daemon)?;
                Elsewhere { ports, ssds, assumed: BTreeSet::new() }
            }
            Ssds::At(addresses) => {
                let joining = Joining { engine: handle.clone(), soft, daemon, tls: ssd_tls };
                let found = elsewhere(&joining, addresses, config.patience, config.has_witness)?;
                connector = Some(Arc::new(joining) as Arc<dyn Connector>);
                found
            }
        };
        let mut settings = daemon_config(config, access, &ssds);
        (settings.connector, settings.assumed) = (connector, assumed);
        let daemon = Daemon::start(config.listen, ports, settings)?;
        let listener = listener
            .map(|listener| Listener::open(listener, handle, tls))
            .transpose()
            .map_err(os("opening the TCP listener"))?;
        let daemon_address = daemon.local_addr();
        let (daemon, powered) = (Some(daemon), Some(powered));
        let openings = Arc::clone(&config.openings);
        Ok(Self { daemon, daemon_address, listener, peers, powered, ssds, openings })
    }

    /// Address of the daemon, also after its end.
    pub fn daemon_address(&self) -> SocketAddr {
        self.daemon_address
    }

    /// Address of the SSDs for TCP.
    pub fn fabric_address(&self) -> Option<SocketAddr> {
        self.listener.as_ref().map(Listener::address)
    }

    /// The transport, for clients in this process and for fault injection.
    ///
    /// # Panics
    /// Never: it is there until the array is stopped.
    pub fn transport(&self) -> TransportHandle {
        self.powered.as_ref().expect("it runs").transport()
    }

    /// The SSDs.
    pub fn ssds(&self) -> &[SsdSummary] {
        &self.ssds
    }

    /// The daemon still serves.
    pub fn is_serving(&self) -> bool {
        self.daemon.as_ref().is_some_and(Daemon::is_serving)
    }

    /// How the array is, as its daemon says. It blocks until the daemon answers.
    ///
    /// # Errors
    /// [`DaemonError::Silent`]: the daemon has stopped, or does not answer in time.
    pub fn look(&self) -> Result<Look, DaemonError> {
        self.daemon.as_ref().map_or_else(|| Err(DaemonError::Silent("it was stopped".into())), Daemon::look)
    }

    /// Stops the daemon only; the SSDs go on.
    ///
    /// # Errors
    /// Returns the error with which the daemon ended before this call.
    pub fn stop_daemon(&mut self) -> Result<(), DaemonError> {
        self.daemon.take().map_or(Ok(()), Daemon::stop)
    }

    /// Stops the array; SSDs of this process are shut down in order.
    ///
    /// # Errors
    /// The error that ended the daemon before, or an SSD that could not be shut down.
    pub fn stop(mut self) -> Result<(), ArrayError> {
        let daemon = self.stop_daemon();
        self.listener = None;
        self.peers = None;
        self.powered.take().map_or(Ok(()), |powered| powered.shut_down_array(&self.openings))?;
        Ok(daemon?)
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        // The daemon's connections and the listener end before the transports do; the order of the fields
        // alone does not ensure that.
        self.daemon = None;
        self.listener = None;
        self.peers = None;
    }
}

/// The daemon of an array of these SSDs.
fn daemon_config(config: &ArrayConfig, access: Access, ssds: &[SsdSummary]) -> DaemonConfig {
    let mut daemon = DaemonConfig { access, ..DaemonConfig::default() };
    daemon.core.groups = config.groups;
    daemon.core.out_after_ms =
        config.out_after.map_or(u64::MAX, |after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
    daemon.core.has_witness = config.has_witness;
    daemon.core.names_addresses = matches!(config.ssds, Ssds::At(_));
    daemon.core.map_format = match (config.map_format, &config.ssds) {
        // Each process asks for one SSD only.
        (MapFormat::ByCount, Ssds::At(at)) if at.len() > 2 => MapFormat::Three,
        (format, _) => format,
    };
    let here = ssds.iter().filter_map(|ssd| ssd.here.as_ref());
    daemon.stands_in = here.filter(|about| about.came_up.stands_in()).map(About::absence).collect();
    daemon.manager_key.clone_from(&config.manager_key);
    daemon.openings = Some(Arc::clone(&config.openings));
    daemon
}

/// Binds the port at which clients of other processes reach this process's SSDs.
fn bind(config: &ArrayConfig) -> Result<Option<TcpListener>, ArrayError> {
    let Some(at) = config.fabric_listen.filter(|_| matches!(config.ssds, Ssds::Here(_))) else {
        return Ok(None);
    };
    let what = || format!("listening on {at}, where the SSDs are reached (the port after the daemon's)");
    TcpListener::bind(at).map(Some).map_err(|cause| ArrayError::Os { what: what(), cause })
}

/// The SSDs of this process, each with the manager key.
fn make_ssds(config: &ArrayConfig) -> Result<Vec<Made>, ArrayError> {
    let mut made = match &config.ssds {
        Ssds::Here(plans) => make_array(plans, &config.openings)?,
        Ssds::At(_) => Vec::new(),
    };
    let given = GivenKey { key: config.manager_key.as_ref(), replaces: config.replaces_key };
    if let Err(error) = given.give(&mut made) {
        crate::media::take_back(made);
        return Err(error.into());
    }
    Ok(made)
}

/// Starts the thread that carries questions of this process's SSDs to other SSDs.
fn start_peers(config: &ArrayConfig, transport: &TransportHandle) -> Result<Option<Peers>, ArrayError> {
    let Ssds::Here(plans) = &config.ssds else { return Ok(None) };
    let count = u16::try_from(plans.len()).expect("at most 64");
    let peers = PeersConfig { first: 0, count, manager_key: config.manager_key.clone(), tls: None };
    Peers::start(transport, peers).map(Some).map_err(os("starting the SSDs' questions"))
}

fn os(what: &str) -> impl FnOnce(std::io::Error) -> ArrayError {
    let what = what.to_owned();
    move |cause| ArrayError::Os { what, cause }
}

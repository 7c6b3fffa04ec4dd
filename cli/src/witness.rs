// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The witness of an array whose SSDs run in processes of their own: a small SSD that votes and holds no
//! blocks (rule 3a). `gnstor up --witness` has one in its process, `gnstor ssd --witness` is one.
//! The daemon reaches both as it reaches the array's other SSDs.

use crate::args::UpArgs;
use crate::key::{ArrayKey, is_loopback};
use gnstor_array::Ssds;
use gnstor_array::held_key::GivenKey;
use gnstor_array::listener::Listener;
use gnstor_array::media::{self, Plan, make_ssd};
use gnstor_array::peers::{Peers, PeersConfig};
use gnstor_array::power::{Powered, Threads};
use gnstor_console::CliError;
use gnstor_daemon::Access;
use gnstor_fabric::link::LinkConfig;
use gnstor_fabric::tcp::{ClientTls, ServerTls};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

/// Logical capacity of a witness. It has the tables of the array, and no block is written there.
pub(crate) const BYTES: u64 = 16 << 20;
/// Preset of a witness, which has no modelled times.
pub(crate) const PRESET: &str = "null";

/// Refuses voters that the daemon or the other SSDs would not reach.
///
/// # Errors
/// [`CliError::Usage`]
pub(crate) fn check(args: &UpArgs) -> Result<(), CliError> {
    check_addresses(args)?;
    if args.witness.is_none() {
        return Ok(());
    }
    let wrong = |why: String| Err(CliError::Usage(why));
    let (listen, access) = (args.listen, &args.access);
    if args.ssd_ca.is_some() && access.tls.is_empty() {
        return wrong(
            "with --ssd-ca all SSDs are reached by TLS, also the witness: name a certificate for it with \
             --tls CERT KEY, or have it in a process of its own (--witness-at)"
                .into(),
        );
    }
    let far = args.ssd_at.iter().find(|at| !is_loopback(at));
    if listen.ip().is_unspecified() {
        return wrong(format!(
            "SSDs reach the witness at the address of --listen, and {} is none that they can dial: name one \
             there, or the witness's own with --witness-at",
            listen.ip()
        ));
    }
    if let Some(far) = far.filter(|_| listen.ip().is_loopback()) {
        return wrong(format!(
            "the SSD at {far} is to reach the witness at {}, which is its own machine there: name an address \
             of this machine with --listen, or the witness's own with --witness-at",
            listen.ip()
        ));
    }
    if args.ssd_ca.is_none() && !access.insecure && !listen.ip().is_loopback() {
        return wrong(format!(
            "other machines reach the witness at {}, without TLS as the SSDs are: name the CA of the SSDs \
             with --ssd-ca, or trust the wire with --insecure",
            SocketAddr::new(listen.ip(), listen.port().saturating_add(1))
        ));
    }
    Ok(())
}

/// Refuses an address of this machine alone where an SSD of another machine asks at it for a vote.
fn check_addresses(args: &UpArgs) -> Result<(), CliError> {
    let has_voters = args.map_format != Some(2) && warning(args).is_none();
    let all = || args.ssd_at.iter().chain(&args.witness_at);
    let (own, far) = (all().find(|at| is_loopback(at)), all().find(|at| !is_loopback(at)));
    match (own, far) {
        (Some(own), Some(far)) if has_voters => Err(CliError::Usage(format!(
            "SSDs ask each other for votes at the addresses that you name, and {own} is the own machine of each: \
             the SSD at {far} would not reach it. Name the address that other machines have for it"
        ))),
        _ => Ok(()),
    }
}

/// Adds the witness as the last SSD. Starts it if it is to run in this process. It speaks TLS if the other
/// SSDs do, which are reached by `ssd_tls`.
pub(crate) fn add(
    args: &UpArgs,
    ssds: &mut Ssds,
    key: &ArrayKey,
    access: &Access,
    ssd_tls: Option<&ClientTls>,
) -> Result<Option<Witness>, CliError> {
    let Ssds::At(addresses) = ssds else { return Ok(None) };
    let has_witness = args.witness.is_some() || args.witness_at.is_some();
    if has_witness && !addresses.len().is_multiple_of(2) {
        return Err(CliError::Usage(format!(
            "a witness is for an even number of SSDs: {} have an odd number of votes without one",
            addresses.len()
        )));
    }
    addresses.extend(args.witness_at.clone());
    let Some(folder) = &args.witness else { return Ok(None) };
    let listen = args.listen;
    let port = if listen.port() == 0 { Some(0) } else { listen.port().checked_add(1) };
    let port = port.ok_or_else(|| {
        CliError::Usage("--listen needs a port below 65535: the witness takes the next one".into())
    })?;
    let index = u16::try_from(addresses.len()).unwrap_or(u16::MAX);
    let tls = match ssd_tls {
        None => None,
        Some(own) => access.server_tls().map_err(CliError::Usage)?.map(|served| (served, own.clone())),
    };
    let witness = Witness::start(folder, index, SocketAddr::new(listen.ip(), port), (key, tls))?;
    addresses.push(witness.address().to_string());
    Ok(Some(witness))
}

/// What two SSDs without a witness lack.
pub(crate) fn warning(args: &UpArgs) -> Option<&'static str> {
    let has_witness = args.witness.is_some() || args.witness_at.is_some();
    let is_alone = args.ssd_at.len() == 2 && !has_witness && args.map_format.is_none();
    is_alone.then_some(
        "two SSDs have no majority when one is lost: a fresh array keeps the places of a lost SSD, and does not \
         tell a file of another array or an old copy of a file (map format 2); --witness DIR adds a third vote",
    )
}

/// A witness in this process.
#[derive(Debug)]
pub(crate) struct Witness {
    address: SocketAddr,
    listener: Listener,
    peers: Peers,
    powered: Powered,
}

impl Witness {
    /// Starts the witness number `index`, with its contents in `folder`.
    ///
    /// # Errors
    /// [`CliError`]: a port in use, or a file that holds something else or that another process uses.
    pub(crate) fn start(
        folder: &Path,
        index: u16,
        listen: SocketAddr,
        (key, tls): (&ArrayKey, Option<(ServerTls, ClientTls)>),
    ) -> Result<Self, CliError> {
        let os = |what: String| move |cause: std::io::Error| CliError::Os { what, cause };
        let listener = TcpListener::bind(listen)
            .map_err(os(format!("listening on {listen}, where SSDs reach the witness")))?;
        std::fs::create_dir_all(folder).map_err(os(format!("making {}", folder.display())))?;
        let plan = Plan {
            index: Some(index),
            preset: Some(media::preset(PRESET)?),
            bytes: Some(BYTES),
            file: Some(folder.join("witness.gns")),
            sparse: true,
            ..Plan::default()
        };
        let mut made = [make_ssd(&plan)?];
        let given = GivenKey { key: key.secret.as_ref(), replaces: false };
        if let Err(error) = given.give(&mut made) {
            media::take_back(made);
            return Err(error.into());
        }
        let powered = Powered::on(Vec::from(made), index, LinkConfig::UNLIMITED, Threads { engines: 1 })
            .map_err(os("starting the engine of the witness".into()))?;
        let manager_key = key.secret.clone();
        let (tls, peer_tls) = tls.unzip();
        let config = PeersConfig { first: index, count: 1, manager_key, tls: peer_tls };
        let peers = Peers::start(&powered.transport(), config)
            .map_err(os("starting the questions of the witness".into()))?;
        let listener = Listener::open(listener, powered.transport(), tls)
            .map_err(os("opening the listener of the witness".into()))?;
        Ok(Self { address: listener.address(), listener, peers, powered })
    }

    /// Where the array's SSDs and its daemon reach it.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Shuts it down in order.
    ///
    /// # Errors
    /// It cannot write what it holds.
    pub(crate) fn stop(self) -> Result<(), CliError> {
        drop((self.listener, self.peers));
        Ok(self.powered.shut_down()?)
    }
}

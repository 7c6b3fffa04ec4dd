// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The witness of an array whose SSDs run in processes of their own: a small SSD that votes and holds no
//! blocks (rule 3a). `gnstor up --witness` runs one in the daemon's process, `gnstor ssd --witness` in its own.
//! The daemon reaches both as it reaches the array's other SSDs.

use crate::key::ArrayKey;
use gnstor_array::held_key::GivenKey;
use gnstor_array::listener::Listener;
use gnstor_array::media::{self, Plan, make_ssd};
use gnstor_array::peers::{Peers, PeersConfig};
use gnstor_array::power::{Powered, Threads};
use gnstor_console::CliError;
use gnstor_fabric::link::LinkConfig;
use gnstor_fabric::tcp::ServerTls;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

/// Logical capacity of a witness. It has the tables of the array, and no block is written there.
pub(crate) const BYTES: u64 = 16 << 20;
/// Its preset: a witness has no modelled times.
pub(crate) const PRESET: &str = "null";

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
        (key, tls): (&ArrayKey, Option<ServerTls>),
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
        let config = PeersConfig { first: index, count: 1, manager_key, tls: None };
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

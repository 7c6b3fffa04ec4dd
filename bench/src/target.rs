// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The array of a load: one of this process, or a running one (`--array`).

use super::args::BenchArgs;
use super::load::Load;
use gnstor_array::{Array, ArrayConfig, MapFormat, Ssds, media};
use gnstor_console::CliError;
use gnstor_deengine::Preset;
use gnstor_fabric::link::LinkConfig;
use gnstor_fabric::runtime::TransportHandle;
use libgnstor::{
    Client, CreateOptions, Error, Fabric, NOT_FOUND, RcTransport, TransportConfig, TransportThreads,
    VolumeInfo,
};
use std::net::{Ipv4Addr, SocketAddr};

/// The array.
#[derive(Debug)]
pub(super) enum Target {
    /// Daemon and SSDs of this process.
    Own(Box<Array>),
    /// A daemon at this address. This process has the clients' ends of the links.
    Running { address: String, threads: TransportThreads },
}

impl Target {
    /// Starts an array, or the clients' side of the one that was named.
    ///
    /// # Errors
    /// [`CliError`]: an array that cannot start, no thread.
    pub(super) fn start(
        args: &BenchArgs,
        load: &Load,
        preset: &Preset,
        link: LinkConfig,
    ) -> Result<Self, CliError> {
        if let Some(address) = &args.array {
            let started = TransportThreads::start(vec![RcTransport::new(TransportConfig::default())]);
            let threads = started.map_err(|cause| Error::Os { what: "starting the engine".into(), cause })?;
            return Ok(Self::Running { address: address.clone(), threads });
        }
        Ok(Self::Own(Box::new(Array::start(&ArrayConfig {
            ssds: Ssds::Here(media::in_memory(args.ssds, preset, load.ssd_bytes)),
            has_witness: false,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            fabric_listen: None,
            link,
            patience: gnstor_array::PATIENCE,
            out_after: Some(gnstor_array::OUT_AFTER),
            groups: gnstor_proto::placement::DEFAULT_GROUPS,
            // The baselines send each command once. On a machine that keeps an engine waiting for longer than
            // a serving lease they would fail.
            map_format: MapFormat::Two,
            threads: args.engines.threads(),
            manager_key: None,
            replaces_key: false,
            openings: std::sync::Arc::default(),
        })?)))
    }

    pub(super) fn transport(&self) -> TransportHandle {
        match self {
            Self::Own(array) => array.transport(),
            Self::Running { threads, .. } => threads.handle(),
        }
    }

    /// Address of the daemon.
    pub(super) fn daemon(&self) -> String {
        match self {
            Self::Own(array) => array.daemon_address().to_string(),
            Self::Running { address, .. } => address.clone(),
        }
    }

    pub(super) fn fabric(&self) -> Fabric {
        match self {
            Self::Own(_) => Fabric::InProcess,
            Self::Running { .. } => Fabric::Daemon,
        }
    }

    /// Whether its SSDs are this process's own. Then their counters and presets are known.
    pub(super) fn is_own(&self) -> bool {
        matches!(self, Self::Own(_))
    }
}

/// Name of a client's volume.
pub(super) fn volume_name(args: &BenchArgs, client: u32) -> String {
    match &args.volume {
        None => format!("bench-{client}"),
        Some(name) if args.clients == 1 => name.clone(),
        Some(name) => format!("{name}-{client}"),
    }
}

/// Creates a client's volume. An existing one is used as it is if `--overwrite` allows that. Returns whether
/// the volume was created.
///
/// # Errors
/// [`CliError`]: an existing volume that may not be overwritten or is too small; the daemon's error.
pub(super) fn volume(args: &BenchArgs, load: &Load, client: &Client, name: &str) -> Result<bool, CliError> {
    if args.array.is_some() {
        match client.get(name) {
            Ok(info) => return check(args, load, &info).map(|()| false),
            Err(Error::Daemon(status)) if status.code() == NOT_FOUND => {}
            Err(error) => return Err(error.into()),
        }
    }
    let capacity_bytes = load.volume_bytes();
    // If the number is not given, the daemon of a running array decides.
    let replicas = if args.array.is_some() { args.replicas.unwrap_or(0) } else { load.replicas };
    client.create(name, &CreateOptions { capacity_bytes, replicas, ..CreateOptions::default() })?;
    Ok(true)
}

fn check(args: &BenchArgs, load: &Load, info: &VolumeInfo) -> Result<(), CliError> {
    let VolumeInfo { name, capacity_bytes, .. } = info;
    if !args.overwrite {
        return Err(CliError::Usage(format!(
            "volume {name} exists, and the load writes over its data: give --overwrite, or name another \
             volume"
        )));
    }
    if *capacity_bytes < load.size {
        return Err(CliError::Usage(format!(
            "volume {name} has {capacity_bytes} bytes, and the load uses {}: give a smaller --size",
            load.size
        )));
    }
    Ok(())
}

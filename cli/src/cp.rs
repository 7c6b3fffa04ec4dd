// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor cp`: a file into a volume and back, through the device's own initiator.

mod fetch;
mod store;

use crate::args::CpArgs;
use crate::limits;
use gnstor_console::{CliError, Steps, human_bytes, outln, print_json};
use libgnstor::{
    Client, ConnectOptions, Device, Error, Node, RcTransport, Residency, TransportConfig, TransportThreads,
};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;

const BLOCK: u64 = libgnstor::BLOCK_BYTES;
const PART: usize = 1 << 20;
/// Standard input or output.
const STANDARD: &str = "-";
/// Length of a writer's lease. It is renewed after a third of it. The rest is as long as an I/O may wait for
/// the array. If this process is killed, others wait for the rest.
fn lease(args: &CpArgs) -> Duration {
    args.io_timeout * 3 / 2
}

/// One end of a copy.
enum End<'a> {
    File(&'a str),
    Volume(&'a str),
}

fn end(text: &str) -> End<'_> {
    text.strip_prefix("gn://").map_or(End::File(text), |name| End::Volume(name.trim_end_matches('/')))
}

/// Copies.
///
/// # Errors
/// [`CliError`] with what is wrong: an empty or unreadable file, a file larger than the volume, no such
/// volume.
pub fn run(args: &CpArgs, steps: &Steps) -> Result<(), CliError> {
    match (end(&args.from), end(&args.to)) {
        (End::File(file), End::Volume(volume)) => {
            limits::volume_name(volume)?;
            store::store(args, steps, file, volume)
        }
        (End::Volume(volume), End::File(file)) => {
            limits::volume_name(volume)?;
            fetch::fetch(args, steps, volume, file)
        }
        (End::File(_), End::File(_)) => {
            Err(CliError::Usage("one side must be a volume; write it as gn://NAME".into()))
        }
        (End::Volume(_), End::Volume(_)) => Err(CliError::Usage(
            "copying from volume to volume is not supported; copy to a file first".into(),
        )),
    }
}

/// A client of its own for this process. The engine is dropped last.
struct Connection {
    client: Arc<Client>,
    _engine: TransportThreads,
}

fn connect(args: &CpArgs) -> Result<Connection, CliError> {
    let start = |cause| Error::Os { what: "starting the engine".into(), cause };
    let engine =
        TransportThreads::start(vec![RcTransport::new(TransportConfig::default())]).map_err(start)?;
    let device = Device::open(args.device.into()).map_err(Error::from)?;
    let node = Arc::new(Node::new(engine.handle(), &device, Residency::TwoKernels).map_err(Error::from)?);
    let mut options = ConnectOptions::new(&args.array.array);
    options.credentials = args.array.credentials()?;
    options.name = "gnstor cp".into();
    options.io_timeout = args.io_timeout;
    Ok(Connection { client: Client::connect(&node, &options)?, _engine: engine })
}

fn finish(args: &CpArgs, from: &str, to: &str, bytes: u64, sha256: &str) {
    if args.array.json {
        print_json(&object(from, to, bytes, sha256));
    } else {
        outln!("{}", summary(from, to, bytes, sha256));
    }
}

/// What was copied, for programs.
fn object(from: &str, to: &str, bytes: u64, sha256: &str) -> serde_json::Value {
    json!({ "from": from, "to": to, "bytes": bytes, "sha256": sha256 })
}

fn summary(from: &str, to: &str, bytes: u64, sha256: &str) -> String {
    format!("{from} -> {to}: {} ({bytes} bytes), sha256 {sha256}", human_bytes(bytes))
}

fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

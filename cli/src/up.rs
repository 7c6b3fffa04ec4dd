// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor up`: an array in the foreground.

use crate::CliError;
use crate::args::UpArgs;
use crate::array::{Array, ArrayConfig};
use crate::demo::preset_by_name;
use crate::report::{Steps, human_bytes, print_json};
use gnstor_fabric::link::LinkConfig;
use serde::Serialize;
use std::net::SocketAddr;
use std::time::Duration;

#[derive(Serialize)]
struct Serving {
    daemon: SocketAddr,
    fabric: SocketAddr,
    ssds: u16,
    preset: String,
    ssd_bytes: u64,
}

/// Runs an array until Ctrl-C.
///
/// # Errors
/// [`CliError`]: a port in use, a preset that is not there.
pub fn run(args: &UpArgs, steps: &Steps) -> Result<(), CliError> {
    if let Some(folder) = &args.data {
        let folder = folder.display();
        return Err(CliError::Usage(format!(
            "--data {folder} is reserved: SSD contents are in memory so far and end with the process; leave it out"
        )));
    }
    let port = args.listen.port();
    let fabric_port = if port == 0 {
        0
    } else {
        port.checked_add(1)
            .ok_or_else(|| CliError::Usage("--listen needs a port below 65535: the SSDs take the next one".into()))?
    };
    let array = Array::start(&ArrayConfig {
        ssds: args.ssds,
        preset: preset_by_name(&args.preset)?,
        ssd_bytes: args.ssd_size,
        listen: args.listen,
        fabric_listen: Some(SocketAddr::new(args.listen.ip(), fabric_port)),
        link: LinkConfig::UNLIMITED,
        groups: args.groups,
    })?;
    let serving = Serving {
        daemon: array.daemon_address(),
        fabric: array.fabric_address().unwrap_or(args.listen),
        ssds: args.ssds,
        preset: args.preset.clone(),
        ssd_bytes: args.ssd_size,
    };
    if args.json {
        print_json(&serving);
    } else {
        println!(
            "  array       {} x {} of {} (emulated; contents in memory)",
            args.ssds,
            args.preset,
            human_bytes(args.ssd_size)
        );
        println!("  daemon      {} (gRPC gnstor.v1)", serving.daemon);
        println!("  SSDs        {} (RDMA messages over TCP; the link is real and not modelled)", serving.fabric);
        println!("  stop        Ctrl-C: what the volumes hold is gone then");
    }
    while !steps.interrupted() {
        if !array.is_serving() {
            return Err(CliError::Usage("the daemon has stopped; see the log (--log info)".into()));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    steps.done("stopped");
    Ok(())
}

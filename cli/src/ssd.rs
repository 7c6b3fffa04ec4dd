// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor ssd`: one SSD in a process of its own, that can be killed and comes back.
//!
//! ```text
//!   TERM, INT   goodbye, shutdown in order            next start: clean
//!   USR1        power failure, the dump succeeds      next start: with a dump
//!   KILL        the memory outlives the process       next start: with a dump
//!   a reset of the machine                            next start: lossy
//! ```

use crate::args::{MediaArgs, SsdArgs};
use crate::files::readable;
use crate::key::{self, ArrayKey};
use crate::signals;
use crate::up::disk_line;
use crate::witness;
use gnstor_array::held_key::GivenKey;
use gnstor_array::listener::Listener;
use gnstor_array::media::{self, About, CameUp, Made, Plan, make_ssd};
use gnstor_array::peers::{Peers, PeersConfig};
use gnstor_array::power::Powered;
use gnstor_array::recovery_listener::RecoveryListener;
use gnstor_console::{CliError, outln};
use gnstor_console::{Steps, human_bytes};
use gnstor_daemon::{Access, Tls};
use gnstor_fabric::link::LinkConfig;
use gnstor_fabric::tcp::{ClientTls, ServerTls};
use serde::Serialize;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[derive(Serialize)]
struct Serving<'a> {
    listen: SocketAddr,
    lossy: bool,
    /// Hosts must prove who they are.
    authentication: bool,
    #[serde(flatten)]
    about: &'a About,
}

#[derive(Serialize)]
struct Ended {
    ended: &'static str,
    dump_bytes: Option<u64>,
}

/// Runs an SSD until a signal ends it.
///
/// # Errors
/// [`CliError`]: a port in use, a file that holds something else or that another process uses.
pub fn run(args: &SsdArgs, steps: &Steps) -> Result<(), CliError> {
    let os = |what: String| move |cause: std::io::Error| CliError::Os { what, cause };
    let power_failure = signals::power_failure().map_err(os("waiting for signals".into()))?;
    let manager_key = key::of_ssd(args)?;
    let tls = tls(args)?;
    // A port in use is the likeliest error, and needs no SSD to be found.
    let listener = TcpListener::bind(args.listen).map_err(os(format!("listening on {}", args.listen)))?;
    let plan = plan(args)?;
    // Until the SSD is up, a host that connects is told to try again.
    let answer = |index| RecoveryListener::answer(&listener, index, tls.clone());
    let recovering = media::held_index(&plan).map(answer).transpose();
    let recovering = recovering.map_err(os("answering before the SSD is up".into()))?;
    if let (Some(bytes), Some(path)) = (media::new_file_bytes(&plan)?, &plan.file) {
        steps.done(disk_line(1, bytes, &path.display().to_string(), plan.sparse));
    }
    let made = with_key(&plan, &manager_key, args.replace_manager_key);
    let mut made = match made {
        Ok(made) => made,
        Err(error) => {
            manager_key.take_back();
            return Err(error);
        }
    };
    drop(recovering);
    let peer_tls = peer_tls(args)?;
    if !args.tls.is_empty() && peer_tls.is_none() {
        eprintln!(
            "gnstor: without --client-ca this SSD cannot ask others of its array: a fresh array with it keeps \
             the places of an SSD that is lost (map format 2)"
        );
        made.ssd.cannot_ask();
    }
    // Its data file may be an older image, and a daemon tells.
    made.await_daemon();
    let about = made.about.clone();
    let powered = Powered::on(vec![made], about.index, LinkConfig::UNLIMITED, args.engines.threads())
        .map_err(os("starting the engine".into()))?;
    let manager_key = manager_key.secret;
    let config = PeersConfig { first: about.index, count: 1, manager_key, tls: peer_tls };
    let peers = Peers::start(&powered.transport(), config).map_err(os("starting its questions".into()))?;
    let listener =
        Listener::open(listener, powered.transport(), tls).map_err(os("opening the TCP listener".into()))?;
    if let Some(warning) = key::ssd_warning(args) {
        eprintln!("gnstor: {warning}");
    }
    tell_start(args, &about, listener.address());
    while !steps.interrupted() && !power_failure.load(Ordering::Acquire) && powered.is_running() {
        std::thread::sleep(Duration::from_millis(20));
    }
    // A power failure takes no leave. Without the questions of `peers` no goodbye is heard.
    if !power_failure.load(Ordering::Acquire) && powered.is_running() {
        powered.say_goodbye();
    }
    drop(listener);
    drop(peers);
    let ended = if power_failure.load(Ordering::Acquire) {
        Ended { ended: "power-failure", dump_bytes: Some(powered.power_fail()?) }
    } else {
        powered.shut_down()?;
        Ended { ended: "shutdown", dump_bytes: None }
    };
    tell_end(args, &ended);
    Ok(())
}

/// The plan that the arguments describe.
fn plan(args: &SsdArgs) -> Result<Plan, CliError> {
    check_data(args)?;
    let preset = args.media.preset.as_deref().or(args.witness.then_some(witness::PRESET));
    let preset = preset.map(media::preset).transpose()?;
    let SsdArgs { index, size, format, .. } = *args;
    let bytes = size.or(args.witness.then_some(witness::BYTES));
    let MediaArgs { shared_memory: shared, sparse, retime, volatile, .. } = args.media;
    let (settings, file) = (args.media.settings.clone(), args.data.clone());
    let dh_group = args.media.dh_group.into();
    let plan = Plan { index, preset, settings, retime, bytes, file, ..Plan::default() };
    Ok(Plan { shared, sparse, volatile, format, dh_group, ..plan })
}

/// Refuses a folder, and a new file whose SSD has no capacity.
fn check_data(args: &SsdArgs) -> Result<(), CliError> {
    let Some(path) = &args.data else { return Ok(()) };
    let (meta, shown) = (std::fs::metadata(path), path.display());
    if meta.as_ref().is_ok_and(std::fs::Metadata::is_dir) {
        return Err(CliError::Usage(format!("--data {shown}: it is a folder; name a file or a device")));
    }
    let is_new = match &meta {
        Ok(meta) => meta.is_file() && meta.len() == 0,
        Err(error) => error.kind() == ErrorKind::NotFound,
    };
    if is_new && args.size.is_none() && !args.witness {
        let why = "there is no SSD in it yet: give its capacity with --size to make one";
        return Err(CliError::Usage(format!("--data {shown}: {why}")));
    }
    Ok(())
}

/// Makes the SSD, which asks hosts to prove that they know its key. If the SSD holds another key already, it
/// is shut down again.
fn with_key(plan: &Plan, key: &ArrayKey, replaces: bool) -> Result<Made, CliError> {
    let mut made = [make_ssd(plan)?];
    match (GivenKey { key: key.secret.as_ref(), replaces }).give(&mut made) {
        Ok(()) => Ok(made.into_iter().next().expect("one")),
        Err(error) => {
            media::take_back(made);
            Err(error.into())
        }
    }
}

/// Reads the files of `--tls` and `--client-ca`.
fn tls(args: &SsdArgs) -> Result<Option<ServerTls>, CliError> {
    let of_tls = args.tls.iter().map(|path| ("--tls", path));
    let all = of_tls.chain(args.client_ca.iter().map(|path| ("--client-ca", path)));
    readable(all.map(|(option, path)| (option, path.as_path())))?;
    let [certificate, key] = args.tls.as_slice() else { return Ok(None) };
    let tls = Tls::read(certificate, key, args.client_ca.as_deref()).map_err(CliError::Usage)?;
    let shown = (certificate.display(), key.display());
    let wrong = |why| CliError::Usage(format!("--tls {} {}: {why}", shown.0, shown.1));
    Access { tls: Some(tls), ..Access::default() }.server_tls().map_err(wrong)
}

/// TLS of this SSD's connections to the other SSDs of its array. One CA signs the certificates of SSDs and of
/// callers.
fn peer_tls(args: &SsdArgs) -> Result<Option<ClientTls>, CliError> {
    let ([certificate, key], Some(ca)) = (args.tls.as_slice(), &args.client_ca) else { return Ok(None) };
    let read = |path: &Path| {
        std::fs::read(path)
            .map_err(|e| CliError::File { path: path.display().to_string(), cause: e.to_string() })
    };
    let (ca_text, certificate, key) = (read(ca)?, read(certificate)?, read(key)?);
    let tls = ClientTls::new(&ca_text, Some((&certificate, &key)));
    tls.map(Some).map_err(|cause| CliError::Usage(format!("--client-ca {}: {cause}", ca.display())))
}

fn tell_start(args: &SsdArgs, about: &About, listen: SocketAddr) {
    if args.json {
        return print_line(&Serving {
            listen,
            lossy: about.came_up == CameUp::Lossy,
            authentication: !args.no_auth,
            about,
        });
    }
    let place = about.data.as_ref().map_or("in memory".into(), |path| path.display().to_string());
    outln!(
        "  SSD         {}, {} of {} (emulated), serial {}",
        about.index,
        about.preset,
        human_bytes(about.bytes),
        about.serial
    );
    if !about.changed.is_empty() {
        outln!("  changed     {}", about.changed.join(", "));
    }
    outln!("  contents    {place}");
    if let Some(memory) = &about.memory {
        outln!("  memory      {} can be mapped by other processes", memory.display());
    }
    outln!("  came up     {}", about.came_up.sentence());
    if let Some(why) = &about.lost {
        outln!("  because     {why}");
    }
    outln!("  listens     {listen} (RDMA messages over TCP)");
    if args.no_auth {
        outln!("  no-auth     each host that reaches it may {}", key::MAY_ALL);
    }
    let pid = std::process::id();
    outln!("  stop        Ctrl-C or TERM: in order; kill -USR1 {pid}: a power failure with a dump");
}

fn tell_end(args: &SsdArgs, ended: &Ended) {
    if args.json {
        return print_line(ended);
    }
    match ended.dump_bytes {
        Some(bytes) => outln!("  power       failed; the dump has {bytes} bytes"),
        None => outln!("  power       off, after a shutdown in order"),
    }
}

fn print_line(value: &impl Serialize) {
    outln!("{}", serde_json::to_string(value).expect("plain data serialises"));
}

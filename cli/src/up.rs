// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor up`: an array in the foreground.

use crate::args::{AccessArgs, UpArgs};
use crate::files::readable;
use crate::key;
use crate::up_watch::{PAUSE, Watch};
use crate::witness::{self, Witness};
use gnstor_array::media::{self, CameUp, Plan};
use gnstor_array::{Array, ArrayConfig, MapFormat, SsdSummary, Ssds, check_ssds};
use gnstor_console::{CliError, outln};
use gnstor_console::{Steps, human_bytes, print_json, printable};
use gnstor_daemon::{Access, Openings, Tls, Tokens, openings};
use gnstor_fabric::link::LinkConfig;
use gnstor_fabric::tcp::ClientTls;
use serde::Serialize;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;

/// Number of checks for Ctrl-C between two checks of the array.
const PAUSES: u32 = 10;

#[derive(Serialize)]
struct Serving<'a> {
    daemon: SocketAddr,
    /// Address of this process's SSDs; null if they are processes of their own.
    fabric: Option<SocketAddr>,
    ssds: usize,
    /// Preset and capacity of SSD 0; null where it is not known or not of this process.
    preset: Option<&'a str>,
    ssd_bytes: u64,
    ssd_list: &'a [SsdSummary],
    /// Hosts must prove to the SSDs who they are.
    authentication: bool,
    /// The file with the manager key; null if the key is in memory only, or there is none.
    manager_key: Option<&'a Path>,
}

/// Runs an array until Ctrl-C.
///
/// # Errors
/// [`CliError`]: a port in use, a preset that is not there, an SSD that does not answer.
pub fn run(args: &UpArgs, steps: &Steps) -> Result<(), CliError> {
    fabric_port(args)?;
    is_free(args.listen)?;
    let access = access(&args.access)?;
    if let Some(objection) = access.objection(args.listen) {
        return Err(CliError::Usage(objection));
    }
    if let Some(warning) = access.warning(args.listen) {
        eprintln!("gnstor: {warning}");
    }
    if !args.standby_of.is_empty() {
        return crate::standby::run(args, steps, || serve(args, access.clone(), steps));
    }
    let is_new_folder = args.data.as_ref().is_some_and(|folder| !folder.exists());
    let served = serve(args, access, steps);
    if let Some(folder) = args.data.as_ref().filter(|_| is_new_folder && served.is_err()) {
        // Only an empty folder goes: nothing was made in it.
        _ = std::fs::remove_dir(folder);
    }
    served
}

/// Runs the array for these callers.
fn serve(args: &UpArgs, access: Access, steps: &Steps) -> Result<(), CliError> {
    let mut ssds = ssds(args)?;
    if let Some(warning) = memory_warning(&ssds, gnstor_console::free_memory()) {
        eprintln!("gnstor: {warning}");
    }
    let openings = openings(args)?;
    announce_disk(args, &ssds, steps)?;
    let key = key::of_array(args)?;
    let ssd_tls = args.ssd_ca.as_deref().map(|ca| ssd_tls(ca, &access)).transpose()?;
    let witness = witness::add(args, &mut ssds, &key, &access, ssd_tls.as_ref())?;
    let config = ArrayConfig {
        ssds,
        has_witness: args.witness.is_some() || args.witness_at.is_some(),
        listen: args.listen,
        fabric_listen: Some(SocketAddr::new(args.listen.ip(), fabric_port(args)?)),
        link: LinkConfig::UNLIMITED,
        patience: if args.standby_of.is_empty() { gnstor_array::PATIENCE } else { crate::standby::PATIENCE },
        out_after: args.out_after.0,
        groups: args.groups,
        map_format: match args.map_format {
            None => MapFormat::ByCount,
            Some(2) => MapFormat::Two,
            Some(_) => MapFormat::Three,
        },
        threads: args.engines.threads(),
        manager_key: key.secret.clone(),
        replaces_key: args.replace_manager_key,
        openings: Arc::new(openings),
    };
    let array = match Array::start_secured(&config, access, ssd_tls) {
        Ok(array) => array,
        Err(error) => {
            key.take_back();
            if let Some(witness) = witness {
                witness.stop()?;
            }
            return Err(error.into());
        }
    };
    tell(args, &array, key.file.as_deref());
    wait_for_interrupt(args, &array, steps)?;
    array.stop()?;
    witness.map_or(Ok(()), Witness::stop)?;
    steps.done("stopped");
    Ok(())
}

/// The port of the array's own SSDs.
fn fabric_port(args: &UpArgs) -> Result<u16, CliError> {
    match args.listen.port() {
        port if port == 0 || !args.ssd_at.is_empty() => Ok(port),
        port => port.checked_add(1).ok_or_else(|| {
            CliError::Usage("--listen needs a port below 65535: the SSDs take the next one".into())
        }),
    }
}

/// The warning about SSDs in memory that can hold more than this machine has free.
fn memory_warning(ssds: &Ssds, free: Option<u64>) -> Option<String> {
    let Ssds::Here(plans) = ssds else { return None };
    let in_memory = plans.iter().filter(|plan| plan.file.is_none());
    let bytes = in_memory.map(|plan| plan.bytes.unwrap_or(media::DEFAULT_BYTES)).fold(0, u64::saturating_add);
    let free = free.filter(|free| *free < bytes)?;
    Some(format!(
        "the SSDs are in memory and can hold {}, and this machine has {} of memory available: the system may \
         end this process when they fill; use fewer or smaller ones (--ssds, --ssd-size), or files (--data)",
        human_bytes(bytes),
        human_bytes(free)
    ))
}

/// Refuses the daemon's port if it is in use. The array opens the port of its SSDs first, and a person looks
/// for the one that the option names.
fn is_free(listen: SocketAddr) -> Result<(), CliError> {
    match TcpListener::bind(listen) {
        Err(cause) if cause.kind() == ErrorKind::AddrInUse => Err(CliError::Stopped(format!(
            "--listen {listen}: {cause}; choose another address, or stop the program that uses it"
        ))),
        // Anything else is told when the array starts.
        _ => Ok(()),
    }
}

/// Tells what changes in the array, until Ctrl-C.
fn wait_for_interrupt(args: &UpArgs, array: &Array, steps: &Steps) -> Result<(), CliError> {
    let (mut watch, mut pauses) = (Watch::new(args.json), 0u32);
    while !steps.interrupted() {
        if !array.is_serving() {
            return Err(CliError::Stopped("the daemon has stopped; see the log (--log info)".into()));
        }
        if pauses.is_multiple_of(PAUSES) {
            watch.look(array);
        }
        pauses += 1;
        std::thread::sleep(PAUSE / PAUSES);
    }
    Ok(())
}

/// The daemon's numbers of openings: beside the data files, or where the daemon is given a folder.
fn openings(args: &UpArgs) -> Result<Openings, CliError> {
    let folder = args.data.as_ref().or(args.state.as_ref()).or(args.witness.as_ref());
    let Some(folder) = folder else { return Ok(Openings::in_memory()) };
    if args.state.is_some() {
        let failed =
            |e: std::io::Error| CliError::File { path: folder.display().to_string(), cause: e.to_string() };
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    Openings::in_file(&folder.join(openings::FILE_NAME)).map_err(CliError::Stopped)
}

/// How the SSDs of `--ssd-at` are reached by TLS: the daemon's own certificate proves it.
fn ssd_tls(ca: &Path, access: &Access) -> Result<ClientTls, CliError> {
    readable([("--ssd-ca", ca)])?;
    let file = |cause: String| CliError::Usage(format!("--ssd-ca {}: {cause}", ca.display()));
    let text = std::fs::read(ca).map_err(|e| file(e.to_string()))?;
    let own = access.tls.as_ref().map(|tls| (tls.certificate.as_slice(), tls.key.as_slice()));
    ClientTls::new(&text, own).map_err(file)
}

/// Reads the files that callers are proven by.
fn access(args: &AccessArgs) -> Result<Access, CliError> {
    let of_tls = args.tls.iter().map(|path| ("--tls", path));
    let others = [("--client-ca", &args.client_ca), ("--tokens", &args.tokens)];
    let others = others.into_iter().filter_map(|(option, path)| Some((option, path.as_ref()?)));
    readable(of_tls.chain(others).map(|(option, path)| (option, path.as_path())))?;
    let tls = match args.tls.as_slice() {
        [certificate, key] => {
            Some(Tls::read(certificate, key, args.client_ca.as_deref()).map_err(CliError::Usage)?)
        }
        _ => None,
    };
    let tokens = args.tokens.as_deref().map(Tokens::read).transpose().map_err(CliError::Usage)?;
    let access = Access {
        tls,
        tokens,
        admins: args.admins.clone(),
        creators: args.creators.clone(),
        insecure: args.insecure,
    };
    if let Err(why) = access.server_tls() {
        let files = args.tls.iter().chain(&args.client_ca).map(|path| path.display().to_string());
        let files = files.collect::<Vec<_>>().join(", ");
        return Err(CliError::Usage(format!("--tls and --client-ca ({files}): {why}")));
    }
    if !access.is_proven() && (!access.admins.is_empty() || access.creators.is_some()) {
        let why = "--admins and --creators need callers that are proven: use --client-ca CA or --tokens FILE";
        return Err(CliError::Usage(why.into()));
    }
    Ok(access)
}

/// Prints the disk space of new data files before they take it.
fn announce_disk(args: &UpArgs, ssds: &Ssds, steps: &Steps) -> Result<(), CliError> {
    let (Ssds::Here(plans), Some(folder)) = (ssds, &args.data) else { return Ok(()) };
    let sizes = plans.iter().map(media::new_file_bytes).collect::<Result<Vec<_>, _>>()?;
    let new: Vec<u64> = sizes.into_iter().flatten().collect();
    if !new.is_empty() {
        steps.done(disk_line(new.len(), new.iter().sum(), &folder.display().to_string(), args.media.sparse));
    }
    Ok(())
}

/// The disk space of new data files, in words.
pub(crate) fn disk_line(files: usize, bytes: u64, path: &str, sparse: bool) -> String {
    let when = if sparse { "as it is written" } else { "now; --sparse takes it as it is written" };
    let noun = if files == 1 { "file is to take" } else { "files are to take" };
    let size = human_bytes(bytes);
    format!(
        "disk        {files} new {noun} {size} of {path} {when} (flash spare space, records and dump \
         included)"
    )
}

/// Refuses words that only an array of SSDs in processes of their own has. (The parser of the command line
/// does not, where another word excludes `--ssd-at`.)
fn needs_ssd_at(args: &UpArgs) -> Result<(), CliError> {
    let words = [
        ("--witness", args.witness.is_some()),
        ("--witness-at", args.witness_at.is_some()),
        ("--standby-of", !args.standby_of.is_empty()),
        ("--state", args.state.is_some()),
        ("--ssd-ca", args.ssd_ca.is_some()),
        ("--no-auth", args.no_auth),
    ];
    match words.iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((word, _)) => Err(CliError::Usage(format!(
            "{word} is for SSDs in processes of their own (gnstor ssd): name them with --ssd-at"
        ))),
    }
}

fn ssds(args: &UpArgs) -> Result<Ssds, CliError> {
    if !args.ssd_at.is_empty() {
        witness::check(args)?;
        return Ok(Ssds::At(args.ssd_at.clone()));
    }
    needs_ssd_at(args)?;
    let preset = args.media.preset.as_deref().map(media::preset).transpose()?;
    if let Some(count) = args.ssds {
        check_ssds(count.into())?;
    }
    let (settings, bytes) = (args.media.settings.clone(), args.ssd_size);
    let like = Plan { preset, settings, retime: args.media.retime, bytes, ..Plan::default() };
    let like = Plan { shared: args.media.shared_memory, sparse: args.media.sparse, ..like };
    let like = Plan { volatile: args.media.volatile, dh_group: args.media.dh_group.into(), ..like };
    let like = Plan { begins_anew: args.begin_anew, ..like };
    if let Some(folder) = &args.data {
        return Ok(Ssds::Here(media::in_folder(folder, args.ssds, &like)?));
    }
    let plan = |index| Plan { index: Some(index), ..like.clone() };
    Ok(Ssds::Here((0..args.ssds.unwrap_or(media::DEFAULT_SSDS)).map(plan).collect()))
}

fn tell(args: &UpArgs, array: &Array, manager_key: Option<&Path>) {
    if let Some(warning) = witness::warning(args) {
        eprintln!("gnstor: {warning}");
    }
    let list = array.ssds();
    let first = list.first().and_then(|ssd| ssd.here.as_ref());
    let fabric = array.fabric_address();
    if args.json {
        return print_json(&Serving {
            daemon: array.daemon_address(),
            fabric,
            ssds: list.len(),
            preset: first.map(|about| about.preset.as_str()),
            ssd_bytes: list.first().map_or(0, |ssd| ssd.bytes),
            ssd_list: list,
            authentication: !args.no_auth,
            manager_key,
        });
    }
    for SsdSummary { index, bytes, model, address, here } in list {
        let size = human_bytes(*bytes);
        match here {
            None => outln!("  SSD {index:<7} {address}: {model}, {size}"),
            Some(about) if about.came_up == CameUp::InMemory => {}
            Some(about) => {
                outln!("  SSD {index:<7} {} of {size}, {}", about.preset, about.came_up.sentence());
                if let Some(why) = &about.lost {
                    outln!("  because     {}", printable(why));
                }
            }
        }
    }
    if list.iter().filter_map(|ssd| ssd.here.as_ref()).any(|about| about.is_numbered_now) {
        outln!(
            "  files       made before arrays had numbers: that all are of one array cannot be known; a file"
        );
        outln!("              of another array is told from the next start on");
    }
    let in_memory = first.is_some_and(|about| about.came_up == CameUp::InMemory);
    if let Some(about) = first.filter(|_| in_memory) {
        let size = human_bytes(about.bytes);
        outln!("  array       {} x {} of {size} (emulated; contents in memory)", list.len(), about.preset);
    }
    outln!("  daemon      {} (gRPC gnstor.v1)", array.daemon_address());
    if let Some(fabric) = fabric {
        outln!("  SSDs        {fabric} (RDMA messages over TCP; the link is real and not modelled)");
    }
    if args.no_auth {
        outln!("  no-auth     each host that reaches an SSD may {}", key::MAY_ALL);
    }
    if let Some(key) = manager_key {
        outln!("  key         {} (gnstor ssd log --manager-key)", printable(&key.display().to_string()));
    }
    if in_memory {
        outln!("  stop        Ctrl-C: what the volumes hold is gone then");
    } else {
        outln!("  stop        Ctrl-C: what the volumes hold stays");
    }
}

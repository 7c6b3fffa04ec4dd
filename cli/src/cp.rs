// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor cp`: a file into a volume and back, through the device's own initiator.

use crate::args::CpArgs;
use gnstor_console::{CliError, Steps, human_bytes, out, outln, print_json};
use libgnstor::{
    Client, ConnectOptions, CreateOptions, Device, Error, Node, RcTransport, Residency, Rights,
    TransportConfig, TransportThreads, VolumeInfo,
};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const BLOCK: u64 = libgnstor::BLOCK_BYTES;
const PART: usize = 1 << 20;
/// Standard input or output.
const STANDARD: &str = "-";
/// Links that lead to links.
const MOST_LINKS: usize = 40;
/// Renewed every ten seconds. Where this process is killed, others wait for the rest of it.
const LEASE: Duration = Duration::from_secs(30);
/// Label that keeps the length of the file in the volume: volumes are whole blocks, files are not.
const SIZE_LABEL: &str = "gnstor.cp.bytes";

enum Place<'a> {
    File(&'a str),
    Volume(&'a str),
}

fn place(text: &str) -> Place<'_> {
    text.strip_prefix("gn://").map_or(Place::File(text), |name| Place::Volume(name.trim_end_matches('/')))
}

/// Copies.
///
/// # Errors
/// [`CliError`] with what is wrong: an empty or unreadable file, a file larger than the volume, no such
/// volume.
pub fn run(args: &CpArgs, steps: &Steps) -> Result<(), CliError> {
    match (place(&args.from), place(&args.to)) {
        (Place::File(file), Place::Volume(volume)) => store(args, steps, file, volume),
        (Place::Volume(volume), Place::File(file)) => fetch(args, steps, volume, file),
        (Place::File(_), Place::File(_)) => {
            Err(CliError::Usage("one side must be a volume; write it as gn://NAME".into()))
        }
        (Place::Volume(_), Place::Volume(_)) => Err(CliError::Usage(
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
    options.credentials = args.array.credentials();
    options.name = "gnstor cp".into();
    Ok(Connection { client: Client::connect(&node, &options)?, _engine: engine })
}

/// What is copied into a volume: so many bytes from a reader.
struct Source {
    reader: Box<dyn Read>,
    bytes: u64,
}

/// Opens a file, a device, a pipe or standard input (`-`). A pipe whose length is not given goes through a
/// temporary file, because a volume is made with its length.
fn source(args: &CpArgs, steps: &Steps, path: &str) -> Result<Source, CliError> {
    let failed = |e: std::io::Error| CliError::File { path: path.into(), cause: e.to_string() };
    let mut file = if path == STANDARD {
        std::io::stdin().as_fd().try_clone_to_owned().map(std::fs::File::from).map_err(failed)?
    } else {
        std::fs::File::open(path).map_err(failed)?
    };
    let metadata = file.metadata().map_err(failed)?;
    let kind = metadata.file_type();
    let bytes = if metadata.is_file() {
        // Standard input may have been read in part.
        metadata.len().saturating_sub(file.stream_position().map_err(failed)?)
    } else if kind.is_block_device() {
        let end = file.seek(SeekFrom::End(0)).map_err(failed)?;
        file.rewind().map_err(failed)?;
        end
    } else if metadata.is_dir() {
        let cause = "it is a directory, not a regular file, a device or a pipe".to_owned();
        return Err(CliError::File { path: path.into(), cause });
    } else if let Some(bytes) = args.size {
        bytes
    } else if kind.is_char_device() && path != STANDARD {
        return Err(CliError::Usage(format!("{path} has no length: give --size")));
    } else {
        let (spooled, bytes) = spool(file, steps).map_err(failed)?;
        file = spooled;
        bytes
    };
    if steps.interrupted() {
        return Err(CliError::Interrupted);
    }
    if let Some(size) = args.size.filter(|size| *size > bytes) {
        return Err(CliError::Usage(format!("--size {size} is more than the {bytes} bytes of {path}")));
    }
    Ok(Source { reader: Box::new(file), bytes: args.size.unwrap_or(bytes) })
}

/// Reads all of a pipe into a temporary file without a name.
fn spool(mut from: std::fs::File, steps: &Steps) -> std::io::Result<(std::fs::File, u64)> {
    let mut spooled = tempfile::tempfile()?;
    let mut part = vec![0; PART];
    let mut bytes = 0;
    while !steps.interrupted() {
        let count = from.read(&mut part)?;
        if count == 0 {
            break;
        }
        spooled.write_all(&part[..count])?;
        bytes += count as u64;
    }
    spooled.rewind()?;
    Ok((spooled, bytes))
}

/// The volume, created for so many bytes where there is none.
fn volume_for(args: &CpArgs, client: &Client, volume: &str, bytes: u64) -> Result<VolumeInfo, CliError> {
    match client.get(volume) {
        Err(Error::Daemon(status)) if status.code() == libgnstor::NOT_FOUND => {
            let labels = [(SIZE_LABEL.to_owned(), bytes.to_string())].into();
            let (capacity_bytes, replicas) = (bytes.next_multiple_of(64 << 10), args.replicas);
            let options = CreateOptions { capacity_bytes, replicas, labels, ..CreateOptions::default() };
            Ok(client.create(volume, &options)?)
        }
        found => Ok(found?),
    }
}

/// So many bytes fit, and the volume keeps no other length.
fn check_length(info: &VolumeInfo, bytes: u64) -> Result<(), String> {
    let VolumeInfo { name, capacity_bytes, .. } = info;
    if let Some(other) = length_of(&info.labels).filter(|other| *other != bytes) {
        return Err(format!(
            "volume {name} was made for a file of {other} bytes, and one of {bytes} would be read back with that length; \
             delete the volume first (gnstor volume delete {name}), or copy into another one"
        ));
    }
    if bytes > *capacity_bytes {
        let (size, room) = (human_bytes(bytes), human_bytes(*capacity_bytes));
        return Err(format!("{size} do not fit into volume {name} of {room}"));
    }
    Ok(())
}

fn store(args: &CpArgs, steps: &Steps, path: &str, volume: &str) -> Result<(), CliError> {
    let failed = |cause: String| CliError::File { path: path.into(), cause };
    let Source { reader: mut file, bytes } = source(args, steps, path)?;
    if bytes == 0 {
        return Err(failed("the file is empty: there is nothing to copy".into()));
    }
    let connection = connect(args)?;
    let client = &connection.client;
    let info = volume_for(args, client, volume, bytes)?;
    let recorded = length_of(&info.labels);
    check_length(&info, bytes).map_err(failed)?;
    let target = client.open_for(volume, Rights::Write, LEASE)?;
    let bar = steps.bytes("write", bytes);
    let mut hash = Sha256::new();
    let mut part = vec![0; PART];
    let mut at = 0;
    while at < bytes {
        if steps.interrupted() {
            return Err(CliError::Interrupted);
        }
        let want = PART.min(usize::try_from(bytes - at).unwrap_or(PART));
        file.read_exact(&mut part[..want])
            .map_err(|e| failed(format!("it ended early or cannot be read: {e}")))?;
        hash.update(&part[..want]);
        let whole = want.next_multiple_of(usize::try_from(BLOCK).expect("small"));
        part[want..whole].fill(0);
        target.write_at(at, &part[..whole])?;
        at += want as u64;
        bar.set_position(at);
    }
    target.flush()?;
    bar.finish_and_clear();
    finish(args, path, &format!("gn://{volume}"), bytes, hash);
    if recorded.is_none() && bytes < info.capacity_bytes {
        steps.done(format!(
            "volume {volume} was not made by gnstor cp and keeps no length of the file: copy it out with --size {bytes}"
        ));
    }
    Ok(())
}

fn fetch(args: &CpArgs, steps: &Steps, volume: &str, path: &str) -> Result<(), CliError> {
    let failed = |cause: String| CliError::File { path: path.into(), cause };
    let target = target(path).map_err(failed)?;
    let connection = connect(args)?;
    let source = connection.client.open(volume, Rights::Read)?;
    let recorded = length_of(&source.info().labels);
    let capacity = source.info().capacity_bytes;
    let bytes = args.size.or(recorded).unwrap_or(capacity);
    if bytes > capacity {
        return Err(CliError::Usage(format!("--size {bytes} is more than the volume's {capacity} bytes")));
    }
    if args.size.is_none() && recorded.is_none() {
        steps.done(format!("volume {volume} keeps no length of a file: all of it is copied"));
    }
    let hash = match target {
        Target::Direct => {
            let is_stdout = is_stdout(path);
            let file = if path == STANDARD {
                std::io::stdout().as_fd().try_clone_to_owned().map(std::fs::File::from)
            } else {
                std::fs::File::create(path)
            };
            let mut file = file.map_err(|e| failed(e.to_string()))?;
            let copied = fetch_into(&source, steps, bytes, &mut file);
            let hash = match copied {
                // The reader of the pipe went away: end as other filters do.
                Err(Fetch::Write(e)) if is_stdout && e.kind() == ErrorKind::BrokenPipe => {
                    out::note(Err(e));
                    return Ok(());
                }
                copied => copied.map_err(|e| e.at(path))?,
            };
            if is_stdout {
                // Nothing else goes there.
                steps.done(summary(&format!("gn://{volume}"), path, bytes, &hex(hash)));
                return Ok(());
            }
            hash
        }
        Target::File(whole) => {
            // Under another name until it is whole: an interrupted copy never looks like a finished one.
            let mut partial = whole.clone().into_os_string();
            partial.push(".gnstor-partial");
            let shown = Path::new(&partial).display().to_string();
            let copied = std::fs::File::create(&partial).map_err(Fetch::Write).and_then(|mut file| {
                let hash = fetch_into(&source, steps, bytes, &mut file)?;
                std::fs::rename(&partial, &whole).map_err(Fetch::Write)?;
                Ok(hash)
            });
            let copied = copied.map_err(|e| e.at(&shown));
            copied.inspect_err(|_| _ = std::fs::remove_file(&partial))?
        }
    };
    finish(args, &format!("gn://{volume}"), path, bytes, hash);
    Ok(())
}

/// What a volume is copied into.
enum Target {
    /// A file, new or in place of this one: what a link leads to, not the link.
    File(PathBuf),
    /// A device or a pipe, which stays what it is.
    Direct,
}

fn target(path: &str) -> Result<Target, String> {
    if path == STANDARD {
        return Ok(Target::Direct);
    }
    match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            // Before anything is copied: where it goes must be there. A link may lead to what is not there
            // yet.
            let mut path = PathBuf::from(path);
            for _ in 0..MOST_LINKS {
                let Ok(to) = std::fs::read_link(&path) else { break };
                path = path.with_file_name("").join(to);
            }
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            folder
                .map_or(Ok(()), |folder| std::fs::metadata(folder).map(|_| ()).map_err(|e| e.to_string()))?;
            Ok(Target::File(path))
        }
        Err(error) => Err(error.to_string()),
        Ok(there) if there.is_dir() => Err("it is a directory; name the file in it".into()),
        Ok(there) if there.is_file() => {
            Ok(Target::File(std::fs::canonicalize(path).map_err(|e| e.to_string())?))
        }
        Ok(_) => Ok(Target::Direct),
    }
}

/// Whether the path leads to what this process has for standard output.
fn is_stdout(path: &str) -> bool {
    if path == STANDARD {
        return true;
    }
    let identity = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino(), metadata.rdev());
    let stdout = std::io::stdout().as_fd().try_clone_to_owned().map(std::fs::File::from);
    let same = |stdout: std::fs::File| Ok(identity(stdout.metadata()?) == identity(std::fs::metadata(path)?));
    stdout.and_then(same).unwrap_or(false)
}

/// The length of the file that the volume was made for.
fn length_of(labels: &BTreeMap<String, String>) -> Option<u64> {
    labels.get(SIZE_LABEL)?.parse().ok()
}

/// Why a volume is not copied out.
enum Fetch {
    Write(std::io::Error),
    Other(CliError),
}

impl Fetch {
    /// The error of a copy into this file.
    fn at(self, path: &str) -> CliError {
        match self {
            Self::Write(e) => CliError::File { path: path.into(), cause: e.to_string() },
            Self::Other(e) => e,
        }
    }
}

fn fetch_into(
    source: &libgnstor::File,
    steps: &Steps,
    bytes: u64,
    file: &mut std::fs::File,
) -> Result<Sha256, Fetch> {
    let bar = steps.bytes("read", bytes);
    let mut hash = Sha256::new();
    let mut part = vec![0; PART];
    let mut at = 0;
    while at < bytes {
        if steps.interrupted() {
            return Err(Fetch::Other(CliError::Interrupted));
        }
        let want = PART.min(usize::try_from(bytes - at).unwrap_or(PART));
        let whole = want.next_multiple_of(usize::try_from(BLOCK).expect("small"));
        source.read_at(at, &mut part[..whole]).map_err(|e| Fetch::Other(e.into()))?;
        hash.update(&part[..want]);
        file.write_all(&part[..want]).map_err(Fetch::Write)?;
        at += want as u64;
        bar.set_position(at);
    }
    match file.sync_all() {
        // A pipe or a terminal has nothing to be synced.
        Err(error) if error.kind() == ErrorKind::InvalidInput => {}
        synced => synced.map_err(Fetch::Write)?,
    }
    bar.finish_and_clear();
    Ok(hash)
}

fn finish(args: &CpArgs, from: &str, to: &str, bytes: u64, hash: Sha256) {
    let sha256 = hex(hash);
    if args.array.json {
        print_json(&json!({ "from": from, "to": to, "bytes": bytes, "sha256": sha256 }));
    } else {
        outln!("{}", summary(from, to, bytes, &sha256));
    }
}

fn summary(from: &str, to: &str, bytes: u64, sha256: &str) -> String {
    format!("{from} -> {to}: {} ({bytes} bytes), sha256 {sha256}", human_bytes(bytes))
}

fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

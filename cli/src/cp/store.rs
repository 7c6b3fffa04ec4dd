// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file into a volume: under a temporary name until it is whole.
//!
//! ```text
//!   create NAME.partial-XXXX --> write, flush --> publish as NAME with length and sum --> the old NAME goes
//!                                   '--failed, Ctrl-C--> delete NAME.partial-XXXX
//! ```
//! A killed copy leaves its temporary volume; the old NAME is as it was.

use super::{BLOCK, PART, STANDARD, connect, finish, hex, lease};
use crate::args::CpArgs;
use gnstor_console::{CliError, Steps, human_bytes};
use libgnstor::labels::{LENGTH, OWNER, PARTIAL, REPLACES, SHA256};
use libgnstor::{Client, CreateOptions, Error, Rights, VolumeInfo};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Longest name of a volume.
const NAME: usize = 64;
/// A volume of a copy has whole chunks.
const CHUNK: u64 = 64 << 10;
/// Interval at which a copy that waits for its source checks for Ctrl-C.
const TICK: Duration = Duration::from_millis(100);

/// The data to copy into a volume: a number of bytes from a reader.
struct Source {
    reader: std::fs::File,
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
    Ok(Source { reader: file, bytes: args.size.unwrap_or(bytes) })
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

/// Reads the source in parts, ahead of the writes. A source that gives nothing for long does not keep Ctrl-C
/// from being seen.
struct Parts(Receiver<std::io::Result<Vec<u8>>>);

impl Parts {
    #[expect(
        clippy::disallowed_methods,
        reason = "a read of a pipe cannot be ended: its thread is left to it"
    )]
    fn of(mut source: Source) -> Self {
        let (parts, taken) = mpsc::sync_channel(1);
        std::thread::spawn(move || {
            let mut left = source.bytes;
            while left > 0 {
                let want = PART.min(usize::try_from(left).unwrap_or(PART));
                let mut part = vec![0; want];
                let read = source.reader.read_exact(&mut part).map(|()| part);
                left -= want as u64;
                let failed = read.is_err();
                if parts.send(read).is_err() || failed {
                    return;
                }
            }
        });
        Self(taken)
    }

    fn next(&self, steps: &Steps, path: &str) -> Result<Vec<u8>, CliError> {
        loop {
            if steps.interrupted() {
                return Err(CliError::Interrupted);
            }
            let cause = match self.0.recv_timeout(TICK) {
                Ok(Ok(part)) => return Ok(part),
                Ok(Err(error)) => error.to_string(),
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => "its reader ended".into(),
            };
            let cause = format!("it ended early or cannot be read: {cause}");
            return Err(CliError::File { path: path.into(), cause });
        }
    }
}

/// A name that no other copy uses. The daemon refuses one that is in use anyway.
fn temporary(volume: &str) -> String {
    let number = RandomState::new().build_hasher().finish() >> 32;
    let tail = format!(".partial-{number:08x}");
    let kept: String = volume.chars().take(NAME - tail.len()).collect();
    kept + &tail
}

/// Options of the volume to create: a new one of this size, or one like the volume that it replaces. If that
/// one was created with a size of its own, the size stays.
fn options(
    args: &CpArgs,
    old: Option<&VolumeInfo>,
    volume: &str,
    bytes: u64,
) -> Result<CreateOptions, CliError> {
    let mut options = CreateOptions {
        capacity_bytes: bytes.next_multiple_of(CHUNK),
        replicas: args.replicas.unwrap_or(0),
        ..CreateOptions::default()
    };
    if let Some(old) = old {
        if let Some(writer) = old.writer {
            return Err(CliError::Stopped(format!(
                "volume {volume} cannot be replaced: client {writer} holds its write lease; have it release \
                 the volume, or try again later"
            )));
        }
        let length = old.labels.get(LENGTH).and_then(|length| length.parse::<u64>().ok());
        if length.is_none_or(|length| length.next_multiple_of(CHUNK) != old.capacity_bytes) {
            if bytes > old.capacity_bytes {
                let (size, room) = (human_bytes(bytes), human_bytes(old.capacity_bytes));
                let cause = format!("{size} do not fit into volume {volume} of {room}");
                return Err(CliError::File { path: args.from.clone(), cause });
            }
            options.capacity_bytes = old.capacity_bytes;
        }
        if options.replicas == 0 {
            options.replicas = old.replicas;
        }
        options.chunk_bytes = old.chunk_bytes;
        options.labels = old.labels.clone();
        // Rights go with the name: the daemon gives the new volume those of the old one.
        let is_own = |key: &str| [LENGTH, SHA256, REPLACES].contains(&key) || key.starts_with(OWNER);
        options.labels.retain(|key, _| !is_own(key));
        options.max_iops = old.max_iops;
        options.max_bytes_per_s = old.max_bytes_per_s;
    }
    options.labels.insert(PARTIAL.into(), volume.into());
    Ok(options)
}

/// Copies a file into a volume of this name.
pub(super) fn store(args: &CpArgs, steps: &Steps, path: &str, volume: &str) -> Result<(), CliError> {
    if args.partial {
        return Err(CliError::Usage("--partial is for copies out of a volume".into()));
    }
    let source = source(args, steps, path)?;
    let bytes = source.bytes;
    if bytes == 0 {
        let cause = "the file is empty: there is nothing to copy".into();
        return Err(CliError::File { path: path.into(), cause });
    }
    let connection = connect(args)?;
    let client = &connection.client;
    let old = match client.get(volume) {
        Err(Error::Daemon(status)) if status.code() == libgnstor::NOT_FOUND => None,
        found => Some(found?),
    };
    let partial = client.create(&temporary(volume), &options(args, old.as_ref(), volume, bytes)?)?;
    let stored = fill(client, steps, &partial, source, args).and_then(|(hash, open)| {
        let sum = hex(hash);
        let labels = [(LENGTH.into(), bytes.to_string()), (SHA256.into(), sum.clone())].into();
        // The write lease lasts until the volume has its name: no other client writes in between.
        let replaces = old.is_some();
        publish(client, steps, args.io_timeout, &Naming { partial: &partial, volume, labels, replaces })?;
        drop(open);
        Ok(sum)
    });
    match stored {
        Ok(sum) => finish(args, path, &format!("gn://{volume}"), bytes, &sum),
        Err(error) => {
            remove(client, steps, &partial.name);
            return Err(error);
        }
    }
    Ok(())
}

/// Writes all of the source into the volume. The volume is still open then.
fn fill(
    client: &Arc<Client>,
    steps: &Steps,
    volume: &VolumeInfo,
    source: Source,
    args: &CpArgs,
) -> Result<(Sha256, libgnstor::File), CliError> {
    let (bytes, path) = (source.bytes, args.from.as_str());
    let target = client.open_for(&volume.name, Rights::Write, lease(args))?;
    let parts = Parts::of(source);
    let bar = steps.bytes("write", bytes);
    let mut hash = Sha256::new();
    let mut at = 0;
    while at < bytes {
        let mut part = parts.next(steps, path)?;
        hash.update(&part);
        let length = part.len();
        part.resize(length.next_multiple_of(usize::try_from(BLOCK).expect("small")), 0);
        target.write_at(at, &part)?;
        at += length as u64;
        bar.set_position(at);
    }
    target.flush()?;
    bar.finish_and_clear();
    Ok((hash, target))
}

/// The name that a volume gets when it is whole.
struct Naming<'a> {
    partial: &'a VolumeInfo,
    volume: &'a str,
    labels: BTreeMap<String, String>,
    /// A volume of that name was there when the copy began. One that came later is another's, and stays.
    replaces: bool,
}

/// Gives the volume its name. Asks a daemon that is away again for this time. If the daemon had done it and
/// its answer was lost, it answers the same again.
#[expect(clippy::disallowed_methods, reason = "the command waits in real time")]
fn publish(client: &Client, steps: &Steps, wait: Duration, naming: &Naming<'_>) -> Result<(), CliError> {
    let Naming { partial, volume, labels, replaces } = naming;
    let (begun, mut replaces) = (Instant::now(), *replaces);
    loop {
        match client.manager().publish(partial, volume, labels.clone(), replaces) {
            Ok(_) => return Ok(()),
            // Of two copies at once the last one stays. What another client has created is not replaced.
            Err(error) if !replaces && has_code(&error, libgnstor::ALREADY_EXISTS) => {
                if !client.get(volume)?.labels.contains_key(SHA256) {
                    return Err(CliError::Stopped(format!(
                        "volume {volume} was created by another client while this copy ran, and stays as it \
                         is: gnstor cp again replaces it"
                    )));
                }
                replaces = true;
                continue;
            }
            Err(error) if !is_away(&error) || begun.elapsed() >= wait => return Err(error.into()),
            Err(_) if steps.interrupted() => return Err(CliError::Interrupted),
            Err(error) => tracing::debug!("publishing {volume}: {error}"),
        }
        std::thread::sleep(TICK);
    }
}

/// Whether the daemon did not answer, or cannot yet.
fn is_away(error: &Error) -> bool {
    match error {
        Error::Silent { .. } | Error::Unreachable { .. } => true,
        error => has_code(error, libgnstor::UNAVAILABLE),
    }
}

fn has_code(error: &Error, code: tonic::Code) -> bool {
    matches!(error, Error::Daemon(status) if status.code() == code)
}

/// Deletes a temporary volume. One that has its final name by now is not found.
fn remove(client: &Client, steps: &Steps, name: &str) {
    match client.delete(name) {
        Err(Error::Daemon(status)) if status.code() == libgnstor::NOT_FOUND => {}
        Err(error) => {
            steps.done(format!("volume {name} is left, remove it with gnstor rm {name}: {error}"));
        }
        Ok(()) => {}
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A volume into a file, with the sum checked before the file gets its name.

use super::{BLOCK, PART, STANDARD, connect, finish, hex, object, summary};
use crate::args::CpArgs;
use gnstor_console::{CliError, Steps, out};
use libgnstor::labels::{LENGTH, PARTIAL, SHA256};
use libgnstor::{Rights, VolumeInfo};
use sha2::{Digest, Sha256};
use std::fs::{File, Metadata, Permissions, TryLockError};
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// Links that lead to links.
const MOST_LINKS: usize = 40;
/// Tries to find the partial file where another copy has just ended.
const MOST_TRIES: usize = 100;

/// The data to copy out of a volume.
struct Content {
    bytes: u64,
    /// The SHA-256 of these bytes, if the volume has it.
    sum: Option<String>,
}

/// Says how much of the volume is copied, and what it is compared with.
fn content(args: &CpArgs, steps: &Steps, volume: &VolumeInfo) -> Result<Content, CliError> {
    let VolumeInfo { name, capacity_bytes: capacity, labels, .. } = volume;
    if let Some(whole) = labels.get(PARTIAL).filter(|_| !args.partial) {
        return Err(CliError::Verify(format!(
            "volume {name} is not whole: it is a copy into {whole} that is under way or was interrupted; \
             --partial copies out what is there"
        )));
    }
    let recorded = labels.get(LENGTH).and_then(|length| length.parse().ok());
    let bytes = args.size.or(recorded).unwrap_or(*capacity);
    if bytes > *capacity {
        return Err(CliError::Usage(format!("--size {bytes} is more than the volume's {capacity} bytes")));
    }
    if args.size.is_none() && recorded.is_none() {
        steps.done(format!("volume {name} keeps no length of a file: all of it is copied"));
    }
    let sum = labels.get(SHA256).filter(|_| recorded == Some(bytes) && !args.partial).cloned();
    if sum.is_none() {
        let why = match (args.partial, labels.contains_key(SHA256)) {
            (true, _) => "--partial",
            (false, true) => "the volume's sum is of another length",
            (false, false) => "the volume keeps no sum: gnstor cp did not write it, or not last",
        };
        steps.done(format!("what is copied is not checked ({why})"));
    }
    Ok(Content { bytes, sum })
}

/// Copies a volume into a file.
pub(super) fn fetch(args: &CpArgs, steps: &Steps, volume: &str, path: &str) -> Result<(), CliError> {
    let failed = |cause: String| CliError::File { path: path.into(), cause };
    let target = target(path).map_err(failed)?;
    let connection = connect(args)?;
    let source = connection.client.open(volume, Rights::Read)?;
    let content = content(args, steps, source.info())?;
    let bytes = content.bytes;
    let sum = match target {
        Target::Direct => {
            let is_stdout = is_stdout(path);
            let file = if path == STANDARD {
                std::io::stdout().as_fd().try_clone_to_owned().map(File::from)
            } else {
                File::create(path)
            };
            let mut file = file.map_err(|e| failed(e.to_string()))?;
            let copied = fetch_into(&source, steps, &content, &mut file);
            let sum = match copied {
                // The pipe's reader closed it: end as other filters do.
                Err(Fetch::Write(e)) if is_stdout && e.kind() == ErrorKind::BrokenPipe => {
                    out::note(Err(e));
                    return Ok(());
                }
                copied => copied.map_err(|e| e.at(path))?,
            };
            if is_stdout {
                // Standard output has the data, so what was copied goes to standard error.
                let from = format!("gn://{volume}");
                match args.array.json {
                    true => eprintln!("{:#}", object(&from, path, bytes, &sum)),
                    false => steps.done(summary(&from, path, bytes, &sum)),
                }
                return Ok(());
            }
            sum
        }
        Target::File(whole) => {
            let mut partial = Partial::create(&whole).map_err(|e| failed(e.to_string()))?;
            let copied = fetch_into(&source, steps, &content, &mut partial.file);
            let kept = copied.and_then(|sum| partial.keep(&whole).map(|()| sum).map_err(Fetch::Write));
            // The user named no partial file.
            kept.map_err(|e| e.at(path))?
        }
    };
    finish(args, &format!("gn://{volume}"), path, bytes, &sum);
    Ok(())
}

/// The destination of a copy out.
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
            // The destination must exist before anything is copied. A link may lead to a path that does not
            // exist yet.
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

/// A file under another name until it is whole: an interrupted copy never looks like a finished one.
struct Partial {
    path: PathBuf,
    /// This copy has the lock of the file, so that no other copy writes into it.
    file: File,
    /// The file that it replaces.
    replaced: Option<Metadata>,
    is_kept: bool,
}

impl Partial {
    /// The partial file of a copy into `whole`, new or left over.
    fn create(whole: &Path) -> std::io::Result<Self> {
        let mut path = whole.to_path_buf().into_os_string();
        path.push(".gnstor-partial");
        let path = PathBuf::from(path);
        let replaced = std::fs::metadata(whole).ok();
        for _ in 0..MOST_TRIES {
            let mut options = File::options();
            options.create(true).truncate(false).write(true);
            // The file that is replaced may be private, so no other user reads the new content meanwhile.
            if replaced.is_some() {
                options.mode(0o600);
            }
            let file = options.open(&path)?;
            match file.try_lock() {
                Ok(()) => {}
                // A filesystem without locks.
                Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {}
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) => {
                    let text = format!("another copy is writing {}; wait for its end", path.display());
                    return Err(std::io::Error::other(text));
                }
            }
            // The copy that had the lock has given the file its name, or has removed it.
            let found = std::fs::metadata(&path).ok().map(|there| identity(&there));
            if found == Some(identity(&file.metadata()?)) {
                file.set_len(0)?;
                if replaced.is_some() {
                    file.set_permissions(Permissions::from_mode(0o600))?;
                }
                return Ok(Self { path, file, replaced, is_kept: false });
            }
        }
        Err(std::io::Error::other(format!("other copies write {} all the time", path.display())))
    }

    /// Gives the file its name, durably.
    fn keep(mut self, whole: &Path) -> std::io::Result<()> {
        if let Some(replaced) = self.replaced.take() {
            self.file.set_permissions(permissions(&self.file, &replaced)?)?;
        }
        std::fs::rename(&self.path, whole)?;
        self.is_kept = true;
        let folder = whole.parent().filter(|folder| !folder.as_os_str().is_empty());
        match File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all()) {
            // A folder that may not be read, or a filesystem that syncs no folders.
            Err(error) if [ErrorKind::PermissionDenied, ErrorKind::InvalidInput].contains(&error.kind()) => {
                Ok(())
            }
            synced => synced,
        }
    }
}

/// Permissions of a file in place of another one, whose group it gets. If it may not have that group, its own
/// group gets nothing.
fn permissions(file: &File, replaced: &Metadata) -> std::io::Result<Permissions> {
    let has_group =
        file.metadata()?.gid() == replaced.gid() || fchown(file, None, Some(replaced.gid())).is_ok();
    let mode = replaced.mode() & 0o7777;
    Ok(Permissions::from_mode(if has_group { mode } else { mode & !0o070 }))
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.is_kept {
            _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Device, number and device number: two names of one file have the same.
fn identity(metadata: &Metadata) -> (u64, u64, u64) {
    (metadata.dev(), metadata.ino(), metadata.rdev())
}

/// Whether the path leads to what this process has for standard output.
fn is_stdout(path: &str) -> bool {
    if path == STANDARD {
        return true;
    }
    let stdout = std::io::stdout().as_fd().try_clone_to_owned().map(File::from);
    let same = |stdout: File| Ok(identity(&stdout.metadata()?) == identity(&std::fs::metadata(path)?));
    stdout.and_then(same).unwrap_or(false)
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
    content: &Content,
    file: &mut File,
) -> Result<String, Fetch> {
    let bytes = content.bytes;
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
    let read = hex(hash);
    match &content.sum {
        Some(sum) if *sum != read => {
            let name = &source.info().name;
            Err(Fetch::Other(CliError::Verify(format!(
                "volume {name} is not what was copied in: its sha256 is {sum}, and what was read has {read}; \
                 --partial copies out what is there"
            ))))
        }
        _ => Ok(read),
    }
}

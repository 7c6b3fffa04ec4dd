// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The requested properties of SSDs before any is made.

use crate::media_error::MediaError;
use gnstor_auth::Group;
use gnstor_deengine::{Preset, SsdMedia};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Preset of an SSD for which none is named.
pub const DEFAULT_PRESET: &str = "gnstor-980pro";
/// Capacity of an SSD in memory for which none is named.
pub const DEFAULT_BYTES: u64 = 1 << 30;

/// SSDs of an array for which no number is named.
pub const DEFAULT_SSDS: u16 = 4;

/// The requested properties of an SSD. If a value is not given, the file's value or the default is used.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Number in the array.
    pub index: Option<u16>,
    /// Preset.
    pub preset: Option<Preset>,
    /// Changes to the preset, or to the file's: `KEY=VALUE` each.
    pub settings: Vec<String>,
    /// An existing SSD takes over the preset's times and other values that can change.
    pub retime: bool,
    /// Logical capacity.
    pub bytes: Option<u64>,
    /// File or device of its contents; `None`: in memory.
    pub file: Option<PathBuf>,
    /// Contents in memory can be mapped by other processes.
    pub shared: bool,
    /// A new file takes disk space as it is written, and not all at once.
    pub sparse: bool,
    /// Buffered data of a file's SSD ends with the process.
    pub volatile: bool,
    /// Makes a new SSD, and gives up the file's contents.
    pub format: bool,
    /// The Diffie-Hellman group in which hosts prove who they are.
    pub dh_group: Group,
    /// The SSD of a folder whose file is lost for good, and that begins anew with an empty one.
    pub begins_anew: Option<u16>,
}

/// Plans for `count` SSDs of one kind in memory, numbered from 0.
pub fn in_memory(count: u16, preset: &Preset, bytes: u64) -> Vec<Plan> {
    let plan = |index| Plan {
        index: Some(index),
        preset: Some(preset.clone()),
        bytes: Some(bytes),
        ..Plan::default()
    };
    (0..count).map(plan).collect()
}

/// Plans for the SSDs of a folder, `ssd-N.gns` each: those in it, or `count` new ones.
///
/// # Errors
/// [`MediaError`]: the folder cannot be read, its SSDs are not numbered without a gap, or their number is not
/// the requested one.
pub fn in_folder(folder: &Path, count: Option<u16>, like: &Plan) -> Result<Vec<Plan>, MediaError> {
    let failed =
        |e: std::io::Error| MediaError::Read { path: folder.display().to_string(), cause: e.to_string() };
    if std::fs::metadata(folder).is_ok_and(|meta| !meta.is_dir()) {
        return Err(MediaError::Request(format!(
            "{} is not a folder: an array has a folder of files",
            folder.display()
        )));
    }
    make(folder)?;
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let number = name
            .to_str()
            .and_then(|name| name.strip_prefix("ssd-")?.strip_suffix(".gns")?.parse::<u16>().ok());
        found.extend(number);
    }
    found.sort_unstable();
    let shown = folder.display();
    let begun = like.begins_anew;
    if let Some(number) = begun {
        if found.contains(&number) || found.is_empty() {
            return Err(MediaError::Request(format!(
                "--begin-anew {number} is for an SSD whose file is lost: {shown} has {}",
                if found.is_empty() {
                    "no array".into()
                } else {
                    format!("ssd-{number}.gns, move it away first")
                }
            )));
        }
        found.push(number);
        found.sort_unstable();
    }
    if found.iter().enumerate().any(|(place, &number)| place != usize::from(number)) {
        let numbers: Vec<_> = found.iter().map(u16::to_string).collect();
        return Err(MediaError::Request(format!(
            "{shown} holds the SSDs {}, which is not an array: {MISSING}",
            numbers.join(", ")
        )));
    }
    let held = u16::try_from(found.len()).unwrap_or(u16::MAX);
    let count = match count {
        Some(count) if held != 0 && count != held => {
            return Err(MediaError::Request(format!(
                "{shown} holds {held} SSDs, not {count}: leave --ssds out, or use another folder"
            )));
        }
        _ if held != 0 => held,
        count => count.unwrap_or(DEFAULT_SSDS),
    };
    let plan = |index| {
        let file = Some(folder.join(format!("ssd-{index}.gns")));
        // A folder's new SSDs have the default capacity; those it holds have their own.
        let is_new = held == 0 || begun == Some(index);
        let bytes = like.bytes.filter(|_| is_new || begun.is_none());
        let bytes = bytes.or(is_new.then_some(DEFAULT_BYTES));
        Plan { index: Some(index), bytes, file, ..like.clone() }
    };
    Ok((0..count).map(plan).collect())
}

/// What to do about files of an array that are not there.
pub(crate) const MISSING: &str =
    "put the missing ones back; if one is lost for good, gnstor up --begin-anew N makes an empty file for it";

/// Makes the folder if it is not there. A wrong path makes no chain of folders.
fn make(folder: &Path) -> Result<(), MediaError> {
    let shown = folder.display();
    match std::fs::create_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => Err(MediaError::Request(format!(
            "--data {shown}: the folder above it is not there; make that first"
        ))),
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(MediaError::Read { path: shown.to_string(), cause: error.to_string() })
        }
        _ => Ok(()),
    }
}

impl Plan {
    /// Medium of an SSD in this file.
    pub(crate) fn media(&self, path: &Path) -> SsdMedia {
        match self.volatile {
            true => SsdMedia::VolatileFile(path.into()),
            false => SsdMedia::File(path.into()),
        }
    }
}

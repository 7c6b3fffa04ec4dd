// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes emulated SSDs and turns them off. Only this module knows where their contents are.

use crate::data_file::{self, Before};
pub use crate::media_error::MediaError;
pub use crate::plan::{DEFAULT_BYTES, DEFAULT_PRESET, DEFAULT_SSDS, Plan, in_folder, in_memory};
pub use crate::preset::preset;
use crate::preset::{changed, changes, default_preset, matched};
use crate::recovery_listener::Restoring;
use crate::units::human_bytes;
use gnstor_auth::{Group, Secret, random};
use gnstor_base::region::HostRegion;
use gnstor_deengine::{Authentication, Origin, Ssd, SsdConfig, SsdMedia};
use gnstor_ftl::{DUMP_BYTES, FtlConfig};
use gnstor_proto::BLOCK_BYTES;
use serde::Serialize;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How an SSD came up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CameUp {
    /// In memory: empty, and it ends with the process.
    InMemory,
    /// The SSD's file is new.
    Fresh,
    /// After a shutdown in order.
    Clean,
    /// After a power failure, with an intact dump: nothing acknowledged is lost.
    Dump,
    /// After a power failure without one: what was not flushed may be lost.
    Lossy,
    /// The SSD's file is an older image than the array's other SSDs know, so a substitute answers.
    Behind,
    /// The SSD's file cannot be opened, so a substitute answers.
    Damaged,
}

impl CameUp {
    /// Whether a substitute answers for the SSD. It serves nothing.
    pub fn stands_in(self) -> bool {
        matches!(self, Self::Behind | Self::Damaged)
    }

    /// A sentence for people.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::InMemory => "empty; its contents are in memory and end with the process",
            Self::Fresh => "empty; its file was made",
            Self::Clean => "after a clean shutdown",
            Self::Dump => "after a power failure with a dump: nothing acknowledged is lost",
            Self::Lossy => {
                "lossy, after a power failure without a dump: writes that were not flushed may \
                 be lost; it is filling and serves no reads until a newer fleet map"
            }
            Self::Behind => {
                "behind: its file is older than the other SSDs know; the array runs without it, degraded"
            }
            Self::Damaged => "damaged: its file cannot be opened; the array runs without it, degraded",
        }
    }
}

/// An SSD with its power on.
#[derive(Debug)]
pub struct Made {
    /// The SSD.
    pub ssd: Ssd,
    /// The memory that its transfers refer to.
    pub regions: Vec<Arc<HostRegion>>,
    /// For reports.
    pub about: About,
    /// The Diffie-Hellman group in which hosts prove who they are.
    pub dh_group: Group,
}

impl Made {
    /// From here on every host must prove who it is, by a key that follows from the array's manager key.
    pub fn ask_proof(&mut self, manager_key: &Secret) {
        self.ssd.require_authentication(Authentication {
            manager_key: manager_key.clone(),
            group: self.dh_group,
            random: Box::new(random::fill),
        });
    }

    /// The SSD runs alone: a daemon of another process holds how often it was opened.
    pub fn await_daemon(&mut self) {
        let mut start = [0; 4];
        random::fill(&mut start);
        self.ssd.await_opening(u32::from_le_bytes(start).max(1));
    }
}

/// The report about an SSD.
#[derive(Clone, Debug, Serialize)]
pub struct About {
    /// Number in the array.
    pub index: u16,
    /// Serial number.
    pub serial: String,
    /// Name of its preset.
    pub preset: String,
    /// Differences from the preset of this name, if it is one of this project: `KEY = VALUE` each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    /// Logical capacity.
    pub bytes: u64,
    /// File or device of its contents.
    pub data: Option<PathBuf>,
    /// File with the pages in memory, for other processes of this user to map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<PathBuf>,
    /// How the SSD came up.
    pub came_up: CameUp,
    /// Why it may lack something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
    /// The SSD was made before arrays had numbers, and got this array's number at this start. This process
    /// took for granted that the SSD is of this array.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_numbered_now: bool,
}

impl About {
    /// Number of an SSD that is away, and the reason.
    pub(crate) fn absence(&self) -> (u16, String) {
        (self.index, self.lost.clone().unwrap_or_else(|| self.came_up.sentence().into()))
    }
}

/// Number of the SSD in a file, if the file has one that will be restored.
pub fn held_index(plan: &Plan) -> Option<u16> {
    let path = plan.file.as_deref().filter(|_| !plan.format)?;
    Some(Ssd::describe(path).ok()?.index)
}

/// Bytes of disk for a plan's new data file. `None`: no file is made, or the SSD is on a block device.
///
/// # Errors
/// [`MediaError`]: the preset's settings or the capacity are not possible.
pub fn new_file_bytes(plan: &Plan) -> Result<Option<u64>, MediaError> {
    let (Some(path), Some(bytes)) = (&plan.file, plan.bytes) else { return Ok(None) };
    let is_file = match std::fs::metadata(path) {
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        Ok(meta) => meta.is_file() && (plan.format || meta.blocks() == 0),
    };
    if !is_file {
        return Ok(None);
    }
    let config = config(plan, plan.media(path), bytes)?;
    let pages = bytes / u64::from(BLOCK_BYTES);
    let size = FtlConfig::data_file_bytes(&config.preset, pages, DUMP_BYTES);
    size.map(Some).map_err(|e| {
        failed(format!("making SSD {} of {}", config.index, human_bytes(bytes)), None, e.to_string())
    })
}

/// Turns on an SSD's power.
///
/// # Errors
/// [`MediaError`]: no memory, no file, or a file with other contents.
pub fn make_ssd(plan: &Plan) -> Result<Made, MediaError> {
    Ok(Made { dh_group: plan.dh_group, ..power_on(plan)? })
}

fn power_on(plan: &Plan) -> Result<Made, MediaError> {
    let Some(path) = &plan.file else {
        let media = if plan.shared { SsdMedia::SharedRam } else { SsdMedia::Ram };
        let config = config(plan, media, plan.bytes.unwrap_or(DEFAULT_BYTES))?;
        let what = format!("making SSD {} of {}", config.index, human_bytes(config.capacity_bytes));
        let ssd = Ssd::format(config.clone()).map_err(|e| failed(what, None, e.to_string()))?;
        return Ok(made(ssd, config, None));
    };
    if let Some(info) = data_file::look(path, plan.format)? {
        let config = matched(plan, path, info)?;
        let what = format!("opening {}", path.display());
        let restoring = Restoring::new(format!("restoring SSD {}", config.index));
        let ssd = Ssd::open(config.clone(), &|done, of| restoring.tell(done, of));
        drop(restoring);
        let ssd = ssd.map_err(|e| match e.is_damage() {
            true => MediaError::Damaged(failed(what, Some(path), e.to_string()).to_string()),
            false => failed(what, Some(path), e.to_string()),
        })?;
        return Ok(made(ssd, config, Some(path)));
    }
    let bytes = plan.bytes.ok_or_else(|| {
        let path = path.display();
        MediaError::Damaged(format!(
            "{path}: there is no SSD in it yet: give its capacity with --size to make one"
        ))
    })?;
    let config = config(plan, plan.media(path), bytes)?;
    let what = format!("making SSD {} of {} in {}", config.index, human_bytes(bytes), path.display());
    let before =
        Before::new(path, plan.sparse).map_err(|e| failed(what.clone(), Some(path), e.to_string()))?;
    let ssd = Ssd::format(config.clone()).map_err(|e| failed(what, Some(path), before.failed(e)))?;
    Ok(made(ssd, config, Some(path)))
}

/// Shuts these unused SSDs down again, and removes files that were made for them. A folder with half an array
/// would look like a whole one.
pub fn take_back(all: impl IntoIterator<Item = Made>) {
    for mut made in all {
        if let Err(error) = shut_down(&mut made.ssd) {
            tracing::error!("SSD {}: {error}", made.about.index);
        }
        if let (CameUp::Fresh, Some(path)) = (made.about.came_up, &made.about.data) {
            data_file::remove(path);
        }
    }
}

fn config(plan: &Plan, media: SsdMedia, capacity_bytes: u64) -> Result<SsdConfig, MediaError> {
    let index = plan.index.unwrap_or(0);
    let preset = changed(&plan.preset.clone().unwrap_or_else(default_preset), plan)?;
    Ok(SsdConfig { index, preset, capacity_bytes, serial: format!("GN{index:06}"), media })
}

pub(crate) fn made(ssd: Ssd, config: SsdConfig, path: Option<&Path>) -> Made {
    let SsdConfig { index, preset, capacity_bytes: bytes, serial, .. } = config;
    let (came_up, lost) = match &ssd.boot().origin {
        Origin::Fresh if path.is_none() => (CameUp::InMemory, None),
        Origin::Fresh => (CameUp::Fresh, None),
        Origin::Clean => (CameUp::Clean, None),
        Origin::Dump => (CameUp::Dump, None),
        Origin::NoDump(why) | Origin::Rebuilt(why) => (CameUp::Lossy, Some(why.clone())),
    };
    let places = ssd.lost_places();
    let unread = || {
        format!(
            "{places} places of its permission metadata could not be read: its file or disk is damaged, and \
             volumes or changes of them may be missing there"
        )
    };
    let lost = lost.or_else(|| (places > 0).then(unread));
    let regions = ssd.regions();
    let data = path.map(Path::to_path_buf);
    let (changed, memory) = (changes(&preset), regions.iter().find_map(|region| mapped_at(region)));
    Made {
        dh_group: Group::default(),
        ssd,
        regions,
        about: About {
            index,
            serial,
            preset: preset.name,
            changed,
            bytes,
            data,
            memory,
            came_up,
            lost,
            is_numbered_now: false,
        },
    }
}

/// Path at which another process finds the memory of a region that can be shared.
fn mapped_at(region: &HostRegion) -> Option<PathBuf> {
    let descriptor = region.backing()?.as_raw_fd();
    Some(PathBuf::from(format!("/proc/{}/fd/{descriptor}", std::process::id())))
}

/// Names the file once.
fn failed(what: String, path: Option<&Path>, cause: String) -> MediaError {
    match path {
        Some(path) if cause.starts_with(&path.display().to_string()) => MediaError::File(cause),
        _ => MediaError::Make { what, cause },
    }
}

/// Turns an SSD off in order. Where that fails, such as on a full disk, the SSD writes everything
/// acknowledged into a dump.
pub(crate) fn shut_down(ssd: &mut Ssd) -> Result<(), MediaError> {
    let Err(error) = ssd.shut_down() else { return Ok(()) };
    let (what, cause) = match ssd.power_fail() {
        Ok(0) => (
            "the shutdown is not complete; SSDs of this preset write no dump, so writes that were not flushed \
             may be lost",
            error.to_string(),
        ),
        Ok(_) => (
            "the shutdown is not complete; a dump was written, and nothing acknowledged is lost",
            error.to_string(),
        ),
        Err(dump) => {
            ("the shutdown is not complete, and no dump could be written", format!("{error}; {dump}"))
        }
    };
    Err(MediaError::Off { what, cause })
}

pub(crate) fn power_fail(ssd: &mut Ssd) -> Result<u64, MediaError> {
    ssd.power_fail()
        .map_err(|e| MediaError::Off { what: "the dump could not be written", cause: e.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    #[test]
    fn an_ssd_demands_the_group_of_its_plan() {
        let _deadline = deadline();
        for dh_group in [Group::Null, Group::Ffdhe2048, Group::Ffdhe3072] {
            let preset = preset("null").ok();
            let mut made = make_ssd(&Plan { preset, bytes: Some(4 << 20), dh_group, ..Plan::default() });
            let made = made.as_mut().expect("an SSD");
            made.ask_proof(&Secret::random());
            let shown = format!("{:?}", made.ssd);
            assert!(shown.contains(&format!("group: {dh_group:?}")), "{shown}");
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which preset an SSD gets: by name, from a file, changed value by value, or as its data file has it.

use crate::media_error::MediaError;
use crate::plan::{DEFAULT_PRESET, Plan};
use crate::units::human_bytes;
use gnstor_deengine::{DataFileInfo, Difference, Preset, SsdConfig};
use std::path::Path;

/// The preset of this name, or in this file.
///
/// # Errors
/// [`MediaError`] with the names there are, or what is wrong with the file.
pub fn preset(name: &str) -> Result<Preset, MediaError> {
    if let Some(preset) = Preset::by_name(name) {
        return Ok(preset);
    }
    if Path::new(name).extension().is_some_and(|e| e == "toml") {
        let failed = |cause: String| MediaError::Request(format!("--preset {name}: {cause}"));
        let text = std::fs::read_to_string(name).map_err(|e| failed(e.to_string()))?;
        return Preset::from_toml(&text).map_err(|e| failed(e.to_string()));
    }
    let names = Preset::NAMES.join(", ");
    Err(MediaError::Request(format!(
        "--preset: there is no preset '{name}'; choose one of: {names}; or give a file NAME.toml"
    )))
}

pub(crate) fn default_preset() -> Preset {
    Preset::by_name(DEFAULT_PRESET).expect("a preset of the crate")
}

/// The preset with the plan's settings.
pub(crate) fn changed(preset: &Preset, plan: &Plan) -> Result<Preset, MediaError> {
    preset.with_settings(&plan.settings).map_err(|error| MediaError::Setting(error.to_string()))
}

/// The configuration of the SSD in a file, if it is the wanted one.
pub(crate) fn matched(plan: &Plan, path: &Path, info: DataFileInfo) -> Result<SsdConfig, MediaError> {
    let differs = |what: String| MediaError::Mismatch { path: path.display().to_string(), what };
    if let Some(bytes) = plan.bytes.filter(|bytes| *bytes != info.capacity_bytes) {
        let (has, wanted) = (human_bytes(info.capacity_bytes), human_bytes(bytes));
        return Err(differs(format!(
            "it holds an SSD of {has}, not of {wanted}: leave the size out, or use another file"
        )));
    }
    if let Some(index) = plan.index.filter(|index| *index != info.index) {
        return Err(differs(format!("it holds SSD {}, not SSD {index} of an array", info.index)));
    }
    let asked = plan.preset.as_ref().unwrap_or(&info.preset);
    let preset = changed(asked, plan)?;
    if let Some(first) = info.preset.differences(&preset).first().filter(|first| first.is_fixed) {
        return Err(differs(format!("{}: leave it out, or use another file", holds(first))));
    }
    // A value changed by name is meant. A preset may differ by mistake.
    if let Some(first) = info.preset.differences(asked).first().filter(|_| !plan.retime) {
        return Err(differs(format!(
            "{}: leave the preset out, or change the SSD with --retime",
            holds(first)
        )));
    }
    let media = plan.media(path);
    Ok(SsdConfig {
        index: info.index,
        preset,
        capacity_bytes: info.capacity_bytes,
        serial: info.serial,
        media,
    })
}

fn holds(difference: &Difference) -> String {
    let Difference { key, one, other, .. } = difference;
    match key.as_str() {
        "name" => {
            format!("it holds an SSD of preset {}, not {}", one.trim_matches('"'), other.trim_matches('"'))
        }
        _ => format!("it holds an SSD with {key} = {one}, not {other}"),
    }
}

/// Differences from the preset of the same name.
pub(crate) fn changes(preset: &Preset) -> Vec<String> {
    let Some(ours) = Preset::by_name(&preset.name) else { return Vec::new() };
    ours.differences(preset)
        .into_iter()
        .map(|Difference { key, other, .. }| format!("{key} = {other}"))
        .collect()
}

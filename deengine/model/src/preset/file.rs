// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The form of a preset in a file. With a base every key may be left out.

use super::{Collection, FaultPlan, Preset, PresetError};
use crate::figure::Figure;
use gnstor_flash::Shape;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PresetFile {
    name: String,
    base: Option<String>,
    channels: Option<u32>,
    dies_per_channel: Option<u32>,
    planes: Option<u32>,
    independent_planes: Option<bool>,
    sense_pages: Option<u32>,
    unit_pages: Option<u32>,
    rows: Option<u32>,
    fw_read_ns: Option<u64>,
    fw_write_ns: Option<u64>,
    hash_ns: Option<u64>,
    fixed_read_ns: Option<u64>,
    fixed_write_ns: Option<u64>,
    sense_ns: Option<u64>,
    program_ns: Option<u64>,
    erase_ns: Option<u64>,
    channel_bytes_per_s: Option<u64>,
    to_host_bytes_per_s: Option<u64>,
    from_host_bytes_per_s: Option<u64>,
    over_provisioning_permille: Option<u32>,
    buffer_pages: Option<u32>,
    power_protected: Option<bool>,
    #[serde(default)]
    collection: Collection,
    #[serde(default)]
    faults: FaultPlan,
    /// A base's figures are not those of its descendants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    figures: Vec<Figure>,
}

impl TryFrom<PresetFile> for Preset {
    type Error = PresetError;

    fn try_from(file: PresetFile) -> Result<Self, PresetError> {
        let base = match &file.base {
            None => None,
            Some(name) => Some(Self::by_name(name).ok_or_else(|| PresetError::NoSuchBase(name.clone()))?),
        };
        let base = base.as_ref();
        macro_rules! value {
            ($key:ident) => {
                value!($key, $key)
            };
            ($key:ident, $($of_base:tt)+) => {
                file.$key
                    .or(base.map(|base| base.$($of_base)+))
                    .ok_or(PresetError::Missing(stringify!($key)))?
            };
        }
        let preset = Self {
            shape: Shape {
                channels: value!(channels, shape.channels),
                dies_per_channel: value!(dies_per_channel, shape.dies_per_channel),
                planes: value!(planes, shape.planes),
                unit_pages: value!(unit_pages, shape.unit_pages),
                sense_pages: value!(sense_pages, shape.sense_pages),
                rows: value!(rows, shape.rows),
            },
            independent_planes: value!(independent_planes),
            fw_read_ns: value!(fw_read_ns),
            fw_write_ns: value!(fw_write_ns),
            hash_ns: value!(hash_ns),
            fixed_read_ns: value!(fixed_read_ns),
            fixed_write_ns: value!(fixed_write_ns),
            sense_ns: value!(sense_ns),
            program_ns: value!(program_ns),
            erase_ns: value!(erase_ns),
            channel_bytes_per_s: value!(channel_bytes_per_s),
            to_host_bytes_per_s: value!(to_host_bytes_per_s),
            from_host_bytes_per_s: value!(from_host_bytes_per_s),
            over_provisioning_permille: value!(over_provisioning_permille),
            buffer_pages: value!(buffer_pages),
            power_protected: value!(power_protected),
            collection: file.collection,
            faults: file.faults,
            figures: file.figures,
            name: file.name,
        };
        preset.check()?;
        Ok(preset)
    }
}

impl From<&Preset> for PresetFile {
    /// Every key, and no base.
    fn from(preset: &Preset) -> Self {
        Self {
            name: preset.name.clone(),
            base: None,
            channels: Some(preset.shape.channels),
            dies_per_channel: Some(preset.shape.dies_per_channel),
            planes: Some(preset.shape.planes),
            independent_planes: Some(preset.independent_planes),
            sense_pages: Some(preset.shape.sense_pages),
            unit_pages: Some(preset.shape.unit_pages),
            rows: Some(preset.shape.rows),
            fw_read_ns: Some(preset.fw_read_ns),
            fw_write_ns: Some(preset.fw_write_ns),
            hash_ns: Some(preset.hash_ns),
            fixed_read_ns: Some(preset.fixed_read_ns),
            fixed_write_ns: Some(preset.fixed_write_ns),
            sense_ns: Some(preset.sense_ns),
            program_ns: Some(preset.program_ns),
            erase_ns: Some(preset.erase_ns),
            channel_bytes_per_s: Some(preset.channel_bytes_per_s),
            to_host_bytes_per_s: Some(preset.to_host_bytes_per_s),
            from_host_bytes_per_s: Some(preset.from_host_bytes_per_s),
            over_provisioning_permille: Some(preset.over_provisioning_permille),
            buffer_pages: Some(preset.buffer_pages),
            power_protected: Some(preset.power_protected),
            collection: preset.collection,
            faults: preset.faults.clone(),
            figures: preset.figures.clone(),
        }
    }
}

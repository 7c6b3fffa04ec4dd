// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A preset with a few values changed, and the differences of two presets.

use super::file::PresetFile;
use super::{Preset, PresetError};
use toml::{Table, Value};

/// Keys that decide the layout of an SSD: they stay as they were when the SSD was made.
const FIXED: [&str; 11] = [
    "name",
    "channels",
    "dies_per_channel",
    "planes",
    "sense_pages",
    "unit_pages",
    "rows",
    "over_provisioning_permille",
    "buffer_pages",
    "faults.factory_bad_blocks",
    "faults.seed",
];

/// A key with two values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// Key as in a preset file, with its section: `collection.policy`.
    pub key: String,
    /// Value of the key in the first preset.
    pub one: String,
    /// Value of the key in the other preset.
    pub other: String,
    /// Whether the value is fixed: an SSD that was made with one value cannot be opened with the other.
    pub is_fixed: bool,
}

impl Preset {
    /// The preset with some of its values changed: `KEY=VALUE` each, as in a preset file; words need no
    /// quotes. The result has no figures to reach, because they were another SSD's.
    ///
    /// # Errors
    /// [`PresetError`]: no such key, or a value that is invalid or out of range.
    pub fn with_settings(&self, settings: &[String]) -> Result<Self, PresetError> {
        if settings.is_empty() {
            return Ok(self.clone());
        }
        let mut table = self.table();
        for setting in settings {
            let failed =
                |reason: &str| PresetError::Setting { setting: setting.clone(), reason: reason.to_owned() };
            let (key, value) = setting.split_once('=').ok_or_else(|| failed("write it like KEY=VALUE"))?;
            if ["name", "base", "figures"].contains(&key.trim()) {
                return Err(failed("only a preset file says this"));
            }
            let change = toml::from_str::<Table>(&format!("{key} = {value}"))
                .or_else(|_| toml::from_str(&format!("{key} = {:?}", value.trim())))
                .map_err(|error| failed(error.message()))?;
            merge(&mut table, change);
            // Check after each change, so that the error names the wrong one.
            table.clone().try_into::<PresetFile>().map_err(|error| failed(error.message()))?;
        }
        Self::try_from(table.try_into::<PresetFile>()?)
    }

    /// Keys in which the presets differ, unchangeable ones first. The figures to reach are not compared.
    pub fn differences(&self, other: &Self) -> Vec<Difference> {
        // An SSD that takes no time reserves less space, because nothing is in transit.
        let all_fixed = self.is_null() != other.is_null();
        let (mut ones, mut others) = (Vec::new(), Vec::new());
        flatten("", &self.table(), &mut ones);
        flatten("", &other.table(), &mut others);
        let differing = ones.into_iter().zip(others).filter(|(one, other)| one != other);
        let mut differences: Vec<Difference> = differing
            .map(|((key, one), (_, other))| {
                let is_fixed = all_fixed || FIXED.contains(&key.as_str());
                Difference { key, one, other, is_fixed }
            })
            .collect();
        differences.sort_by_key(|difference| (!difference.is_fixed, difference.key != "name"));
        differences
    }

    /// Every key but the figures.
    fn table(&self) -> Table {
        let plain = Self { figures: Vec::new(), ..self.clone() };
        Table::try_from(PresetFile::from(&plain)).expect("numbers, words and a list of them are TOML")
    }
}

fn merge(into: &mut Table, change: Table) {
    for (key, value) in change {
        match (into.get_mut(&key), value) {
            (Some(Value::Table(into)), Value::Table(change)) => merge(into, change),
            (_, value) => _ = into.insert(key, value),
        }
    }
}

fn flatten(prefix: &str, table: &Table, out: &mut Vec<(String, String)>) {
    for (key, value) in table {
        match value {
            Value::Table(inner) => flatten(&format!("{prefix}{key}."), inner, out),
            value => out.push((format!("{prefix}{key}"), value.to_string())),
        }
    }
}

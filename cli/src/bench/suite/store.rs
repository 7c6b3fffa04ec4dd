// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The folder of a suite: what it is of, and a file for each row with its runs. A row's file is replaced as a whole after each run.

use crate::CliError;
use crate::bench::args::{BenchArgs, SuiteArg, Switch};
use crate::bench::ceiling::Ceiling;
use crate::bench::machine::{Build, Machine};
use crate::bench::report::{Report, SCHEMA, word};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// What all results of a folder have in common.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Label {
    pub(super) schema: u32,
    pub(super) suite: String,
    pub(super) build: Build,
    pub(super) machine: Machine,
    pub(super) options: Options,
}

/// What was asked for and changes results.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Options {
    pub(super) engines: usize,
    pub(super) size: u64,
    pub(super) warmup_s: f64,
    pub(super) runtime_s: f64,
    pub(super) max_clients: Option<u32>,
    pub(super) verify: bool,
    pub(super) seed: u64,
    pub(super) one_grid: bool,
}

impl Label {
    pub(super) fn new(suite: SuiteArg, args: &BenchArgs, build: Build, machine: Machine) -> Self {
        let options = Options {
            engines: args.engines.count(),
            size: args.size,
            warmup_s: args.warmup.as_secs_f64(),
            runtime_s: args.runtime().as_secs_f64(),
            max_clients: args.max_clients,
            verify: args.verify == Switch::On,
            seed: args.seed,
            one_grid: args.one_grid,
        };
        Self { schema: SCHEMA, suite: word(suite), build, machine, options }
    }

    /// What a folder with another label is of.
    fn difference(&self, other: &Self) -> Option<String> {
        let words = |what: &str, here: &str, there: &str| Some(format!("of another {what} ({there}, not {here})"));
        if self.suite != other.suite || self.schema != other.schema {
            return words("suite", &self.suite, &other.suite);
        }
        if self.build != other.build {
            return words("build", &self.build.sha256[..12], other.build.sha256.get(..12).unwrap_or("?"));
        }
        if self.machine != other.machine {
            return words("machine", &self.machine.line(), &other.machine.line());
        }
        (self.options != other.options)
            .then(|| format!("with other options ({:?}, not {:?})", other.options, self.options))
    }
}

/// One run of a row.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Done {
    /// The bare copy.
    Copy(Ceiling),
    /// A load.
    Load(Box<Report>),
}

/// A row's file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) name: String,
    /// Seconds that the longest run took, with starting and filling.
    pub(super) seconds: f64,
    /// When the last one ended.
    pub(super) date: String,
    pub(super) runs: Vec<Done>,
    /// Runs that failed, and why.
    pub(super) failed: Vec<String>,
}

/// A run that fails twice will fail again.
const FAILURES: usize = 2;

impl Kept {
    /// Nothing more is to be done for so many runs.
    pub(super) fn is_enough(&self, runs: usize) -> bool {
        self.runs.len() >= runs || self.failed.len() >= FAILURES
    }

    /// The runs of a load.
    pub(super) fn reports(&self) -> impl Iterator<Item = &Report> {
        self.runs.iter().filter_map(|run| if let Done::Load(report) = run { Some(&**report) } else { None })
    }

    /// The runs of the bare copy.
    pub(super) fn ceilings(&self) -> impl Iterator<Item = &Ceiling> {
        self.runs.iter().filter_map(|run| if let Done::Copy(ceiling) = run { Some(ceiling) } else { None })
    }
}

/// The folder.
#[derive(Debug)]
pub(super) struct Store {
    folder: PathBuf,
}

impl Store {
    /// Opens a folder, or makes it.
    ///
    /// # Errors
    /// [`CliError::Usage`]: it holds results of something else; [`CliError::File`].
    pub(super) fn open(folder: &Path, label: &Label) -> Result<Self, CliError> {
        let store = Self { folder: folder.to_owned() };
        std::fs::create_dir_all(store.folder.join("rows")).map_err(|e| failed(folder, &e))?;
        match store.load::<Label>("label.json")? {
            None => store.save("label.json", label)?,
            Some(there) => {
                if let Some(difference) = label.difference(&there) {
                    let folder = folder.display();
                    return Err(CliError::Usage(format!("{folder} holds results {difference}: take another --out")));
                }
            }
        }
        Ok(store)
    }

    /// What is kept of a row.
    ///
    /// # Errors
    /// [`CliError::File`]: it cannot be read.
    pub(super) fn row(&self, name: &str) -> Result<Kept, CliError> {
        let fresh = || Kept { name: name.into(), ..Kept::default() };
        Ok(self.load(&row_file(name))?.unwrap_or_else(fresh))
    }

    /// Keeps a row.
    ///
    /// # Errors
    /// [`CliError::File`].
    pub(super) fn keep(&self, row: &Kept) -> Result<(), CliError> {
        self.save(&row_file(&row.name), row)
    }

    /// Path of a file in the folder.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes a file as a whole, or leaves what was there.
    ///
    /// # Errors
    /// [`CliError::File`].
    pub(super) fn write(&self, name: &str, text: &str) -> Result<(), CliError> {
        let (path, fresh) = (self.path(name), self.path(&format!("{name}.new")));
        std::fs::write(&fresh, text).and_then(|()| std::fs::rename(&fresh, &path)).map_err(|e| failed(&path, &e))
    }

    /// Writes a value as JSON.
    ///
    /// # Errors
    /// [`CliError::File`].
    pub(super) fn save(&self, name: &str, value: &impl Serialize) -> Result<(), CliError> {
        self.write(name, &serde_json::to_string_pretty(value).expect("plain data serialises"))
    }

    fn load<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, CliError> {
        let path = self.path(name);
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|e| failed(&path, &e))?,
        };
        let parsed = serde_json::from_str(&text);
        parsed
            .map(Some)
            .map_err(|e| failed(&path, &format!("not a result ({e}): delete it, and its runs are done again")))
    }
}

fn row_file(name: &str) -> String {
    format!("rows/{}.json", name.replace([' ', '/'], "_"))
}

fn failed(path: &Path, cause: &impl ToString) -> CliError {
    CliError::File { path: path.display().to_string(), cause: cause.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(sha256: &str, seed: u64) -> Label {
        let machine = Machine { device: "host".into(), device_name: "CPU".into(), driver: None, cpu: None, cores: 2 };
        let options = Options {
            engines: 1,
            size: 1 << 20,
            warmup_s: 0.1,
            runtime_s: 1.0,
            max_clients: None,
            verify: true,
            seed,
            one_grid: false,
        };
        let build = Build { version: "0".into(), sha256: sha256.repeat(64) };
        Label { schema: SCHEMA, suite: "targets".into(), build, machine, options }
    }

    #[test]
    fn rows_of_another_build_machine_or_option_are_not_mixed_in() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = |label: &Label| Store::open(folder.path(), label).map(drop).map_err(|error| error.to_string());
        let first = label("a", 1);
        open(&first).expect("a fresh folder");
        open(&first).expect("the same again");
        let refused = |other: &Label, why: &str| {
            let error = open(other).expect_err("results of something else");
            assert!(error.contains(why) && error.contains("another --out"), "{error}");
        };
        refused(&label("b", 1), "of another build (aaaaaaaaaaaa, not bbbbbbbbbbbb)");
        refused(&label("a", 2), "with other options");
        let mut other = label("a", 1);
        other.machine.cores = 16;
        refused(&other, "of another machine");
        other = label("a", 1);
        other.suite = "figures".into();
        refused(&other, "of another suite");
        open(&first).expect("still the first one's");
    }

    #[test]
    fn a_row_comes_back_as_it_was_kept_and_a_damaged_one_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::open(folder.path(), &label("a", 1)).expect("a folder");
        let mut row = store.row("null randread 4k c1").expect("a fresh row");
        assert!(row.runs.is_empty() && !row.is_enough(1));
        row.runs.push(Done::Copy(Ceiling { host_bytes: 7, copies: Vec::new() }));
        row.failed.push("no".into());
        store.keep(&row).expect("it is kept");
        let back = store.row(&row.name).expect("it is there");
        assert_eq!(back.ceilings().map(|ceiling| ceiling.host_bytes).collect::<Vec<_>>(), [7]);
        assert_eq!(back.failed, row.failed);
        assert!(row.is_enough(1) && !row.is_enough(2));
        let path = folder.path().join("rows/null_randread_4k_c1.json");
        std::fs::write(&path, "{").expect("a file");
        let error = store.row(&row.name).expect_err("it is damaged").to_string();
        assert!(error.contains("null_randread_4k_c1") && error.contains("delete it"), "{error}");
    }
}

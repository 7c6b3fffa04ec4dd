// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The folder of a suite. The next call needs only one file, `state.json`: the machine and build of the
//! results, and the runs of each row. It is replaced as a whole after each run, and can be carried to another
//! machine of the same kind.

use crate::args::BenchArgs;
use crate::copy_baseline::CopyBaseline;
use crate::machine::{Build, Machine};
use crate::report::{Report, SCHEMA, word};
use crate::words::{Bounce, SuiteArg, Switch};
use gnstor_console::CliError;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The properties that all results of a folder share.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Label {
    pub(super) schema: u32,
    pub(super) suite: String,
    pub(super) build: Build,
    pub(super) machine: Machine,
    pub(super) options: Options,
}

/// Options that change results.
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
    pub(super) bounce: Option<Bounce>,
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
            bounce: args.bounce,
        };
        Self { schema: SCHEMA, suite: word(suite), build, machine, options }
    }

    /// How a folder's label differs from this one.
    fn difference(&self, other: &Self) -> Option<String> {
        let words =
            |what: &str, here: &str, there: &str| Some(format!("of another {what} ({there}, not {here})"));
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
pub(crate) enum Done {
    /// The bare copy.
    Copy(CopyBaseline),
    /// A load.
    Load(Box<Report>),
}

/// The stored runs of a row.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) name: String,
    /// Seconds that the longest run took, with starting and filling.
    pub(crate) seconds: f64,
    /// Time at which the last run ended.
    pub(crate) date: String,
    pub(crate) runs: Vec<Done>,
    /// Runs that failed, and why.
    pub(crate) failed: Vec<String>,
}

/// A run that fails twice will fail again.
const FAILURES: usize = 2;

impl Kept {
    /// Whether the row needs no more runs, if `runs` are wanted.
    pub(super) fn is_enough(&self, runs: usize) -> bool {
        self.runs.len() >= runs || self.failed.len() >= FAILURES
    }

    /// The runs of a load.
    pub(super) fn reports(&self) -> impl Iterator<Item = &Report> {
        self.runs.iter().filter_map(|run| if let Done::Load(report) = run { Some(&**report) } else { None })
    }

    /// The runs of the bare copy.
    pub(super) fn copy_baselines(&self) -> impl Iterator<Item = &CopyBaseline> {
        self.runs
            .iter()
            .filter_map(|run| if let Done::Copy(copy_baseline) = run { Some(copy_baseline) } else { None })
    }
}

/// The content of the file.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    label: Label,
    rows: Vec<Kept>,
}

/// The folder.
#[derive(Debug)]
pub(super) struct Store {
    folder: PathBuf,
    state: State,
}

const STATE: &str = "state.json";

impl Store {
    /// Opens a folder, or makes it.
    ///
    /// # Errors
    /// [`CliError::Usage`]: it holds results of something else; [`CliError::File`].
    pub(super) fn open(folder: &Path, label: &Label) -> Result<Self, CliError> {
        std::fs::create_dir_all(folder).map_err(|e| failed(folder, &e))?;
        let path = folder.join(STATE);
        let state = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                State { label: label.clone(), rows: Vec::new() }
            }
            text => {
                let text = text.map_err(|e| failed(&path, &e))?;
                serde_json::from_str(&text).map_err(|e| {
                    failed(&path, &format!("not the results of a suite ({e}): take another --out"))
                })?
            }
        };
        if let Some(difference) = label.difference(&state.label) {
            let folder = folder.display();
            return Err(CliError::Usage(format!("{folder} holds results {difference}: take another --out")));
        }
        Ok(Self { folder: folder.to_owned(), state })
    }

    /// The stored runs of a row.
    pub(super) fn row(&self, name: &str) -> Kept {
        let known = self.state.rows.iter().find(|row| row.name == name);
        known.cloned().unwrap_or_else(|| Kept { name: name.into(), ..Kept::default() })
    }

    /// Keeps a row, in place of what was kept of it.
    ///
    /// # Errors
    /// [`CliError::File`].
    pub(super) fn keep(&mut self, row: &Kept) -> Result<(), CliError> {
        match self.state.rows.iter_mut().find(|known| known.name == row.name) {
            Some(known) => known.clone_from(row),
            None => self.state.rows.push(row.clone()),
        }
        self.save(STATE, &self.state)
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
        std::fs::write(&fresh, text)
            .and_then(|()| std::fs::rename(&fresh, &path))
            .map_err(|e| failed(&path, &e))
    }

    /// Writes a value as JSON.
    ///
    /// # Errors
    /// [`CliError::File`].
    pub(super) fn save(&self, name: &str, value: &impl Serialize) -> Result<(), CliError> {
        self.write(name, &serde_json::to_string_pretty(value).expect("plain data serialises"))
    }
}

fn failed(path: &Path, cause: &impl ToString) -> CliError {
    CliError::File { path: path.display().to_string(), cause: cause.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    fn label(sha256: &str, seed: u64) -> Label {
        let machine =
            Machine { device: "host".into(), device_name: "CPU".into(), driver: None, cpu: None, cores: 2 };
        let options = Options {
            engines: 1,
            size: 1 << 20,
            warmup_s: 0.1,
            runtime_s: 1.0,
            max_clients: None,
            verify: true,
            seed,
            one_grid: false,
            bounce: None,
        };
        let build = Build { version: "0".into(), sha256: sha256.repeat(64) };
        Label { schema: SCHEMA, suite: "targets".into(), build, machine, options }
    }

    #[test]
    fn rows_of_another_build_machine_or_option_are_not_mixed_in() {
        let _deadline = deadline();
        let folder = tempfile::tempdir().expect("a folder");
        let first = label("a", 1);
        let mut store = Store::open(folder.path(), &first).expect("a fresh folder");
        store.keep(&store.row("copy")).expect("it is kept");
        let refused = |other: &Label, why: &str| {
            let error = Store::open(folder.path(), other).expect_err("results of something else").to_string();
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
        Store::open(folder.path(), &first).expect("still the first one's");
        std::fs::write(folder.path().join(STATE), "{").expect("a file");
        refused(&first, "state.json: not the results of a suite");
    }

    #[test]
    fn a_row_comes_back_as_it_was_kept() {
        let _deadline = deadline();
        let folder = tempfile::tempdir().expect("a folder");
        let open = || Store::open(folder.path(), &label("a", 1)).expect("a folder");
        let mut store = open();
        let mut row = store.row("null randread 4k c1");
        assert!(row.runs.is_empty() && !row.is_enough(1));
        store.keep(&store.row("another")).expect("it is kept");
        for _ in 0..2 {
            row.runs.push(Done::Copy(CopyBaseline { host_bytes: 7, copies: Vec::new() }));
            store.keep(&row).expect("it is kept");
        }
        row.failed.push("no".into());
        store.keep(&row).expect("it is kept");
        let back = open().row(&row.name);
        assert_eq!(
            back.copy_baselines().map(|copy_baseline| copy_baseline.host_bytes).collect::<Vec<_>>(),
            [7, 7]
        );
        assert_eq!(back.failed, row.failed);
        assert!(row.is_enough(2) && !row.is_enough(3));
        row.failed.push("no".into());
        assert!(row.is_enough(3), "what fails twice is given up");
        assert!(open().row("a third").runs.is_empty());
    }
}

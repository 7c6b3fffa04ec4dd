// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes in namespaces. Their output goes into files, and they are killed with the conductor.

use super::net::Node;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) child: Child,
    /// Standard output, from `since` on: what an earlier process of this name wrote is before that.
    stdout: PathBuf,
    since: usize,
}

fn file(path: &Path) -> Result<std::fs::File, String> {
    let opened = OpenOptions::new().create(true).append(true).open(path);
    opened.map_err(|e| format!("{}: {e}", path.display()))
}

impl Process {
    /// Starts a program in the namespace of a node. `through`: a command that executes it.
    pub(crate) fn start(node: Node, out: &Path, through: &[&str], args: &[&str]) -> Result<Self, String> {
        let name = node.name();
        let stdout = out.join(format!("{name}.out"));
        let (to, errors) = (file(&stdout)?, file(&out.join(format!("{name}.log")))?);
        let since = usize::try_from(to.metadata().map_or(0, |of| of.len())).expect("a file in memory");
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &name]).args(through).args(args);
        command.env_remove("GNSTOR_ARRAY").stdin(Stdio::null()).stdout(to).stderr(errors);
        let child = command.spawn().map_err(|e| format!("{args:?}: {e}"))?;
        Ok(Self { name, child, stdout, since })
    }

    /// Whether it has printed a line since it was started.
    pub(crate) fn has_spoken(&self) -> bool {
        std::fs::read(&self.stdout).is_ok_and(|text| text[self.since.min(text.len())..].contains(&b'\n'))
    }

    /// Its exit status, if it has ended.
    pub(crate) fn ended(&mut self) -> Option<String> {
        self.child.try_wait().ok().flatten().map(|status| status.to_string())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).expect("a process id");
        // It may have ended just now: the caller looks at that later.
        let _ = kill(Pid::from_raw(pid), signal);
    }

    /// Kills it, and waits for its end.
    pub(crate) fn kill(mut self) {
        self.signal(Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

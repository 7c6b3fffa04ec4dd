// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Client processes, and the orders that they get.

use super::Settings;
use super::net::{DAEMON, Node};
use crate::history::{Event, Reader};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// Clients that write; those behind them only read.
pub(crate) const WRITERS: usize = 3;
pub(crate) const CLIENTS: usize = 5;

#[derive(Debug)]
pub(crate) struct Client {
    number: usize,
    child: Child,
    answers: Receiver<String>,
    history: Reader,
    run: u64,
    pub(crate) is_stopped: bool,
}

fn spawn(settings: &Settings, number: usize, run: u64) -> Result<(Child, Receiver<String>), String> {
    let node = Node::Client(number);
    let name = node.name();
    let errors = OpenOptions::new().create(true).append(true).open(settings.out.join(format!("{name}.log")));
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &name]).arg(&settings.client);
    command.args([&format!("http://{DAEMON}:7117"), &name, &run.to_string()]);
    command.arg((settings.seed ^ (number as u64) << 32).to_string());
    command.arg(if number < WRITERS { number.to_string() } else { "-".into() });
    command.arg(history(settings, number));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors.map_err(|e| e.to_string())?);
    let mut child = command.spawn().map_err(|e| format!("a client: {e}"))?;
    let (tell, answers) = mpsc::channel();
    let stdout = BufReader::new(child.stdout.take().expect("piped"));
    std::thread::spawn(move || {
        for line in stdout.lines().map_while(Result::ok) {
            let _ = tell.send(line);
        }
    });
    Ok((child, answers))
}

fn history(settings: &Settings, number: usize) -> std::path::PathBuf {
    settings.out.join(format!("{}.history", Node::Client(number).name()))
}

impl Client {
    pub(crate) fn start(settings: &Settings, number: usize) -> Result<Self, String> {
        let (child, answers) = spawn(settings, number, 0)?;
        let history = Reader::new(history(settings, number));
        Ok(Self { number, child, answers, history, run: 0, is_stopped: false })
    }

    fn signal(&self, signal: Signal) {
        let _ = kill(Pid::from_raw(i32::try_from(self.child.id()).expect("a process id")), signal);
    }

    pub(crate) fn stop(&mut self) {
        self.is_stopped = true;
        self.signal(Signal::SIGSTOP);
    }

    pub(crate) fn go_on(&mut self) {
        self.is_stopped = false;
        self.signal(Signal::SIGCONT);
    }

    pub(crate) fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        let _ = self.child.wait();
    }

    /// Starts it again after a kill.
    pub(crate) fn start_again(&mut self, settings: &Settings) -> Result<(), String> {
        self.run += 1;
        (self.child, self.answers) = spawn(settings, self.number, self.run)?;
        Ok(())
    }

    /// Its exit status, if it has ended.
    pub(crate) fn ended(&mut self) -> Option<String> {
        self.child.try_wait().ok().flatten().map(|status| status.to_string())
    }

    pub(crate) fn order(&mut self, order: &str) {
        if let Some(stdin) = &mut self.child.stdin {
            // A client that has ended is found by `ended`.
            let _ = writeln!(stdin, "{order}");
        }
    }

    /// Waits until the order is carried out.
    pub(crate) fn wait(&self, order: &str, until: Instant) -> Result<(), String> {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match self.answers.recv_timeout(left) {
            Ok(line) if line == order => Ok(()),
            Ok(line) => Err(format!("client c{} answered '{line}' to '{order}'", self.number)),
            Err(_) => {
                Err(format!("client c{} did not end its calls and answer '{order}' in time", self.number))
            }
        }
    }

    /// Its new lines.
    pub(crate) fn lines(&mut self) -> Result<Vec<Event>, String> {
        self.history.read_new().map_err(|e| format!("history of client c{}: {e}", self.number))
    }
}

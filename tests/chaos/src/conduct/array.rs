// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The processes of the array, and the state that it shows.

use super::Settings;
use super::clients::{CLIENTS, Client};
use super::net::{self, DAEMON, Node};
use super::process::Process;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) const SSDS: usize = 5;
/// Longest wait for a process to serve or to end.
const LIMIT: Duration = Duration::from_secs(60);
/// Seconds by which the clocks of the two daemons are ahead.
const AHEAD: [u64; 2] = [86_400, 7];

#[derive(Debug)]
pub(crate) struct Array {
    pub(crate) settings: Settings,
    pub(crate) ssds: Vec<Option<Process>>,
    pub(crate) daemons: [Option<Process>; 2],
    /// The daemon that callers are led to.
    pub(crate) leader: usize,
    pub(crate) clients: Vec<Client>,
}

pub(crate) fn pause(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

impl Array {
    /// Starts all processes.
    pub(crate) fn start(settings: &Settings) -> Result<Self, String> {
        let ssds = (0..SSDS).map(Node::Ssd);
        let clients = (0..CLIENTS).map(Node::Client);
        let nodes: Vec<Node> = ssds.chain((0..2).map(Node::Daemon)).chain(clients).collect();
        net::make(&nodes).map_err(|why| format!("network namespaces cannot be made here: {why}"))?;
        let mut array = Self {
            settings: settings.clone(),
            ssds: (0..SSDS).map(|_| None).collect(),
            daemons: [None, None],
            leader: 0,
            clients: Vec::new(),
        };
        for ssd in 0..SSDS {
            array.start_ssd(ssd)?;
        }
        (0..SSDS).try_for_each(|ssd| array.ssd_serves(ssd))?;
        array.start_daemon(0)?;
        array.lead_all(0)?;
        array.daemon_serves(0)?;
        for number in 0..CLIENTS {
            array.clients.push(Client::start(settings, number)?);
        }
        Ok(array)
    }

    /// Starts an SSD, or starts it again with its file.
    pub(crate) fn start_ssd(&mut self, ssd: usize) -> Result<(), String> {
        let file = self.settings.out.join(format!("data/{ssd}.gns"));
        let gnstor = self.settings.gnstor.display().to_string();
        let (listen, file) = (format!("{}:4420", Node::Ssd(ssd).address()), file.display().to_string());
        let index = ssd.to_string();
        let mut args = vec![&*gnstor, "ssd", "--json", "--log", "info", "--listen", &listen];
        args.extend(["--preset", "null", "--size", "64MiB", "--sparse", "--data", &file, "--index", &index]);
        args.extend(["--no-auth", "--insecure", "--engines", "1"]);
        self.ssds[ssd] = Some(Process::start(Node::Ssd(ssd), &self.settings.out, &[], &args)?);
        Ok(())
    }

    pub(crate) fn ssd_serves(&mut self, ssd: usize) -> Result<(), String> {
        serves(self.ssds[ssd].as_mut().expect("it was started"))
    }

    /// Starts a daemon, with a clock that is ahead.
    pub(crate) fn start_daemon(&mut self, daemon: usize) -> Result<(), String> {
        let gnstor = self.settings.gnstor.display().to_string();
        let ssds: Vec<String> = (0..SSDS).map(|ssd| format!("{}:4420", Node::Ssd(ssd).address())).collect();
        let (ssds, listen) = (ssds.join(","), format!("{DAEMON}:7117"));
        let ahead = AHEAD[daemon].to_string();
        let through = ["unshare", "--time", "--boottime", &ahead, "--monotonic", &ahead];
        let mut args = vec![&*gnstor, "up", "--json", "--log", "info", "--listen", &listen, "--groups", "64"];
        args.extend(["--ssd-at", &ssds, "--no-auth", "--insecure", "--engines", "1"]);
        let node = Node::Daemon(daemon);
        self.daemons[daemon] = Some(Process::start(node, &self.settings.out, &through, &args)?);
        Ok(())
    }

    /// Waits until it serves. One that gives up, as it found no majority of SSDs, is started again.
    pub(crate) fn daemon_serves(&mut self, daemon: usize) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let process = self.daemons[daemon].as_mut().expect("it was started");
            match serves(process) {
                Ok(()) => return Ok(()),
                Err(why) if begun.elapsed() > LIMIT => return Err(why),
                Err(why) => println!("  {why}; it is started again"),
            }
            pause(200);
            self.end_daemon(daemon, Signal::SIGKILL);
            self.start_daemon(daemon)?;
        }
    }

    pub(crate) fn end_daemon(&mut self, daemon: usize, signal: Signal) {
        let Some(mut process) = self.daemons[daemon].take() else { return };
        process.signal(Signal::SIGCONT);
        process.signal(signal);
        let begun = Instant::now();
        while process.ended().is_none() && begun.elapsed() < LIMIT {
            pause(5);
        }
        process.kill();
    }

    /// Ends an SSD, and says if it did not end in order.
    pub(crate) fn end_ssd(&mut self, ssd: usize, signal: Signal) -> Result<(), String> {
        let Some(mut process) = self.ssds[ssd].take() else { return Ok(()) };
        process.signal(signal);
        let begun = Instant::now();
        let ended = loop {
            match process.ended() {
                Some(ended) => break ended,
                None if begun.elapsed() > LIMIT => return Err(format!("SSD {ssd} does not end by {signal}")),
                None => pause(5),
            }
        };
        let is_right = signal == Signal::SIGKILL || ended.ends_with("status: 0");
        if is_right { Ok(()) } else { Err(format!("SSD {ssd} ended by {signal} with {ended}")) }
    }

    /// All callers reach this daemon.
    pub(crate) fn lead_all(&mut self, daemon: usize) -> Result<(), String> {
        self.leader = daemon;
        for client in 0..CLIENTS {
            net::lead_to(Some(Node::Client(client)), daemon)?;
        }
        net::lead_to(None, daemon)
    }

    /// Runs a command of the operator. Returns its exit code and its output.
    pub(crate) fn command(&self, args: &[&str]) -> Result<(i32, String), String> {
        let mut command = Command::new("timeout");
        command.arg("5").arg(&self.settings.gnstor).args(args);
        command.args(["--array", &format!("http://{DAEMON}:7117")]);
        let output = command.stdin(Stdio::null()).output().map_err(|e| format!("{args:?}: {e}"))?;
        let words = if output.stdout.is_empty() { output.stderr } else { output.stdout };
        Ok((output.status.code().unwrap_or(-1), String::from_utf8_lossy(&words).trim().to_owned()))
    }

    /// `gnstor fleet show`: the exit code, and what it printed.
    pub(crate) fn fleet(&self) -> Result<(i32, Value), String> {
        let (code, text) = self.command(&["fleet", "show", "--json"])?;
        Ok((code, serde_json::from_str(&text).unwrap_or(Value::String(text))))
    }

    /// Processes that have ended although nothing ended them.
    pub(crate) fn lost(&mut self) -> Option<String> {
        let array = self.ssds.iter_mut().chain(&mut self.daemons).flatten();
        let lost = array.filter_map(|process| {
            let ended = process.ended()?;
            Some(format!("{} {ended}", process.name))
        });
        let clients = (0..).zip(&mut self.clients);
        let clients = clients.filter_map(|(number, client)| Some(format!("c{number} {}", client.ended()?)));
        let all: Vec<String> = lost.chain(clients).collect();
        (!all.is_empty()).then(|| format!("processes ended by themselves: {}", all.join(", ")))
    }
}

fn serves(process: &mut Process) -> Result<(), String> {
    let begun = Instant::now();
    while !process.has_spoken() {
        if let Some(ended) = process.ended() {
            return Err(format!("{} ended before it served: {ended}", process.name));
        }
        if begun.elapsed() > LIMIT {
            return Err(format!("{} does not serve within {LIMIT:?}", process.name));
        }
        pause(10);
    }
    Ok(())
}

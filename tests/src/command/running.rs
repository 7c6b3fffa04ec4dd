// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes of the `gnstor` command that run until a test ends them: an array, an SSD, or any other.

use super::{Ended, GNSTOR, Guard, LIMIT, gnstor, signal, until, wait, with_no_auth};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// A process that runs until it is told to end, and the JSON objects that it prints until then.
#[derive(Debug)]
pub struct Running {
    child: Guard,
    objects: Mutex<Receiver<Value>>,
    complaints: Mutex<Receiver<String>>,
}

impl Running {
    /// Starts `gnstor` with these arguments.
    pub fn start(args: &[&str]) -> Self {
        Self::start_through(&[], args)
    }

    /// Starts `gnstor` through another command that executes it, such as `ip netns exec NAME`.
    fn start_through(through: &[&str], args: &[&str]) -> Self {
        let gnstor = GNSTOR.to_str().expect("a path of UTF-8");
        let (first, rest) = through.split_first().unwrap_or((&gnstor, &[]));
        let mut command = Command::new(first);
        command.args(rest);
        if !through.is_empty() {
            command.arg(gnstor);
        }
        command.args(with_no_auth(args)).env_remove("GNSTOR_ARRAY").env_remove("GNSTOR_LOG");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Guard(command.spawn().expect("the command starts"));
        let (tell, objects) = mpsc::channel();
        let stdout = BufReader::new(child.0.stdout.take().expect("piped"));
        std::thread::spawn(move || {
            let mut text = String::new();
            for line in stdout.lines().map_while(Result::ok) {
                text.push_str(&line);
                if let Ok(object) = serde_json::from_str::<Value>(&text) {
                    text.clear();
                    let _ = tell.send(object);
                }
            }
        });
        let (tell, complaints) = mpsc::channel();
        let stderr = BufReader::new(child.0.stderr.take().expect("piped"));
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                eprintln!("{line}");
                let _ = tell.send(line);
            }
        });
        Self { child, objects: Mutex::new(objects), complaints: Mutex::new(complaints) }
    }

    /// The next object that the process prints.
    pub fn object(&self) -> Value {
        self.try_object().unwrap_or_else(|why| panic!("{why}"))
    }

    /// The same, or what the process said in place of it.
    fn try_object(&self) -> Result<Value, String> {
        let next = self.objects.lock().expect("no panic while held").recv_timeout(LIMIT);
        next.map_err(|e| format!("it says nothing ({e}); {:?}", self.last_words()))
    }

    /// The lines that the process writes to standard error until it closes that.
    fn last_words(&self) -> Vec<String> {
        let complaints = self.complaints.lock().expect("no panic while held");
        std::iter::from_fn(|| complaints.recv_timeout(LIMIT).ok()).collect()
    }

    fn complaints(&self) -> Vec<String> {
        self.complaints.lock().expect("no panic while held").try_iter().collect()
    }

    /// Sends the process a signal that does not end it.
    pub fn signal(&self, how: &str) {
        signal(&self.child, how);
    }

    /// Waits until the process ends. Returns its exit code.
    pub fn wait(&mut self) -> i32 {
        wait(&mut self.child, LIMIT)
            .unwrap_or_else(|| panic!("it does not end within {LIMIT:?}; {:?}", self.complaints()))
    }

    /// Ends the process with a signal. Returns its exit code.
    pub fn end(&mut self, how: &str) -> i32 {
        signal(&self.child, how);
        wait(&mut self.child, LIMIT).unwrap_or_else(|| panic!("{how} does not end it within {LIMIT:?}"))
    }
}

/// Processor time of a process that was not waited for yet, in seconds.
pub fn cpu_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let behind_name = stat.rsplit(')').next().expect("a name in brackets");
    // utime and stime are fields 14 and 15, in hundredths of a second. The third field is the first one
    // after the name.
    let ticks = behind_name.split_whitespace().skip(11).take(2);
    ticks.map(|field| field.parse::<u64>().expect("ticks")).sum::<u64>() as f64 / 100.0
}

/// A process of `gnstor ssd` whose SSD models no time.
#[derive(Debug)]
pub struct SsdProcess {
    running: Running,
    /// The object that it printed when it began to serve.
    pub serving: Value,
}

impl SsdProcess {
    /// Starts an SSD that listens at `listen`, with more arguments.
    pub fn start(listen: &str, extra: &[&str]) -> Self {
        Self::start_through(&[], listen, extra)
    }

    /// Starts an SSD through another command that executes it, such as `ip netns exec NAME`.
    pub fn start_through(through: &[&str], listen: &str, extra: &[&str]) -> Self {
        let args = [&["ssd", "--json", "--listen", listen], extra].concat();
        let begun = Instant::now();
        loop {
            let running = Running::start_through(through, &args);
            match running.try_object() {
                Ok(serving) => return Self { running, serving },
                // A connection of a parallel test may have the port that this SSD had before.
                Err(why) if why.contains("Address already in use") && begun.elapsed() < LIMIT => {
                    std::thread::sleep(Duration::from_millis(200));
                }
                Err(why) => panic!("{why}"),
            }
        }
    }

    /// The address at which the SSD listens.
    pub fn address(&self) -> String {
        self.serving["listen"].as_str().expect("an address").to_owned()
    }

    /// How the SSD came up: clean, recovered, and so on.
    pub fn came_up(&self) -> &str {
        self.serving["came_up"].as_str().expect("a word")
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.running.child.0.id()
    }

    /// Lines on standard error since the last call.
    pub fn complaints(&self) -> Vec<String> {
        self.running.complaints()
    }

    /// Sends the process a signal that does not end it.
    pub fn signal(&self, how: &str) {
        self.running.signal(how);
    }

    /// Ends the process in order. Returns the last object that it printed.
    pub fn end(mut self, how: &str) -> Value {
        assert_eq!(self.running.end(how), 0, "{how}");
        self.running.object()
    }

    /// Kills it.
    pub fn kill(mut self) {
        assert_eq!(self.running.end("-KILL"), 1000);
    }
}

/// `gnstor up` on free ports.
#[derive(Debug)]
pub struct Up {
    running: Running,
    /// The address at which the daemon listens.
    pub daemon: String,
    /// The object that the array printed when it began to serve.
    pub serving: Value,
}

impl Up {
    /// Starts an array of small SSDs without modelled time.
    pub fn start(extra: &[&str]) -> Self {
        Self::start_as(&[&["--preset", "null", "--ssd-size", "64MiB"], extra].concat())
    }

    /// Starts an array whose SSDs are described completely by these arguments.
    pub fn start_as(args: &[&str]) -> Self {
        Self::start_through(&[], args)
    }

    /// Starts an array through another command that executes it, such as `env NAME=VALUE`.
    pub fn start_through(through: &[&str], args: &[&str]) -> Self {
        let args = [&["up", "--json", "--listen", "127.0.0.1:0", "--groups", "256"], args].concat();
        let running = Running::start_through(through, &args);
        let serving = running.object();
        let daemon = serving["daemon"].as_str().expect("an address").to_owned();
        Self { running, daemon, serving }
    }

    /// Waits until the array prints a list of problems for which `what` returns true.
    pub fn until_it_says(&self, what: impl Fn(&[&str]) -> bool) {
        loop {
            let object = self.running.object();
            let problems = object["problems"].as_array().expect("a list");
            let whats: Vec<&str> = problems.iter().filter_map(|problem| problem["what"].as_str()).collect();
            assert_eq!(object["state"], if whats.is_empty() { "online" } else { "degraded" });
            if what(&whats) {
                return;
            }
        }
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.running.child.0.id()
    }

    /// Processor time of the process, in seconds.
    pub fn cpu_seconds(&self) -> f64 {
        cpu_seconds(self.pid())
    }

    /// Runs `gnstor volume` on it.
    pub fn volume(&self, args: &[&str]) -> Ended {
        gnstor(&[&["volume"], args, &["--array", &self.daemon]].concat())
    }

    /// Runs `gnstor cp` on it.
    pub fn cp(&self, args: &[&str]) -> Ended {
        gnstor(&[&["cp", "--device", "host", "--array", &self.daemon], args].concat())
    }

    /// Sends it a signal that does not end it.
    pub fn signal(&self, how: &str) {
        signal(&self.running.child, how);
    }

    /// Kills it.
    pub fn kill(mut self) {
        assert_eq!(self.running.end("-KILL"), 1000);
    }

    /// Ends the array with a signal, in order.
    pub fn end(mut self, how: &str) {
        let code = self.running.end(how);
        assert_eq!(code, 0, "{how} ends the array in order; {:?}", self.running.complaints());
    }

    /// Ends the array with a signal. Returns its exit code, and the lines on its standard error.
    pub fn end_anyhow(mut self, how: &str) -> (i32, Vec<String>) {
        let code = self.running.end(how);
        (code, self.running.last_words())
    }

    /// Lists the volumes, of which there is one, until `enough` accepts the SSDs that the list calls down.
    pub fn until_down(&self, enough: impl Fn(&[u64]) -> bool) {
        until("the SSDs that are down", || {
            let list = self.volume(&["list", "--json"]).json();
            let numbers = list[0]["ssds_down"].as_array().expect("a volume and a list");
            enough(&numbers.iter().filter_map(Value::as_u64).collect::<Vec<_>>())
        });
    }
}

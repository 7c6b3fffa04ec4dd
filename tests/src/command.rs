// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The `gnstor` command as a person runs it: processes that are waited for with deadlines and killed when a
//! test gives up.
#![expect(clippy::disallowed_methods, reason = "processes are waited for in real time")]
#![expect(
    clippy::missing_panics_doc,
    reason = "these are parts of tests: they panic when something is wrong"
)]

use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

/// Longest wait for a command, or for a process to say something.
pub const LIMIT: Duration = Duration::from_secs(60);
/// Building the command may take as long as building the workspace.
pub const BUILD_LIMIT: Duration = Duration::from_secs(900);

/// The command, built by the cargo and into the folder that this test comes from: never an old one. Where
/// there is no cargo, `GNSTOR_BIN` names it.
pub static GNSTOR: LazyLock<PathBuf> = LazyLock::new(|| named_or_built("GNSTOR_BIN", "gnstor"));

/// The hostile client, in the same way, or by `GNSTOR_HOSTILE`.
pub static HOSTILE: LazyLock<PathBuf> = LazyLock::new(|| named_or_built("GNSTOR_HOSTILE", "gnstor-hostile"));

fn named_or_built(variable: &str, name: &str) -> PathBuf {
    crate::pages::small_pages();
    std::env::var_os(variable).map_or_else(|| PROGRAMS.join(name), PathBuf::from)
}

/// Folder of the programs that tests start. They are built when the first test asks for one.
///
/// A build of the default members with one test in it has the features that `cargo test` has, those of
/// dev-dependencies included. So all libraries are there already, and only the two programs are linked.
/// `-p gnstor` has other features: with it, some 70 crates were compiled once more.
static PROGRAMS: LazyLock<PathBuf> = LazyLock::new(|| {
    let test = std::env::current_exe().expect("a test knows its path");
    let folder = test.ancestors().nth(2).expect("target/PROFILE/deps/TEST").to_owned();
    let profile = match folder.file_name().and_then(|n| n.to_str()).expect("a name") {
        "debug" => "dev",
        other => other,
    };
    let mut build = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
    build.args(["build", "--quiet", "--profile", profile]);
    build.args(["--bin", "gnstor", "--bin", "gnstor-hostile", "--test", "hostile"]);
    build.arg("--target-dir").arg(folder.parent().expect("the target folder"));
    build.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace"));
    // Cargo tells a test about its package by these variables. If they differ from the first build, cargo
    // runs the build scripts that ask for them again, such as ring's, and compiles all that depends on ring.
    for (name, _) in std::env::vars_os() {
        let told = ["CARGO_PKG_", "CARGO_MANIFEST_", "OUT_DIR"];
        if told.iter().any(|of| name.to_string_lossy().starts_with(of)) {
            build.env_remove(name);
        }
    }
    let built = run_for(build, BUILD_LIMIT);
    assert!(built.code == 0, "{}", built.stderr);
    folder
});

/// A command that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit code; 1000 for a signal.
    pub code: i32,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Ended {
    /// It ended well.
    pub fn worked(&self) {
        assert_eq!(self.code, 0, "{}", self.stderr);
    }

    /// Its output, as JSON.
    pub fn json(&self) -> Value {
        assert_eq!(self.code, 0, "{}", self.stderr);
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}", self.stdout))
    }

    /// Failed with these words in one line on standard error, and nothing on standard output.
    pub fn failed(&self, words: &[&str]) {
        assert!(self.code > 0 && self.code < 100, "exit code {}: {}", self.code, self.stderr);
        // Before it makes data files, the command says what disk space they take.
        let errors: Vec<&str> = self.stderr.lines().filter(|line| !line.starts_with("  disk ")).collect();
        assert!(errors.len() == 1 && errors[0].starts_with("gnstor: "), "{}", self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        for word in words {
            assert!(self.stderr.contains(word), "'{word}' is missing in: {}", self.stderr);
        }
        assert_eq!(self.stdout, "");
    }

    /// Refused by the parser of the command line: usage on standard error, code 2.
    pub fn not_understood(&self, words: &[&str]) {
        assert_eq!(self.code, 2, "{}", self.stderr);
        for word in words {
            assert!(self.stderr.contains(word), "'{word}' is missing in: {}", self.stderr);
        }
    }
}

/// Kills its process when a test gives up.
#[derive(Debug)]
pub struct Guard(pub Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a command to its end.
pub fn run_for(mut command: Command, limit: Duration) -> Ended {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Guard(command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}")));
    let collect = |mut from: Box<dyn Read + Send>| {
        std::thread::spawn(move || {
            let mut text = String::new();
            from.read_to_string(&mut text).map(|_| text)
        })
    };
    let stdout = collect(Box::new(child.0.stdout.take().expect("piped")));
    let stderr = collect(Box::new(child.0.stderr.take().expect("piped")));
    let code = wait(&mut child, limit).unwrap_or_else(|| panic!("{command:?} did not end within {limit:?}"));
    let text =
        |t: std::thread::JoinHandle<std::io::Result<String>>| t.join().expect("no panic").expect("text");
    Ended { code, stdout: text(stdout), stderr: text(stderr) }
}

/// The exit code, once there is one.
pub fn wait(child: &mut Guard, limit: Duration) -> Option<i32> {
    let started = Instant::now();
    while started.elapsed() < limit {
        if let Some(status) = child.0.try_wait().expect("a child can be waited for") {
            return Some(status.code().unwrap_or(1000));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}

/// Arguments for `gnstor`. SSDs of these tests that are processes of their own ask for no proof unless a test
/// names a key.
fn with_no_auth<'a>(args: &[&'a str]) -> Vec<&'a str> {
    let mut args = args.to_vec();
    let is_ssd = args.first() == Some(&"ssd") && !matches!(args.get(1), Some(&("smart" | "log")));
    let is_up = args.first() == Some(&"up") && args.contains(&"--ssd-at");
    if (is_ssd || is_up) && !["--manager-key", "--no-auth"].iter().any(|named| args.contains(named)) {
        args.push("--no-auth");
    }
    args
}

/// Runs `gnstor` to its end.
pub fn gnstor(args: &[&str]) -> Ended {
    gnstor_with(args, &[])
}

/// The same with these in its environment.
pub fn gnstor_with(args: &[&str], environment: &[(&str, &str)]) -> Ended {
    let mut command = Command::new(&*GNSTOR);
    command.args(with_no_auth(args)).env_remove("GNSTOR_ARRAY").env_remove("GNSTOR_LOG");
    command.envs(environment.iter().copied());
    run_for(command, LIMIT)
}

/// Asks again and again until it holds.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sends a signal, such as `-TERM`.
pub fn signal(child: &Guard, signal: &str) {
    let sent = Command::new("kill").args([signal, &child.0.id().to_string()]).status().expect("kill runs");
    assert!(sent.success(), "{signal}");
}

/// A process that runs until it is told to end, and the JSON objects that it prints meanwhile.
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

    /// Starts it by a command that becomes it, such as `ip netns exec NAME`.
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

    /// The next object that it prints.
    pub fn object(&self) -> Value {
        let next = self.objects.lock().expect("no panic while held").recv_timeout(LIMIT);
        next.unwrap_or_else(|e| panic!("it says nothing ({e}); {:?}", self.complaints()))
    }

    /// What it says on standard error until that is closed.
    fn last_words(&self) -> Vec<String> {
        let complaints = self.complaints.lock().expect("no panic while held");
        std::iter::from_fn(|| complaints.recv_timeout(LIMIT).ok()).collect()
    }

    fn complaints(&self) -> Vec<String> {
        self.complaints.lock().expect("no panic while held").try_iter().collect()
    }

    /// Sends it a signal that does not end it.
    pub fn signal(&self, how: &str) {
        signal(&self.child, how);
    }

    /// Waits for its end; its exit code.
    pub fn wait(&mut self) -> i32 {
        wait(&mut self.child, LIMIT)
            .unwrap_or_else(|| panic!("it does not end within {LIMIT:?}; {:?}", self.complaints()))
    }

    /// Ends it with a signal; its exit code.
    pub fn end(&mut self, how: &str) -> i32 {
        signal(&self.child, how);
        wait(&mut self.child, LIMIT).unwrap_or_else(|| panic!("{how} does not end it within {LIMIT:?}"))
    }
}

/// `gnstor ssd`, without modelled time.
#[derive(Debug)]
pub struct SsdProcess {
    running: Running,
    /// Its output when it came up.
    pub serving: Value,
}

impl SsdProcess {
    /// Starts an array that listens there, with these arguments too.
    pub fn start(listen: &str, extra: &[&str]) -> Self {
        Self::start_through(&[], listen, extra)
    }

    /// Starts it by a command that becomes it, such as `ip netns exec NAME`.
    pub fn start_through(through: &[&str], listen: &str, extra: &[&str]) -> Self {
        let args = [&["ssd", "--json", "--listen", listen], extra].concat();
        let running = Running::start_through(through, &args);
        let serving = running.object();
        Self { running, serving }
    }

    /// Where it listens.
    pub fn address(&self) -> String {
        self.serving["listen"].as_str().expect("an address").to_owned()
    }

    /// How it came up.
    pub fn came_up(&self) -> &str {
        self.serving["came_up"].as_str().expect("a word")
    }

    /// Number of its process.
    pub fn pid(&self) -> u32 {
        self.running.child.0.id()
    }

    /// What it has said on standard error since the last call.
    pub fn complaints(&self) -> Vec<String> {
        self.running.complaints()
    }

    /// Sends it a signal that does not end it.
    pub fn signal(&self, how: &str) {
        self.running.signal(how);
    }

    /// Ends it in order; returns its last output.
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
    /// Where its daemon listens.
    pub daemon: String,
    /// Its output when it served.
    pub serving: Value,
}

impl Up {
    /// Starts an array of small SSDs without modelled time.
    pub fn start(extra: &[&str]) -> Self {
        Self::start_as(&[&["--preset", "null", "--ssd-size", "64MiB"], extra].concat())
    }

    /// Starts an array of SSDs that these arguments say all of.
    pub fn start_as(args: &[&str]) -> Self {
        Self::start_through(&[], args)
    }

    /// Starts it by a command that becomes it, such as `env NAME=VALUE`.
    pub fn start_through(through: &[&str], args: &[&str]) -> Self {
        let args = [&["up", "--json", "--listen", "127.0.0.1:0", "--groups", "256"], args].concat();
        let running = Running::start_through(through, &args);
        let serving = running.object();
        let daemon = serving["daemon"].as_str().expect("an address").to_owned();
        Self { running, daemon, serving }
    }

    /// Waits until it prints that it has these problems.
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

    /// Number of its process.
    pub fn pid(&self) -> u32 {
        self.running.child.0.id()
    }

    /// Seconds of processor time that it has taken.
    pub fn cpu_seconds(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("it runs");
        let behind_name = stat.rsplit(')').next().expect("a name in brackets");
        // utime and stime are fields 14 and 15, in hundredths; the third field is the first behind the name.
        let ticks = behind_name.split_whitespace().skip(11).take(2);
        ticks.map(|field| field.parse::<u64>().expect("ticks")).sum::<u64>() as f64 / 100.0
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

    /// Ends it with a signal that it takes in order.
    pub fn end(mut self, how: &str) {
        let code = self.running.end(how);
        assert_eq!(code, 0, "{how} ends the array in order; {:?}", self.running.complaints());
    }

    /// Ends it with a signal; its exit code, and what it said on standard error.
    pub fn end_anyhow(mut self, how: &str) -> (i32, Vec<String>) {
        let code = self.running.end(how);
        (code, self.running.last_words())
    }

    /// Lists the volumes, of which there is one, until `enough` says so of the SSDs that are named as down.
    pub fn until_down(&self, enough: impl Fn(&[u64]) -> bool) {
        until("the SSDs that are down", || {
            let list = self.volume(&["list", "--json"]).json();
            let numbers = list[0]["ssds_down"].as_array().expect("a volume and a list");
            enough(&numbers.iter().filter_map(Value::as_u64).collect::<Vec<_>>())
        });
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the `gnstor` command as a person does. Tests wait for its processes with deadlines, and kill them
//! when they give up.
#![expect(clippy::disallowed_methods, reason = "processes are waited for in real time")]
#![expect(
    clippy::missing_panics_doc,
    reason = "these are parts of tests: they panic when something is wrong"
)]

mod running;

pub use running::{Running, SsdProcess, Up, cpu_seconds};
use serde_json::Value;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Longest wait for a command, or for a line of a process.
pub const LIMIT: Duration = Duration::from_secs(60);
/// Longest wait for a build of the command, which may build the workspace.
pub const BUILD_LIMIT: Duration = Duration::from_secs(900);

/// The command, built from this source by this test's cargo in this test's folder, so it is never an old one.
/// Without a cargo, `GNSTOR_BIN` names the command.
pub static GNSTOR: LazyLock<PathBuf> = LazyLock::new(|| named_or_built("GNSTOR_BIN", "gnstor"));

/// The hostile client, built in the same way, or named by `GNSTOR_HOSTILE`.
pub static HOSTILE: LazyLock<PathBuf> = LazyLock::new(|| named_or_built("GNSTOR_HOSTILE", "gnstor-hostile"));

fn named_or_built(variable: &str, name: &str) -> PathBuf {
    crate::pages::small_pages();
    std::env::var_os(variable).map_or_else(|| PROGRAMS.join(name), PathBuf::from)
}

/// Folder of the programs that tests start. The first test that needs one builds them.
///
/// A build of the default members with one test in it has the features of `cargo test`, those of
/// dev-dependencies included. So all libraries are compiled already, and cargo only links the two programs.
/// With `-p gnstor` the features differ, and cargo would compile some 70 crates once more.
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
    // Cargo describes a test's package in these variables. If they differ from those of the first build,
    // cargo reruns build scripts that depend on them, such as ring's. Then it compiles all crates above ring
    // again.
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
    /// Exit code; 1000 if a signal ended the command.
    pub code: i32,
    /// The command's standard output.
    pub stdout: String,
    /// The command's standard error.
    pub stderr: String,
}

impl Ended {
    /// Checks that the command succeeded.
    pub fn worked(&self) {
        assert_eq!(self.code, 0, "{}", self.stderr);
    }

    /// The command's standard output, as JSON.
    pub fn json(&self) -> Value {
        assert_eq!(self.code, 0, "{}", self.stderr);
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}", self.stdout))
    }

    /// The same of a command whose exit code is the state of the array: healthy, degraded or unavailable.
    pub fn state(&self) -> Value {
        assert!([0, 2, 3].contains(&self.code), "exit code {}: {}", self.code, self.stderr);
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}", self.stdout))
    }

    /// Checks that the command failed, with these words in one line on standard error and nothing on standard
    /// output.
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

    /// Checks that the command line was refused: usage on standard error, exit code 2.
    pub fn not_understood(&self, words: &[&str]) {
        assert_eq!(self.code, 2, "{}", self.stderr);
        for word in words {
            assert!(self.stderr.contains(word), "'{word}' is missing in: {}", self.stderr);
        }
    }
}

/// A process that is killed when the test drops it.
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

/// Arguments for `gnstor`. SSDs in processes of their own ask these tests for no proof, unless a test names a
/// key.
fn with_no_auth<'a>(args: &[&'a str]) -> Vec<&'a str> {
    let mut args = args.to_vec();
    let is_ssd = args.first() == Some(&"ssd") && !matches!(args.get(1), Some(&("smart" | "log")));
    let is_up = args.first() == Some(&"up") && args.contains(&"--ssd-at");
    if (is_ssd || is_up) && !["--manager-key", "--no-auth"].iter().any(|named| args.contains(named)) {
        args.push("--no-auth");
    }
    args
}

/// Runs `gnstor` and waits for its end.
pub fn gnstor(args: &[&str]) -> Ended {
    gnstor_with(args, &[])
}

/// The same with these variables in its environment.
pub fn gnstor_with(args: &[&str], environment: &[(&str, &str)]) -> Ended {
    let mut command = Command::new(&*GNSTOR);
    command.args(with_no_auth(args)).env_remove("GNSTOR_ARRAY").env_remove("GNSTOR_LOG");
    command.envs(environment.iter().copied());
    run_for(command, LIMIT)
}

/// Calls `holds` again and again until it returns true.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sends a signal, such as `-TERM`, to a process.
pub fn signal(child: &Guard, signal: &str) {
    let sent = Command::new("kill").args([signal, &child.0.id().to_string()]).status().expect("kill runs");
    assert!(sent.success(), "{signal}");
    if signal == "-STOP" {
        // A thread that waits for a core stops only when it gets one.
        until("the process stands still", || all_threads_are_stopped(child.0.id()));
    }
}

fn all_threads_are_stopped(process: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else { return true };
    threads.flatten().all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The state follows the name, which may contain any characters.
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['T', 'Z', 'X']))
    })
}

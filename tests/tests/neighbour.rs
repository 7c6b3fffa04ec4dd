// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A killed or stopped process, or a faulting kernel, ends only its own work, with an error that says why.
#![expect(
    clippy::disallowed_methods,
    reason = "processes are stopped for real time, beside threads that go on"
)]

use gnstor_array::Array;
use gnstor_tests::command::{BUILD_LIMIT, GNSTOR, Guard, Up, gnstor, run_for, signal, until, wait};
use gnstor_tests::folder::Folder;
use gnstor_tests::{
    any_port, assert_error, assert_same, client, node, pattern, small_config, volume, within,
};
use libgnstor::{Client, Rights};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Deadline of a copy's I/Os.
const IO_TIMEOUT: &str = "8s";
/// Longer than an I/O may take. A person may leave a stopped process for this long.
const STOPPED: Duration = Duration::from_secs(10);
/// Longest wait for a command whose array or client is gone. It covers an I/O's deadline, the launch's margin
/// and a busy machine.
const SOON: Duration = Duration::from_secs(45);
/// Longest time of one round of a bystander on a busy machine.
const ROUND: Duration = Duration::from_secs(8);
/// Bytes of a copy that is large enough to be under way when the test disturbs it.
const LARGE: usize = 100 << 20;

/// Starts an array in this process that listens on TCP.
fn served_array() -> Array {
    let mut config = small_config(3);
    config.ssds = gnstor_array::Ssds::Here(gnstor_array::media::in_memory(
        3,
        &gnstor_array::media::preset("null").expect("the preset without modelled time"),
        256 << 20,
    ));
    config.fabric_listen = Some(any_port());
    Array::start(&config).expect("an array starts")
}

fn input(folder: &Path, bytes: usize) -> String {
    let path = folder.join("input");
    std::fs::write(&path, pattern(3, bytes)).expect("a file can be written");
    path.to_str().expect("a plain path").to_owned()
}

/// A `gnstor cp` that runs in its own process.
struct Copying(Guard);

impl Copying {
    fn start(array: &str, from: &str, to: &str) -> Self {
        let mut command = Command::new(&*GNSTOR);
        command.args(["cp", "--device", "host", "--io-timeout", IO_TIMEOUT, "--array", array, from, to]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        Self(Guard(command.spawn().expect("the command starts")))
    }

    /// Checks that the command ends soon: with success, or with a message that has one of these words.
    fn ends(mut self, words: &[&str]) {
        let code = wait(&mut self.0, SOON).unwrap_or_else(|| panic!("not within {SOON:?}"));
        let mut said = String::new();
        self.0.0.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
        if code == 0 {
            return;
        }
        // The keep-alive may have found the fault first and logged a warning.
        let last = said.lines().rfind(|line| !line.contains(" WARN ")).unwrap_or_default();
        assert!(code == 1 && last.starts_with("gnstor: ") && !said.contains("panicked"), "{code}: {said}");
        assert!(words.iter().any(|word| said.contains(word)), "none of {words:?} in: {said}");
    }
}

/// A client in the array's process. It writes and reads all the time.
struct Bystander {
    stop: Arc<AtomicBool>,
    rounds: Arc<Mutex<Vec<Duration>>>,
    thread: JoinHandle<()>,
}

impl Bystander {
    fn start(client: Arc<Client>) -> Self {
        let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (until, count) = (Arc::clone(&stop), Arc::clone(&rounds));
        volume(&client, "bystander", 1 << 20, 2);
        let thread = std::thread::spawn(move || {
            let file = client.open("bystander", Rights::Write).expect("its own volume");
            let mut back = vec![0; 256 << 10];
            while !until.load(Ordering::Acquire) {
                let began = Instant::now();
                let data = pattern(began.elapsed().subsec_nanos().into(), back.len());
                file.write_at(0, &data).expect("a bystander's write");
                file.read_at(0, &mut back).expect("a bystander's read");
                assert_same("a bystander", &back, &data);
                count.lock().expect("no panic while held").push(began.elapsed());
                // The other processes need the cores.
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        Self { stop, rounds, thread }
    }

    fn count(&self) -> usize {
        self.rounds.lock().expect("no panic while held").len()
    }

    /// Checks that the bystander's rounds go on, and that none is slow.
    fn goes_on(&self) {
        let before = self.count();
        until("a bystander's next rounds", || self.count() >= before + 3 || self.thread.is_finished());
    }

    fn end(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let slowest = self.rounds.lock().expect("no panic while held").iter().max().copied();
        assert!(slowest.is_some_and(|slowest| slowest < ROUND), "the slowest round took {slowest:?}");
    }
}

/// An array in this process with a bystander and a witness. A copy by another process has begun to write.
struct Scene {
    copying: Copying,
    bystander: Bystander,
    witness: Arc<Client>,
    array: Array,
    folder: Folder,
    /// Name of the volume that the copy writes. The volume gets its final name when the copy is complete.
    partial: String,
}

impl Scene {
    fn of_a_copy_to(name: &str) -> Self {
        let folder = Folder::new();
        let large = input(folder.path(), LARGE);
        let array = served_array();
        let own = node(array.transport());
        let witness = client(&array, &own, "witness");
        let bystander = Bystander::start(client(&array, &own, "bystander"));
        let copying = Copying::start(&array.daemon_address().to_string(), &large, &format!("gn://{name}"));
        let prefix = format!("{name}.partial-");
        let mut partial = None;
        until("the copy's write lease", || {
            let volumes = witness.list().expect("the daemon answers");
            let mut written = volumes.into_iter().filter(|volume| volume.writer.is_some());
            partial = written.find(|volume| volume.name.starts_with(&prefix)).map(|volume| volume.name);
            partial.is_some()
        });
        std::thread::sleep(Duration::from_millis(500));
        let partial = partial.expect("it was found");
        Self { copying, bystander, witness, array, folder, partial }
    }
}

#[test]
fn a_client_process_that_is_killed_harms_no_other() {
    let _ = &*GNSTOR;
    within(BUILD_LIMIT, || {
        let mut scene = Scene::of_a_copy_to("lost");
        signal(&scene.copying.0, "-KILL");
        assert_eq!(wait(&mut scene.copying.0, SOON), Some(1000));
        scene.bystander.goes_on();
        // Others can read the volume's blocks. A client that wants to write gets an error until the lease of
        // the killed process has run out.
        let lost = scene.witness.open(&scene.partial, Rights::Read).expect("any client may read");
        let mut back = vec![0; 64 << 10];
        lost.read_at(0, &mut back).expect("a read of what is left");
        assert_error(scene.witness.open(&scene.partial, Rights::Write), libc::EBUSY, &["lost"]);
        scene.bystander.goes_on();
        scene.bystander.end();
    });
}

#[test]
#[ignore = ".ci/run runs it: it waits for most of its time"]
fn a_client_process_that_is_stopped_for_a_while_harms_no_other() {
    let _ = &*GNSTOR;
    within(BUILD_LIMIT, || {
        let scene = Scene::of_a_copy_to("slept");
        signal(&scene.copying.0, "-STOP");
        let began = Instant::now();
        scene.bystander.goes_on();
        std::thread::sleep(STOPPED.saturating_sub(began.elapsed()));
        scene.bystander.goes_on();
        signal(&scene.copying.0, "-CONT");
        scene.copying.ends(&["no completion before the deadline", "broke"]);
        scene.bystander.end();
        // The same copy again, undisturbed.
        let address = scene.array.daemon_address().to_string();
        let small = input(scene.folder.path(), 3 << 20);
        let out = scene.folder.path().join("output").display().to_string();
        gnstor(&["cp", "--device", "host", "--array", &address, &small, "gn://again"]).worked();
        gnstor(&["cp", "--device", "host", "--array", &address, "gn://again", &out]).worked();
        assert_same("copied out", &std::fs::read(&out).expect("a file"), &pattern(3, 3 << 20));
    });
}

#[test]
#[ignore = ".ci/run runs it: it waits for most of its time"]
fn an_array_that_is_stopped_for_a_while_serves_again_and_one_that_is_killed_is_told() {
    within(BUILD_LIMIT, || {
        let folder = Folder::new();
        let up = Up::start_as(&["--preset", "null", "--ssd-size", "256MiB"]);
        let small = input(folder.path(), 1 << 20);
        up.cp(&[&small, "gn://before"]).worked();
        let large = input(folder.path(), LARGE);
        let copying = Copying::start(&up.daemon, &large, "gn://large");
        until("the copy's volume", || up.volume(&["list"]).stdout.contains("large"));
        up.signal("-STOP");
        let began = Instant::now();
        std::thread::sleep(STOPPED);
        up.signal("-CONT");
        copying.ends(&["no completion before the deadline", "broke", "daemon", "did not answer"]);
        assert!(began.elapsed() < STOPPED + SOON, "{:?}", began.elapsed());
        let out = folder.path().join("output").display().to_string();
        up.cp(&["gn://before", &out]).worked();
        assert_same("from before", &std::fs::read(&out).expect("a file"), &pattern(3, 1 << 20));
        let copying = Copying::start(&up.daemon, &large, "gn://next");
        until("the copy's volume", || up.volume(&["list"]).stdout.contains("next"));
        std::thread::sleep(Duration::from_millis(500));
        up.kill();
        copying.ends(&[
            "broke",
            "no completion before the deadline",
            "daemon",
            "cannot be reached",
            "did not answer",
        ]);
    });
}

#[test]
fn a_kernel_that_traps_or_hangs_is_named_and_the_array_goes_on() {
    within(BUILD_LIMIT, || {
        let folder = Folder::new();
        let small = input(folder.path(), 300_000);
        let demo = [
            "demo",
            "--device",
            "host",
            "--preset",
            "null",
            "--ssd-size",
            "64MiB",
            "--input",
            &small,
            "--json",
        ];
        for (fault, error) in
            [("trap", "kernel gn_demo_fault failed"), ("hang", "kernel gn_demo_fault did not end")]
        {
            let report = gnstor(&[&demo[..], &["--fault", fault]].concat()).json();
            assert!(report["error"].as_str().is_some_and(|summary| summary.starts_with(error)), "{report}");
            assert_eq!((&report["fault"], &report["read_back"]), (&fault.into(), &303_104.into()));
            assert!(report["seconds"].as_f64().is_some_and(|seconds| seconds < 10.0), "{report}");
        }
        let one_grid = gnstor(&[&demo[..], &["--fault", "trap", "--one-grid"]].concat()).json();
        assert!(
            one_grid["error"].as_str().is_some_and(|summary| summary.contains("gn_demo_fault_one_grid")),
            "{one_grid}"
        );
        // Only our tests use this option, so the help does not show it.
        assert!(!gnstor(&["demo", "--help"]).stdout.contains("--fault"));
    });
}

/// A driver library that reports one GPU, either with a display or of this generation.
const DRIVER: &str = r#"
#include <stdlib.h>
#include <string.h>
int cuInit(unsigned flags) { (void)flags; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetName(char *name, int room, int device) {
  (void)device;
  strncpy(name, "a card in a desktop", (size_t)room);
  return 0;
}
static int given(const char *name) { const char *text = getenv(name); return text ? atoi(text) : 0; }
int cuDeviceGetAttribute(int *value, int what, int device) {
  (void)device;
  /* 75: compute capability; 17: kernel run time limit */
  *value = what == 75 ? given("GENERATION") : what == 17 ? given("WATCHDOG") : 0;
  return 0;
}
"#;

#[test]
fn a_gpu_whose_watchdog_ends_long_kernels_is_left_alone_and_the_report_says_so() {
    within(BUILD_LIMIT, || {
        let folder = Folder::new();
        let small = input(folder.path(), 5000);
        std::fs::write(folder.path().join("driver.c"), DRIVER).expect("a file");
        let library = folder.path().join("libcuda.so");
        let mut compile = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()));
        compile.args(["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&library);
        compile.arg(folder.path().join("driver.c"));
        let compiled = run_for(compile, SOON);
        assert_eq!(compiled.code, 0, "{}", compiled.stderr);
        std::fs::copy(&library, folder.path().join("libcuda.so.1")).expect("the name that it has elsewhere");
        let demo = |device: &str, generation: &str, watchdog: &str| {
            let mut command = Command::new(&*GNSTOR);
            command.args(["demo", "--preset", "null", "--ssd-size", "64MiB", "--input", &small, "--json"]);
            command.args(["--device", device]).env("LD_LIBRARY_PATH", folder.path());
            command.env("GENERATION", generation).env("WATCHDOG", watchdog);
            run_for(command, SOON)
        };
        for (generation, watchdog, why) in [
            ("9", "1", "drives a display: its watchdog would end"),
            ("7", "0", "older than compute capability 8.0"),
        ] {
            let report = demo("auto", generation, watchdog).json();
            assert_eq!((&report["device"], &report["verified"]), (&"host".into(), &true.into()));
            let summary = report["device_why"].as_str().expect("a reason");
            assert!(summary.contains("a card in a desktop") && summary.contains(why), "{summary}");
            demo("cuda", generation, watchdog).failed(&["a card in a desktop", why]);
        }
    });
}

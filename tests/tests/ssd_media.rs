// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files and devices for an SSD process that are unusual, in use, too small, or incomplete.

use crate::mounts::left_out;
use gnstor_array::media::{self, Plan};
use gnstor_daemon::Openings;
use gnstor_tests::command::{
    BUILD_LIMIT, GNSTOR, Guard, LIMIT, Running, SsdProcess, Up, gnstor, run_for, signal, wait,
};
use gnstor_tests::folder::Folder;
use gnstor_tests::{assert_same, pattern, within};
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::Duration;

const ANY: &str = "127.0.0.1:0";
const SMALL: [&str; 4] = ["--preset", "null", "--size", "64MiB"];

#[test]
fn a_file_that_cannot_be_used_is_named_with_a_way_out() {
    within(BUILD_LIMIT, || {
        let folder = Folder::new();
        let path = |name: &str| folder.path().join(name).to_str().expect("a plain path").to_owned();
        let ssd =
            |data: &str, extra: &[&str]| gnstor(&[&["ssd", "--listen", ANY, "--data", data], extra].concat());
        let (file, letter) = (path("it.gns"), path("letter"));
        ssd(&path(""), &SMALL).failed(&["is a folder"]);
        ssd(&path("none/it.gns"), &SMALL).failed(&["none/it.gns", "want of its folder"]);
        ssd("/dev/gnstor-no-such-device", &SMALL).failed(&["no device of this machine"]);
        ssd(&file, &["--format"]).not_understood(&["--size"]);
        gnstor(&["ssd", "--sparse"]).not_understood(&["--data"]);
        std::fs::write(&letter, "Dear reader").expect("a file can be written");
        ssd(&letter, &SMALL).failed(&[&letter, "--format"]);
        assert_eq!(std::fs::read(&letter).expect("it is there"), b"Dear reader");
        gnstor(&["up", "--listen", ANY, "--data", &letter]).failed(&[&letter, "is not a folder"]);

        let first = SsdProcess::start(ANY, &[&["--data", &file, "--index", "3"], &SMALL[..]].concat());
        ssd(&file, &["--size", "32MiB", "--format"]).failed(&[&file, "use"]);
        first.end("-TERM");
        let raw = std::fs::OpenOptions::new().write(true).open(&file).expect("it is there");
        let whole = raw.metadata().expect("its size").len();
        let limit =
            format!("ulimit -f 1000; exec {} ssd --no-auth --listen {ANY} --data {file}", GNSTOR.display());
        let mut limited = Command::new("bash");
        limited.args(["-c", &limit]);
        run_for(limited, LIMIT).failed(&[&file, "ulimit -f"]);
        raw.set_len(whole - 4096).expect("it can be cut");
        ssd(&file, &[]).failed(&[&file, "cut short", "--format"]);
        let anew = SsdProcess::start(ANY, &[&["--data", &file, "--format"], &SMALL[..]].concat());
        assert_eq!((anew.came_up(), &anew.serving["index"]), ("fresh", &0.into()));
        anew.end("-TERM");
    });
}

#[test]
fn ssds_that_do_not_fit_or_do_not_come_up_leave_no_file() {
    within(BUILD_LIMIT, || {
        let folder = Folder::new();
        let array = folder.path().join("array");
        let data = array.to_str().expect("a plain path");
        // The folder itself may go, too.
        let none_left = || std::fs::read_dir(&array).is_ok_and(|files| files.count() == 0) || !array.exists();
        let up = |extra: &[&str]| gnstor(&[&["up", "--listen", ANY, "--data", data], extra].concat());
        up(&["--ssd-size", "12TiB"]).failed(&["ssd-0.gns", "disk space", "--sparse"]);
        assert!(none_left(), "a file is left of an SSD that does not fit");
        up(&["--ssd-size", "100TiB", "--sparse"]).failed(&["--ssd-size", "16 TiB"]);
        assert!(none_left(), "a file is left of an SSD that cannot be");
        // The second path is a folder. The first file was made, and the SSD removes it again.
        let plan = |name: &str| Plan {
            preset: media::preset("null").ok(),
            bytes: Some(64 << 20),
            file: Some(array.join(name)),
            ..Plan::default()
        };
        std::fs::create_dir_all(array.join("folder")).expect("a folder");
        let error = gnstor_array::make_array(&[plan("ssd-0.gns"), plan("folder")], &Openings::in_memory())
            .expect_err("a folder is no SSD")
            .to_string();
        assert!(error.contains("is a folder"), "{error}");
        assert!(!array.join("ssd-0.gns").exists(), "half an array is left");
    });
}

#[test]
fn an_ssd_that_is_killed_while_it_is_made_is_made_again_or_says_how() {
    within(BUILD_LIMIT, || {
        let folder = Folder::new();
        for ms in [0, 5, 10, 20, 40, 80] {
            let file = folder.path().join(format!("{ms}.gns")).to_str().expect("a plain path").to_owned();
            let args =
                [&["ssd", "--no-auth", "--json", "--listen", ANY, "--data", &file], &SMALL[..]].concat();
            let mut killed = Running::start(&args);
            std::thread::sleep(Duration::from_millis(ms));
            assert_eq!(killed.end("-KILL"), 1000);
            let mut again = Command::new(&*GNSTOR);
            again.args(&args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut again = Guard(again.spawn().expect("the command starts"));
            let mut line = String::new();
            BufReader::new(again.0.stdout.take().expect("piped")).read_line(&mut line).expect("text");
            if line.is_empty() {
                let mut said = String::new();
                again.0.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
                assert!(said.contains(&file) && said.contains("format"), "after {ms} ms: {said}");
                SsdProcess::start(ANY, &[&["--data", &file, "--format"], &SMALL[..]].concat()).end("-TERM");
            }
            drop(again);
            assert!(!SsdProcess::start(ANY, &["--data", &file]).came_up().is_empty());
        }
    });
}

#[test]
fn a_signal_that_comes_twice_is_one() {
    within(BUILD_LIMIT, || {
        let folder = Folder::new();
        let file = folder.path().join("it.gns").to_str().expect("a plain path").to_owned();
        let args = [&["--listen", ANY, "--data", &file], &SMALL[..]].concat();
        let (mut ssd, ..) = ssd_with("GNSTOR_NO_IO_URING", "0", &args);
        let pid = ssd.0.id();
        // A late signal may find no process.
        let again = format!("for i in 1 2 3 4 5 6; do kill -TERM {pid}; sleep 0.002; done 2>/dev/null; true");
        assert!(Command::new("bash").args(["-c", &again]).status().expect("bash runs").success());
        assert_eq!(wait(&mut ssd, LIMIT), Some(0), "it is shut down in order");
        assert_eq!(SsdProcess::start(ANY, &["--data", &file]).came_up(), "clean");
    });
}

/// Starts an SSD with another environment. Returns its address and its output until then.
fn ssd_with(variable: &str, value: &str, args: &[&str]) -> (Guard, String, String) {
    let mut command = Command::new(&*GNSTOR);
    command.args(["ssd", "--no-auth", "--json", "--log", "info"]).args(args).env(variable, value);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Guard(command.spawn().expect("the command starts"));
    let mut line = String::new();
    BufReader::new(child.0.stdout.as_mut().expect("piped")).read_line(&mut line).expect("text");
    let serving: serde_json::Value = serde_json::from_str(&line).expect("an object");
    let mut said = String::new();
    let mut log = BufReader::new(child.0.stderr.take().expect("piped"));
    while !said.contains("flash data is read and written") {
        assert_ne!(log.read_line(&mut said).expect("text"), 0, "it does not say how: {said}");
    }
    // The rest of its output fits into the pipes.
    child.0.stderr = Some(log.into_inner());
    (child, serving["listen"].as_str().expect("an address").to_owned(), said)
}

#[test]
fn what_was_written_without_io_uring_is_read_with_it_and_a_run_says_which() {
    within(BUILD_LIMIT, || {
        let folder = Folder::new();
        let path = |name: &str| folder.path().join(name).to_str().expect("a plain path").to_owned();
        let (file, input, out) = (path("it.gns"), path("in"), path("out"));
        let data = pattern(5, 2_000_000);
        std::fs::write(&input, &data).expect("a file can be written");
        for (round, no_uring) in ["1", "0", "1"].into_iter().enumerate() {
            let args = ["--listen", ANY, "--data", &file];
            let args = if round == 0 { [&args[..], &SMALL[..]].concat() } else { args.to_vec() };
            let (mut ssd, address, said) = ssd_with("GNSTOR_NO_IO_URING", no_uring, &args);
            assert!(no_uring == "0" || said.contains("by blocking calls"), "{said}");
            assert!(no_uring == "1" || said.contains("io_uring"), "{said}");
            let up = Up::start_as(&["--ssd-at", &address]);
            if round == 0 {
                up.cp(&[&input, "gn://v"]).worked();
            } else {
                up.cp(&["gn://v", &out]).worked();
                assert_same(no_uring, &std::fs::read(&out).expect("it was copied"), &data);
            }
            up.end("-TERM");
            signal(&ssd, "-TERM");
            assert_eq!(wait(&mut ssd, LIMIT), Some(0));
        }
    });
}

#[test]
fn a_block_device_is_an_ssd_when_it_is_blank_or_given_up() {
    within(BUILD_LIMIT, || {
        let folder = Folder::new();
        let backing = folder.path().join("device");
        std::fs::File::create(&backing)
            .and_then(|file| file.set_len(1 << 30))
            .expect("a file can be written");
        let made = Command::new("losetup").args(["--find", "--show"]).arg(&backing).output();
        let device = match made {
            Ok(made) if made.status.success() => String::from_utf8_lossy(&made.stdout).trim().to_owned(),
            made => {
                return left_out("a loop device", &made);
            }
        };
        let _detached = Detached(&device);
        let ssd = |extra: &[&str]| gnstor(&[&["ssd", "--listen", ANY, "--data", &device], extra].concat());
        ssd(&[]).failed(&[&device, "--size"]);
        ssd(&["--size", "8GiB"]).failed(&[&device, "the device has 1024 MiB"]);
        let first = SsdProcess::start(ANY, &["--data", &device, "--size", "64MiB", "--index", "2"]);
        assert_eq!(first.came_up(), "fresh");
        ssd(&["--size", "64MiB", "--format"]).failed(&[&device, "in use"]);
        first.end("-TERM");
        ssd(&["--index", "1"]).failed(&[&device, "SSD 2"]);
        let again = SsdProcess::start(ANY, &["--data", &device]);
        assert_eq!((again.came_up(), &again.serving["index"]), ("clean", &2.into()));
        again.end("-TERM");
        let raw = std::fs::OpenOptions::new().write(true).open(&device).expect("it is there");
        std::os::unix::fs::FileExt::write_all_at(&raw, b"something else", 0).expect("it is written");
        drop(raw);
        ssd(&["--size", "64MiB"]).failed(&[&device, "--format"]);
        let anew = SsdProcess::start(ANY, &["--data", &device, "--size", "64MiB", "--format"]);
        assert_eq!((anew.came_up(), &anew.serving["index"]), ("fresh", &0.into()));
        anew.end("-TERM");
    });
}

/// A loop device that is detached at the end of the test.
struct Detached<'a>(&'a str);

impl Drop for Detached<'_> {
    fn drop(&mut self) {
        _ = Command::new("losetup").args(["--detach", self.0]).status();
    }
}

#[test]
fn a_volatile_array_takes_no_shared_memory() {
    within(BUILD_LIMIT, || {
        let folder = Folder::new();
        let data = folder.path().join("array").to_str().expect("a plain path").to_owned();
        let kept = |file: &str| {
            let about = std::fs::metadata(format!("{data}/{file}")).expect("the data file");
            let (dev, ino) = {
                use std::os::unix::fs::MetadataExt;
                (about.dev(), about.ino())
            };
            let name = format!("gnstor-{dev:x}-{ino:x}-");
            let all = std::fs::read_dir("/dev/shm").expect("shared memory").flatten();
            let ours = all.filter(|entry| entry.file_name().to_string_lossy().starts_with(&name));
            // A killed process may have left a file whose data file had this number and was deleted.
            let begun = std::fs::metadata(folder.path()).and_then(|about| about.created()).expect("a time");
            let is_of_this_test = |at: std::io::Result<std::time::SystemTime>| at.expect("a time") >= begun;
            ours.filter(|entry| is_of_this_test(entry.metadata().and_then(|about| about.modified()))).count()
        };
        let up = Up::start(&["--ssds", "1", "--data", &data, "--volatile"]);
        assert_eq!(kept("ssd-0.gns"), 0);
        up.end("-TERM");
        let up = Up::start_as(&["--data", &data]);
        assert_eq!(kept("ssd-0.gns"), 2, "its buffer and its records");
        up.end("-TERM");
        gnstor(&["up", "--volatile"]).not_understood(&["--data"]);
    });
}

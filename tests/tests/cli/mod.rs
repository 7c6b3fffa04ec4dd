// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The `gnstor` command as a person runs it: output, exit codes, sentences, signals.

mod copies;
mod demo;
mod leases;
mod sim;
mod status;
mod usage;

use gnstor_tests::command::{
    BUILD_LIMIT, GNSTOR, LIMIT, SsdProcess, Up, gnstor, gnstor_with, run_for, until,
};
use gnstor_tests::folder::Folder;
use gnstor_tests::{pattern, within};
use std::fs::Permissions;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// A file with these bytes.
fn file(folder: &Folder, name: &str, bytes: &[u8]) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).expect("a file can be written");
    path.to_str().expect("a plain path").to_owned()
}

fn folder() -> Folder {
    Folder::new()
}

#[test]
fn volumes_are_created_listed_shown_and_deleted() {
    within(BUILD_LIMIT, || {
        let up = Up::start(&["--ssds", "3"]);
        assert_eq!((&up.serving["preset"], &up.serving["ssds"]), (&"null".into(), &3.into()));
        assert_eq!(up.volume(&["list", "--json"]).json(), serde_json::json!([]));
        let none = up.volume(&["list"]);
        assert!(none.code == 0 && none.stdout.contains("no volumes"), "{}", none.stdout);
        let made =
            up.volume(&["create", "corpus", "--size", "1MiB", "--label", "kind=text", "--json"]).json();
        assert_eq!((&made["name"], &made["capacity_bytes"]), (&"corpus".into(), &(1 << 20).into()));
        assert_eq!((&made["replicas"], &made["labels"]["kind"]), (&2.into(), &"text".into()));
        assert_eq!(up.volume(&["show", "corpus", "--json"]).json()["vid"], made["vid"]);
        let shown = up.volume(&["show", "corpus"]);
        assert!(shown.stdout.contains("kind=text") && shown.stdout.contains("1.0 MiB"), "{}", shown.stdout);
        let other = up.volume(&["create", "other", "--size", "8192", "--replicas", "3", "--chunk", "4KiB"]);
        assert_eq!(other.code, 0, "{}", other.stderr);
        let all = up.volume(&["list", "--json"]).json();
        let names: Vec<_> =
            all.as_array().expect("a list").iter().map(|v| v["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["corpus", "other"]);
        assert_eq!(up.volume(&["delete", "corpus", "--json"]).json()["deleted"], "corpus");
        up.volume(&["show", "corpus"]).failed(&["no volume \"corpus\""]);

        up.volume(&["delete", "corpus"]).failed(&["no volume \"corpus\""]);
        up.volume(&["create", "other", "--size", "4096"]).failed(&["\"other\"", "there is one of that name"]);
        up.volume(&["create", "v", "--size", "0"]).not_understood(&["at least one block"]);
        up.volume(&["create", "v", "--size", "5000"]).failed(&["whole blocks"]);
        up.volume(&["create", "v", "--size", "1TiB"]).failed(&["does not fit"]);
        up.volume(&["create", "v", "--size", "1MiB", "--replicas", "4"])
            .failed(&["4 replicas", "the array has 3"]);
        up.volume(&["create", "v", "--size", "1MiB", "--chunk", "5000"])
            .failed(&["--chunk 5000", "a power of two"]);
        up.volume(&["create", "v", "--size", "1MiB", "--chunk", "8GiB"]).failed(&["--chunk 8GiB"]);
        up.volume(&["create", "v", "--size", "1MiB", "--label", "oops"]).failed(&["'oops'", "KEY=VALUE"]);
        up.volume(&["create", "a/b", "--size", "1MiB"]).failed(&["a/b", "not valid"]);
        assert_eq!(up.volume(&["create", "a b", "--size", "1MiB"]).code, 2);
        up.volume(&["create", "v"]).not_understood(&["--size"]);
        up.end("-TERM");
    });
}

/// Listens on a port whose neighbours are free and stay free: a system gives ports above 32767 to processes
/// that ask for any free port.
fn lonely_listener() -> TcpListener {
    let listen = |port| TcpListener::bind(("127.0.0.1", port));
    let first = 20_000 + u16::try_from(std::process::id() % 10_000).expect("small");
    let alone = |port: u16| listen(port - 1).and_then(|_| listen(port + 1)).and_then(|_| listen(port));
    (first..32_000).step_by(3).find_map(|port| alone(port).ok()).expect("three free ports in a row")
}

#[test]
fn an_array_that_cannot_start_says_why() {
    within(BUILD_LIMIT, || {
        let taken = lonely_listener();
        let port = taken.local_addr().unwrap().port();
        let small = ["--preset", "null", "--ssd-size", "64MiB", "--groups", "256"];
        let up = |extra: &[&str]| gnstor(&[&["up"], &small[2..], extra].concat());
        up(&["--listen", &format!("127.0.0.1:{port}")]).failed(&[&format!("127.0.0.1:{port}"), "in use"]);
        up(&["--listen", &format!("127.0.0.1:{}", port - 1)])
            .failed(&[&format!("127.0.0.1:{port}"), "in use"]);
        up(&["--listen", "127.0.0.1:65535"]).failed(&["65535"]);
        let free = ["--listen", "127.0.0.1:0"];
        up(&[&free[..], &["--preset", "floppy"]].concat()).failed(&["'floppy'", "null"]);
        up(&[&free[..], &["--data", "/dev/null"]].concat()).failed(&["/dev/null"]);
        up(&[&free[..], &["--ssds", "0"]].concat()).failed(&["--ssds 0", "1 to 64"]);
        gnstor(&["up", "--listen", "127.0.0.1:0", "--ssd-size", "0"]).failed(&[]);
        gnstor(&["up", "--listen", "127.0.0.1:0", "--ssd-size", "64MiB", "--groups", "1000"])
            .failed(&["power of two"]);
        gnstor(&["up", "--listen", "nonsense"]).not_understood(&["nonsense"]);
        gnstor(&["up", "--ssd-at", "foo"]).not_understood(&["'foo' is not an address"]);
    });
}

#[test]
fn a_signal_ends_an_array_in_order_even_with_clients_connected() {
    within(BUILD_LIMIT, || {
        for signal in ["-INT", "-TERM"] {
            let up = Up::start(&["--ssds", "2"]);
            let manager = libgnstor::Manager::connect(&up.daemon, "guest").unwrap();
            assert_eq!(manager.list().unwrap(), vec![]);
            up.end(signal);
            assert!(matches!(manager.list(), Err(libgnstor::Error::Unreachable { .. })));
        }
    });
}

#[test]
fn help_completion_and_manual_are_printed() {
    within(BUILD_LIMIT, || {
        for shell in ["bash", "zsh", "fish"] {
            let script = gnstor(&["completions", shell]);
            assert!(script.code == 0 && script.stdout.contains("gnstor"), "{shell}: {}", script.stderr);
        }
        let page = gnstor(&["man"]);
        assert!(
            page.code == 0 && page.stdout.starts_with(".") && page.stdout.contains("gnstor"),
            "{}",
            page.stderr
        );
        for command in [
            "demo",
            "bench",
            "up",
            "ssd",
            "volume",
            "lease",
            "ls",
            "rm",
            "df",
            "status",
            "cp",
            "certs",
            "completions",
            "man",
        ] {
            let help = gnstor(&[command, "--help"]);
            assert!(help.code == 0 && help.stdout.contains("Example"), "{command}: {}", help.stdout);
        }
        let page = gnstor(&["man", "volume", "create"]);
        assert!(
            page.stdout.contains("gnstor\\-volume\\-create") && page.stdout.contains("max\\-iops"),
            "{}",
            page.stdout
        );
        let page = gnstor(&["man", "lease", "revoke"]);
        assert!(page.stdout.contains("gnstor\\-lease\\-revoke"), "{}", page.stdout);
        gnstor(&["man", "explode"]).failed(&["gnstor has no command 'explode'"]);
        assert!(gnstor(&[]).code == 64 && gnstor(&[]).stderr.contains("Usage"));
        // It may be a monitor's command with a typing error.
        let explode = gnstor(&["explode"]);
        assert!(explode.code == 64 && explode.stderr.contains("explode"), "{}", explode.stderr);
    });
}

#[test]
fn a_reader_that_goes_away_and_a_full_disk_end_a_command_quietly_or_with_a_sentence() {
    within(BUILD_LIMIT, || {
        let up = Up::start(&["--ssds", "2"]);
        for (output, code, words) in
            [("| true", 141, ""), ("> /dev/full", 1, "standard output: No space left")]
        {
            for command in
                [format!("volume list --json --array {}", up.daemon), "man".into(), "completions bash".into()]
            {
                let script = format!("set -o pipefail; sleep 0.1 | {} {command} {output}", GNSTOR.display());
                let mut shell = Command::new("bash");
                shell.args(["-c", &script]);
                let ended = run_for(shell, LIMIT);
                // A short output may have been written completely before the reader closed the pipe.
                let went_well = output == "| true" && ended.code == 0;
                assert!(
                    ended.code == code || went_well,
                    "{command} {output}: {} {}",
                    ended.code,
                    ended.stderr
                );
                assert!(
                    !ended.stderr.contains("panicked") && ended.stderr.contains(words),
                    "{command}: {}",
                    ended.stderr
                );
            }
        }
        up.end("-TERM");
    });
}

#[test]
fn wrong_arguments_exit_with_2_and_failures_with_1() {
    within(BUILD_LIMIT, || {
        let folder = folder();
        let small = file(&folder, "small", &pattern(1, 5000));
        let wrong: [&[&str]; 8] = [
            &["demo", "--input", &small, "--preset", "floppy"],
            &["demo", "--input", &small, "--threads", "100"],
            &["demo", "--input", &small, "--ssds", "65"],
            &["cp", &small, &small],
            &["volume", "create", "v", "--size", "4096", "--label", "oops"],
            &["ls", "--filter", "size=1"],
            &["man", "explode"],
            &["up", "--listen", "127.0.0.1:65535"],
        ];
        for args in wrong {
            let ended = gnstor(args);
            assert_eq!(ended.code, 2, "{args:?}: {}", ended.stderr);
        }
        let missing = folder.path().join("missing").display().to_string();
        assert_eq!(gnstor(&["demo", "--input", &missing]).code, 2);
        assert_eq!(gnstor(&["cp", &missing, "gn://v", "--array", "127.0.0.1:1"]).code, 1);
        assert_eq!(gnstor(&["ls", "--array", "127.0.0.1:1"]).code, 1);
    });
}

#[test]
fn lists_are_sorted_and_filtered_and_several_volumes_are_deleted() {
    within(BUILD_LIMIT, || {
        let up = Up::start(&["--ssds", "2"]);
        for (name, size, label) in
            [("b-1", "64KiB", "kind=text"), ("a-1", "256KiB", "kind=image"), ("c", "128KiB", "x=")]
        {
            up.volume(&["create", name, "--size", size, "--replicas", "1", "--label", label]).worked();
        }
        let names = |args: &[&str]| -> Vec<String> {
            let list = gnstor(&[&["ls", "--json", "--array", &up.daemon], args].concat()).json();
            list.as_array()
                .expect("a list")
                .iter()
                .map(|v| v["name"].as_str().expect("a name").into())
                .collect()
        };
        assert_eq!(names(&[]), ["b-1", "a-1", "c"]);
        assert_eq!(names(&["--sort", "name"]), ["a-1", "b-1", "c"]);
        assert_eq!(names(&["--sort", "size", "--reverse"]), ["a-1", "c", "b-1"]);
        assert_eq!(names(&["--filter", "name=*-1", "--filter", "label=kind=text"]), ["b-1"]);
        assert_eq!(names(&["--filter", "label=kind", "--filter", "writer=none"]), ["b-1", "a-1"]);
        assert_eq!(names(&["--filter", "replicas=2"]), [""; 0]);
        let rm = gnstor(&["rm", "--array", &up.daemon, "a-1", "nowhere", "c"]);
        assert_eq!((rm.code, &*rm.stdout), (1, "deleted a-1\ndeleted c\n"), "{}", rm.stderr);
        assert!(rm.stderr.contains("\"nowhere\""), "{}", rm.stderr);
        assert_eq!(names(&[]), ["b-1"]);
        up.end("-TERM");
    });
}

#[test]
fn labels_cannot_send_escapes_to_a_terminal() {
    within(BUILD_LIMIT, || {
        let up = Up::start(&["--ssds", "2"]);
        up.volume(&["create", "v", "--size", "64KiB", "--label", "k=red\u{1b}[31m"]).worked();
        let shown = up.volume(&["show", "v"]);
        assert!(
            shown.stdout.contains("k=red\\u{1b}[31m") && !shown.stdout.contains('\u{1b}'),
            "{:?}",
            shown.stdout
        );
        up.end("-TERM");
    });
}

#[test]
fn new_data_files_are_announced_with_the_space_that_they_take() {
    within(BUILD_LIMIT, || {
        let folder = folder();
        let path = folder.path().join("ssd.gns");
        let args = [
            "ssd",
            "--no-auth",
            "--listen",
            "127.0.0.1:0",
            "--size",
            "64MiB",
            "--preset",
            "null",
            "--sparse",
            "--data",
        ];
        let mut command = Command::new("timeout");
        command.args(["-s", "TERM", "3"]).arg(&*GNSTOR).args(args).arg(&path);
        let ended = run_for(command, LIMIT);
        let line =
            ended.stderr.lines().find(|line| line.contains("disk ")).unwrap_or_else(|| panic!("{ended:?}"));
        let mib: f64 = line
            .split_whitespace()
            .zip(line.split_whitespace().skip(1))
            .find(|(_, unit)| *unit == "MiB")
            .and_then(|(number, _)| number.parse().ok())
            .expect("a size");
        let bytes = std::fs::metadata(&path).unwrap().len();
        assert!((mib - bytes as f64 / 1048576.0).abs() < 0.1, "{line}: the file has {bytes} bytes");
    });
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The `gnstor` command as a person runs it: output, exit codes, sentences, signals.

use gnstor_tests::command::{BUILD_LIMIT, GNSTOR, LIMIT, SsdProcess, Up, gnstor, run_for, until};
use gnstor_tests::{pattern, within};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

/// A file with these bytes.
fn file(folder: &tempfile::TempDir, name: &str, bytes: &[u8]) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).expect("a file can be written");
    path.to_str().expect("a plain path").to_owned()
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

#[test]
fn the_demo_runs_its_whole_example_and_reports_it_in_json() {
    within(BUILD_LIMIT, || {
        let folder = folder();
        let input = file(&folder, "input", &pattern(1, 300_001));
        let report =
            gnstor(&["demo", "--device", "host", "--preset", "null", "--json", "--input", &input]).json();
        assert_eq!(report["device"], "host");
        assert_eq!(report["ssds"], 4);
        assert_eq!(report["ios"], 74);
        assert_eq!(report["bytes"], 74 * 4096);
        assert_eq!(report["verified"], true);
        assert_eq!(report["replicas_checked"], 2);
        assert_eq!(report["refused_write_status"], 0x4182);
        assert_eq!(report["refused_read_status"], 0x4286);
        for field in ["gbps", "p50_us", "p99_us"] {
            assert!(report[field].as_f64().is_some_and(|f| f > 0.0), "{field}: {}", report[field]);
        }
        assert!(report["late_share"].is_null(), "no time is modelled: {}", report["late_share"]);
        assert!(report["p50_us"].as_f64() <= report["p99_us"].as_f64());
    });
}

#[test]
fn the_demo_for_a_person_names_what_was_emulated_and_which_rules_refused() {
    within(BUILD_LIMIT, || {
        let folder = folder();
        let input = file(&folder, "input", &pattern(1, 5000));
        let demo = gnstor(&["demo", "--device", "host", "--ssd-size", "64MiB", "--input", &input]);
        assert_eq!(demo.code, 0, "{}", demo.stderr);
        for word in
            ["verified", "throughput", "p99", "late", "4182h", "4286h", "access: writer", "emulated", "HCA"]
        {
            assert!(demo.stdout.contains(word), "'{word}' is missing in: {}", demo.stdout);
        }
    });
}

#[test]
fn the_demo_refuses_impossible_arguments_in_a_sentence() {
    within(BUILD_LIMIT, || {
        let folder = folder();
        let empty = file(&folder, "empty", &[]);
        let small = file(&folder, "small", &pattern(1, 5000));
        let big = file(&folder, "big", &vec![1; 6 << 20]);
        let missing = folder.path().join("missing").display().to_string();
        let this = folder.path().display().to_string();
        let demo = |extra: &[&str]| gnstor(&[&["demo", "--device", "host", "--json"], extra].concat());
        demo(&["--input", &empty]).failed(&["empty", "the file is empty"]);
        demo(&["--input", &missing]).failed(&["missing", "No such file"]);
        demo(&["--input", &this]).failed(&["directory"]);
        demo(&["--input", &small, "--preset", "floppy"]).failed(&["'floppy'", "gnstor-980pro", "null"]);
        demo(&["--input", &small, "--ssds", "0"]).failed(&["1 to 64 SSDs"]);
        demo(&["--input", &small, "--ssds", "65"]).failed(&["1 to 64 SSDs"]);
        demo(&["--input", &small, "--ssds", "2", "--replicas", "3"])
            .failed(&["3 replicas", "the array has 2"]);
        demo(&["--input", &small, "--threads", "100"]).failed(&["multiple of 32"]);
        demo(&["--input", &small, "--ssd-size", "0"]).failed(&[]);
        demo(&["--input", &big, "--ssd-size", "4MiB", "--ssds", "2"]).failed(&[
            "6.0 MiB",
            "do not fit",
            "--ssd-size",
        ]);
        demo(&["--input", &small, "--ssd-size", "3 parsec"]).not_understood(&["parsec"]);
        demo(&["--input", &small, "--blocks", "0"]).not_understood(&["--blocks"]);
    });
}

#[test]
#[expect(unsafe_code, reason = "looks for the driver as the command does")]
fn without_a_gpu_the_demo_for_cuda_says_why_it_cannot_run() {
    within(BUILD_LIMIT, || {
        // SAFETY: a library name with its NUL; the handle is not used.
        let driver = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY) };
        if !driver.is_null() {
            eprintln!("a CUDA driver is here: nothing to refuse");
            return;
        }
        let folder = folder();
        let input = file(&folder, "input", &pattern(1, 5000));
        gnstor(&["demo", "--device", "cuda", "--input", &input]).failed(&["CUDA"]);
        let auto =
            gnstor(&["demo", "--device", "auto", "--preset", "null", "--json", "--input", &input]).json();
        assert_eq!(auto["device"], "host");
        assert!(
            auto["device_why"].as_str().is_some_and(|why| why.contains("CUDA")),
            "{}",
            auto["device_why"]
        );
    });
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
        up.volume(&["create", "v", "--size", "0"]).failed(&["capacity of 0 bytes"]);
        up.volume(&["create", "v", "--size", "5000"]).failed(&["whole blocks"]);
        up.volume(&["create", "v", "--size", "1TiB"]).failed(&["does not fit"]);
        up.volume(&["create", "v", "--size", "1MiB", "--replicas", "4"])
            .failed(&["4 replicas", "the array has 3"]);
        up.volume(&["create", "v", "--size", "1MiB", "--chunk", "5000"]).failed(&["chunk of 5000"]);
        up.volume(&["create", "v", "--size", "1MiB", "--chunk", "8GiB"]).failed(&["chunk"]);
        up.volume(&["create", "v", "--size", "1MiB", "--label", "oops"]).failed(&["'oops'", "KEY=VALUE"]);
        up.volume(&["create", "a/b", "--size", "1MiB"]).failed(&["a/b", "not valid"]);
        up.volume(&["create", "v"]).not_understood(&["--size"]);
        up.end("-TERM");
    });
}

#[test]
fn files_come_back_from_a_volume_as_they_went_in() {
    within(BUILD_LIMIT, || {
        let folder = folder();
        let up = Up::start(&["--ssds", "2"]);
        for bytes in [1, 4096, 100_000] {
            let data = pattern(bytes as u64, bytes);
            let (from, name) = (file(&folder, &format!("in{bytes}"), &data), format!("gn://v{bytes}"));
            let to = folder.path().join(format!("out{bytes}"));
            let stored = up.cp(&["--json", &from, &name]).json();
            assert_eq!(stored["bytes"], bytes);
            let fetched = up.cp(&["--json", &name, to.to_str().unwrap()]).json();
            assert_eq!(fetched["sha256"], stored["sha256"]);
            assert!(std::fs::read(&to).unwrap() == data, "{bytes} bytes came back changed");
        }
        // Into a volume that is there, over what it held.
        let data = pattern(7, 100_000);
        let from = file(&folder, "again", &data);
        let to = folder.path().join("whole").display().to_string();
        up.cp(&[&from, "gn://v100000"]).worked();
        up.cp(&["gn://v100000", &to]).worked();
        assert!(std::fs::read(&to).unwrap() == data, "what was written last came back changed");
        // A shorter file and a longer one: the volume is a new one, with the length of the file.
        for bytes in [70_000, 300_000] {
            let from = file(&folder, "other", &pattern(8, bytes));
            up.cp(&[&from, "gn://v100000"]).worked();
            up.cp(&["gn://v100000", &to]).worked();
            assert!(std::fs::read(&to).unwrap() == pattern(8, bytes), "{bytes} bytes came back changed");
        }
        let from = file(&folder, "again", &data);
        up.cp(&[&from, "gn://v100000"]).worked();
        // A volume that was made otherwise has no length and no sum, and that is said. A copy into it keeps
        // its size and its settings.
        let settings = ["--size", "128KiB", "--replicas", "1", "--chunk", "4KiB", "--label", "kind=text"];
        up.volume(&[&["create", "plain"], &settings[..]].concat()).worked();
        let all = up.cp(&["gn://plain", &to]);
        assert!(all.code == 0 && all.stderr.contains("all of it is copied"), "{}", all.stderr);
        assert!(all.stderr.contains("keeps no sum"), "{}", all.stderr);
        assert_eq!(std::fs::metadata(&to).unwrap().len(), 128 << 10);
        let from = file(&folder, "shorter", &data[..70_000]);
        up.cp(&[&from, "gn://plain"]).worked();
        let plain = up.volume(&["show", "plain", "--json"]).json();
        assert_eq!((&plain["capacity_bytes"], &plain["replicas"]), (&(128 << 10).into(), &1.into()));
        assert_eq!((&plain["chunk_bytes"], &plain["labels"]["kind"]), (&4096.into(), &"text".into()));
        up.cp(&["gn://plain", &to]).worked();
        assert!(std::fs::read(&to).unwrap() == data[..70_000], "a file came back changed");
        let part = up.cp(&["gn://plain", &to, "--size", "50000"]);
        assert!(part.code == 0 && part.stderr.contains("not checked"), "{}", part.stderr);
        assert!(std::fs::read(&to).unwrap() == data[..50_000], "a part came back changed");
        // What is there already stays what it is: a link, a device.
        let link = folder.path().join("link").display().to_string();
        std::os::unix::fs::symlink("whole", &link).unwrap();
        up.cp(&["gn://v100000", &link]).worked();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(std::fs::read(&to).unwrap() == data, "a link was not followed");
        let new = folder.path().join("new");
        std::os::unix::fs::symlink("new", folder.path().join("ahead")).unwrap();
        up.cp(&["gn://v1", folder.path().join("ahead").to_str().unwrap()]).worked();
        assert_eq!(
            std::fs::read(&new).unwrap(),
            pattern(1, 1),
            "a link to what was not there was not followed"
        );
        up.cp(&[&file(&folder, "words", b"read me"), "gn://words"]).worked();
        let piped = up.cp(&["gn://words", "/dev/stdout"]);
        assert!(piped.code == 0 && piped.stdout == "read me" && piped.stderr.contains("sha256"), "{piped:?}");
        up.cp(&["gn://v1", "/dev/null"]).worked();
        assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
        let left =
            std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        assert!(left.into_iter().all(|name| !name.contains("partial")), "a partial file is left");
        up.end("-INT");
    });
}

#[test]
fn a_refused_copy_says_why_and_leaves_nothing() {
    within(BUILD_LIMIT, || {
        let folder = folder();
        let up = Up::start(&["--ssds", "2"]);
        assert_eq!(up.volume(&["create", "small", "--size", "8192"]).code, 0);
        let empty = file(&folder, "empty", &[]);
        let data = file(&folder, "data", &pattern(1, 10_000));
        let missing = folder.path().join("missing").display().to_string();
        let this = folder.path().display().to_string();
        let out = folder.path().join("out").display().to_string();
        up.cp(&[&empty, "gn://v"]).failed(&["empty", "nothing to copy"]);
        up.cp(&[&missing, "gn://v"]).failed(&["missing", "No such file"]);
        up.cp(&[&this, "gn://v"]).failed(&["not a regular file"]);
        up.cp(&[&data, "gn://small"]).failed(&["do not fit", "small", "8.0 KiB"]);
        up.cp(&[&data, "gn://"]).failed(&["not valid"]);
        up.cp(&[&data, &out]).failed(&["gn://"]);
        up.cp(&["gn://small", "gn://v"])
            .failed(&["volume to volume is not supported", "copy to a file first"]);
        up.cp(&["gn://nowhere", &out]).failed(&["no volume \"nowhere\""]);
        up.cp(&["gn://small", &out, "--size", "9000"]).failed(&["9000", "8192"]);
        let nowhere = format!("{this}/no/such/folder");
        up.cp(&["gn://small", &nowhere]).failed(&["No such file"]);
        up.cp(&["gn://small", &this]).failed(&["it is a directory"]);
        assert!(!Path::new(&out).exists(), "a refused copy left a file");
        let names = up.volume(&["list", "--json"]).json();
        assert_eq!(names.as_array().map(Vec::len), Some(1), "a refused copy left a volume: {names}");
        let daemon = up.daemon.clone();
        up.end("-TERM");
        gnstor(&["cp", "--device", "host", "--array", &daemon, &data, "gn://v"])
            .failed(&["cannot reach", &daemon]);
        gnstor(&["volume", "list", "--array", &daemon]).failed(&["cannot reach", &daemon]);
    });
}

/// Listens on a port whose neighbours are free and stay free: a process that asks for any free port is given
/// one above 32767.
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
        up(&[&free[..], &["--ssds", "0"]].concat()).failed(&["1 to 64 SSDs"]);
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
        gnstor(&["man", "explode"]).failed(&["gnstor has no command 'explode'"]);
        gnstor(&[]).not_understood(&["Usage"]);
        gnstor(&["explode"]).not_understood(&["explode"]);
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
                // What is short may have been written before the reader went.
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
        assert_eq!(gnstor(&["demo", "--input", &missing]).code, 1);
        assert_eq!(gnstor(&["ls", "--array", "127.0.0.1:1"]).code, 1);
    });
}

#[test]
fn the_demo_runs_on_one_ssd_and_says_what_replicas_need() {
    within(BUILD_LIMIT, || {
        let folder = folder();
        let input = file(&folder, "input", &pattern(1, 5000));
        let demo = ["demo", "--device", "host", "--preset", "null", "--ssds", "1", "--input", &input];
        let report = gnstor(&[&demo[..], &["--json"]].concat()).json();
        assert_eq!((&report["verified"], &report["replicas_checked"]), (&true.into(), &1.into()));
        let two = gnstor(&[&demo[..], &["--replicas", "2"]].concat());
        two.failed(&["2 replicas", "the array has 1", "--replicas 1", "--ssds"]);
        assert_eq!(two.code, 2);
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
fn copies_go_through_pipes() {
    within(BUILD_LIMIT, || {
        let folder = folder();
        let up = Up::start(&["--ssds", "2"]);
        let data = pattern(3, 100_001);
        let input = file(&folder, "input", &data);
        let out = folder.path().join("out").display().to_string();
        let (bin, array) = (GNSTOR.display(), format!("--device host --array {}", up.daemon));
        let shell = |script: &str| {
            let mut shell = Command::new("bash");
            shell.args(["-c", &format!("set -o pipefail; {script}")]);
            run_for(shell, LIMIT)
        };
        shell(&format!("cat {input} | {bin} cp {array} - gn://piped")).worked();
        shell(&format!("{bin} cp {array} gn://piped - | cat > {out}")).worked();
        assert!(std::fs::read(&out).unwrap() == data, "a pipe changed the bytes");
        // Redirected files are no pipes; the offset of an appended file stays.
        shell(&format!("{bin} cp {array} - gn://redirected < {input}")).worked();
        shell(&format!("echo head > {out}; {bin} cp {array} gn://redirected - >> {out}")).worked();
        assert!(std::fs::read(&out).unwrap() == [b"head\n", &data[..]].concat(), "what was there is lost");
        shell(&format!("(cat {input} || true) | {bin} cp {array} - gn://part --size 5000")).worked();
        shell(&format!("{bin} cp {array} gn://part - > {out}")).worked();
        assert!(std::fs::read(&out).unwrap() == data[..5000], "--size is not the length");
        let short = shell(&format!("echo x | {bin} cp {array} - gn://short --size 5000"));
        short.failed(&["-: it ended early"]);
        shell(&format!(": | {bin} cp {array} - gn://none")).failed(&["nothing to copy"]);
        shell(&format!("{bin} cp {array} /dev/zero gn://none")).failed(&["/dev/zero", "--size"]);
        let gone = shell(&format!("{bin} cp {array} gn://piped - | true"));
        assert!([0, 141].contains(&gone.code), "{}: {}", gone.code, gone.stderr);
        up.end("-TERM");
    });
}

#[test]
fn the_status_is_one_screen_and_json() {
    within(BUILD_LIMIT, || {
        let folder = folder();
        let key = folder.path().join("array.key").display().to_string();
        let up = Up::start(&["--ssds", "3", "--manager-key", &key]);
        let ask = |args: &[&str]| gnstor(&[args, &["--array", &up.daemon]].concat());
        up.volume(&["create", "safe", "--size", "1MiB"]).worked();
        up.volume(&["create", "scratch", "--size", "2MiB", "--replicas", "1"]).worked();
        let status = ask(&["status", "--json"]).json();
        assert_eq!((&status["state"], &status["problems"]), (&"online".into(), &serde_json::json!([])));
        assert_eq!(status["ssds"].as_array().map(Vec::len), Some(3));
        let screen = ask(&["status"]);
        for word in ["online", "SSD", "scratch", "single copy", "no known problems"] {
            assert!(screen.stdout.contains(word), "'{word}' is missing in: {}", screen.stdout);
        }
        assert!(screen.stdout.lines().count() <= 24, "{}", screen.stdout);
        let df = ask(&["df", "--json"]).json();
        assert_eq!((&df["capacity_bytes"], &df["taken_bytes"]), (&(192 << 20).into(), &(4 << 20).into()));
        assert_eq!(df["free_bytes"], 188 << 20);
        let table = ask(&["df"]);
        assert!(table.stdout.contains("(array)") && table.stdout.contains("188.0 MiB"), "{}", table.stdout);
        let smart = ask(&["ssd", "smart", "1", "--json"]).json();
        assert_eq!((&smart["temperature_celsius"], &smart["critical_warning"]), (&40.into(), &0.into()));
        let words = ask(&["ssd", "smart", "1"]);
        assert!(words.stdout.contains("good: no warning"), "{} {}", words.stdout, words.stderr);
        ask(&["ssd", "smart", "9"]).failed(&["no SSD 9", "0 to 2"]);
        let input = file(&folder, "input", &pattern(1, 100_000));
        up.cp(&[&input, "gn://safe", "--size", "98304"]).worked();
        ask(&["ssd", "log", "1"]).failed(&["SSD 1 asks for the array's key", "--manager-key"]);
        let log = ask(&["ssd", "log", "1", "--json", "--manager-key", &key]).json();
        let volumes = log["volumes"].as_array().expect("rows");
        assert!(volumes.iter().any(|row| row["blocks_written"].as_u64() > Some(0)), "{log}");
        assert!(log["flash"]["host_pages"].as_u64() > Some(0) && log["flash"]["lost_pages"] == 0, "{log}");
        assert!(log["clients"].is_array() && log["errors"].is_array(), "{log}");
        let words = ask(&["ssd", "log", "1", "--manager-key", &key]);
        for word in ["programmed", "bad blocks", "BLOCKS WRITTEN", "errors "] {
            assert!(words.stdout.contains(word), "'{word}' is missing in: {}", words.stdout);
        }
        up.end("-TERM");
    });
}

#[test]
fn a_status_names_the_ssd_that_is_down_and_what_to_do() {
    within(BUILD_LIMIT, || {
        let ssds: Vec<_> = (0..2)
            .map(|index: u16| {
                let number = index.to_string();
                SsdProcess::start("127.0.0.1:0", &["--preset", "null", "--size", "64MiB", "--index", &number])
            })
            .collect();
        let at: Vec<_> = ssds.iter().map(SsdProcess::address).collect();
        let up = Up::start_as(&["--ssd-at", &at.join(",")]);
        let mut ssds = ssds.into_iter();
        let kept = ssds.next();
        ssds.next().expect("two").kill();
        let status = || gnstor(&["status", "--json", "--array", &up.daemon]).json();
        until("the daemon notices", || status()["state"] == "degraded");
        let status = status();
        assert_eq!(
            (&status["ssds"][0]["state"], &status["ssds"][1]["state"]),
            (&"online".into(), &"down".into())
        );
        let action = status["problems"][0]["action"].as_str().expect("a sentence").to_owned();
        assert!(action.contains("--index 1") && action.contains(&at[1]), "{action}");
        up.end("-TERM");
        drop(kept);
    });
}

#[test]
fn new_data_files_are_announced_with_the_space_that_they_take() {
    within(BUILD_LIMIT, || {
        let folder = folder();
        let path = folder.path().join("ssd.gns");
        let args =
            ["ssd", "--listen", "127.0.0.1:0", "--size", "64MiB", "--preset", "null", "--sparse", "--data"];
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

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor status`, `df` and `ssd`.

use super::*;
use gnstor_tests::Guest;
use libgnstor::Rights;

#[test]
fn the_status_is_one_screen_and_json() {
    within(BUILD_LIMIT, || {
        let folder = folder();
        let key = folder.path().join("array.key").display().to_string();
        let up = Up::start(&["--ssds", "3", "--manager-key", &key]);
        let ask = |args: &[&str]| gnstor(&[args, &["--array", &up.daemon]].concat());
        up.volume(&["create", "safe", "--size", "1MiB"]).worked();
        up.volume(&["create", "scratch", "--size", "2MiB", "--replicas", "1"]).worked();
        let status = ask(&["status", "--json"]).state();
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
        assert!(table.stdout.contains("MiB with 1 replica, "), "{}", table.stdout);
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
fn what_df_says_is_free_can_be_created_and_written_to_its_last_block() {
    within(BUILD_LIMIT, || {
        let up = Up::start_as(&["--preset", "null", "--ssd-size", "16MiB", "--ssds", "3"]);
        up.volume(&["create", "first", "--size", "3MiB"]).worked();
        let largest = |replicas: usize| {
            let df = gnstor(&["df", "--json", "--array", &up.daemon]).json();
            df["largest_volume_bytes"][replicas - 1].as_u64().expect("bytes")
        };
        let create = |name: &str, bytes: u64, replicas: usize| {
            let (bytes, replicas) = (bytes.to_string(), replicas.to_string());
            up.volume(&["create", name, "--size", &bytes, "--replicas", &replicas])
        };
        for replicas in [3, 2, 1] {
            let (name, bytes) = (format!("of-{replicas}"), largest(replicas));
            assert!(bytes > 8 << 20, "{replicas} replicas: {bytes}");
            // The figure holds for every id that the volume may get. It is exact only while no id rests.
            if replicas == 3 {
                create("too-large", bytes + 4096, replicas).failed(&["does not fit"]);
            }
            create(&name, bytes, replicas).worked();
            let guest = Guest::connect(&up.daemon, &name);
            let file = guest.client.open(&name, Rights::Write).expect("a volume opens");
            let data = pattern(replicas as u64, usize::try_from(bytes).expect("small"));
            for (at, part) in (0..).step_by(1 << 20).zip(data.chunks(1 << 20)) {
                file.write_at(at, part).unwrap_or_else(|e| panic!("{replicas} replicas, byte {at}: {e}"));
            }
            file.flush().expect("a flush");
            let mut last = [0; 4096];
            file.read_at(bytes - 4096, &mut last).expect("a read");
            assert!(data.ends_with(&last), "the last block");
            drop(file);
            up.volume(&["delete", &name]).worked();
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
        let status = || gnstor(&["status", "--json", "--array", &up.daemon]).state();
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
#[ignore = ".ci/run runs it: it waits for most of its time"]
fn a_stopped_daemon_is_named_when_a_call_reaches_its_deadline() {
    within(BUILD_LIMIT, || {
        let up = Up::start(&["--ssds", "2"]);
        up.signal("-STOP");
        let array = ["--array", &up.daemon];
        let (list, status) = std::thread::scope(|scope| {
            let list = scope.spawn(|| gnstor(&[&["volume", "list"], &array[..]].concat()));
            let status = gnstor(&[&["status"], &array[..]].concat());
            (list.join().expect("it ends"), status)
        });
        up.signal("-CONT");
        list.failed(&[&up.daemon, "within 15s", "stopped"]);
        status.failed(&[&up.daemon, "did not answer within", "stopped"]);
        gnstor(&[&["status"], &array[..]].concat()).worked();
        up.end("-TERM");
    });
}

#[test]
fn an_array_says_where_its_key_is_and_the_key_opens_the_log() {
    within(BUILD_LIMIT, || {
        let folder = folder();
        let data = folder.path().display().to_string();
        let up = Up::start(&["--ssds", "2", "--sparse", "--data", &data]);
        let key = up.serving["manager_key"].as_str().expect("a file").to_owned();
        assert_eq!(Path::new(&key).parent(), Some(folder.path()));
        let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&key).unwrap());
        assert_eq!(mode & 0o777, 0o600, "only its owner reads it");
        let log = |extra: &[&str]| gnstor(&[&["ssd", "log", "0", "--array", &up.daemon], extra].concat());
        log(&[]).failed(&["SSD 0 asks for the array's key", "--manager-key"]);
        log(&["--manager-key", &key]).worked();
        up.end("-TERM");
        // In memory the key is in no file, and the error says how to write it to one.
        let up = Up::start(&["--ssds", "2"]);
        assert!(up.serving["manager_key"].is_null(), "{}", up.serving);
        gnstor(&["ssd", "log", "0", "--array", &up.daemon]).failed(&["gnstor up --manager-key FILE"]);
        up.end("-TERM");
    });
}

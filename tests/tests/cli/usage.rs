// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Wrong command lines, credentials that do not fit, and orders that change nothing, in words and exit codes.

use super::*;
use std::os::unix::fs::PermissionsExt as _;

/// The command does not run; its one sentence names the option and what is allowed.
fn refused(line: &str, words: &[&str]) {
    let ended = gnstor(&line.split(' ').collect::<Vec<_>>());
    ended.failed(words);
    assert_eq!(ended.code, 2, "{line}: {}", ended.stderr);
}

#[test]
fn a_file_that_an_option_names_and_that_is_not_there_is_a_wrong_command_line() {
    within(BUILD_LIMIT, || {
        let folder = folder();
        let binary = file(&folder, "m.bin", &pattern(7, 100));
        std::fs::create_dir(folder.path().join("dir")).expect("a folder");
        let dir = folder.path().join("dir").display().to_string();
        let both = ["--tls /nowhere/a", "--tls /nowhere/b", "No such file"];
        refused("up --listen 127.0.0.1:0 --tls /nowhere/a /nowhere/b", &both);
        refused("up --listen 127.0.0.1:0 --tokens /nowhere", &["--tokens /nowhere"]);
        refused("up --listen 127.0.0.1:0 --preset /nowhere.toml", &["--preset /nowhere.toml"]);
        refused("up --listen 127.0.0.1:0 --manager-key /nowhere/key", &["--manager-key", "/nowhere/key"]);
        refused("up --listen 127.0.0.1:0 --data /nowhere/a/b", &["--data /nowhere/a/b", "make that first"]);
        refused("ssd log 0 --manager-key /nowhere", &["--manager-key", "/nowhere"]);
        refused("ls --tls-ca /nowhere", &["--tls-ca /nowhere"]);
        refused(&format!("ls --tls-ca {dir}"), &["--tls-ca", "it is a directory"]);
        refused(&format!("ls --tls-ca {binary}"), &[&binary, "no certificate"]);
        refused("ls --token-file /nowhere", &["--token-file /nowhere"]);
        refused(&format!("ls --token-file {binary}"), &[&binary, "chmod 600"]);
        std::fs::set_permissions(&binary, std::fs::Permissions::from_mode(0o600)).expect("its mode");
        refused(&format!("ls --token-file {binary}"), &[&binary, "no text"]);
        refused("demo --input /nowhere", &["--input /nowhere"]);
        let new = folder.path().join("new.gns").display().to_string();
        refused(&format!("ssd --listen 127.0.0.1:0 --data {new}"), &[&new, "--size"]);
        refused(&format!("ssd --listen 127.0.0.1:0 --data {dir}"), &[&dir, "it is a folder"]);
        // The usage line does not call for an option that the environment gives.
        let environment = [("GNSTOR_ARRAY", "127.0.0.1:1")];
        let without_address = gnstor_with(&["fleet", "add"], &environment);
        without_address.not_understood(&["Usage: gnstor fleet add [OPTIONS] <SSD-ADDRESS>"]);
        assert!(!Path::new("/nowhere").exists() && !Path::new(&new).exists());
    });
}

#[test]
fn the_port_of_the_option_is_the_one_that_is_called_in_use() {
    within(BUILD_LIMIT, || {
        let up = Up::start(&["--ssds", "2"]);
        let again = gnstor(&["up", "--listen", &up.daemon]);
        again.failed(&[&format!("--listen {}", up.daemon), "in use"]);
        up.end("-TERM");
    });
}

#[test]
fn ssds_in_memory_that_are_larger_than_the_machine_are_warned_of() {
    within(BUILD_LIMIT, || {
        let folder = folder();
        // A wrong key file ends the command before it makes an SSD.
        let key = file(&folder, "key", b"none");
        let said = |size: &str| {
            gnstor(&["up", "--listen", "127.0.0.1:0", "--ssd-size", size, "--manager-key", &key]).stderr
        };
        let large = said("8TiB");
        for word in ["32.0 TiB", "of memory available", "--ssd-size", "--data"] {
            assert!(large.contains(word), "'{word}' is missing in: {large}");
        }
        assert!(!said("4MiB").contains("memory available"), "{}", said("4MiB"));
    });
}

#[test]
#[ignore = ".ci/run runs it: it waits for most of its time"]
fn a_connection_that_fails_is_told_with_its_remedy() {
    within(BUILD_LIMIT, || {
        let folder = folder();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let certs = path("certs");
        gnstor(&["certs", "init", &certs]).worked();
        gnstor(&["certs", "init", &certs]).failed(&[&certs, "has a CA already", "certs issue"]);
        for name in ["anna", "ben"] {
            gnstor(&["certs", "issue", &certs, name]).worked();
        }
        gnstor(&["certs", "issue", &certs, "anna"]).failed(&["a certificate of anna already"]);
        gnstor(&["certs", "issue", &certs, "daemon", "--server", "127.0.0.1"]).worked();
        let [ca, cert, key, anna, annas, bens] =
            ["ca.crt", "daemon.crt", "daemon.key", "anna.crt", "anna.key", "ben.key"]
                .map(|name| format!("{certs}/{name}"));
        gnstor(&["up", "--listen", "127.0.0.1:0", "--tls", &cert, &annas]).failed(&[
            &cert,
            &annas,
            "the key is not that of the certificate",
        ]);
        let up = Up::start(&["--ssds", "2", "--tls", &cert, &key, "--client-ca", &ca]);
        let plain = Up::start(&["--ssds", "2"]);
        let ssds = plain.serving["fabric"].as_str().expect("an address").to_owned();
        let fails = |command: &str| {
            let call = |to: &str, more: &[&str]| gnstor(&[&[command, "--array", to], more].concat());
            call(&up.daemon, &[]).failed(&["--tls-ca"]);
            call(&up.daemon, &["--tls-ca", &ca]).failed(&["callers for a certificate", "--tls-cert"]);
            let of_ben = ["--tls-ca", &ca, "--tls-cert", &anna, "--tls-key", &bens];
            call(&up.daemon, &of_ben).failed(&[&anna, &bens, "the key is not that of the certificate"]);
        };
        let waits = |command: &str| {
            let call = |to: &str, more: &[&str]| gnstor(&[&[command, "--array", to], more].concat());
            call(&plain.daemon, &["--tls-ca", &ca]).failed(&["does not speak TLS"]);
            call(&ssds, &[]).failed(&["port of an SSD", "one lower"]);
        };
        // Most of these calls end by a timeout, so they are made side by side.
        std::thread::scope(|scope| {
            for command in ["ls", "status"] {
                scope.spawn(|| fails(command));
                scope.spawn(|| waits(command));
            }
        });
        let annas = ["--tls-ca", &ca, "--tls-cert", &anna, "--tls-key", &annas];
        gnstor(&[&["ls", "--array", &up.daemon], &annas[..]].concat()).worked();
        up.end("-TERM");
        plain.end("-TERM");
    });
}

#[test]
fn an_order_that_changes_nothing_says_so() {
    within(BUILD_LIMIT, || {
        let up = Up::start(&["--ssds", "4"]);
        let fleet = |words: &[&str]| gnstor(&[&["fleet"], words, &["--array", &up.daemon]].concat());
        let says = |words: &[&str], text: &str| {
            let ended = fleet(words);
            ended.worked();
            assert!(ended.stdout.contains(text), "{words:?}: {}", ended.stdout);
        };
        says(&["resume", "0"], "SSD 0 is in the array: nothing to do");
        assert_eq!(fleet(&["resume", "0", "--json"]).json()["done"], "nothing");
        says(&["remove", "3"], "SSD 3 is removed");
        until("SSD 3 is out", || fleet(&["show", "--json"]).state()["ssds"][3]["state"] == "out");
        for order in ["remove", "fail"] {
            says(&[order, "3"], "SSD 3 is taken out of the array already: nothing to do");
        }
        says(&["resume", "3"], "SSD 3 is resumed");
        // A number that no SSD has gets one exit code.
        for words in [&["fleet", "fail", "9"][..], &["fleet", "drain", "9"], &["ssd", "smart", "9"]] {
            let ended = gnstor(&[words, &["--array", &up.daemon]].concat());
            ended.failed(&["SSD 9", "SSDs 0 to 3"]);
            assert_eq!(ended.code, 1, "{words:?}");
        }
        up.end("-TERM");
    });
}

#[test]
fn rights_are_shown_as_rights_and_one_that_is_not_there_is_not_revoked() {
    within(BUILD_LIMIT, || {
        let up = Up::start(&["--ssds", "2"]);
        up.volume(&["create", "q", "--size", "64KiB"]).worked();
        let shown = up.volume(&["show", "q"]).stdout;
        assert!(shown.contains("readers     none") && shown.contains("tells the volumes apart"), "{shown}");
        let shared = up.volume(&["share", "q", "anna", "read"]);
        assert!(shared.stdout.contains("right       anna: read"), "{}", shared.stdout);
        assert!(shared.stderr.contains("asks no caller for a name"), "{}", shared.stderr);
        let revoked = up.volume(&["revoke", "q", "bob"]).stdout;
        assert!(revoked.contains("bob had no right to volume q: nothing to do"), "{revoked}");
        assert!(!up.volume(&["revoke", "q", "anna"]).stdout.contains("anna"));
        up.end("-TERM");
    });
}

#[test]
fn several_deletions_are_one_object_for_programs_and_a_name_counts_once() {
    within(BUILD_LIMIT, || {
        let up = Up::start(&["--ssds", "2"]);
        let create = |name: &str| up.volume(&["create", name, "--size", "64KiB"]).worked();
        let rm = |names: &[&str]| gnstor(&[&["rm", "--array", &up.daemon], names].concat());
        ["a", "b", "c"].into_iter().for_each(create);
        let twice = rm(&["a", "a"]);
        assert_eq!((twice.code, &*twice.stdout), (0, "deleted a\n"), "{}", twice.stderr);
        let ended = rm(&["b", "z", "c", "--json"]);
        let all: serde_json::Value = serde_json::from_str(&ended.stdout).expect("one array");
        assert_eq!((ended.code, &all[0]["deleted"], &all[2]["deleted"]), (1, &"b".into(), &"c".into()));
        assert!(
            all[1]["failed"] == "z" && all[1]["why"].as_str().is_some_and(|why| why.contains("no volume"))
        );
        up.end("-TERM");
    });
}

#[test]
fn the_status_and_the_fleet_end_with_the_same_code() {
    within(BUILD_LIMIT, || {
        let ssds: Vec<_> = (0..2)
            .map(|index: u16| {
                let number = index.to_string();
                SsdProcess::start("127.0.0.1:0", &["--preset", "null", "--size", "64MiB", "--index", &number])
            })
            .collect();
        let at: Vec<_> = ssds.iter().map(SsdProcess::address).collect();
        let up = Up::start_as(&["--ssd-at", &at.join(",")]);
        let codes = || {
            let code = |words: &[&str]| gnstor(&[words, &["--array", &up.daemon]].concat()).code;
            (code(&["status"]), code(&["fleet", "show"]))
        };
        assert_eq!(codes(), (0, 0));
        let mut ssds = ssds.into_iter();
        let kept = ssds.next();
        ssds.next().expect("two").kill();
        until("both say it", || codes() == (2, 2));
        assert_eq!(gnstor(&["status", "--array", "127.0.0.1:1"]).code, 1, "no daemon");
        assert_eq!(gnstor(&["status", "--bad"]).code, 64, "a wrong command line");
        up.end("-TERM");
        drop(kept);
    });
}

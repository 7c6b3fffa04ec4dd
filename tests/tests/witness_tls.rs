// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A witness speaks TLS where the SSDs beside it do. What would keep SSDs and daemon from it is a wrong
//! command line.

use gnstor_tests::command::{BUILD_LIMIT, Ended, SsdProcess, Up, gnstor, until};
use gnstor_tests::folder::Folder;
use gnstor_tests::within;
use serde_json::Value;

/// Certificates of one CA, and the array's key.
struct Trust {
    // Dropped after the processes that use it, since dropping removes it.
    folder: Folder,
}

impl Trust {
    fn new() -> Self {
        let trust = Self { folder: Folder::new() };
        gnstor(&["certs", "init", &trust.path("")]).worked();
        for name in ["daemon", "ssd"] {
            gnstor(&["certs", "issue", &trust.path(""), name, "--server", "127.0.0.1"]).worked();
        }
        trust
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// An SSD process, or a witness, with or without TLS.
    fn ssd(&self, index: usize, is_tls: bool, more: &[&str]) -> SsdProcess {
        let (file, number) = (self.path(&format!("{index}.gns")), index.to_string());
        let [ca, cert, own, key] = ["ca.crt", "ssd.crt", "ssd.key", "array.key"].map(|name| self.path(name));
        let args = ["--data", &file, "--index", &number, "--manager-key", &key];
        let tls: &[&str] = if is_tls { &["--tls", &cert, &own, "--client-ca", &ca] } else { &[] };
        SsdProcess::start("127.0.0.1:0", &[&args[..], tls, more].concat())
    }

    fn two(&self, is_tls: bool) -> Vec<SsdProcess> {
        let media = ["--preset", "null", "--size", "64MiB"];
        (0..2).map(|index| self.ssd(index, is_tls, &media)).collect()
    }

    fn fleet(&self, up: &Up) -> Value {
        let [ca, cert, own] = ["ca.crt", "daemon.crt", "daemon.key"].map(|name| self.path(name));
        let trust = ["--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", &own];
        let shown = gnstor(&[&["fleet", "show", "--json", "--array", &up.daemon], &trust[..]].concat());
        serde_json::from_str(&shown.stdout).unwrap_or_else(|e| panic!("{e}: {}", shown.stderr))
    }

    fn until_healthy_then_without_one(&self, up: Up, mut ssds: Vec<SsdProcess>) {
        until("the array is healthy", || self.fleet(&up)["state"] == "healthy");
        let fleet = self.fleet(&up);
        assert_eq!(fleet["voters"], serde_json::json!([0, 1, 2]), "{fleet:#}");
        assert_eq!(fleet["ssds"][2]["state"], "witness", "{fleet:#}");
        // The witness's vote and its lease are the second of two: the SSD that is left needs both.
        ssds.remove(0).kill();
        until("the SSD is dropped", || self.fleet(&up)["ssds"][0]["state"] == "out");
        until("the other serves", || self.fleet(&up)["ssds"][1]["serving_groups"].as_u64() > Some(0));
        up.end("-TERM");
    }
}

#[test]
fn a_witness_votes_by_tls_where_its_ssds_speak_it() {
    within(BUILD_LIMIT, || {
        for is_alone in [false, true] {
            let trust = Trust::new();
            let ssds = trust.two(true);
            let at = ssds.iter().map(SsdProcess::address).collect::<Vec<_>>().join(",");
            let [ca, cert, own, key, folder] =
                ["ca.crt", "daemon.crt", "daemon.key", "array.key", "vote"].map(|name| trust.path(name));
            let witness = is_alone.then(|| trust.ssd(2, true, &["--witness"]));
            let address = witness.as_ref().map(SsdProcess::address);
            let third = address.as_ref().map_or(["--witness", &folder], |address| ["--witness-at", address]);
            let args = ["--ssd-at", &at, "--ssd-ca", &ca, "--tls", &cert, &own, "--client-ca", &ca];
            let up = Up::start_as(&[&args[..], &["--manager-key", &key], &third].concat());
            trust.until_healthy_then_without_one(up, ssds);
        }
    });
}

/// The daemon has TLS for its callers, its SSDs and the witness have none.
#[test]
fn a_witness_beside_ssds_without_tls_speaks_none_though_the_daemon_does() {
    within(BUILD_LIMIT, || {
        let trust = Trust::new();
        let ssds = trust.two(false);
        let at = ssds.iter().map(SsdProcess::address).collect::<Vec<_>>().join(",");
        let [ca, cert, own, key, folder] =
            ["ca.crt", "daemon.crt", "daemon.key", "array.key", "vote"].map(|name| trust.path(name));
        let args = ["--ssd-at", &at, "--tls", &cert, &own, "--client-ca", &ca, "--manager-key", &key];
        let up = Up::start_as(&[&args[..], &["--witness", &folder]].concat());
        trust.until_healthy_then_without_one(up, ssds);
    });
}

#[test]
fn a_witness_that_daemon_or_ssds_would_not_reach_is_a_wrong_command_line() {
    within(BUILD_LIMIT, || {
        let trust = Trust::new();
        let [ca, cert, own, folder] =
            ["ca.crt", "daemon.crt", "daemon.key", "vote"].map(|name| trust.path(name));
        let up = |listen: &str, ssds: &str, more: &[&str]| -> Ended {
            let args = ["up", "--listen", listen, "--ssd-at", ssds, "--no-auth", "--witness", &folder];
            gnstor(&[&args[..], more].concat())
        };
        let (near, far) = ("127.0.0.1:1,127.0.0.1:2", "192.0.2.1:1,192.0.2.2:2");
        let tls = ["--tls", &cert, &own, "--client-ca", &ca];
        let with_ca = [&tls[..], &["--ssd-ca", &ca]].concat();
        let cases: [(&str, &str, &[&str], &[&str]); 6] = [
            // The daemon would speak TLS to a witness without it.
            ("127.0.0.1:0", near, &["--ssd-ca", &ca], &["--ssd-ca", "--tls CERT KEY"]),
            // Others reach a witness without TLS.
            ("192.0.2.9:7000", near, &tls, &["192.0.2.9:7001", "--ssd-ca", "--insecure"]),
            // An address that is none to dial.
            ("0.0.0.0:0", near, &with_ca, &["0.0.0.0", "--listen", "--witness-at"]),
            ("[::]:0", near, &with_ca, &["and :: is none", "--listen", "--witness-at"]),
            // An address that each machine has for itself.
            ("127.0.0.1:0", far, &with_ca, &["192.0.2.1:1", "127.0.0.1", "--listen", "--witness-at"]),
            ("127.0.0.1:65535", near, &[], &["below 65535"]),
        ];
        for (listen, ssds, more, words) in cases {
            let ended = up(listen, ssds, more);
            assert_eq!(ended.code, 2, "{listen} {ssds} {more:?}: {}", ended.stderr);
            ended.failed(words);
        }
        assert!(!std::path::Path::new(&folder).exists(), "no witness was made");
        // An SSD of another machine asks at addresses of its own machine.
        let mixed = "127.0.0.1:1,192.0.2.2:2";
        let trust = ["--no-auth", "--insecure"];
        for voters in [&["127.0.0.1:1,192.0.2.2:2,192.0.2.3:3"][..], &[far, "--witness-at", "127.0.0.1:3"]] {
            let ended = gnstor(&[&["up", "--ssd-at"], voters, &trust].concat());
            assert_eq!(ended.code, 2, "{voters:?}: {}", ended.stderr);
            ended.failed(&["127.0.0.1:", "192.0.2.", "would not reach it"]);
        }
        // Without voters SSDs ask no other.
        let ended = gnstor(&["up", "--ssd-at", mixed, "--map-format", "2", "--no-auth"]);
        ended.failed(&["192.0.2.2:2", "--ssd-ca", "--insecure"]);
    });
}

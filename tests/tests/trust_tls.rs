// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SSD processes that ask each other over TLS, for leases and for the copies of an SSD that comes back. All
//! of them log at the highest level, except the public bytes of TLS. No log may contain a secret.
#![expect(clippy::disallowed_methods, reason = "processes and pauses in real time")]

use crate::trust_logs::assert_no_secret;
use gnstor_tests::command::{BUILD_LIMIT, SsdProcess, Up, gnstor};
use gnstor_tests::folder::Folder;
use gnstor_tests::{BLOCK, CHUNK, assert_same, node, pattern, volume, within};
use libgnstor::{
    Client, ConnectOptions, Credentials, File, RcTransport, Rights, TransportConfig, TransportThreads,
};
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SSDS: usize = 3;
/// The SSD that the test kills.
const VICTIM: usize = 2;
const BYTES: usize = 1 << 20;
const REPLICAS: u32 = 2;
/// Longest wait on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Three SSDs, a CA that signs all certificates, and the array's key.
struct Three {
    folder: Folder,
    ssds: Vec<Option<SsdProcess>>,
    addresses: Vec<String>,
    logs: Vec<String>,
}

impl Three {
    fn start() -> Self {
        let folder = Folder::new();
        let ssds = (0..SSDS).map(|_| None).collect();
        let addresses = vec!["127.0.0.1:0".into(); SSDS];
        let mut three = Self { folder, ssds, addresses, logs: Vec::new() };
        gnstor(&["certs", "init", &three.path("")]).worked();
        for name in ["daemon", "ssd"] {
            gnstor(&["certs", "issue", &three.path(""), name, "--server", "127.0.0.1"]).worked();
        }
        gnstor(&["certs", "issue", &three.path(""), "anna"]).worked();
        (0..SSDS).for_each(|ssd| three.start_ssd(ssd));
        three
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn start_ssd(&mut self, ssd: usize) {
        let (file, index) = (self.path(&format!("{ssd}.gns")), ssd.to_string());
        let [ca, cert, own, key] = ["ca.crt", "ssd.crt", "ssd.key", "array.key"].map(|name| self.path(name));
        let media = ["--preset", "null", "--size", "64MiB", "--data", &file, "--index", &index];
        let trust =
            ["--tls", &cert, &own, "--client-ca", &ca, "--manager-key", &key, "--log", "trace,rustls=info"];
        let process = SsdProcess::start(&self.addresses[ssd], &[&media[..], &trust].concat());
        self.addresses[ssd] = process.address();
        self.ssds[ssd] = Some(process);
    }

    fn daemon(&self) -> Up {
        let [ca, cert, own, key] =
            ["ca.crt", "daemon.crt", "daemon.key", "array.key"].map(|name| self.path(name));
        let trust = ["--tls", &cert, &own, "--client-ca", &ca, "--ssd-ca", &ca, "--manager-key", &key];
        Up::start_as(
            &[&["--ssd-at", &self.addresses.join(","), "--log", "trace,rustls=info"], &trust[..]].concat(),
        )
    }

    fn kill(&mut self, ssd: usize) {
        let process = self.ssds[ssd].take().expect("it runs");
        self.logs.extend(process.complaints());
        process.kill();
    }

    /// Anna's client and its engine.
    fn client(&self, up: &Up) -> (Arc<Client>, TransportThreads) {
        let engine = TransportThreads::start(vec![RcTransport::new(TransportConfig::default())])
            .expect("an engine starts");
        let mut options = ConnectOptions::new(up.daemon.clone());
        options.io_timeout = Duration::from_secs(20);
        let [tls_ca, tls_cert, tls_key] =
            ["ca.crt", "anna.crt", "anna.key"].map(|name| Some(self.path(name).into()));
        options.credentials = Credentials { tls_ca, tls_cert, tls_key, ..Credentials::default() };
        (Client::connect(&node(engine.handle()), &options).expect("a client connects"), engine)
    }

    fn fleet(&self, up: &Up) -> Value {
        let [ca, cert, key] = ["ca.crt", "anna.crt", "anna.key"].map(|name| self.path(name));
        let trust = ["--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", &key];
        let shown = gnstor(&[&["fleet", "show", "--json", "--array", &up.daemon], &trust[..]].concat());
        serde_json::from_str(&shown.stdout).unwrap_or_else(|e| panic!("{e}: {}", shown.stderr))
    }

    fn until(&self, up: &Up, what: &str, is_so: impl Fn(&Value) -> bool) {
        let begun = Instant::now();
        loop {
            let shown = self.fleet(up);
            if is_so(&shown["ssds"][VICTIM]) {
                return;
            }
            assert!(begun.elapsed() < LIMIT, "not within {LIMIT:?}: {what}: {shown:#}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Whether all copies of a block of each chunk are equal to the data.
fn each_copy_is(file: &File, data: &[u8]) -> bool {
    (0..BYTES).step_by(CHUNK).all(|at| {
        (0..REPLICAS).all(|replica| {
            let mut read = vec![0; BLOCK];
            let is_read = file.read_replica_at(replica, at as u64, &mut read).is_ok();
            if is_read {
                assert_same(&format!("copy {replica} of byte {at}"), &read, &data[at..at + BLOCK]);
            }
            is_read
        })
    })
}

#[test]
fn ssds_vote_and_fill_by_tls_and_no_log_of_them_or_their_daemon_shows_a_secret() {
    within(BUILD_LIMIT, || {
        let mut three = Three::start();
        let up = three.daemon();
        let (client, _engine) = three.client(&up);
        volume(&client, "v", BYTES as u64, REPLICAS);
        let file = client.open("v", Rights::Write).expect("it opens");
        file.write_at(0, &pattern(1, BYTES)).expect("the SSDs have leases");
        assert!(each_copy_is(&file, &pattern(1, BYTES)));

        three.kill(VICTIM);
        let data = pattern(2, BYTES);
        file.write_at(0, &data).expect("the array goes on without the SSD");
        three.until(&up, "the SSD is dropped", |ssd| ssd["state"] != "in");
        three.start_ssd(VICTIM);
        three.until(&up, "it has filled", |ssd| {
            ssd["state"] == "in" && ssd["filling_groups"] == 0 && ssd["serving_groups"].as_u64() > Some(0)
        });
        let (again, _engine) = three.client(&up);
        let whole = again.open("v", Rights::Read).expect("it opens");
        let mut read = vec![0; BYTES];
        whole.read_at(0, &mut read).expect("it is read");
        assert_same("the volume", &read, &data);
        let begun = Instant::now();
        while !each_copy_is(&file, &data) {
            assert!(begun.elapsed() < LIMIT, "each copy is served again");
            std::thread::sleep(Duration::from_millis(50));
        }
        drop((file, whole, client, again));

        let (code, said) = up.end_anyhow("-TERM");
        assert_eq!(code, 0);
        let key = std::fs::read_to_string(three.path("array.key")).expect("the key");
        let folder = three.path("");
        let public = [folder.trim_end_matches('/')];
        assert_no_secret("gnstor up --ssd-at", &said, &key, &public);
        for ssd in 0..SSDS {
            let process = three.ssds[ssd].take().expect("it runs");
            three.logs.extend(process.complaints());
            process.end("-TERM");
        }
        assert_no_secret("gnstor ssd", &three.logs, &key, &public);
    });
}

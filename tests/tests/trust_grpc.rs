// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Callers of a daemon in its own process. The tests check the listening addresses, and certificates and
//! tokens on the command line. In one test many callers make good and bad calls at once.
#![expect(clippy::disallowed_methods, reason = "processes and calls are timed in real time")]

#[path = "../../daemon/testing/raw_codec.rs"]
mod raw_codec;

use gnstor_proto::grpc::fleet_client::FleetClient;
use gnstor_proto::grpc::volumes_client::VolumesClient;
use gnstor_proto::grpc::{
    CreateRequest, DeleteRequest, GetRequest, KeepRequest, ListRequest, OpenRequest, RegisterRequest,
    ReleaseRequest, Rights,
};
use gnstor_tests::command::{BUILD_LIMIT, GNSTOR, Guard, Up, gnstor, gnstor_with};
use gnstor_tests::folder::Folder;
use gnstor_tests::{long, within};
use raw_codec::Bytes;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

/// Files of a test.
struct Files(Folder);

impl Files {
    fn new() -> Self {
        Self(Folder::new())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn secret(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, text).expect("a file can be written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("its mode");
        path
    }

    /// Makes a CA with a certificate for the daemon and for each of these names.
    fn certs(&self, names: &[&str]) {
        gnstor(&["certs", "init", &self.path("")]).worked();
        let servers = ["--server", "127.0.0.1", "--server", "localhost"];
        gnstor(&[&["certs", "issue", &self.path(""), "daemon"], &servers[..]].concat()).worked();
        for name in names {
            gnstor(&["certs", "issue", &self.path(""), name]).worked();
        }
    }
}

#[test]
fn an_address_that_others_reach_is_a_usage_error_unless_it_is_safe_or_said_to_be_insecure() {
    within(BUILD_LIMIT, || {
        let files = Files::new();
        files.certs(&[]);
        let tokens = files.secret("tokens", "anna 0123456789abcdef\n");
        let (cert, key) = (files.path("daemon.crt"), files.path("daemon.key"));
        let up = |extra: &[&str]| gnstor(&[&["up", "--listen", "0.0.0.0:0", "--ssds", "1"], extra].concat());
        for (extra, word) in [
            (&[][..], "without TLS"),
            (&["--tokens", &tokens], "without TLS"),
            (&["--tls", &cert, &key], "without proof of callers"),
            (&["--creators", "anna", "--insecure"], "callers that are proven"),
        ] {
            let ended = up(extra);
            assert_eq!(ended.code, 2, "{extra:?}: {}", ended.stderr);
            ended.failed(&[word]);
        }
        up(&["--client-ca", &cert]).not_understood(&["--tls"]);
        std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o644)).expect("its mode");
        let ended = up(&["--tls", &cert, &key, "--tokens", &tokens]);
        assert!(ended.code == 2 && ended.stderr.contains("chmod 600"), "{}", ended.stderr);
        up(&["--tls", &key, &key, "--client-ca", &cert]).failed(&["certificate"]);

        let mut command = Command::new(&*GNSTOR);
        command.args(["up", "--listen", "0.0.0.0:0", "--ssds", "1", "--preset", "null", "--groups", "256"]);
        command.args(["--ssd-size", "64MiB", "--insecure"]).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = Guard(command.spawn().expect("the command starts"));
        let mut line = String::new();
        BufReader::new(child.0.stderr.take().expect("piped")).read_line(&mut line).expect("a line");
        assert!(line.contains("insecure") && line.contains("delete every volume"), "{line}");
    });
}

#[test]
fn callers_with_certificates_own_and_share_volumes() {
    within(BUILD_LIMIT, || {
        let files = Files::new();
        files.certs(&["anna", "ben"]);
        let (ca, cert, key) = (files.path("ca.crt"), files.path("daemon.crt"), files.path("daemon.key"));
        let up = Up::start(&["--ssds", "2", "--tls", &cert, &key, "--client-ca", &ca]);
        let as_who = |who: &str, args: &[&str]| {
            let (cert, key) = (files.path(&format!("{who}.crt")), files.path(&format!("{who}.key")));
            let proof = ["--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", &key, "--array", &up.daemon];
            gnstor(&[args, &proof].concat())
        };
        as_who("anna", &["volume", "create", "corpus", "--size", "1MiB"]).worked();
        as_who("ben", &["volume", "show", "corpus"]).failed(&["\"ben\" has no read right"]);
        as_who("ben", &["rm", "corpus"]).failed(&["\"ben\" has no admin right"]);
        let seen = as_who("ben", &["ls", "--json"]).json();
        assert_eq!(seen.as_array().map(Vec::len), Some(0));
        as_who("anna", &["volume", "share", "corpus", "ben", "read"]).worked();
        as_who("ben", &["volume", "show", "corpus"]).worked();
        as_who("ben", &["status"]).worked();
        as_who("anna", &["volume", "revoke", "corpus", "ben"]).worked();
        as_who("ben", &["volume", "show", "corpus"]).failed(&["no read right"]);
        // The same settings through the environment.
        let environment = [
            ("GNSTOR_TLS_CA", ca.as_str()),
            ("GNSTOR_TLS_CERT", &files.path("anna.crt")),
            ("GNSTOR_TLS_KEY", &files.path("anna.key")),
        ];
        let named = format!("https://{}", up.daemon);
        gnstor_with(&["rm", "corpus", "--array", &named], &environment).worked();
        gnstor(&["ls", "--array", &up.daemon]).failed(&["cannot reach the daemon"]);
        gnstor(&["ls", "--array", &named]).failed(&["--tls-ca"]);
        up.end("-TERM");
    });
}

#[test]
fn callers_with_tokens_are_known_and_others_are_not() {
    within(BUILD_LIMIT, || {
        let files = Files::new();
        let tokens = files.secret("tokens", "# who\nanna 0123456789abcdef\nben fedcba9876543210\n");
        let (anna, wrong) =
            (files.secret("anna", "0123456789abcdef\n"), files.secret("wrong", "0123456789abcdeX"));
        let up = Up::start(&["--ssds", "2", "--tokens", &tokens, "--creators", "ben"]);
        let list = |extra: &[&str]| gnstor(&[&["ls", "--array", &up.daemon], extra].concat());
        list(&["--token-file", &anna]).worked();
        list(&["--token-file", &wrong]).failed(&["not one of this daemon's"]);
        list(&[]).failed(&["prove their name"]);
        let create =
            ["volume", "create", "v", "--size", "1MiB", "--array", &up.daemon, "--token-file", &anna];
        gnstor(&create).failed(&["\"anna\" may not create"]);
        up.end("-TERM");
    });
}

/// Resident bytes and number of descriptors of a process.
fn resources(pid: u32) -> (u64, usize) {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).expect("the process runs");
    let pages: u64 = statm.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("a number");
    (pages * 4096, std::fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors").count())
}

/// Adds the bearer token of a principal to a request.
fn signed<M>(who: &str, message: M) -> Request<M> {
    let mut request = Request::new(message);
    let value = format!("Bearer {who}-0123456789abcdef").parse().expect("ASCII");
    request.metadata_mut().insert("authorization", value);
    request
}

/// One visit of a caller: a connection, an id, good calls and bad ones. One call uses an id of another
/// principal. Returns the number of calls.
async fn visit(daemon: &str, foreign: u32, number: u64) -> u64 {
    let who = if number.is_multiple_of(2) { "anna" } else { "ben" };
    let endpoint = Channel::from_shared(format!("http://{daemon}")).expect("an address");
    let channel = endpoint.connect().await.expect("the daemon takes connections");
    let mut volumes = VolumesClient::new(channel.clone());
    let mut fleet = FleetClient::new(channel.clone());
    let register = signed(who, RegisterRequest { name: "stress".into() });
    // The id of a closed connection counts until the daemon has seen the connection's end.
    let id = match fleet.register(register).await {
        Ok(answer) => answer.into_inner().client_id,
        Err(status) => {
            let busy = [Code::ResourceExhausted, Code::Unavailable];
            assert!(busy.contains(&status.code()), "{status:?}");
            return 1;
        }
    };
    let name = "shared".to_owned();
    let is = |status: Result<(), Status>, codes: &[Code]| {
        let (code, said) = match status {
            Ok(()) => (Code::Ok, String::new()),
            Err(status) => (status.code(), status.message().to_owned()),
        };
        assert!(codes.contains(&code), "{code:?} is not one of {codes:?}: {said}");
    };
    // The readers of a volume are limited, and so is the queue of its changes.
    let busy = [Code::Ok, Code::ResourceExhausted, Code::Unavailable];
    let (mine, theirs) = if who == "anna" {
        (busy.as_slice(), busy.as_slice())
    } else {
        (&[Code::PermissionDenied][..], &[Code::Ok, Code::Unavailable][..])
    };
    let open = OpenRequest {
        name: name.clone(),
        client_id: id,
        rights: Rights::Read.into(),
        lease_ms: 0,
        follows_drains: false,
    };
    is(volumes.open(signed(who, open)).await.map(drop), mine);
    let release = ReleaseRequest { name: name.clone(), client_id: id, ..Default::default() };
    is(volumes.release(signed(who, release)).await.map(drop), if who == "anna" { mine } else { theirs });
    is(fleet.keep(signed(who, KeepRequest { client_id: id })).await.map(drop), &[Code::Ok]);
    is(volumes.list(signed(who, ListRequest::default())).await.map(drop), &[Code::Ok]);
    // Calls that the daemon refuses: no proof, another principal's id or volume, no such volume, no message,
    // no time.
    is(volumes.list(ListRequest::default()).await.map(drop), &[Code::Unauthenticated]);
    let foreign = KeepRequest { client_id: foreign };
    is(fleet.keep(signed(who, foreign)).await.map(drop), &[Code::PermissionDenied]);
    let delete =
        DeleteRequest { name, client_id: id, request_id: Vec::new(), force: false, ..Default::default() };
    is(volumes.delete(signed("ben", delete)).await.map(drop), &[Code::PermissionDenied]);
    is(volumes.get(signed(who, GetRequest { name: "none".into() })).await.map(drop), &[Code::NotFound]);
    let empty = CreateRequest { name: "x".into(), client_id: id, ..Default::default() };
    is(volumes.create(signed(who, empty)).await.map(drop), &[Code::InvalidArgument]);
    let mut late = signed(who, ListRequest::default());
    late.metadata_mut().insert("grpc-timeout", "1n".parse().expect("ASCII"));
    // The caller's own timer may fire first.
    is(volumes.list(late).await.map(drop), &[Code::DeadlineExceeded, Code::Cancelled]);
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.expect("ready");
    let path = http::uri::PathAndQuery::from_static("/gnstor.v1.Volumes/Open");
    let bent = vec![0x0A, 0xFF, u8::try_from(number % 256).expect("a byte")];
    is(grpc.unary(signed(who, bent), path, Bytes).await.map(drop), &[Code::InvalidArgument]);
    12
}

/// Connects, registers and disconnects this many times, from ten tasks.
async fn connect_and_hang_up(daemon: &str, times: u64) {
    let tasks: Vec<_> = (0..10)
        .map(|_| {
            let daemon = daemon.to_owned();
            tokio::spawn(async move {
                for _ in 0..times.div_ceil(10) {
                    let endpoint = Channel::from_shared(format!("http://{daemon}")).expect("an address");
                    let channel = endpoint.connect().await.expect("the daemon takes connections");
                    let register = signed("ben", RegisterRequest { name: "flicker".into() });
                    FleetClient::new(channel).register(register).await.expect("an id is free");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("every connection was let in");
    }
}

/// Checks that a principal can get as many ids as at the start.
async fn all_ids_are_free(daemon: &str) {
    let (mut held, begun) = (Vec::new(), Instant::now());
    for _ in 0..64 {
        let endpoint = Channel::from_shared(format!("http://{daemon}")).expect("an address");
        let mut fleet = FleetClient::new(endpoint.connect().await.expect("the daemon takes connections"));
        for _ in 0..64 {
            let register = || signed("ben", RegisterRequest { name: "all".into() });
            // The daemon may not have seen the end of the last connections.
            while let Err(status) = fleet.register(register()).await {
                assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
                assert!(begun.elapsed() < Duration::from_secs(30), "ids are not given back: {status:?}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        held.push(fleet);
    }
}

fn median(samples: &[u64]) -> u64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() / 2]
}

/// Lets this many callers visit the daemon again and again. Returns the daemon's memory during that time.
async fn visit_for(time: Duration, callers: u64, up: &Up, foreign: u32, calls: &Arc<AtomicU64>) -> Vec<u64> {
    let begun = Instant::now();
    let tasks: Vec<_> = (0..callers)
        .map(|caller| {
            let (daemon, calls) = (up.daemon.clone(), Arc::clone(calls));
            tokio::spawn(async move {
                for round in 0.. {
                    if begun.elapsed() > time {
                        return;
                    }
                    calls.fetch_add(visit(&daemon, foreign, caller + round).await, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let mut samples = Vec::new();
    while begun.elapsed() < time {
        tokio::time::sleep(time / 100).await;
        samples.push(resources(up.pid()).0);
    }
    for task in tasks {
        task.await.expect("every call ended as it should");
    }
    samples
}

/// The daemon refused some releases because too many waited. The end of the open's lease must release these.
fn all_opens_are_released(proof: &[&str]) {
    let begun = Instant::now();
    loop {
        let volume = gnstor(&[&["volume", "show", "shared", "--json"], proof].concat()).json();
        if volume["readers"].as_array().map(Vec::len) == Some(0) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(100), "every open is released: {volume}");
        std::thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn many_callers_that_do_good_and_bad_things_leave_nothing_behind() {
    within(BUILD_LIMIT, || {
        let (callers, time) =
            if long() { (500, Duration::from_secs(300)) } else { (100, Duration::from_secs(6)) };
        // GNSTOR_STRESS_S sets another time in seconds.
        let other = std::env::var("GNSTOR_STRESS_S").ok().and_then(|secs| secs.parse().ok());
        let time = other.map_or(time, Duration::from_secs);
        let files = Files::new();
        let tokens = files.secret(
            "tokens",
            "anna anna-0123456789abcdef\nben ben-0123456789abcdef\ncarol carol-0123456789abcdef\n",
        );
        let up = Up::start(&["--ssds", "2", "--tokens", &tokens]);
        let anna = files.secret("anna", "anna-0123456789abcdef");
        let proof = ["--array", &up.daemon, "--token-file", &anna];
        gnstor(&[&["volume", "create", "shared", "--size", "1MiB"], &proof[..]].concat()).worked();
        let before = resources(up.pid());
        let calls = Arc::new(AtomicU64::new(0));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        // The daemon uses ids again. Every number is at some time an id of anna's or ben's, except the one
        // that is kept.
        let (carol, foreign) = runtime.block_on(async {
            let endpoint = Channel::from_shared(format!("http://{}", up.daemon)).expect("an address");
            let mut fleet = FleetClient::new(endpoint.connect().await.expect("the daemon takes connections"));
            let register = signed("carol", RegisterRequest { name: "carol".into() });
            let id = fleet.register(register).await.expect("an id").into_inner().client_id;
            (fleet, id)
        });
        let samples = runtime.block_on(visit_for(time, callers, &up, foreign, &calls));
        let third = samples.len() / 3;
        let (early, late) = (median(&samples[third..2 * third]), median(&samples[2 * third..]));
        let calls = calls.load(Ordering::Relaxed);
        let visits = calls / 12;
        println!("{calls} calls, {visits} connections or more; {early} bytes, then {late}");
        assert!(calls >= callers * 12, "each caller was there");
        assert!(late as f64 <= early as f64 * 1.05, "memory grows: {early} bytes, then {late}");
        let times = if long() { 10_000 } else { 1_000 };
        runtime.block_on(connect_and_hang_up(&up.daemon, times));
        let after = resources(up.pid()).0;
        println!("{times} connections that came and went: {after} bytes");
        assert!(after as f64 <= late as f64 * 1.05, "memory grows: {late} bytes, then {after}");
        runtime.block_on(all_ids_are_free(&up.daemon));
        drop(carol);
        gnstor_tests::command::until("the descriptors are given back", || {
            resources(up.pid()).1 <= before.1 + 1
        });
        all_opens_are_released(&proof);
        up.end("-TERM");
    });
}

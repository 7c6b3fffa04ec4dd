// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hostile callers of the daemon over gRPC, in a process of their own.

use crate::attack::{Beside, measure, time_of};
use crate::beside::another_client_reads;
use crate::{LIMIT, guest_with, number};
use gnstor_proto::grpc::fleet_client::FleetClient;
use gnstor_proto::grpc::volumes_client::VolumesClient;
use gnstor_proto::grpc::{
    DeleteRequest, GetMapRequest, GetRequest, KeepRequest, ListRequest, OpenRequest, RegisterRequest,
    ReleaseRequest, Rights, ShareRequest, WatchMapRequest,
};
use gnstor_tests::command::{BUILD_LIMIT, Up};
use gnstor_tests::folder::Folder;
use gnstor_tests::{long, within};
use libgnstor::Credentials;
use raw_codec::Bytes;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tonic::Request;
use tonic::transport::Channel;

#[path = "../../../daemon/testing/raw_codec.rs"]
mod raw_codec;

/// In the child process this variable names the daemon to attack, and the time in milliseconds.
const AT: &str = "GNSTOR_HOSTILE_CALLS_AT";
const FOR: &str = "GNSTOR_HOSTILE_CALLS_MS";
/// Number of callers in one process.
const CALLERS: u64 = 24;

/// A message with the token of the attacker, with no token, or with a token of no principal.
fn signed<M>(number: u64, message: M) -> Request<M> {
    let mut request = Request::new(message);
    let token = match number % 4 {
        0 => return request,
        1 => "Bearer ben-ffffffffffffffff",
        _ => "Bearer ben-0123456789abcdef",
    };
    request.metadata_mut().insert("authorization", token.parse().expect("ASCII"));
    request
}

/// One connection, with calls that are refused or useless. Any answer will do; the calls are counted.
async fn visit(daemon: &str, number: u64, calls: &AtomicU64) -> Result<(), tonic::transport::Error> {
    let endpoint = Channel::from_shared(format!("http://{daemon}")).expect("an address");
    let channel = endpoint.timeout(Duration::from_secs(2)).connect().await?;
    let (mut volumes, mut fleet) = (VolumesClient::new(channel.clone()), FleetClient::new(channel.clone()));
    for round in 0..8 {
        let drawn = gnstor_proto::placement::mix64(number << 8 | round);
        let client_id = u32::try_from(drawn >> 32 & 0xFFFF).expect("16 bits");
        let name = if drawn.is_multiple_of(3) { "v".to_owned() } else { format!("none{client_id}") };
        let _ = fleet.register(signed(drawn, RegisterRequest { name: "hostile".into() })).await;
        let _ = fleet.keep(signed(drawn, KeepRequest { client_id })).await;
        calls.fetch_add(2, Ordering::Relaxed);
        let _ = fleet.get_map(signed(drawn, GetMapRequest {})).await;
        let rights = if drawn & 1 == 0 { Rights::Read } else { Rights::Write }.into();
        let open = OpenRequest { name: name.clone(), client_id, rights, lease_ms: 0, follows_drains: false };
        let _ = volumes.open(signed(drawn, open)).await;
        let release =
            ReleaseRequest { name: name.clone(), client_id, all_acknowledged: true, lease_epoch: None };
        let _ = volumes.release(signed(drawn, release)).await;
        let delete = DeleteRequest {
            name: name.clone(),
            client_id,
            request_id: Vec::new(),
            force: false,
            ..Default::default()
        };
        let _ = volumes.delete(signed(drawn, delete)).await;
        let share = ShareRequest { name: name.clone(), principal: "ben".into(), right: 3 };
        let _ = volumes.share(signed(drawn, share)).await;
        let _ = volumes.get(signed(drawn, GetRequest { name })).await;
        let _ = volumes.list(signed(drawn, ListRequest::default())).await;
        // A stream that the caller never reads, and bytes that are no message.
        let _ = fleet.watch_map(signed(drawn, WatchMapRequest { after_epoch: 0 })).await;
        let mut grpc = tonic::client::Grpc::new(channel.clone());
        if grpc.ready().await.is_ok() {
            let path = http::uri::PathAndQuery::from_static("/gnstor.v1.Volumes/Open");
            let _ = grpc.unary(signed(drawn, drawn.to_le_bytes().to_vec()), path, Bytes).await;
        }
        calls.fetch_add(9, Ordering::Relaxed);
    }
    Ok(())
}

/// Attacks a daemon from many connections at once. Returns the number of calls.
fn attack(daemon: &str, time: Duration) -> u64 {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let (calls, until) = (Arc::new(AtomicU64::new(0)), Instant::now() + time);
    runtime.expect("a runtime").block_on(async {
        let callers = (0..CALLERS).map(|caller| {
            let (daemon, calls) = (daemon.to_owned(), Arc::clone(&calls));
            tokio::spawn(async move {
                for round in 0.. {
                    let left = until.saturating_duration_since(Instant::now());
                    // Some hang up in the middle of a call.
                    let visit = visit(&daemon, caller << 32 | round, &calls);
                    if tokio::time::timeout(left, visit).await.is_err() {
                        return;
                    }
                }
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.await.expect("a caller ends");
        }
    });
    calls.load(Ordering::Relaxed)
}

/// The callers in a process of low priority. It prints the number of its calls.
pub(crate) fn command(daemon: &str, time: Duration) -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(std::env::current_exe().expect("a test knows its path"));
    command.args(["--exact", "calls::a_daemon_answers_beside_hostile_callers", "--nocapture"]);
    command.env(AT, daemon).env(FOR, time.as_millis().to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    command
}

/// An array whose callers prove who they are: `anna` is honest, `ben` is not.
struct Proven {
    up: Up,
    anna: Credentials,
    _folder: Folder,
}

impl Proven {
    fn start() -> Self {
        let folder = Folder::new();
        let secret = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("a file can be written");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("its mode");
            path
        };
        let tokens = secret("tokens", "anna anna-0123456789abcdef\nben ben-0123456789abcdef\n");
        let anna = secret("anna", "anna-0123456789abcdef");
        let up = Up::start(&["--ssds", "2", "--tokens", &tokens.display().to_string()]);
        Self { up, anna: Credentials { token_file: Some(anna), ..Credentials::default() }, _folder: folder }
    }
}

/// This test is also the body of the child process, where the environment names the daemon.
#[test]
fn a_daemon_answers_beside_hostile_callers() {
    if let Ok(daemon) = std::env::var(AT) {
        let calls = attack(&daemon, Duration::from_millis(number(FOR, 1000)));
        let mut out = std::io::stdout();
        writeln!(out, "\n{calls} calls").expect("its parent reads");
        return;
    }
    within(BUILD_LIMIT, || {
        let proven = Proven::start();
        assert!(attack(&proven.up.daemon, Duration::from_secs(2)) > 0, "calls were answered");
        let guest = guest_with(&proven.up.daemon, "anna", proven.anna);
        assert!(guest.client.ssds().len() == 2);
        drop(guest);
        proven.up.end("-TERM");
    });
}

/// A checked load of data beside callers that attack the daemon: no I/O may fail.
#[test]
fn the_load_beside_hostile_callers_has_no_error_and_goes_on() {
    let slice = Duration::from_millis(number("GNSTOR_HOSTILE_SLICE_MS", if long() { 2000 } else { 600 }));
    let pairs = crate::attack::pairs();
    within(LIMIT + time_of(pairs, slice, 1), move || {
        let proven = Proven::start();
        let anna = |name| guest_with(&proven.up.daemon, name, proven.anna.clone());
        let honest = anna("honest");
        let load = measure(&proven.up, &honest, &[Beside::Callers], pairs, slice);
        another_client_reads(&anna("other"), &load.file);
        drop((load, honest));
        proven.up.end("-TERM");
    });
}

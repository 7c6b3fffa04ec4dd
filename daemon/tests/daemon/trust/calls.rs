// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The proof that each call asks for, and what each principal is told of the fleet.

use super::*;
use gnstor_proto::grpc::{
    FailRequest, PublishRequest, RemoveRequest, ResumeRequest, ShowRequest, WatchMapRequest,
};
use gnstor_proto::placement::{AnyMap, Rows as _};
use http::uri::PathAndQuery;

/// The definition of all calls.
const PROTO: &str = include_str!("../../../../proto/proto/gnstor/v1/gnstor.proto");

#[test]
fn a_call_without_proof_is_refused_whatever_it_asks() {
    let _deadline = Deadline::after(LIMIT);
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), with_tokens()).unwrap();
    run(async {
        for name in [None, Some("carl")] {
            let mut c = Client::connect(&daemon, name).await;
            refused(c.register().await, Code::Unauthenticated, "");
            refused(c.create("a", 1).await, Code::Unauthenticated, "");
            refused(c.get("a").await, Code::Unauthenticated, "");
            refused(c.open("a", 1, Rights::Read).await, Code::Unauthenticated, "");
            refused(c.renew("a", 1).await, Code::Unauthenticated, "");
            refused(c.release("a", 1).await, Code::Unauthenticated, "");
            refused(c.delete("a", 1).await, Code::Unauthenticated, "");
            refused(c.share("a", "x", Right::Read).await, Code::Unauthenticated, "");
            refused(c.revoke("a", "x").await, Code::Unauthenticated, "");
            let list = c.sign(ListRequest::default());
            refused(c.volumes.list(list).await, Code::Unauthenticated, "");
            let wish = PublishRequest { vid: 1, generation: 1, client_id: 1, ..Default::default() };
            let publish = c.sign(wish);
            refused(c.volumes.publish(publish).await, Code::Unauthenticated, "");
            let map = c.sign(GetMapRequest {});
            refused(c.fleet.get_map(map).await, Code::Unauthenticated, "");
            let watch = c.sign(WatchMapRequest { after_epoch: 0 });
            refused(c.fleet.watch_map(watch).await, Code::Unauthenticated, "");
            let show = c.sign(ShowRequest {});
            refused(c.fleet.show(show).await, Code::Unauthenticated, "");
            let keep = c.sign(KeepRequest { client_id: 1 });
            refused(c.fleet.keep(keep).await, Code::Unauthenticated, "");
            let resume = c.sign(ResumeRequest { ssd: 0, lose_data: false });
            refused(c.fleet.resume(resume).await, Code::Unauthenticated, "");
            let fail = c.sign(FailRequest { ssd: 0, lose_data: true });
            refused(c.fleet.fail(fail).await, Code::Unauthenticated, "");
            let remove = c.sign(RemoveRequest { ssd: 0 });
            refused(c.fleet.remove(remove).await, Code::Unauthenticated, "");
        }
    });
}

/// The paths of all calls of the file: a new call is among them.
pub(crate) fn every_call() -> Vec<String> {
    let mut service = "";
    let mut calls = Vec::new();
    for line in PROTO.lines().map(str::trim_start) {
        let word = |text: &'static str| text.split(|c: char| !c.is_alphanumeric()).next().unwrap();
        if let Some(rest) = line.strip_prefix("service ") {
            service = word(rest);
        } else if let Some(rest) = line.strip_prefix("rpc ") {
            calls.push(format!("/gnstor.v1.{service}/{}", word(rest)));
        }
    }
    calls
}

/// The code of a call's answer, or of the first of them, when its message has no field.
async fn code_of(client: &Client, daemon: &Daemon, path: &str) -> Code {
    let endpoint = Channel::from_shared(format!("http://{}", daemon.local_addr())).unwrap();
    let mut grpc = tonic::client::Grpc::new(endpoint.connect().await.unwrap());
    grpc.ready().await.unwrap();
    let path = PathAndQuery::try_from(path).unwrap();
    match grpc.server_streaming(client.sign(Vec::new()), path, Bytes).await {
        Ok(answer) => answer.into_inner().message().await.map_or_else(|status| status.code(), |_| Code::Ok),
        Err(status) => status.code(),
    }
}

#[test]
fn every_call_of_the_proto_file_asks_for_proof() {
    let _deadline = Deadline::after(LIMIT);
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), with_tokens()).unwrap();
    let calls = every_call();
    for known in ["/gnstor.v1.Volumes/Publish", "/gnstor.v1.Fleet/WatchMap", "/gnstor.v1.Fleet/Remove"] {
        assert!(calls.iter().any(|call| call == known), "{known} is not in {calls:?}");
    }
    run(async {
        for path in &calls {
            for name in [None, Some("carl")] {
                let client = Client::connect(&daemon, name).await;
                assert_eq!(code_of(&client, &daemon, path).await, Code::Unauthenticated, "{path} {name:?}");
            }
            // With a proof the daemon looks at what is asked for, and knows the call.
            let anna = Client::connect(&daemon, Some("anna")).await;
            let code = code_of(&anna, &daemon, path).await;
            assert!(!matches!(code, Code::Unauthenticated | Code::Unimplemented), "{path}: {code:?}");
        }
    });
}

#[test]
fn each_principal_is_told_the_map_and_the_fleet() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(2);
    let daemon = Daemon::start(ANY, array.ports(), with_tokens()).unwrap();
    run(async {
        let mut ben = Client::connect(&daemon, Some("ben")).await;
        let ask = ben.sign(GetMapRequest {});
        let map = ben.fleet.get_map(ask).await.unwrap().into_inner().map;
        let ask = ben.sign(WatchMapRequest { after_epoch: 0 });
        let mut maps = ben.fleet.watch_map(ask).await.unwrap().into_inner();
        let watched = maps.message().await.unwrap().expect("the map in use");
        assert_eq!((&watched.map, AnyMap::decode(&map).unwrap().count()), (&map, 2));
        let ask = ben.sign(ShowRequest {});
        let shown = ben.fleet.show(ask).await.unwrap().into_inner();
        assert_eq!((shown.epoch, shown.ssds.len()), (watched.epoch, 2));
    });
}

#[test]
fn a_restart_with_another_token_file_ends_an_access() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(2);
    let first = Daemon::start(ANY, array.ports(), with_tokens()).unwrap();
    run(async {
        let mut ben = Client::connect(&first, Some("ben")).await;
        let b = ben.register().await.unwrap();
        ben.create("v", b).await.unwrap();
    });
    first.stop().unwrap();
    let without_ben: String =
        TOKENS.lines().filter(|line| !line.starts_with("ben")).map(|line| format!("{line}\n")).collect();
    let mut config = with_tokens();
    config.access.tokens = Some(Tokens::parse(&without_ben).unwrap());
    let second = Daemon::start(ANY, array.ports(), config).unwrap();
    run(async {
        let mut ben = Client::connect(&second, Some("ben")).await;
        refused(ben.register().await, Code::Unauthenticated, "");
        refused(ben.get("v").await, Code::Unauthenticated, "");
        let mut root = Client::connect(&second, Some("root")).await;
        assert_eq!(root.get("v").await.unwrap().labels["gnstor.owner"], "ben", "the volume is still there");
    });
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What tools ask that know nothing of GNStor, and what a stranger is told.

use super::*;
use prost::Message as _;
use prost_types::FileDescriptorProto;
use tokio_stream::StreamExt as _;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};
use tonic_reflection::pb::v1alpha;

const SERVICES: [&str; 2] = ["gnstor.v1.Volumes", "gnstor.v1.Fleet"];

async fn channel(daemon: &Daemon) -> Channel {
    let endpoint = Channel::from_shared(format!("http://{}", daemon.local_addr())).unwrap();
    endpoint.connect().await.unwrap()
}

fn health_of(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.into() }
}

/// The answer to one question of a client of this name.
async fn told(
    daemon: &Daemon,
    who: Option<&'static str>,
    question: MessageRequest,
) -> Result<ServerReflectionResponse, Status> {
    let question = ServerReflectionRequest { host: String::new(), message_request: Some(question) };
    let (channel, stream) = (channel(daemon).await, tokio_stream::once(question));
    let call = Client::over(channel.clone(), who).sign(stream);
    let mut answers = ServerReflectionClient::new(channel).server_reflection_info(call).await?.into_inner();
    answers.next().await.expect("an answer")
}

#[test]
fn health_needs_no_proof_and_says_whether_the_daemon_serves() {
    let _deadline = Deadline::after(LIMIT);
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), with_tokens()).unwrap();
    run(async {
        let mut stranger = HealthClient::new(channel(&daemon).await);
        for service in ["", SERVICES[0], SERVICES[1]] {
            let answer = stranger.check(health_of(service)).await.unwrap().into_inner();
            assert_eq!(answer.status(), ServingStatus::Serving, "{service:?}");
        }
        refused(stranger.check(health_of("gnstor.v1.Nothing")).await, Code::NotFound, "no such service");
        let mut unknown = stranger.watch(health_of("x")).await.unwrap().into_inner();
        let first = unknown.next().await.unwrap().unwrap();
        assert_eq!(first.status(), ServingStatus::ServiceUnknown);
        let long = "x".repeat(5_000);
        let refusal = stranger.check(health_of(&long)).await.unwrap_err();
        assert_eq!(refusal.code(), Code::OutOfRange, "{refusal}");
    });
}

#[test]
fn who_watches_the_health_hears_of_the_end_and_delays_no_stop() {
    let _deadline = Deadline::after(LIMIT);
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), with_tokens()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let mut watched = runtime.block_on(async {
        let mut stranger = HealthClient::new(channel(&daemon).await);
        let mut watched = stranger.watch(health_of("")).await.unwrap().into_inner();
        let first = watched.next().await.unwrap().unwrap();
        assert_eq!(first.status(), ServingStatus::Serving);
        watched
    });
    let begun = std::time::Instant::now();
    let stopping = std::thread::spawn(move || daemon.stop());
    runtime.block_on(async {
        let last = watched.next().await.unwrap().unwrap();
        assert_eq!(last.status(), ServingStatus::NotServing);
        assert!(watched.next().await.is_none(), "the stream ends");
    });
    stopping.join().unwrap().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}: calls get 5 s to end", begun.elapsed());
}

/// A stream that never ends would count as an answer that is not taken, which ends its connection.
#[test]
fn a_stream_of_health_ends_and_its_connection_stays() {
    let _deadline = Deadline::after(LIMIT);
    let config = DaemonConfig { keep_alive: Duration::from_millis(300), ..with_tokens() };
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), config).unwrap();
    run(async {
        let mut stranger = HealthClient::new(channel(&daemon).await);
        for _ in 0..5 {
            let mut watched = stranger.watch(health_of("")).await.unwrap().into_inner();
            let first = watched.next().await.unwrap().unwrap();
            assert_eq!(first.status(), ServingStatus::Serving);
            assert!(watched.next().await.is_none(), "the end in order");
        }
    });
}

#[test]
fn the_definitions_of_the_calls_are_for_callers_with_a_proof() {
    let _deadline = Deadline::after(LIMIT);
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), with_tokens()).unwrap();
    run(async {
        for who in [None, Some("carl")] {
            let question = MessageRequest::ListServices(String::new());
            refused(told(&daemon, who, question).await, Code::Unauthenticated, "");
        }
        let stream = tokio_stream::once(v1alpha::ServerReflectionRequest::default());
        let earlier = v1alpha::server_reflection_client::ServerReflectionClient::new(channel(&daemon).await)
            .server_reflection_info(stream)
            .await;
        refused(earlier.map(drop), Code::Unauthenticated, "");

        let answer = told(&daemon, Some("anna"), MessageRequest::ListServices(String::new())).await.unwrap();
        let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
            panic!("{answer:?}")
        };
        let names: Vec<_> = list.service.iter().map(|service| service.name.as_str()).collect();
        for name in
            SERVICES.into_iter().chain(["grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"])
        {
            assert!(names.contains(&name), "{name} is missing in {names:?}");
        }
        let question = MessageRequest::FileContainingSymbol(SERVICES[0].into());
        let answer = told(&daemon, Some("anna"), question).await.unwrap();
        let Some(MessageResponse::FileDescriptorResponse(files)) = answer.message_response else {
            panic!("{answer:?}")
        };
        let file = FileDescriptorProto::decode(&*files.file_descriptor_proto[0]).unwrap();
        let volumes = file.service.iter().find(|service| service.name() == "Volumes").unwrap();
        let calls: Vec<_> = volumes.method.iter().map(|method| method.name()).collect();
        assert!(calls.contains(&"RevokeLease") && calls.contains(&"Rename"), "{calls:?}");
        assert!(file.source_code_info.is_some(), "with the comments of the file");
    });
}

#[test]
fn a_daemon_without_proofs_tells_the_definitions_to_each_caller() {
    let _deadline = Deadline::after(LIMIT);
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), config()).unwrap();
    run(async {
        let question = MessageRequest::FileByFilename("gnstor/v1/gnstor.proto".into());
        let answer = told(&daemon, None, question).await.unwrap();
        assert!(matches!(answer.message_response, Some(MessageResponse::FileDescriptorResponse(_))));
    });
}

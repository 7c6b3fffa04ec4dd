// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes that are no messages, deadlines of calls, silence, and too many connections.

use super::*;
use gnstor_proto::grpc::CreateRequest;
use std::io::{Read as _, Write as _};
use std::time::Instant;

/// Sends the raw bytes of a message.
async fn raw(daemon: &Daemon, path: &'static str, message: Vec<u8>) -> Status {
    let endpoint = Channel::from_shared(format!("http://{}", daemon.local_addr())).unwrap();
    let mut grpc = tonic::client::Grpc::new(endpoint.connect().await.unwrap());
    grpc.ready().await.unwrap();
    let path = http::uri::PathAndQuery::from_static(path);
    grpc.unary(Request::new(message), path, Bytes).await.expect_err("a refusal")
}

#[test]
fn bytes_that_are_no_message_are_an_invalid_argument() {
    let _deadline = Deadline::after(LIMIT);
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), config()).unwrap();
    run(async {
        for path in ["/gnstor.v1.Volumes/Create", "/gnstor.v1.Volumes/Open", "/gnstor.v1.Fleet/Register"] {
            // A wire type that there is none of, a length beyond the end, text that is no UTF-8.
            for bytes in [vec![0x0F], vec![0x0A, 0xFF, 0x01, 0x41], vec![0x0A, 0x02, 0xC3, 0x28]] {
                let status = raw(&daemon, path, bytes).await;
                assert_eq!(status.code(), Code::InvalidArgument, "{path}: {status:?}");
                assert!(status.message().contains("not a message of its call"), "{status:?}");
            }
        }
        // The byte before a message says whether it is compressed; the daemon names no compression.
        for flag in [1, 2, 255] {
            let status = framed(&daemon, "/gnstor.v1.Volumes/Create", flag).await;
            assert_eq!(status.0, i32::from(Code::InvalidArgument), "{flag}: {status:?}");
        }
        let status = raw(&daemon, "/gnstor.v1.Volumes/Create", vec![0; 65 << 10]).await;
        assert_eq!(status.code(), Code::OutOfRange, "a message that is too long: {status:?}");
    });
}

/// A call whose message, of no bytes, has this flag before it.
async fn framed(daemon: &Daemon, path: &str, flag: u8) -> (i32, String) {
    call(daemon, path, "1M", vec![flag, 0, 0, 0, 0]).await
}

async fn timed(daemon: &Daemon, path: &str, timeout: &str, message: &impl prost::Message) -> (i32, String) {
    let mut frame = vec![0];
    bytes::BufMut::put_u32(&mut frame, u32::try_from(message.encoded_len()).unwrap());
    message.encode(&mut frame).unwrap();
    call(daemon, path, timeout, frame).await
}

/// A call as HTTP/2: tonic's client would end a call itself at the deadline that it sends.
async fn call(daemon: &Daemon, path: &str, timeout: &str, frame: Vec<u8>) -> (i32, String) {
    let stream = tokio::net::TcpStream::connect(daemon.local_addr()).await.unwrap();
    let (h2, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::post(format!("http://daemon{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-timeout", timeout)
        .body(())
        .unwrap();
    let (response, mut body) = h2.ready().await.unwrap().send_request(request, false).unwrap();
    // The daemon may have ended the call before. The test checks its status below.
    drop(body.send_data(frame.into(), true));
    let mut response = response.await.unwrap();
    let headers = response.headers().clone();
    while let Some(data) = response.body_mut().data().await {
        let bytes = data.unwrap().len();
        response.body_mut().flow_control().release_capacity(bytes).unwrap();
    }
    let trailers = response.body_mut().trailers().await.unwrap().unwrap_or(headers);
    let told = Status::from_header_map(&trailers).expect("a status");
    (told.code().into(), told.message().to_owned())
}

#[test]
fn deadlines_of_calls_are_honoured_below_a_millisecond_too() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(2);
    let daemon = Daemon::start(ANY, array.ports(), config()).unwrap();
    let (late, well, wrong) =
        (i32::from(Code::DeadlineExceeded), i32::from(Code::Ok), i32::from(Code::InvalidArgument));
    run(async {
        let list = "/gnstor.v1.Volumes/List";
        for short in ["0n", "1n", "900n", "1u"] {
            let (code, told) = timed(&daemon, list, short, &ListRequest::default()).await;
            assert!(code == late && told.contains("deadline"), "{short}: {code} {told}");
        }
        assert_eq!(timed(&daemon, list, "30S", &ListRequest::default()).await.0, well);
        let (code, told) = timed(&daemon, list, "soon", &ListRequest::default()).await;
        assert!(code == wrong && told.contains("grpc-timeout"), "{code} {told}");

        array.ssd(1).faults.push_back(crate::array::Fault::Delay(Duration::from_millis(2_000)));
        let wish =
            CreateRequest { name: "v".into(), capacity_bytes: 4096, client_id: 1, ..Default::default() };
        let begun = Instant::now();
        let (code, told) = timed(&daemon, "/gnstor.v1.Volumes/Create", "50m", &wish).await;
        assert!(code == late && begun.elapsed() < Duration::from_millis(1_500), "{code} {told}");
    });
}

/// Reads until the other side closes. Returns the time that this took.
fn until_closed(daemon: &Daemon, greeting: &[u8]) -> Duration {
    let mut stream = std::net::TcpStream::connect(daemon.local_addr()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(greeting).unwrap();
    let begun = Instant::now();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return begun.elapsed(),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return begun.elapsed(),
            Err(error) => panic!("not closed within 20 s: {error}"),
        }
    }
}

#[test]
fn silent_connections_end_and_live_ones_stay() {
    let _deadline = Deadline::after(LIMIT);
    let config = DaemonConfig { keep_alive: Duration::from_millis(200), ..config() };
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), config).unwrap();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    for greeting in [&b""[..], &preface[..10], preface, &[&preface[..], &settings].concat()] {
        let took = until_closed(&daemon, greeting);
        assert!(took < Duration::from_secs(5), "{} bytes: {took:?}", greeting.len());
    }
    run(async {
        let mut idle = Client::connect(&daemon, None).await;
        let a = idle.register().await.unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        let mut second = Client::connect(&daemon, None).await;
        assert_ne!(second.register().await.unwrap(), a);
        idle.create("v", a).await.expect("a connection that answers pings stays");
    });
}

/// A connection of this HTTP/2 window that has called GetMap `calls` times and takes no answer.
async fn untaken(
    daemon: &Daemon,
    window: u32,
    calls: usize,
) -> (tokio::task::JoinHandle<Result<(), h2::Error>>, Vec<http::Response<h2::RecvStream>>) {
    let stream = tokio::net::TcpStream::connect(daemon.local_addr()).await.unwrap();
    let mut builder = h2::client::Builder::new();
    let (h2, connection) =
        builder.initial_window_size(window).handshake::<_, bytes::Bytes>(stream).await.unwrap();
    let ended = tokio::spawn(connection);
    let mut h2 = h2.ready().await.unwrap();
    let mut answers = Vec::new();
    for _ in 0..calls {
        let request = http::Request::post("http://daemon/gnstor.v1.Fleet/GetMap")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .unwrap();
        let Ok((response, mut body)) = h2.send_request(request, false) else { break };
        body.send_data(bytes::Bytes::from_static(&[0; 5]), true).unwrap();
        let Ok(answer) = response.await else { break };
        answers.push(answer);
    }
    assert!(h2.current_max_send_streams() <= 32, "calls at once on a connection");
    (ended, answers)
}

/// Calls GetMap eight times by a connection of this HTTP/2 window, and takes no answer. How long it lasts.
async fn takes_no_answer(daemon: &Daemon, window: u32) -> Duration {
    let (ended, answers) = untaken(daemon, window, 8).await;
    assert_eq!(answers.len(), 8);
    let since = Instant::now();
    let ended = tokio::time::timeout(Duration::from_secs(10), ended).await;
    assert!(ended.is_ok(), "window {window}: the daemon keeps the answers");
    since.elapsed()
}

#[test]
fn a_caller_that_takes_no_answer_loses_its_connection() {
    let _deadline = Deadline::after(LIMIT);
    let config = DaemonConfig { keep_alive: Duration::from_millis(200), ..config() };
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), config).unwrap();
    run(async {
        // With a window of a byte HTTP/2 has the answer, and not the service.
        for window in [0, 1] {
            let took = takes_no_answer(&daemon, window).await;
            assert!(took > Duration::from_millis(300), "window {window}: {took:?}, and 600 ms is the time");
        }
        let mut live = Client::connect(&daemon, None).await;
        let a = live.register().await.unwrap();
        for step in 0..5 {
            tokio::time::sleep(Duration::from_millis(300)).await;
            live.create(&format!("v{step}"), a).await.expect("a client that takes its answers stays");
        }
    });
}

async fn map_of(client: &mut Client) -> bytes::Bytes {
    let request = client.sign(gnstor_proto::grpc::GetMapRequest {});
    client.fleet.get_map(request).await.unwrap().into_inner().map
}

/// HTTP/2 reads nothing while it cannot write. Such a connection ends in time, too, and gives its place back.
#[test]
fn a_caller_that_reads_no_byte_loses_its_connection() {
    let _deadline = Deadline::after(LIMIT);
    let mut config = DaemonConfig { keep_alive: Duration::from_millis(200), max_connections: 1, ..config() };
    config.core.groups = 65_536;
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), config).unwrap();
    let mut stream = std::net::TcpStream::connect(daemon.local_addr()).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    // A window of 2^31 - 1 bytes, for each stream and for the connection.
    let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0x7F, 0xFF, 0xFF, 0xFF];
    let window = [0, 0, 4, 8, 0, 0, 0, 0, 0, 0x7F, 0xFE, 0, 0];
    let mut greeting = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    greeting.extend(settings.iter().chain(&window));
    stream.write_all(&greeting).unwrap();
    // Pings want answers, and none is read. The daemon ends the connection, or takes no more of them.
    let ping = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8].repeat(4096);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(20) && stream.write_all(&ping).is_ok() {}
    assert!(begun.elapsed() < Duration::from_secs(20), "the daemon takes pings for ever");
    run(async {
        let mut next = Client::connect(&daemon, None).await;
        next.register().await.expect("the place is free again");
    });
}

/// One connection is bounded by its calls and by time. A thousand of them together would take gigabytes.
#[test]
fn answers_that_are_not_taken_are_bounded_in_sum_and_the_oldest_connection_ends() {
    let _deadline = Deadline::after(LIMIT);
    let mut config = DaemonConfig { max_answer_bytes: 4 << 20, ..config() };
    config.core.groups = 16_384;
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), config).unwrap();
    run(async {
        let mut live = Client::connect(&daemon, None).await;
        let a = live.register().await.unwrap();
        let map_bytes = map_of(&mut live).await.len();
        let (calls, count) = (8, 4 * (3 << 20) / (8 * map_bytes));
        let mut held = Vec::new();
        for _ in 0..count {
            held.push(untaken(&daemon, 1, calls).await);
        }
        let there = || held.iter().map(|(ended, _)| !ended.is_finished()).collect::<Vec<_>>();
        // The part of a host is three quarters of 4 MiB, and four times that were asked for.
        let fit = (3 << 20) / (calls * map_bytes) + 1;
        let until = Instant::now() + Duration::from_secs(5);
        while there().iter().filter(|&&is_there| is_there).count() > fit {
            assert!(Instant::now() < until, "the answers stay: {:?}", there());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(count > 2 * fit && !there()[0], "the oldest ends: {:?}", there());
        assert_eq!(map_of(&mut live).await.len(), map_bytes, "a client that takes its answers has them");
        live.create("v", a).await.expect("its connection stays");
    });
}

/// Begins so many calls, and sends half of the message of each.
async fn half_done(daemon: &Daemon, calls: usize, bytes: usize) -> tokio::task::JoinHandle<()> {
    let stream = tokio::net::TcpStream::connect(daemon.local_addr()).await.unwrap();
    let (h2, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(async { drop(connection.await) });
    let mut bodies = Vec::new();
    for _ in 0..calls {
        let request = http::Request::post(format!("http://{}/gnstor.v1.Volumes/Create", daemon.local_addr()))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .unwrap();
        let Ok(mut h2) = h2.clone().ready().await else { break };
        let Ok((response, mut body)) = h2.send_request(request, false) else { break };
        let mut frame = vec![0];
        bytes::BufMut::put_u32(&mut frame, u32::try_from(2 * bytes).unwrap());
        frame.resize(5 + bytes, 0);
        body.send_data(frame.into(), false).ok();
        bodies.push((response, body));
    }
    tokio::spawn(async move {
        connection.await.ok();
        drop(bodies);
    })
}

/// One connection is bounded by its calls. Thousands of them together would take gigabytes.
#[test]
fn requests_that_are_not_sent_whole_are_bounded_in_sum_and_the_oldest_connection_ends() {
    let _deadline = Deadline::after(LIMIT);
    let config = DaemonConfig { max_request_bytes: 1 << 20, ..config() };
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), config).unwrap();
    run(async {
        let mut live = Client::connect(&daemon, None).await;
        let a = live.register().await.unwrap();
        let (calls, bytes) = (8, 16 << 10);
        // A host has three quarters of the megabyte: these connections want twice that.
        let (count, fit) = (12, (3 << 18) / (8 * (16 << 10)));
        let mut held = Vec::new();
        for _ in 0..count {
            held.push(half_done(&daemon, calls, bytes).await);
        }
        let there = || held.iter().map(|ended| !ended.is_finished()).collect::<Vec<_>>();
        let until = Instant::now() + Duration::from_secs(5);
        while there().iter().filter(|&&is_there| is_there).count() > fit {
            assert!(Instant::now() < until, "the requests stay: {:?}", there());
            // A request that finds no room ends the oldest one.
            live.create("v", a).await.expect("a client that sends its requests whole is served");
            live.delete("v", a).await.expect("and its connection stays");
        }
        assert!(!there()[0] && there()[count - 1], "the oldest ends: {:?}", there());
    });
}

#[test]
fn connections_are_bounded_and_a_place_is_free_again() {
    let _deadline = Deadline::after(LIMIT);
    let config = DaemonConfig { max_connections: 3, ..config() };
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), config).unwrap();
    run(async {
        let mut held = Vec::new();
        for nth in 0..3 {
            let mut client = Client::connect(&daemon, None).await;
            let id = client.register().await.unwrap();
            if nth == 0 {
                client.create("v", id).await.unwrap();
            }
            client.open("v", id, Rights::Read).await.expect("from here on it gives way to none");
            held.push(client);
        }
        let late = async {
            let mut client = Client::connect(&daemon, None).await;
            client.register().await.unwrap()
        };
        tokio::pin!(late);
        let early = tokio::time::timeout(Duration::from_millis(300), &mut late).await;
        assert!(early.is_err(), "the fourth connection waits");
        held.pop();
        late.await;
    });
}

/// An attacker on a client's own host holds all connections that the host may have, and answers pings.
#[test]
fn an_unused_connection_gives_way_to_another_one_of_its_host_and_a_used_one_stays() {
    let _deadline = Deadline::after(LIMIT);
    let fails = async |daemon: &Daemon, name| {
        let endpoint = Channel::from_shared(format!("http://{}", daemon.local_addr())).unwrap();
        match endpoint.connect().await {
            Ok(channel) => Client::over(channel, name).register().await.is_err(),
            Err(_) => true,
        }
    };
    let one = DaemonConfig { max_host_connections: 1, ..config() };
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), one).unwrap();
    run(async {
        let mut idle = Client::connect(&daemon, None).await;
        idle.register().await.unwrap();
        let mut client = Client::connect(&daemon, None).await;
        let id = client.register().await.expect("the other one gives way");
        client.create("v", id).await.unwrap();
        client.open("v", id, Rights::Write).await.unwrap();
        assert!(fails(&daemon, None).await, "the only connection is one with an open volume");
        client.renew("v", id).await.unwrap();
    });
    drop(daemon);
    // A caller that has proven itself stays without an open volume.
    let proven = DaemonConfig { max_host_connections: 1, ..with_tokens() };
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), proven).unwrap();
    run(async {
        let mut anna = Client::connect(&daemon, Some("anna")).await;
        anna.register().await.unwrap();
        assert!(fails(&daemon, Some("ben")).await);
        anna.register().await.unwrap();
    });
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clients with their own engine reach the SSDs over TCP, as another process does.
#![expect(
    clippy::disallowed_methods,
    reason = "deadlines are measured, and clients work on threads of their own"
)]

use gnstor_array::Array;
use gnstor_tests::{
    BLOCK, CHUNK, any_port, assert_same, io_failure, node, pattern, small_config, volume, within,
};
use libgnstor::{Client, ConnectOptions, Error, RcTransport, Rights, TransportConfig, TransportThreads};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
/// Deadline of one I/O.
const IO_TIMEOUT: Duration = Duration::from_secs(3);

fn served_array(ssds: u16) -> Array {
    let mut config = small_config(ssds);
    config.fabric_listen = Some(any_port());
    Array::start(&config).expect("an array starts")
}

/// A client and its engine. The engine is dropped last.
struct Guest {
    client: Arc<Client>,
    _engine: TransportThreads,
}

fn guest(array: &Array, name: &str) -> Guest {
    let engine = TransportThreads::start(vec![RcTransport::new(TransportConfig::default())])
        .expect("an engine starts");
    let mut options = ConnectOptions::new(array.daemon_address().to_string());
    options.name = name.into();
    options.io_timeout = IO_TIMEOUT;
    let client = Client::connect(&node(engine.handle()), &options).expect("a client connects over TCP");
    Guest { client, _engine: engine }
}

#[test]
fn what_was_written_over_tcp_is_read_by_others_and_from_every_replica() {
    within(LIMIT, || {
        let array = served_array(3);
        let writer = guest(&array, "writer");
        assert!(writer.client.ssds().iter().all(|s| s.transport == "tcp"), "{:?}", writer.client.ssds());
        volume(&writer.client, "v", 8 << 20, 2);
        let file = writer.client.open("v", Rights::Write).unwrap();
        let data = pattern(1, 6 << 20);
        file.write_at(0, &data).unwrap();
        file.flush().unwrap();
        for (first, blocks) in [(0, 1), (15, 2), (7, 300), (1, 1024), (0, 1536)] {
            let mut back = vec![0; blocks * BLOCK];
            file.read_at((first * BLOCK) as u64, &mut back).unwrap();
            assert_same(
                &format!("{blocks} blocks at {first}"),
                &back,
                &data[first * BLOCK..][..blocks * BLOCK],
            );
        }
        let reader = guest(&array, "reader");
        let view = reader.client.open("v", Rights::Read).unwrap();
        let mut back = vec![0; data.len()];
        view.read_at(0, &mut back).unwrap();
        assert_same("a reader beside the writer", &back, &data);
        drop(file);
        for replica in 0..2 {
            back.fill(0);
            view.read_replica_at(replica, 0, &mut back).unwrap();
            assert_same(&format!("replica {replica}"), &back, &data);
        }
        // A client in the array's process sees the same data.
        let inside = gnstor_tests::client(&array, &node(array.transport()), "inside");
        let view = inside.open("v", Rights::Read).unwrap();
        back.fill(0);
        view.read_at(0, &mut back).unwrap();
        assert_same("from within", &back, &data);
        for client in [&writer.client, &reader.client, &inside] {
            let stats = client.channel_stats().unwrap();
            assert_eq!((stats.leaked, stats.protocol_errors), (0, 0), "{stats:?}");
        }
    });
}

#[test]
fn refusals_cross_tcp_with_status_and_rule() {
    within(LIMIT, || {
        let array = served_array(2);
        let (writer, reader, stranger) = (guest(&array, "w"), guest(&array, "r"), guest(&array, "s"));
        volume(&writer.client, "v", 1 << 20, 2);
        let file = writer.client.open("v", Rights::Write).unwrap();
        file.write_at(0, &pattern(1, BLOCK)).unwrap();
        let _view = reader.client.open("v", Rights::Read).unwrap();
        let claim = reader.client.attach_without_rights("v", Rights::Write).unwrap();
        let refused = io_failure(claim.write_at(0, &pattern(2, BLOCK)));
        assert_eq!(
            (refused.nvme_status().map(|s| s.0), refused.rule()),
            (Some(0x4182), Some("access: writer"))
        );
        let claim = stranger.client.attach_without_rights("v", Rights::Read).unwrap();
        let refused = io_failure(claim.read_at(0, &mut vec![0; BLOCK]));
        assert_eq!(
            (refused.nvme_status().map(|s| s.0), refused.rule()),
            (Some(0x4286), Some("access: readers"))
        );
        let mut back = vec![0; BLOCK];
        file.read_at(0, &mut back).unwrap();
        assert_same("after that", &back, &pattern(1, BLOCK));
    });
}

#[test]
fn clients_at_once_over_tcp_do_not_disturb_one_another() {
    within(LIMIT, || {
        let array = served_array(2);
        let guests: Vec<_> = (0..3u64).map(|i| (i, guest(&array, &format!("guest {i}")))).collect();
        let threads: Vec<_> = guests
            .into_iter()
            .map(|(i, guest)| {
                std::thread::spawn(move || {
                    // Captures the whole guest: its engine must live as long as its client works.
                    let guest = guest;
                    let name = format!("v{i}");
                    volume(&guest.client, &name, 1 << 20, 2);
                    let file = guest.client.open(&name, Rights::Write).unwrap();
                    for round in 0..4 {
                        let data = pattern(10 * i + round, 1 << 20);
                        file.write_at(0, &data).unwrap();
                        let mut back = vec![0; data.len()];
                        file.read_at(0, &mut back).unwrap();
                        assert_same(&name, &back, &data);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap_or_else(|p| std::panic::resume_unwind(p)));
    });
}

#[test]
fn when_the_array_goes_away_every_call_of_a_client_ends_with_an_error_in_time() {
    within(LIMIT, || {
        let array = served_array(2);
        let guest = guest(&array, "guest");
        volume(&guest.client, "v", 4 << 20, 2);
        let file = guest.client.open("v", Rights::Write).unwrap();
        let data = pattern(1, 4 << 20);
        file.write_at(0, &data).unwrap();
        let thread = std::thread::spawn(move || {
            let mut back = vec![0; 4 << 20];
            loop {
                if let Err(e) = file.read_at(0, &mut back) {
                    return (file, e, Instant::now());
                }
            }
        });
        std::thread::sleep(Duration::from_millis(200));
        let gone = Instant::now();
        drop(array);
        let (file, error, felt) = thread.join().unwrap_or_else(|p| std::panic::resume_unwind(p));
        assert!(felt.duration_since(gone) < Duration::from_secs(10), "{:?}", felt.duration_since(gone));
        let sentence = error.to_string();
        assert!(matches!(error, Error::Io(_)), "{sentence}");
        assert!(sentence.contains("the connection to the SSD broke"), "{sentence}");
        let again = Instant::now();
        let sentence = io_failure(file.write_at(0, &data[..CHUNK])).to_string();
        assert!(sentence.contains("the connection to the SSD broke"), "{sentence}");
        assert!(matches!(guest.client.list(), Err(Error::Unreachable { .. })));
        assert!(again.elapsed() < Duration::from_secs(5), "{:?}", again.elapsed());
        assert_eq!(guest.client.channel_stats().unwrap().leaked, 0);
        drop(file);
    });
}

#[test]
fn a_client_that_vanishes_gives_way_to_others() {
    within(LIMIT, || {
        let array = served_array(2);
        let lost = guest(&array, "lost");
        volume(&lost.client, "v", 1 << 20, 2);
        let file = lost.client.open("v", Rights::Write).unwrap();
        file.write_at(0, &pattern(1, 1 << 20)).unwrap();
        // The engine ends with open queues, like the engine of a killed process. The files and the client are
        // dropped later.
        let Guest { client, _engine: engine } = lost;
        drop(engine);
        let next = guest(&array, "next");
        let view = next.client.open("v", Rights::Read).unwrap();
        let mut back = vec![0; 1 << 20];
        view.read_at(0, &mut back).unwrap();
        assert_same("what the lost client wrote", &back, &pattern(1, 1 << 20));
        let started = Instant::now();
        assert!(file.read_at(0, &mut back).is_err());
        assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
        drop((file, client));
    });
}

#[test]
fn strangers_on_the_ssds_port_are_cut_off_and_no_client_notices() {
    within(LIMIT, || {
        let array = served_array(2);
        let guest = guest(&array, "guest");
        volume(&guest.client, "v", 1 << 20, 2);
        let file = guest.client.open("v", Rights::Write).unwrap();
        let address = array.fabric_address().expect("the listener is open");
        let noise: Vec<u8> = pattern(9, 300);
        let mut frames: Vec<Vec<u8>> =
            vec![noise, b"GET / HTTP/1.1\r\n\r\n".to_vec(), vec![0xFF; 64], vec![0; 64]];
        // Whole frames of every type, for connections and for an SSD that do not exist.
        for kind in 0..12u8 {
            let mut frame = 64u32.to_le_bytes().to_vec();
            frame.push(kind);
            frame.extend(pattern(u64::from(kind), 63));
            frames.push(frame);
        }
        let mut open = Vec::new();
        for frame in frames {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(Duration::from_millis(30))).unwrap();
            stream.write_all(&frame).unwrap();
            let _ = stream.read(&mut [0; 64]);
            open.push(stream);
        }
        let data = pattern(1, 1 << 20);
        file.write_at(0, &data).unwrap();
        drop(open);
        let mut back = vec![0; data.len()];
        file.read_at(0, &mut back).unwrap();
        assert_same("beside strangers", &back, &data);
    });
}

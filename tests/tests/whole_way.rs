// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the whole path: gRPC, rights on every SSD, device kernels, the emulated HCA, firmware, and back.
#![expect(clippy::disallowed_methods, reason = "clients work at once, on threads of their own")]

mod rights;

use gnstor_proto::status::Refusal;
use gnstor_tests::{
    BLOCK, CHUNK, SSD_BYTES, assert_error, assert_same, client, io_failure, node, pattern, small_array,
    volume, within,
};
use libgnstor::{Client, CreateOptions, File, Rights};
use std::sync::{Arc, Barrier};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

fn read(file: &File, offset: usize, bytes: usize) -> Vec<u8> {
    let mut data = vec![0xEE; bytes];
    file.read_at(offset as u64, &mut data).unwrap_or_else(|e| panic!("{bytes} bytes at {offset}: {e}"));
    data
}

fn write(file: &File, offset: usize, data: &[u8]) {
    file.write_at(offset as u64, data).unwrap_or_else(|e| panic!("{} bytes at {offset}: {e}", data.len()));
}

fn clean(client: &Client) {
    let stats = client.channel_stats().expect("the counters can be read");
    assert_eq!((stats.leaked, stats.protocol_errors), (0, 0), "{stats:?}");
}

#[test]
fn what_was_written_is_read_by_the_writer_by_others_and_from_every_replica() {
    within(LIMIT, || {
        let array = small_array(4);
        let node = node(array.transport());
        let writer = client(&array, &node, "writer");
        let info = volume(&writer, "corpus", 4 << 20, 3);
        assert_eq!((info.capacity_bytes, info.replicas, info.chunk_bytes as usize), (4 << 20, 3, CHUNK));
        let data = pattern(1, 3 << 20);
        let file = writer.open("corpus", Rights::Write).unwrap();
        assert_eq!(writer.get("corpus").unwrap().writer, Some(writer.id().into()));
        write(&file, 0, &data);
        file.flush().unwrap();
        assert_same("the writer's view", &read(&file, 0, data.len()), &data);
        for replica in 0..3 {
            let mut back = vec![0; data.len()];
            file.read_replica_at(replica, 0, &mut back).unwrap();
            assert_same(&format!("replica {replica}"), &back, &data);
        }
        let reader = client(&array, &node, "reader");
        assert_ne!(reader.id(), writer.id());
        let view = reader.open("corpus", Rights::Read).unwrap();
        assert_same("a reader beside the writer", &read(&view, 0, data.len()), &data);
        drop(file);
        assert_eq!(writer.get("corpus").unwrap().writer, None);
        for replica in 0..3 {
            let mut back = vec![0; data.len()];
            view.read_replica_at(replica, 0, &mut back).unwrap();
            assert_same(&format!("replica {replica}, to a reader"), &back, &data);
        }
        clean(&writer);
        clean(&reader);
    });
}

#[test]
fn blocks_never_written_read_zeros_beside_written_ones() {
    within(LIMIT, || {
        let array = small_array(2);
        let node = node(array.transport());
        let writer = client(&array, &node, "writer");
        volume(&writer, "sparse", 1 << 20, 2);
        let file = writer.open("sparse", Rights::Write).unwrap();
        let block = pattern(2, BLOCK);
        let mut expected = vec![0; 1 << 20];
        for at in [0, 15, 16, 17, 100, 255] {
            write(&file, at * BLOCK, &block);
            expected[at * BLOCK..][..BLOCK].copy_from_slice(&block);
        }
        assert_same("the whole volume", &read(&file, 0, 1 << 20), &expected);
        clean(&writer);
    });
}

#[test]
fn requests_of_any_length_at_any_block_change_their_bytes_and_no_others() {
    within(LIMIT, || {
        let array = small_array(3);
        let node = node(array.transport());
        let writer = client(&array, &node, "writer");
        let capacity = 12 << 20;
        volume(&writer, "v", capacity as u64, 2);
        let file = writer.open("v", Rights::Write).unwrap();
        let mut model = vec![0; capacity];
        // (first block, blocks): within a chunk, a whole chunk, across one border, across many, several MiB,
        // more than the staging memory.
        let requests = [
            (0, 1),
            (3, 7),
            (0, 16),
            (15, 2),
            (8, 16),
            (31, 50),
            (5, 256),
            (1, 1023),
            (1000, 1024),
            (1023, 1600),
            (3071, 1),
            (2048, 1024),
        ];
        for (seed, (first, blocks)) in (10..).zip(requests) {
            let data = pattern(seed, blocks * BLOCK);
            write(&file, first * BLOCK, &data);
            model[first * BLOCK..][..data.len()].copy_from_slice(&data);
            assert_same(
                &format!("{blocks} blocks at {first}"),
                &read(&file, first * BLOCK, data.len()),
                &data,
            );
        }
        assert_same("the whole volume", &read(&file, 0, capacity), &model);
        for (first, blocks) in requests {
            let want = &model[first * BLOCK..][..blocks * BLOCK];
            assert_same(
                &format!("{blocks} blocks at {first}, later"),
                &read(&file, first * BLOCK, want.len()),
                want,
            );
        }
        file.write_at(0, &[]).unwrap();
        file.read_at(capacity as u64, &mut []).unwrap();
        clean(&writer);
    });
}

#[test]
fn volumes_with_the_shortest_and_the_longest_chunks_hold_data() {
    within(LIMIT, || {
        let array = small_array(2);
        let node = node(array.transport());
        let writer = client(&array, &node, "writer");
        for (name, chunk_bytes) in [("small", 4 << 10), ("mdts", 1 << 20), ("large", 16 << 20)] {
            let options = CreateOptions {
                capacity_bytes: 16 << 20,
                chunk_bytes,
                replicas: 2,
                ..CreateOptions::default()
            };
            let info = writer.create(name, &options).unwrap();
            assert_eq!(info.chunk_bytes, chunk_bytes);
            let file = writer.open(name, Rights::Write).unwrap();
            let data = pattern(u64::from(chunk_bytes), 3 << 20);
            write(&file, 5 * BLOCK, &data);
            assert_same(name, &read(&file, 5 * BLOCK, data.len()), &data);
            // Writes across the borders of commands, and each followed by one of the block behind the border.
            for border in [256, 512] {
                write(&file, (border - 156) * BLOCK, &data[..256 * BLOCK]);
                let newer = pattern(border as u64, BLOCK);
                write(&file, border * BLOCK, &newer);
                assert_same(name, &read(&file, border * BLOCK, BLOCK), &newer);
            }
            drop(file);
            writer.delete(name).unwrap();
        }
        clean(&writer);
    });
}

#[test]
fn clients_at_once_do_not_disturb_one_another() {
    within(LIMIT, || {
        let array = small_array(3);
        let start = Arc::new(Barrier::new(4));
        // Two clients share a node. Two have their own.
        let shared = node(array.transport());
        let nodes = [Arc::clone(&shared), shared, node(array.transport()), node(array.transport())];
        let clients: Vec<_> =
            (0..).zip(&nodes).map(|(i, n)| client(&array, n, &format!("client {i}"))).collect();
        let threads: Vec<_> = (0..)
            .zip(clients)
            .map(|(i, me)| {
                let start = Arc::clone(&start);
                std::thread::spawn(move || {
                    let name = format!("v{i}");
                    volume(&me, &name, 1 << 20, 2);
                    start.wait();
                    let file = me.open(&name, Rights::Write).unwrap();
                    for round in 0..4 {
                        let data = pattern(100 * i + round, 512 << 10);
                        let at = usize::try_from(round).unwrap() * CHUNK;
                        write(&file, at, &data);
                        assert_same(&name, &read(&file, at, data.len()), &data);
                    }
                    drop(file);
                    clean(&me);
                    start.wait();
                    // Every client reads every volume.
                    for other in 0..4 {
                        let file = me.open(&format!("v{other}"), Rights::Read).unwrap();
                        let want = pattern(100 * other + 3, 512 << 10);
                        assert_same("another's volume", &read(&file, 3 * CHUNK, want.len()), &want);
                    }
                    clean(&me);
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap_or_else(|p| std::panic::resume_unwind(p)));
    });
}

#[test]
fn threads_that_share_a_client_take_turns() {
    within(LIMIT, || {
        let array = small_array(2);
        let node = node(array.transport());
        let me = client(&array, &node, "me");
        volume(&me, "v", 4 << 20, 2);
        let file = Arc::new(me.open("v", Rights::Write).unwrap());
        let threads: Vec<_> = (0..4usize)
            .map(|i| {
                let file = Arc::clone(&file);
                std::thread::spawn(move || {
                    let data = pattern(i as u64, 1 << 20);
                    write(&file, i << 20, &data);
                    assert_same("its own part", &read(&file, i << 20, data.len()), &data);
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap_or_else(|p| std::panic::resume_unwind(p)));
        for i in 0..4usize {
            assert_same("all parts", &read(&file, i << 20, 1 << 20), &pattern(i as u64, 1 << 20));
        }
        clean(&me);
    });
}

#[test]
fn an_array_of_one_ssd_and_one_of_many_serve() {
    within(LIMIT, || {
        for ssds in [1, 9] {
            let array = small_array(ssds);
            let node = node(array.transport());
            let me = client(&array, &node, "me");
            assert_eq!(me.ssds().len(), usize::from(ssds));
            let info = volume(&me, "v", 2 << 20, 0);
            assert_eq!(info.replicas, u32::from(ssds).min(2), "the default number of replicas");
            let file = me.open("v", Rights::Write).unwrap();
            let data = pattern(u64::from(ssds), 2 << 20);
            write(&file, 0, &data);
            assert_same("all of it", &read(&file, 0, data.len()), &data);
            clean(&me);
        }
    });
}

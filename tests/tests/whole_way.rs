// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The whole way: gRPC, rights on every SSD, device kernels, the emulated HCA, firmware, and back.
#![expect(clippy::disallowed_methods, reason = "clients work at once, on threads of their own")]

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
        // (first block, blocks): within a chunk, a whole chunk, across one border, across many, several
        // MiB, more than the staging memory.
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
            drop(file);
            writer.delete(name).unwrap();
        }
        clean(&writer);
    });
}

#[test]
fn a_range_that_is_not_whole_blocks_or_not_in_the_volume_is_refused_before_it_leaves() {
    within(LIMIT, || {
        let array = small_array(2);
        let node = node(array.transport());
        let writer = client(&array, &node, "writer");
        let capacity = 1u64 << 20;
        volume(&writer, "v", capacity, 2);
        let file = writer.open("v", Rights::Write).unwrap();
        let mut block = vec![0; BLOCK];
        let unaligned = ["multiples of 4096"];
        assert_error(file.read_at(1, &mut block), libc::EINVAL, &unaligned);
        assert_error(file.write_at(4095, &block), libc::EINVAL, &unaligned);
        assert_error(file.read_at(0, &mut block[..100]), libc::EINVAL, &unaligned);
        assert_error(file.write_at(0, &block[..4095]), libc::EINVAL, &unaligned);
        let beyond = ["beyond the volume's 1048576 bytes"];
        assert_error(file.read_at(capacity, &mut block), libc::EINVAL, &beyond);
        assert_error(file.write_at(capacity, &block), libc::EINVAL, &beyond);
        assert_error(file.write_at(capacity - 4096, &vec![0; 2 * BLOCK]), libc::EINVAL, &beyond);
        assert_error(file.read_at(1 << 50, &mut block), libc::EINVAL, &beyond);
        assert_error(file.read_at(u64::MAX - 4095, &mut block), libc::EINVAL, &["beyond the volume"]);
        assert_error(file.write_at(u64::MAX - 4095, &block), libc::EINVAL, &["beyond the volume"]);
        assert!(read(&file, 0, 1 << 20).iter().all(|b| *b == 0), "a refused write wrote");
        clean(&writer);
    });
}

#[test]
fn impossible_volumes_are_refused_in_a_sentence() {
    within(LIMIT, || {
        let array = small_array(2);
        let node = node(array.transport());
        let me = client(&array, &node, "me");
        let make = |name: &str, capacity_bytes: u64, replicas: u32| {
            me.create(name, &CreateOptions { capacity_bytes, replicas, ..CreateOptions::default() })
        };
        assert_error(make("v", 0, 2), libc::EINVAL, &["capacity of 0 bytes"]);
        assert_error(make("v", 5000, 2), libc::EINVAL, &["5000", "whole blocks"]);
        assert_error(make("v", u64::MAX - 4095, 1), libc::EINVAL, &["16 TiB"]);
        assert_error(make("v", 2 * SSD_BYTES + 4096, 1), libc::ENOSPC, &["\"v\"", "does not fit"]);
        assert_error(make("v", SSD_BYTES + 4096, 2), libc::ENOSPC, &["\"v\"", "does not fit"]);
        assert_error(make("v", 1 << 20, 3), libc::EINVAL, &["3 replicas", "the array has 2"]);
        assert_error(make("v", 1 << 20, 99), libc::EINVAL, &["99 replicas"]);
        assert_error(make("a/b", 1 << 20, 2), libc::EINVAL, &["a/b", "letters"]);
        assert_error(make("", 1 << 20, 2), libc::EINVAL, &["not valid"]);
        let chunk = CreateOptions { capacity_bytes: 1 << 20, chunk_bytes: 5000, ..CreateOptions::default() };
        assert_error(me.create("v", &chunk), libc::EINVAL, &["chunk of 5000"]);
        assert_eq!(me.list().unwrap(), vec![], "a refused volume is not there");

        make("v", 1 << 20, 2).unwrap();
        assert_error(make("v", 1 << 20, 2), libc::EEXIST, &["\"v\"", "there is one of that name"]);
        // The array is full to the last block, and not one more.
        let rest = SSD_BYTES - (1 << 20);
        make("rest", rest, 2).unwrap();
        assert_error(make("more", 4096, 1), libc::ENOSPC, &["at most 0 bytes fit"]);
        me.delete("rest").unwrap();
        make("more", 4096, 1).unwrap();
    });
}

#[test]
fn what_is_asked_of_an_unknown_volume_is_refused_with_its_name() {
    within(LIMIT, || {
        let array = small_array(2);
        let node = node(array.transport());
        let me = client(&array, &node, "me");
        let words = ["no volume \"nowhere\""];
        assert_error(me.open("nowhere", Rights::Read), libc::ENOENT, &words);
        assert_error(me.open("nowhere", Rights::Write), libc::ENOENT, &words);
        assert_error(me.get("nowhere"), libc::ENOENT, &words);
        assert_error(me.delete("nowhere"), libc::ENOENT, &words);
        assert_error(me.attach_without_rights("nowhere", Rights::Read), libc::ENOENT, &words);
    });
}

#[test]
fn there_is_one_writer_and_the_ssds_fence_the_one_before() {
    within(LIMIT, || {
        let array = small_array(3);
        let node = node(array.transport());
        let (first, second) = (client(&array, &node, "first"), client(&array, &node, "second"));
        volume(&first, "v", 1 << 20, 2);
        let lease = first.open("v", Rights::Write).unwrap();
        write(&lease, 0, &pattern(1, CHUNK));
        assert_error(second.open("v", Rights::Write), libc::EBUSY, &["\"v\"", "holds the write lease"]);
        assert_error(second.delete("v"), libc::EBUSY, &["\"v\"", "holds the write lease"]);

        // A handle with the epoch of the first lease, which its holder gives back.
        let stale = first.attach_without_rights("v", Rights::Write).unwrap();
        write(&stale, 0, &pattern(2, CHUNK));
        drop(lease);
        let expired = io_failure(stale.write_at(0, &pattern(3, CHUNK)));
        assert_eq!(expired.nvme_status(), Some(Refusal::LeaseExpired.status()), "{expired}");

        let lease = second.open("v", Rights::Write).unwrap();
        write(&lease, 0, &pattern(4, CHUNK));
        let fenced = io_failure(stale.write_at(0, &pattern(5, CHUNK)));
        assert_eq!(fenced.nvme_status().map(|s| s.0), Some(0x4083), "{fenced}");
        assert_eq!((fenced.rule(), fenced.errno()), (Some("8 (fencing)"), libc::EBUSY));
        assert!(fenced.to_string().contains("another client holds the write lease"), "{fenced}");
        assert_same("the second writer's data", &read(&lease, 0, CHUNK), &pattern(4, CHUNK));
        for replica in 0..2 {
            let mut back = vec![0; CHUNK];
            lease.read_replica_at(replica, 0, &mut back).unwrap();
            assert_same("a replica after the fenced write", &back, &pattern(4, CHUNK));
        }
        clean(&first);
        clean(&second);
    });
}

#[test]
fn the_ssds_refuse_a_readers_write_and_a_strangers_read_and_name_the_rule() {
    within(LIMIT, || {
        let array = small_array(2);
        let node = node(array.transport());
        let writer = client(&array, &node, "writer");
        volume(&writer, "v", 1 << 20, 2);
        let file = writer.open("v", Rights::Write).unwrap();
        let data = pattern(1, BLOCK);
        write(&file, 0, &data);

        let reader = client(&array, &node, "reader");
        let view = reader.open("v", Rights::Read).unwrap();
        let polite = io_failure(view.write_at(0, &pattern(2, BLOCK)));
        assert_eq!(polite.nvme_status(), None, "the library need not ask an SSD: {polite}");
        assert!(polite.to_string().contains("opened for reading"), "{polite}");
        let claim = reader.attach_without_rights("v", Rights::Write).unwrap();
        let refused = io_failure(claim.write_at(0, &pattern(2, BLOCK)));
        assert_eq!(refused.nvme_status().map(|s| s.0), Some(0x4182), "{refused}");
        assert_eq!((refused.rule(), refused.errno()), (Some("access: writer"), libc::EROFS));
        assert!(
            refused.to_string().contains("write of block 0") && refused.to_string().contains("4182h"),
            "{refused}"
        );

        let stranger = client(&array, &node, "stranger");
        let claim = stranger.attach_without_rights("v", Rights::Read).unwrap();
        let mut back = vec![0xEE; BLOCK];
        let refused = io_failure(claim.read_at(0, &mut back));
        assert_eq!(refused.nvme_status().map(|s| s.0), Some(0x4286), "{refused}");
        assert_eq!((refused.rule(), refused.errno()), (Some("access: readers"), libc::EACCES));
        assert!(back.iter().all(|b| *b == 0xEE), "a refused read delivered something");
        let claim = stranger.attach_without_rights("v", Rights::Write).unwrap();
        let refused = io_failure(claim.write_at(0, &pattern(2, BLOCK)));
        assert_eq!(refused.nvme_status().map(|s| s.0), Some(0x4286), "{refused}");

        // Rights end with the handle.
        drop(view);
        let claim = reader.attach_without_rights("v", Rights::Read).unwrap();
        let refused = io_failure(claim.read_at(0, &mut back));
        assert_eq!(refused.rule(), Some("access: readers"), "{refused}");
        assert_same("after all that", &read(&file, 0, BLOCK), &data);
        [&writer, &reader, &stranger].into_iter().for_each(|c| clean(c));
    });
}

#[test]
fn a_second_handle_of_a_client_keeps_its_rights_when_the_first_is_closed() {
    within(LIMIT, || {
        let array = small_array(2);
        let node = node(array.transport());
        let me = client(&array, &node, "me");
        volume(&me, "v", 1 << 20, 2);
        let (one, two) = (me.open("v", Rights::Read).unwrap(), me.open("v", Rights::Read).unwrap());
        drop(one);
        read(&two, 0, BLOCK);
        let writer = me.open("v", Rights::Write).unwrap();
        drop(two);
        write(&writer, 0, &pattern(1, BLOCK));
        drop(writer);
        assert_eq!(me.get("v").unwrap().readers, Vec::<u32>::new(), "the last handle gives the rights back");
    });
}

#[test]
fn a_deleted_volume_is_unreadable_at_once_and_its_name_comes_back_empty() {
    within(LIMIT, || {
        let array = small_array(2);
        let node = node(array.transport());
        let (writer, reader) = (client(&array, &node, "writer"), client(&array, &node, "reader"));
        let old = volume(&writer, "v", 1 << 20, 2);
        let file = writer.open("v", Rights::Write).unwrap();
        write(&file, 0, &pattern(1, 1 << 20));
        let view = reader.open("v", Rights::Read).unwrap();
        read(&view, 0, BLOCK);
        writer.delete("v").unwrap();
        assert_error(writer.get("v"), libc::ENOENT, &["no volume"]);
        let mut back = vec![0xEE; BLOCK];
        let refused = io_failure(view.read_at(0, &mut back));
        assert_eq!(refused.nvme_status().map(|s| s.0), Some(0x4286), "{refused}");
        assert!(back.iter().all(|b| *b == 0xEE), "a deleted byte was read");
        let refused = io_failure(file.write_at(0, &pattern(2, BLOCK)));
        assert_eq!(refused.nvme_status().map(|s| s.0), Some(0x4286), "{refused}");

        let new = volume(&writer, "v", 1 << 20, 2);
        assert_ne!((old.vid, old.generation), (new.vid, new.generation));
        let fresh = reader.open("v", Rights::Read).unwrap();
        assert!(read(&fresh, 0, 1 << 20).iter().all(|b| *b == 0), "the new volume shows old data");
        // The old handles open nothing of the new volume.
        drop((file, view));
        assert!(read(&fresh, 0, BLOCK).iter().all(|b| *b == 0));
        clean(&writer);
        clean(&reader);
    });
}

#[test]
fn clients_at_once_do_not_disturb_one_another() {
    within(LIMIT, || {
        let array = small_array(3);
        let start = Arc::new(Barrier::new(4));
        // Two share a node, two have one of their own.
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

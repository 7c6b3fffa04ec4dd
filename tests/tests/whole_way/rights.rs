// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests that the SSDs or the daemon refuse: wrong ranges, volumes, and rights of readers and writers.

use super::*;

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
        // The array is full to the last block, and takes no further block.
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

        // A handle with the epoch of the first lease. The holder then gives the lease back.
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

        // The rights end with the handle.
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
        // The old handles give no access to the new volume.
        drop((file, view));
        assert!(read(&fresh, 0, BLOCK).iter().all(|b| *b == 0));
        clean(&writer);
        clean(&reader);
    });
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The library's interface for kernels beyond reads and writes: the caller's buffers, requests that a kernel
//! leaves behind, grids that fit.

use crate::deadline::{Deadline, LIMIT};
use gnstor_tests::{BLOCK, IO_TIMEOUT, assert_same, client, kernels, node, pattern, small_array, volume};
use libgnstor::{ClientKernel, Device, DeviceFile, DeviceMem, File, Rights, Shape};
use std::time::Duration;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

/// Mirror of the fields after the file in `user_args` of `device/user.cu`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct User {
    buffer: u64,
    key: u32,
    vba: u32,
    parks: u32,
    status: u32,
}

/// Runs a kernel whose arguments are the file and then `args`. Returns `args` as the kernel left them.
fn run<A: IntoBytes + FromBytes + Immutable>(file: &File, kernel: ClientKernel, shape: Shape, args: &A) -> A {
    let there =
        Device::alloc(file.client().node().device(), size_of::<DeviceFile>() + size_of::<A>()).unwrap();
    there.write(0, file.device_file().as_bytes()).unwrap();
    there.write(size_of::<DeviceFile>(), args.as_bytes()).unwrap();
    file.launch(kernel, shape, there.address(), Duration::from_secs(120)).unwrap();
    let mut out = vec![0; size_of::<A>()];
    there.read(size_of::<DeviceFile>(), &mut out).unwrap();
    A::read_from_bytes(&out).unwrap()
}

/// The status of a request that the channel keeps.
pub(crate) const PENDING: u32 = 0x0001_0000;

/// Has a kernel read block `vba` into this memory, or hand the read over to the channel. Returns the kernel's
/// words.
pub(crate) fn read_by_kernel(file: &File, memory: &DeviceMem, key: u32, vba: u32, parks: bool) -> u32 {
    let args = User { buffer: memory.address(), key, vba, parks: parks.into(), status: !0 };
    run(file, kernels::gn_test_user(), Shape { blocks: 1, threads: 32, smem_bytes: 0 }, &args).status
}

#[test]
fn a_callers_buffer_is_registered_until_it_is_not() {
    let _deadline = Deadline::after(LIMIT);
    let array = small_array(2);
    let node = node(array.transport());
    let me = client(&array, &node, "me");
    let memory = Device::alloc(node.device(), 1 << 20).unwrap();
    let key = me.register_buffer(memory.address(), memory.len()).unwrap();
    let other = me.register_buffer(memory.address(), 4096).unwrap();
    assert_ne!(key, other, "one range may be registered twice");
    assert!(me.deregister_buffer(key).unwrap());
    assert!(!me.deregister_buffer(key).unwrap(), "a key is taken back once");
    assert!(me.deregister_buffer(other).unwrap());
    for (address, bytes) in [(0, 4096), (memory.address(), 0), (u64::MAX - 4095, 8192)] {
        let refused = me.register_buffer(address, bytes).unwrap_err().to_string();
        assert!(refused.contains("device memory to register"), "{refused}");
    }
}

#[test]
fn the_keys_of_a_channels_own_memory_are_not_the_callers_to_take_away() {
    let _deadline = Deadline::after(LIMIT);
    let array = small_array(2);
    let node = node(array.transport());
    let me = client(&array, &node, "me");
    volume(&me, "v", 1 << 20, 2);
    let file = me.open("v", Rights::Write).unwrap();
    // A new channel's keys are among the first keys of the HCA.
    for index in 0..16u32 {
        for variant in 0..=255u32 {
            assert!(!me.deregister_buffer(index << 8 | variant).unwrap());
        }
    }
    let data = pattern(3, 1 << 20);
    file.write_at(0, &data).unwrap();
    let mut back = vec![0; data.len()];
    file.read_at(0, &mut back).unwrap();
    assert!(back == data);
}

#[test]
fn a_drained_channel_has_nothing_in_flight() {
    let _deadline = Deadline::after(LIMIT);
    let array = small_array(2);
    let node = node(array.transport());
    let me = client(&array, &node, "me");
    volume(&me, "v", 1 << 20, 2);
    let file = me.open("v", Rights::Write).unwrap();
    file.write_at(0, &pattern(4, 65536)).unwrap();
    file.drain(IO_TIMEOUT).unwrap();
    let stats = me.channel_stats().unwrap();
    assert_eq!((stats.parked, stats.uncalled, stats.leaked), (0, 0, 0));
    // Nothing is in flight, so the call does not use the time that it may take.
    file.drain(Duration::from_secs(3600)).unwrap();
}

#[test]
fn a_kernel_reads_into_a_callers_buffer_as_long_as_that_is_registered() {
    let _deadline = Deadline::after(LIMIT);
    let array = small_array(2);
    let node = node(array.transport());
    let me = client(&array, &node, "me");
    volume(&me, "v", 1 << 20, 2);
    let file = me.open("v", Rights::Write).unwrap();
    let data = pattern(5, 1 << 20);
    file.write_at(0, &data).unwrap();
    let memory = Device::alloc(node.device(), 2 * BLOCK).unwrap();
    let key = me.register_buffer(memory.address(), BLOCK).unwrap();
    for vba in [0, 7, 255] {
        assert_eq!(read_by_kernel(&file, &memory, key, vba, false), 0);
        let mut back = vec![0; BLOCK];
        memory.read(0, &mut back).unwrap();
        assert_same("what the kernel read", &back, &data[vba as usize * BLOCK..][..BLOCK]);
    }
    // A key that was revoked gives access to nothing.
    let mut before = vec![0; 2 * BLOCK];
    memory.read(0, &mut before).unwrap();
    assert!(me.deregister_buffer(key).unwrap());
    let failed = read_by_kernel(&file, &memory, key, 3, false);
    assert_ne!(failed, 0, "a key that was taken back");
    let mut after = vec![0; 2 * BLOCK];
    memory.read(0, &mut after).unwrap();
    assert_same("memory that is not registered any more", &after, &before);
}

/// A kernel that breaks the rules can name any address and key. But a key gives access only for the channel
/// that it was made for.
#[test]
fn a_kernel_opens_no_memory_by_a_key_of_another_client_of_its_process() {
    let _deadline = Deadline::after(LIMIT);
    let array = small_array(2);
    let node = node(array.transport());
    let (me, other) = (client(&array, &node, "me"), client(&array, &node, "other"));
    volume(&me, "v", 1 << 20, 2);
    let file = me.open("v", Rights::Write).unwrap();
    file.write_at(0, &pattern(7, BLOCK)).unwrap();
    let memory = Device::alloc(node.device(), BLOCK).unwrap();
    let foreign = other.register_buffer(memory.address(), BLOCK).unwrap();
    let mut before = vec![0; BLOCK];
    memory.read(0, &mut before).unwrap();
    assert_ne!(read_by_kernel(&file, &memory, foreign, 0, false), 0, "the key of another channel");
    let mut after = vec![0; BLOCK];
    memory.read(0, &mut after).unwrap();
    assert_same("memory of the other client", &after, &before);
    // The process may register the same memory for another channel, too.
    let own = me.register_buffer(memory.address(), BLOCK).unwrap();
    assert_eq!(read_by_kernel(&file, &memory, own, 0, false), 0);
    memory.read(0, &mut after).unwrap();
    assert_same("what the kernel read", &after, &pattern(7, BLOCK));
}

#[test]
fn a_drain_ends_at_its_deadline_and_counts_requests_without_a_callback() {
    let _deadline = Deadline::after(LIMIT);
    let array = small_array(2);
    let node = node(array.transport());
    let me = client(&array, &node, "me");
    volume(&me, "v", 1 << 20, 2);
    let file = me.open("v", Rights::Write).unwrap();
    file.write_at(0, &pattern(6, 1 << 20)).unwrap();
    let memory = Device::alloc(node.device(), BLOCK).unwrap();
    let key = me.register_buffer(memory.address(), BLOCK).unwrap();
    array.transport().each(|engine, _| (0..2).for_each(|ssd| engine.set_silent(ssd, true))).unwrap();
    assert_eq!(read_by_kernel(&file, &memory, key, 1, true), PENDING, "the channel has it");
    assert_eq!(me.channel_stats().unwrap().parked, 1);
    let late = file.drain(Duration::from_millis(1)).unwrap_err().to_string();
    assert!(late.contains("deadline"), "{late}");
    // The request's connection breaks, or its deadline passes. Either way it ends. Its kernel is gone, so no
    // callback runs.
    file.drain(3 * IO_TIMEOUT).unwrap();
    let stats = me.channel_stats().unwrap();
    assert_eq!((stats.parked, stats.uncalled, stats.leaked), (0, 1, 0), "{stats:?}");
}

/// Mirror of the fields after the file in `read_volume_args`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct ReadVolume {
    blocks: u32,
    failed: u32,
    sum: u64,
}

/// Mirror of the fields after the file in `read_async_args`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct ReadAsync {
    blocks: u32,
    chains: u32,
    next: u32,
    failed: u32,
    sum: u64,
    chain: [[u64; 2]; 128],
}

#[test]
fn the_examples_add_up_what_is_in_a_volume() {
    let _deadline = Deadline::after(LIMIT);
    const BLOCKS: u32 = 300;
    let array = small_array(4);
    let node = node(array.transport());
    let me = client(&array, &node, "me");
    volume(&me, "v", 2 << 20, 2);
    let file = me.open("v", Rights::Write).unwrap();
    let data = pattern(7, BLOCKS as usize * BLOCK);
    file.write_at(0, &data).unwrap();
    let words = data.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    let sum = words.fold(0, u64::wrapping_add);
    // 128 + 8 * threads bytes of shared memory, as the example says.
    let shape = Shape { blocks: 2, threads: 64, smem_bytes: 128 + 8 * 64 };
    let out =
        run(&file, kernels::read_volume(), shape, &ReadVolume { blocks: BLOCKS, ..ReadVolume::new_zeroed() });
    assert_eq!((out.failed, out.sum), (0, sum), "read_volume");
    let args = ReadAsync { blocks: BLOCKS, chains: 100, ..ReadAsync::new_zeroed() };
    let out = run(&file, kernels::read_async(), Shape { blocks: 2, threads: 64, smem_bytes: 0 }, &args);
    assert_eq!((out.failed, out.sum), (0, sum), "read_async");
    let stats = me.channel_stats().unwrap();
    assert_eq!((stats.parked, stats.uncalled, stats.leaked), (0, 0, 0), "{stats:?}");
}

/// Mirror of the fields after the file in `pieces_args`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Pieces {
    vba: u32,
    blocks: u32,
    status: u32,
    operations: u32,
    wrong: u32,
}

#[test]
fn a_request_whose_buffer_is_in_pieces_takes_an_operation_for_each() {
    let _deadline = Deadline::after(LIMIT);
    let array = small_array(4);
    let node = node(array.transport());
    let me = client(&array, &node, "me");
    volume(&me, "v", 1 << 20, 2);
    // Chunks of 16 blocks do not matter if each page is a piece of its own.
    for (vba, blocks) in [(0, 16), (13, 9), (200, 1)] {
        let file = me.open("v", Rights::Write).unwrap();
        let shape = Shape { blocks: 1, threads: 32, smem_bytes: 0 };
        let args = Pieces { vba, blocks, ..Pieces::new_zeroed() };
        let out = run(&file, kernels::gn_test_pieces(), shape, &args);
        assert_eq!((out.status, out.operations, out.wrong), (0, blocks, 0), "{blocks} blocks at {vba}");
    }
}

/// Mirror of the fields after the file in `together_args`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Together {
    from: u64,
    to: u64,
    key: u32,
    vba: u32,
    blocks: u32,
    wrote: u32,
    read: u32,
    padding: u32,
}

#[test]
fn the_threads_of_a_block_and_of_a_warp_do_one_range_together() {
    let _deadline = Deadline::after(LIMIT);
    let array = small_array(4);
    let node = node(array.transport());
    let me = client(&array, &node, "me");
    volume(&me, "v", 2 << 20, 2);
    let file = me.open("v", Rights::Write).unwrap();
    const MOST: usize = 400 * BLOCK;
    let memory = Device::alloc(node.device(), 3 * MOST).unwrap();
    let key = me.register_buffer(memory.address(), memory.len()).unwrap();
    let write_and_read = |vba: u32, blocks: u32, threads| {
        let data = pattern(u64::from(vba), blocks as usize * BLOCK);
        memory.write(0, &vec![0xEE; memory.len()]).unwrap();
        memory.write(0, &data).unwrap();
        let (from, to) = (memory.address(), memory.address() + MOST as u64);
        let args = Together { from, to, key, vba, blocks, ..Together::new_zeroed() };
        let out =
            run(&file, kernels::gn_test_together(), Shape { blocks: 1, threads, smem_bytes: 64 }, &args);
        let mut back = vec![0; blocks as usize * BLOCK * 3 / 2];
        memory.read(MOST, &mut back).unwrap();
        (out, data, back)
    };
    // Fewer blocks than threads, more chunks than threads, ends within a chunk, and no block at all.
    for (vba, blocks, threads) in
        [(3, 400, 64), (0, 16, 32), (500, 12, 128), (15, 2, 64), (100, 333, 32), (7, 0, 64)]
    {
        let (out, data, back) = write_and_read(vba, blocks, threads);
        assert_eq!((out.wrote, out.read), (0, 0), "{blocks} blocks at {vba} by {threads} threads");
        assert_same("what the block read", &back[..data.len()], &data);
        let half = blocks as usize / 2 * BLOCK;
        assert_same("what the warp read", &back[data.len()..][..half], &data[..half]);
    }
    const OUT_OF_RANGE: u32 = 0x0008_0000;
    let (out, _, back) = write_and_read(500, 13, 64);
    assert_eq!((out.wrote, out.read), (OUT_OF_RANGE, OUT_OF_RANGE));
    assert!(back[..13 * BLOCK].iter().all(|byte| *byte == 0xEE), "nothing was read");
}

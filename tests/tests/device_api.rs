// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the library offers to kernels beside reading and writing: buffers of the caller's, the end of what kernels left behind, grids that fit.

use gnstor_tests::{IO_TIMEOUT, client, node, pattern, small_array, volume};
use libgnstor::{Device, Rights};
use std::time::Duration;

#[test]
fn a_callers_buffer_is_registered_until_it_is_not() {
    let array = small_array(2);
    let node = node(array.engine());
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
    let array = small_array(2);
    let node = node(array.engine());
    let me = client(&array, &node, "me");
    volume(&me, "v", 1 << 20, 2);
    let file = me.open("v", Rights::Write).unwrap();
    // Whatever keys a new channel has, they are among the HCA's first.
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
    let array = small_array(2);
    let node = node(array.engine());
    let me = client(&array, &node, "me");
    volume(&me, "v", 1 << 20, 2);
    let file = me.open("v", Rights::Write).unwrap();
    file.write_at(0, &pattern(4, 65536)).unwrap();
    file.drain(IO_TIMEOUT).unwrap();
    let stats = me.channel_stats().unwrap();
    assert_eq!((stats.parked, stats.uncalled, stats.leaked), (0, 0, 0));
    // Nothing is in flight: it does not take the time it is given.
    file.drain(Duration::from_secs(3600)).unwrap();
}

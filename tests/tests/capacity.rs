// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Capacity is a promise: volumes that the daemon creates can be written to their last block.

use gnstor_array::{Array, ArrayConfig, Ssds, media};
use gnstor_tests::{assert_same, client, node, pattern, small_config, within};
use libgnstor::{Client, CreateOptions, Rights};
use std::sync::Arc;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
const SSD_BYTES: u64 = 8 << 20;
const MIB: usize = 1 << 20;

fn array(ssds: u16) -> Array {
    let null = media::preset("null").expect("the preset without modelled time");
    let ssds = Ssds::Here(media::in_memory(ssds, &null, SSD_BYTES));
    Array::start(&ArrayConfig { ssds, ..small_config(1) }).expect("an array starts")
}

fn create(client: &Client, name: &str, capacity_bytes: u64, replicas: u32) -> Result<(), String> {
    let options = CreateOptions { capacity_bytes, replicas, ..CreateOptions::default() };
    client.manager().create(name, &options).map(drop).map_err(|error| error.to_string())
}

/// The largest volume that fits, as the daemon says.
fn largest(client: &Client, replicas: u32) -> u64 {
    let refused = create(client, "too-large", 1 << 40, replicas).expect_err("1 TiB does not fit");
    let size =
        refused.split_once("at most ").and_then(|(_, rest)| rest.split_once(" bytes")).expect("a size");
    size.0.parse().expect("bytes")
}

fn fill(client: &Arc<Client>, name: &str, bytes: u64) {
    let file = client.open(name, Rights::Write).expect("a volume opens");
    for (at, data) in parts(bytes) {
        file.write_at(at, &data)
            .unwrap_or_else(|e| panic!("{name}: {} bytes at {at} of {bytes}: {e}", data.len()));
    }
    file.flush().expect("a flush");
}

/// The content of a volume of this size: offsets and data.
fn parts(bytes: u64) -> impl Iterator<Item = (u64, Vec<u8>)> {
    (0..bytes).step_by(MIB).map(move |at| {
        let part = MIB.min(usize::try_from(bytes - at).expect("a part"));
        (at, pattern(7 + at, part))
    })
}

/// Checks every block.
fn check(client: &Arc<Client>, name: &str, bytes: u64) {
    let file = client.open(name, Rights::Read).expect("a volume opens");
    for (at, data) in parts(bytes) {
        let mut back = vec![0; data.len()];
        file.read_at(at, &mut back).unwrap_or_else(|e| panic!("{name} at {at} of {bytes}: {e}"));
        assert_same(name, &back, &data);
    }
}

#[test]
fn volumes_that_fill_an_array_are_written_to_their_last_block() {
    within(LIMIT, || {
        for (ssds, replicas) in [(1, 1), (2, 1), (3, 2), (4, 1), (5, 3)] {
            let array = array(ssds);
            let node = node(array.transport());
            let writer = client(&array, &node, "writer");
            let all = u64::from(ssds) * SSD_BYTES / u64::from(replicas);
            let first = largest(&writer, replicas) / 2 / 4096 * 4096;
            create(&writer, "first", first, replicas).unwrap();
            let second = largest(&writer, replicas);
            assert!(
                first + second > all * 8 / 10,
                "{ssds} SSDs, {replicas} replicas: {first} + {second} of {all}"
            );
            create(&writer, "second", second + 4096, replicas).expect_err("one block more does not fit");
            create(&writer, "second", second, replicas).unwrap();
            fill(&writer, "first", first);
            fill(&writer, "second", second);
            check(&writer, "first", first);
            check(&writer, "second", second);
        }
    });
}

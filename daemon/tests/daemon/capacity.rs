// SPDX-License-Identifier: Apache-2.0 OR MIT
//! No volume gets blocks that the SSDs do not have.

use crate::array::{SSD_BYTES, SimArray};
use crate::bench::{Bench, Outcome, config, create_with, refused};
use crate::deadline::{Deadline, LIMIT};
use gnstor_daemon::core::request::{Create, Request};
use gnstor_proto::placement::{FleetMap, Rows, group_of};
use gnstor_proto::status::GrpcCode;

/// The size in blocks of the largest volume that would fit, from the sentence of a refused Create.
pub(crate) fn largest(outcome: &Outcome) -> u64 {
    let message = &outcome.as_ref().expect_err("a refusal").message;
    let bytes =
        message.split_once("at most ").and_then(|(_, rest)| rest.split_once(" bytes")).expect("a size").0;
    bytes.parse::<u64>().expect("bytes") / 4096
}

/// Blocks of each SSD that the volumes of an array take when they are written whole.
fn blocks_written_whole(array: &SimArray) -> Vec<u64> {
    let map = array.ssd(0).map.clone().expect("a map");
    let mut blocks = vec![0; array.len()];
    for entry in array.agreed() {
        for vba in 0..u32::try_from(entry.capacity_blocks).unwrap() {
            let group = group_of(entry.vid, vba, entry.chunk_shift, entry.factor, map.groups());
            map.replicas(group, entry.replicas).for_each(|member| blocks[usize::from(member.ssd)] += 1);
        }
    }
    blocks
}

fn replicated(text: &str, blocks: u64, replicas: u8) -> Request {
    let Request::Create(base) = create_with(text, blocks, None) else { unreachable!() };
    Request::Create(Create { replicas, ..base })
}

#[test]
fn no_ssd_is_given_more_blocks_than_it_has_when_volumes_fill_the_array() {
    let _deadline = Deadline::after(LIMIT);
    for ssds in 1..=5 {
        for replicas in 1..=ssds.min(3) {
            let mut bench = Bench::start(&SimArray::new(usize::from(ssds)), 0);
            let volume_blocks = SSD_BYTES / 4096 / 5;
            let mut count = 0;
            while bench.ask(replicated(&format!("v{count}"), volume_blocks, replicas)).is_ok() {
                count += 1;
            }
            let rest = largest(&bench.ask(replicated("rest", volume_blocks, replicas)));
            if rest > 0 {
                refused(
                    &bench.ask(replicated("rest", rest + 1, replicas)),
                    GrpcCode::ResourceExhausted,
                    &["at most"],
                );
                bench.ask(replicated("rest", rest, replicas)).unwrap();
            }
            let blocks = blocks_written_whole(&bench.array);
            assert!(blocks.iter().all(|&blocks| blocks <= SSD_BYTES / 4096), "{ssds} {replicas}: {blocks:?}");
            let fullest = blocks.iter().max().unwrap();
            assert!(fullest + 16 >= SSD_BYTES / 4096, "{ssds} {replicas}: no SSD is full: {blocks:?}");
        }
    }
}

#[test]
fn a_map_that_lost_an_ssd_gives_out_what_the_others_hold() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(4);
    let map = FleetMap::equal(4, 64, config().seed, 1).unwrap().without(2);
    (0..4).for_each(|ssd| array.ssd(ssd).map = Some(map.clone().into()));
    let mut bench = Bench::start(&array, 0);
    let most = largest(&bench.ask(replicated("a", 1 << 30, 2)));
    bench.ask(replicated("a", most, 2)).unwrap();
    let blocks = blocks_written_whole(&bench.array);
    assert!(blocks[2] == 0 && blocks.iter().all(|&blocks| blocks <= SSD_BYTES / 4096), "{blocks:?}");
}

#[test]
fn a_block_without_any_ssd_is_not_given_out() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(2);
    let map = FleetMap::equal(2, 64, config().seed, 1).unwrap().without(1);
    (0..2).for_each(|ssd| array.ssd(ssd).map = Some(map.clone().into()));
    let mut bench = Bench::start(&array, 0);
    refused(&bench.ask(replicated("a", 16, 1)), GrpcCode::ResourceExhausted, &["no SSD", "more replicas"]);
    assert!(bench.ask(replicated("a", 16, 2)).is_ok());
}

#[test]
fn a_restarted_daemon_counts_the_volumes_that_it_finds() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(3);
    let mut bench = Bench::start(&array, 0);
    let most = largest(&bench.ask(replicated("a", 1 << 30, 2)));
    bench.ask(replicated("a", most / 2, 2)).unwrap();
    let before = largest(&bench.ask(replicated("b", most, 2)));
    let mut second = Bench::start(&array, 0);
    // The factor of a new volume follows the term, so the figures differ a little.
    let after = largest(&second.ask(replicated("b", most, 2)));
    assert!(after.abs_diff(before) < most / 20, "{before} {after}");
}

#[test]
fn volumes_being_created_count_against_the_capacity() {
    let _deadline = Deadline::after(LIMIT);
    let mut bench = Bench::start(&SimArray::new(3), 0);
    let most = largest(&bench.ask(create_with("a", 1 << 30, None)));
    let first = bench.send(create_with("a", most, None));
    let second = bench.send(create_with("b", most / 2, None));
    bench.run_until_quiet();
    assert!(bench.replies[&first].is_ok());
    refused(&bench.replies[&second], GrpcCode::ResourceExhausted, &[]);
}

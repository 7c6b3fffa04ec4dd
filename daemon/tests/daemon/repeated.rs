// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls that come again to another daemon (rule 12). The one before carried them out, and ended before it
//! answered.

use crate::array::SimArray;
use crate::bench::{Bench, client, config, create, create_with, created, delete, name, refused};
use crate::deadline::{Deadline, LIMIT};
use crate::rename::rename;
use crate::shrink::three;
use gnstor_daemon::core::request::Request;
use gnstor_daemon::core::{CoreConfig, Reply};
use gnstor_proto::status::GrpcCode;
use gnstor_proto::vendor::VolumeEntry;

/// More than a page of tombstones.
const MANY: u32 = 350;

fn starts(array: &SimArray, now: u64, config: CoreConfig) -> Bench {
    let mut bench = Bench::cold_with(array, now, config);
    bench.run_for(10_000);
    assert!(bench.core.is_serving(), "{:?} {:?}", bench.stopped, bench.core.waits_for());
    bench
}

/// The Delete of a volume with the request id of this number.
fn numbered(text: &str, number: u32) -> Request {
    let mut id = [9; 16];
    id[..4].copy_from_slice(&number.to_le_bytes());
    Request::Delete { name: name(text), client: client(1), request_id: Some(id), force: false, only: None }
}

/// A Create with the request id of this number.
fn numbered_create(text: &str, number: u8) -> Request {
    create_with(text, 16, Some([number; 16]))
}

#[test]
fn a_create_of_an_earlier_daemon_makes_no_other_volume_when_its_own_is_gone() {
    let _deadline = Deadline::after(LIMIT);
    for config in [config(), three()] {
        let array = SimArray::new(3);
        let mut first = starts(&array, 0, config);
        let life = |of: VolumeEntry| (of.vid, of.generation, of.name, of.capacity_blocks);
        let made = life(created(first.ask(numbered_create("a", 1))));
        first.ask(delete("a", 1)).unwrap();
        first.run_for(2_000);
        assert_eq!(life(created(first.ask(numbered_create("a", 1)))), made, "by the daemon that made it");
        // An SSD of this test sweeps with each command.
        for _ in 0..8 {
            first.ask(create("b")).unwrap();
            first.ask(delete("b", 1)).unwrap();
        }
        let now = first.now;
        drop(first);
        let mut second = starts(&array, now, config);
        assert_eq!(life(created(second.ask(numbered_create("a", 1)))), made);
        assert!(second.list().is_empty(), "the volume is deleted, and stays so");
        second.ask(create("a")).unwrap();
        assert_eq!(life(created(second.ask(numbered_create("a", 1)))), made);
        assert_eq!(second.list().len(), 1);
        second.ask(numbered_create("c", 2)).unwrap();
        assert_eq!(second.list().len(), 2, "a new one makes a volume");
    }
}

#[test]
fn a_delete_that_an_earlier_daemon_carried_out_deletes_no_later_volume() {
    let _deadline = Deadline::after(LIMIT);
    for config in [config(), three()] {
        let array = SimArray::new(3);
        let mut first = starts(&array, 0, config);
        for number in 0..MANY {
            first.ask(create("a")).unwrap();
            first.ask(numbered("a", number)).unwrap();
            // Volume ids rest until they are swept.
            first.run_for(2_000);
        }
        // An SSD of this test sweeps with each command.
        for _ in 0..8 {
            first.ask(create("b")).unwrap();
            first.ask(delete("b", 1)).unwrap();
        }
        assert!(array.ssd(0).active().is_empty());
        let now = first.now;
        drop(first);
        let mut second = starts(&array, now, config);
        second.ask(create("a")).unwrap();
        for number in [0, 1, MANY / 2, MANY - 1] {
            assert_eq!(second.ask(numbered("a", number)), Ok(Reply::Ended(vec![])), "{number}");
            assert_eq!(second.list().len(), 1, "Delete {number} is done, and deletes no other volume");
        }
        second.ask(numbered("a", MANY)).unwrap();
        assert!(second.list().is_empty(), "a new one deletes it");
    }
}

/// A Delete that names a volume by id and generation may come late, also to a daemon that has not heard of it
/// before.
#[test]
fn a_delete_that_names_its_volume_deletes_no_other_one() {
    let _deadline = Deadline::after(LIMIT);
    for config in [config(), three()] {
        let array = SimArray::new(3);
        let mut first = starts(&array, 0, config);
        let life = |of: &VolumeEntry| (of.vid, of.generation);
        let of = |text: &str, id: u8, only: (_, u32)| Request::Delete {
            name: name(text),
            client: client(1),
            request_id: Some([id; 16]),
            force: false,
            only: Some(only),
        };
        let ended = Ok(Reply::Ended(vec![]));
        let a = life(&created(first.ask(create("a"))));
        refused(&first.ask(of("b", 1, a)), GrpcCode::NotFound, &["there is no volume \"b\""]);
        first.ask(rename("a", "b", None)).unwrap();
        refused(&first.ask(of("a", 2, a)), GrpcCode::NotFound, &["there is no volume \"a\""]);
        assert_eq!(first.list().len(), 1);
        // Another call deletes the volume first.
        first.ask(delete("b", 1)).unwrap();
        let later = life(&created(first.ask(create("b"))));
        assert_ne!(later, a);
        assert_eq!(first.ask(of("b", 3, a)), ended);
        let now = first.now;
        drop(first);
        let mut second = starts(&array, now, config);
        for id in 1..5 {
            assert_eq!(second.ask(of("b", id, a)), ended, "{id}");
        }
        assert_eq!(second.list().len(), 1, "the later volume is still there");
        assert_eq!(second.ask(of("b", 5, later)), ended);
        assert!(second.list().is_empty());
        assert_eq!(second.ask(of("b", 5, later)), ended, "once more");
    }
}

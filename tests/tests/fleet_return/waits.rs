// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The last copy of some blocks is away. Calls to them wait until it is back.

use super::{Array, BUILD_LIMIT, BYTES, Duration, REPLICAS, each_copy_is, until, within};
use gnstor_tests::{Guest, assert_same, pattern, volume};
use libgnstor::Rights;

/// SSD 2 is dropped, and then SSD 3 is lost, which has the last copy of what both had. When SSD 2 is back, it
/// refuses the calls to that: their group waits.
#[test]
fn calls_to_a_last_copy_that_is_away_wait_for_it() {
    within(BUILD_LIMIT, || {
        let mut array = Array::start();
        let guest = Guest::connect(&array.daemon(), "client");
        volume(&guest.client, "v", BYTES as u64, REPLICAS);
        let file = guest.client.open("v", Rights::Write).unwrap();
        let (old, new) = (pattern(7, BYTES), pattern(8, BYTES));
        file.write_at(0, &old).unwrap();
        array.kill(2);
        until(&array, "SSD 2 is dropped", |now| now["ssds"][2]["state"] == "out");
        array.kill(3);
        until(&array, "SSD 3 is absent", |now| now["ssds"][3]["state"] == "absent");
        array.restart(2);
        until(&array, "SSD 2 is back", |now| now["ssds"][2]["state"] != "out");
        std::thread::scope(|scope| {
            let calls = scope.spawn(|| {
                let mut back = vec![0; BYTES];
                file.read_at(0, &mut back).expect("the read waits");
                assert_same("before", &back, &old);
                file.write_at(0, &new).expect("the write waits");
                file.read_at(0, &mut back).expect("the read goes on");
                assert_same("after", &back, &new);
            });
            std::thread::sleep(Duration::from_millis(1500));
            assert!(!calls.is_finished(), "a copy was there all the time");
            array.restart(3);
            calls.join().expect("no call fails");
        });
        until(&array, "the array is healthy", |now| now["state"] == "healthy");
        each_copy_is(&file, &new);
        drop((file, guest));
        array.end();
    });
}

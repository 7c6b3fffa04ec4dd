// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Too few copies of some blocks are left to write. Writes to them wait until there are more.

use super::{Array, BUILD_LIMIT, BYTES, Duration, until, within};
use gnstor_tests::command::gnstor;
use gnstor_tests::{Guest, assert_same, pattern, read_copy, volume};
use libgnstor::Rights;
use serde_json::Value;

/// A volume of three replicas takes no write where one copy is left (protocol rule 1b). The SSDs are taken
/// out by the operator, so they still vote.
#[test]
fn a_write_with_too_few_copies_waits_for_more() {
    within(BUILD_LIMIT, || {
        let array = Array::start();
        // A map that gives places waits up to 5 s for a writer to say that it reaches the SSD (rule 1b).
        let guest = Guest::connect_for(&array.daemon(), "client", Duration::from_secs(30));
        volume(&guest.client, "v", BYTES as u64, 3);
        let file = guest.client.open("v", Rights::Write).unwrap();
        let (old, new) = (pattern(7, BYTES), pattern(8, BYTES));
        file.write_at(0, &old).unwrap();
        let tell = |what: &str, ssd: &str| {
            gnstor(&["fleet", what, ssd, "--array", &array.daemon()]).worked();
        };
        for ssd in ["2", "3", "1"] {
            // Others take its places, as far as there are any.
            until(&array, "the others have filled", |now| {
                let fills = |ssd: &Value| ssd["filling_groups"] != 0 || ssd["last_copies"] != 0;
                ssd != "1" || !now["ssds"].as_array().expect("a list")[..2].iter().any(fills)
            });
            tell("fail", ssd);
            let at = ssd.parse::<usize>().expect("a number");
            until(&array, "the SSD is out", |now| now["ssds"][at]["state"] == "out");
        }
        let mut back = vec![0; BYTES];
        file.read_at(0, &mut back).expect("one copy is enough to read");
        assert_same("before", &back, &old);
        std::thread::scope(|scope| {
            let write = scope.spawn(|| file.write_at(0, &new));
            std::thread::sleep(Duration::from_millis(1500));
            assert!(!write.is_finished(), "{:?}", write.join());
            ["1", "2", "3"].into_iter().for_each(|ssd| tell("resume", ssd));
            write.join().expect("no panic").expect("the write waits");
        });
        until(&array, "the array is healthy", |now| now["state"] == "healthy");
        for replica in 0..3 {
            read_copy(&file, replica, 0, &mut back);
            assert_same("each copy", &back, &new);
        }
        drop((file, guest));
        array.end();
    });
}

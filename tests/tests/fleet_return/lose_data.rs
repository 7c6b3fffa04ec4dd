// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The file of an SSD with last copies is gone: `gnstor fleet replace --lose-data`.

use super::{
    BLOCK, BUILD_LIMIT, BYTES, Guest, Rights, assert_same, fleet, group, pattern, until, volume, within,
};
use crate::fleet_daemon::Array;
use gnstor_tests::command::gnstor;
use serde_json::Value;

const SSD: u16 = 3;

#[test]
fn what_an_ssd_alone_had_is_given_up_by_name_and_all_else_is_kept() {
    within(BUILD_LIMIT, || {
        let mut array = Array::start();
        let at = array.daemon();
        let (single, pair) = (pattern(3, BYTES), pattern(4, BYTES));
        let owner = Guest::connect(&at, "owner");
        for (name, replicas, data) in [("single", 1, &single), ("pair", 2, &pair)] {
            volume(&owner.client, name, BYTES as u64, replicas);
            owner.client.open(name, Rights::Write).unwrap().write_at(0, data).unwrap();
        }
        let info = owner.client.get("single").unwrap();
        let map = array.map();
        let is_lost = |block: usize| {
            let row = map.rows[group(&map, &info, u32::try_from(block).expect("few")) as usize];
            row.places[0].is_some_and(|place| place.ssd == SSD)
        };
        let mut left = single.clone();
        for block in (0..BYTES / BLOCK).filter(|&block| is_lost(block)) {
            left[block * BLOCK..(block + 1) * BLOCK].fill(0);
        }
        let lost = (0..BYTES / BLOCK).filter(|&block| is_lost(block)).count();
        assert!(lost > 0 && lost < BYTES / BLOCK);

        array.kill(SSD.into());
        let is_state = |now: &Value, word: &str| now["ssds"][usize::from(SSD)]["state"] == word;
        until(&array, "its groups wait for it", |now| is_state(now, "absent"));
        std::fs::remove_file(array.folder.path().join(format!("{SSD}.gns"))).expect("it is there");
        array.restart(SSD);
        until(&array, "it is found to be empty", |now| {
            now["ssds"][usize::from(SSD)]["why"].as_str().is_some_and(|why| why.contains("--lose-data"))
        });
        let command = ["fleet", "replace", "3", "--array", &at];
        let refused = gnstor(&command);
        let words = format!("it has the last copy of {lost} blocks of 1 volumes: \"single\" {lost}");
        assert!(refused.code == 1 && refused.stderr.contains(&words), "{words:?}: {}", refused.stderr);

        let done = gnstor(&[&command[..], &["--lose-data", "--json"]].concat());
        assert_eq!(done.code, 0, "{}", done.stderr);
        let done: Value = serde_json::from_str(&done.stdout).expect("an object");
        assert_eq!(done["lost"], serde_json::json!([{ "volume": "single", "blocks": lost }]));
        until(&array, "all copies serve", |now| now["state"] == "healthy");
        let other = Guest::connect(&at, "other");
        for (name, want) in [("single", &left), ("pair", &pair)] {
            let mut read = vec![0; BYTES];
            other.client.open(name, Rights::Read).unwrap().read_at(0, &mut read).unwrap();
            assert_same(name, &read, want);
        }
        // It takes writes there again.
        owner.client.open("single", Rights::Write).unwrap().write_at(0, &single).unwrap();
        let mut read = vec![0; BYTES];
        other.client.open("single", Rights::Read).unwrap().read_at(0, &mut read).unwrap();
        assert_same("single, written anew", &read, &single);
        assert_eq!(fleet(&array)["state"], "healthy");
        array.end();
    });
}

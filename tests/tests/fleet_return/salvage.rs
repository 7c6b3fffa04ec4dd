// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All machines of an array lose their power, and no SSD writes a dump: `gnstor fleet salvage`.

use super::{
    BLOCK, BUILD_LIMIT, Guest, Rights, assert_same, each_copy_is, has_block, open_to_read, pattern, until,
    volume, within,
};
use crate::fleet_daemon::Array;
use crate::ssd_process::forget_memory;
use gnstor_tests::command::{Ended, gnstor};
use gnstor_tests::io_failure;
use serde_json::Value;
use std::time::Duration;

const BYTES: usize = 1 << 20;
/// The SSD that keeps what was not flushed.
const KEEPS: u16 = 0;

fn salvage(array: &Array, how: &[&str]) -> Ended {
    gnstor(&[&["fleet", "salvage", "--array", &array.daemon()], how].concat())
}

/// The SSD's machine is reset: its memory is gone.
fn cut(array: &mut Array, ssd: u16) {
    array.kill(ssd.into());
    forget_memory(&array.folder.path().join(format!("{ssd}.gns")).display().to_string());
}

/// All machines are reset, the daemon's, too. One SSD has made all durable before that.
fn cut_all(array: &mut Array) {
    let at = array.stop_daemon();
    array.shut_down(KEEPS.into());
    array.restart(KEEPS);
    (0..4).for_each(|ssd| cut(array, ssd));
    (0..4).for_each(|ssd| array.restart(ssd));
    array.start_daemon(at);
    until(array, "no copy serves", |now| all_are(now, "absent"));
}

fn all_are(now: &Value, state: &str) -> bool {
    now["ssds"].as_array().expect("SSDs").iter().all(|ssd| ssd["state"] == state)
}

/// A volume whose blocks were flushed, and then written anew without a flush.
fn written(array: &Array) -> [Vec<u8>; 2] {
    let [old, new] = [pattern(3, BYTES), pattern(4, BYTES)];
    let guest = Guest::connect(&array.daemon(), "owner");
    volume(&guest.client, "v", BYTES as u64, 2);
    let file = guest.client.open("v", Rights::Write).expect("it opens");
    file.write_at(0, &old).expect("a write");
    file.flush().expect("a flush");
    file.write_at(0, &new).expect("a write");
    [old, new]
}

/// Checks both copies: what SSD 0 kept is there again, and each other block is whole, as it was flushed or
/// later. Returns the number of blocks that were lost.
fn is_kept(array: &Array, [old, new]: &[Vec<u8>; 2]) -> usize {
    let guest = Guest::connect(&array.daemon(), "reader");
    let (info, map) = (guest.client.get("v").expect("the volume"), array.map());
    let mut read = vec![0; BYTES];
    open_to_read(&guest, "v").read_at(0, &mut read).expect("it is read");
    let mut lost = 0;
    for (at, block) in read.chunks(BLOCK).enumerate() {
        let part = at * BLOCK..(at + 1) * BLOCK;
        let is_kept = has_block(&map, &info, KEEPS, u32::try_from(at).expect("few"));
        if is_kept || block != &old[part.clone()] {
            assert_same(&format!("block {at}"), block, &new[part]);
        } else {
            lost += 1;
        }
    }
    each_copy_is(&open_to_read(&guest, "v"), &read);
    lost
}

#[test]
fn what_one_copy_kept_comes_back_on_both_and_the_volume_keeps_a_note() {
    within(BUILD_LIMIT, || {
        let mut array = Array::start();
        salvage(&array, &[]).not_understood(&["--dry-run"]);
        salvage(&array, &["--dry-run"]).failed(&["nothing to salvage"]);
        let data = written(&array);
        cut_all(&mut array);

        let guest = Guest::connect_for(&array.daemon(), "reader", Duration::from_secs(2));
        let file = open_to_read(&guest, "v");
        // A read that meets no SSD before its deadline cannot say it.
        gnstor_tests::command::until("a read names the remedy", || {
            io_failure(file.read_at(0, &mut vec![0; BYTES])).to_string().contains("gnstor fleet salvage")
        });
        drop(file);
        let show = gnstor(&["fleet", "show", "--array", &array.daemon()]);
        assert!(show.code == 3 && show.stdout.contains("gnstor fleet salvage"), "{}", show.stdout);

        let seen = salvage(&array, &["--dry-run", "--json"]).json();
        assert_eq!(seen["ssds"], serde_json::json!([0, 1, 2, 3]));
        assert_eq!(seen["volumes"], serde_json::json!([{ "volume": "v", "blocks": BYTES / BLOCK }]));
        until(&array, "nothing was changed", |now| all_are(now, "absent"));
        salvage(&array, &["--yes"]).worked();
        let healthy = until(&array, "all copies serve", |now| now["state"] == "healthy");
        let copied = |ssd: &Value| ssd["fill"]["copied_bytes"].as_u64().unwrap_or(0);
        let copied: u64 = healthy["ssds"].as_array().expect("SSDs").iter().map(copied).sum();
        assert!(copied > 0, "the copies differed");
        assert!(is_kept(&array, &data) > 0, "something was lost: else the test shows nothing");
        let volume = gnstor(&["volume", "show", "v", "--array", &array.daemon(), "--json"]).json();
        assert!(volume["salvaged_s"].as_u64().is_some_and(|at| at > 1_700_000_000), "{volume}");
        // It takes writes as ever.
        let file = guest.client.open("v", Rights::Write).expect("it opens");
        file.write_at(0, &data[0]).expect("a write");
        drop((file, guest));
        salvage(&array, &["--yes"]).failed(&["nothing to salvage"]);
        array.end();
    });
}

#[test]
fn an_incomplete_set_is_refused_and_a_salvage_that_is_cut_off_is_done_in_the_end() {
    within(BUILD_LIMIT, || {
        let mut array = Array::start();
        let data = written(&array);
        cut_all(&mut array);
        array.kill(3);
        until(&array, "it is missed", |now| !now["ssds"][3]["why"].is_null());
        for how in ["--dry-run", "--yes"] {
            salvage(&array, &[how]).failed(&["SSD 3 is missing", "start it again"]);
        }
        array.restart(3);
        until(&array, "it is there", |now| now["ssds"][3]["lossy"] == true);

        // Nothing is merged yet when two SSDs, one of them without its memory, and the daemon end.
        gnstor(&["rebuild", "pause", "--array", &array.daemon()]).worked();
        salvage(&array, &["--yes"]).worked();
        until(&array, "they are to merge", |now| all_are(now, "filling") && now["state"] == "unavailable");
        array.kill(1);
        cut(&mut array, 2);
        // Two of three voters are gone, so no map says it.
        until(&array, "two are missed", |now| {
            [1, 2].iter().all(|ssd: &usize| !now["ssds"][*ssd]["why"].is_null())
        });
        let at = array.stop_daemon();
        [1, 2].into_iter().for_each(|ssd| array.restart(ssd));
        array.start_daemon(at);
        until(&array, "all copies serve", |now| now["state"] == "healthy");
        is_kept(&array, &data);
        array.end();
    });
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SSD process is killed, its file is gone, and an empty one takes its place: `gnstor fleet replace`.

use super::{
    Away, BLOCK, BLOCK_BYTES, BUILD_LIMIT, BYTES, Duration, FleetMap3, Instant, PART, Use, VolumeInfo, fleet,
    has_block, until, within,
};
use crate::fleet_daemon::Array;
use gnstor_tests::command::{Ended, SsdProcess, gnstor};
use serde_json::Value;

const SSD: u16 = 3;

fn replace(array: &Array, ssd: u16) -> Ended {
    gnstor(&["fleet", "replace", &ssd.to_string(), "--array", &array.daemon()])
}

fn refused(array: &Array, ssd: u16, words: &[&str]) {
    let ended = replace(array, ssd);
    assert_ne!(ended.code, 0, "{}", ended.stdout);
    for word in words {
        assert!(ended.stderr.contains(word), "{word:?} is not in {:?}", ended.stderr);
    }
}

fn note(now: &Value) -> &str {
    now["ssds"][usize::from(SSD)]["why"].as_str().unwrap_or_default()
}

/// An SSD with another file, at the address of the one that was killed.
fn another(array: &Array, file: &str, size: &str) -> SsdProcess {
    let file = array.folder.path().join(file).display().to_string();
    let index = SSD.to_string();
    let args = ["--preset", "null", "--size", size, "--data", &file, "--index", &index];
    SsdProcess::start(&array.addresses[usize::from(SSD)], &args)
}

/// Bytes that the SSD's places have, of three volumes that were written as a whole, less what was trimmed.
fn lost_bytes(clients: &Use, map: &FleetMap3) -> u64 {
    let all = |info: &VolumeInfo, from: usize| {
        let own = |block: &usize| has_block(map, info, SSD, u32::try_from(*block).expect("few"));
        (from..BYTES / BLOCK).filter(own).count() as u64 * u64::from(BLOCK_BYTES)
    };
    let get = |name| clients.writer.client.get(name).unwrap();
    let trimmed = clients.trims.len() * PART / BLOCK;
    all(&get("still"), 0) + all(&get("busy"), 0) + all(clients.trimmer.info(), trimmed)
}

/// Whether each SSD took the order. A busy machine may keep one from its answer in time, or from its lease.
fn took(ended: &Ended) -> bool {
    let is_late = ["try again", "not serving"].iter().any(|words| ended.stderr.contains(words));
    assert!(ended.code == 0 || is_late, "{}", ended.stderr);
    ended.code == 0
}

/// Each SSD scrubs and finds nothing, and takes the share that it is given.
fn scrub_and_limit(array: &Array) {
    let at = array.daemon();
    let start = || {
        let ended = gnstor(&["scrub", "start", "--array", &at]);
        took(&ended);
    };
    gnstor_tests::command::until("the SSDs have their share", || {
        if !took(&gnstor(&["rebuild", "limit", "40", "--array", &at])) {
            return false;
        }
        let status = gnstor(&["rebuild", "status", "--json", "--array", &at]);
        let says = || (status.json()["share_percent"].clone(), status.json()["ssds"].clone());
        status.code == 0 && says() == (40.into(), Value::Array(Vec::new()))
    });
    assert_eq!(gnstor(&["rebuild", "limit", "0", "--array", &at]).code, 2, "1 to 100");
    start();
    gnstor_tests::command::until("the scrubs have ended", || {
        let status = gnstor(&["scrub", "status", "--json", "--array", &at]);
        if status.stderr.contains("try again") {
            return false;
        }
        let status = status.json();
        let all = status["ssds"].as_array().expect("the SSDs");
        assert!(all.len() == 4 && all.iter().all(|ssd| ssd["rotten_blocks"] == 0), "{status:#}");
        // The scrub of an SSD ends where a busy machine has the map drop it.
        if all.iter().any(|ssd| ssd["scrub"] == "stopped" || ssd["scrub"] == "none") {
            start();
        }
        all.iter().all(|ssd| ssd["scrub"] == "done")
    });
    gnstor(&["scrub", "stop", "--array", &at]).worked();
}

#[test]
fn an_empty_ssd_takes_the_place_of_a_killed_one_fills_and_serves_and_no_call_fails() {
    within(BUILD_LIMIT, || {
        let mut array = Array::start();
        let mut clients = Use::start(&array);
        let killed = Instant::now();
        refused(&array, SSD, &["the map has not dropped it", "gnstor fleet fail"]);
        array.kill(SSD.into());
        let is_state = |now: &Value, word: &str| now["ssds"][usize::from(SSD)]["state"] == word;
        until(&array, "the SSD is dropped", |now| is_state(now, "out"));
        refused(&array, SSD, &["SSD 3 cannot be replaced", "empty file"]);

        let small = another(&array, "small.gns", "32MiB");
        until(&array, "it is found to be smaller", |now| note(now).contains("is smaller"));
        refused(&array, SSD, &["is smaller", "at least as large"]);
        drop(small.end("-TERM"));

        std::fs::remove_file(array.folder.path().join(format!("{SSD}.gns"))).expect("it is there");
        array.restart(SSD);
        until(&array, "it is found to be empty", |now| note(now).contains("gnstor fleet replace 3"));
        let back = Instant::now();
        let ended = replace(&array, SSD);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        until(&array, "it has places", |now| {
            clients.trimmer.renew();
            !is_state(now, "out")
        });
        let placed = Instant::now();
        let healthy = until(&array, "all copies serve", |now| {
            clients.trimmer.renew();
            now["state"] == "healthy"
        });
        let served = Instant::now();
        let incarnation = &healthy["ssds"][usize::from(SSD)]["incarnation"];
        assert_eq!(incarnation, 2, "no voter takes it for an older image of the SSD before it");
        assert_eq!(replace(&array, SSD).code, 0, "what was asked for before is done");
        let copied_bytes =
            healthy["ssds"][usize::from(SSD)]["fill"]["copied_bytes"].as_u64().expect("a fill");
        let lost = lost_bytes(&clients, &array.map());
        let away = Away { ssd: SSD, killed, back, placed, served, copied_bytes };
        eprintln!(
            "{copied_bytes} of {lost} bytes copied; places {:?}, and all copies {:?} after the call",
            away.placed - away.back,
            away.served - away.back
        );
        // The new SSD does not copy blocks that clients write meanwhile.
        assert!(copied_bytes * 100 <= lost * 102 && copied_bytes * 2 >= lost, "{copied_bytes} of {lost}");
        clients.trim(&array);
        scrub_and_limit(&array);
        until(&array, "three SSDs vote", |now| now["voters"].as_array().is_some_and(|all| all.len() == 3));
        std::thread::sleep(Duration::from_secs(1));
        clients.end(&array, &[]);
        assert_eq!(fleet(&array)["state"], "healthy");
        array.end();
    });
}

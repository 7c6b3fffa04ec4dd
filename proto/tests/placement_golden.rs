// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `tests/golden/placement.txt` says for each of its blocks which SSDs hold it. Three implementations are
//! checked against it: this crate here, the firmware (`deengine/src/fleet.rs`) and the device headers
//! (`gnor/tests/placement.rs`).
//!
//! ```text
//!   map NAME                        a map begins
//!   bytes HEX                       its encoding, in lines of 48 bytes
//!   block VID VBA CHUNK_SHIFT FACTOR REPLICAS : GROUP : PLACES
//! ```
//! PLACES has one word for each replica: `3` is SSD 3, `3f` is SSD 3 while it is filling, `-` is a missing
//! replica.

use crate::deadline::{Deadline, LIMIT};
use gnstor_proto::placement::{FleetMap, Member, Rows, group_of};
use gnstor_proto::slba::Vid;
use std::fmt::Write as _;
use std::path::Path;

const CHUNK_SHIFTS: [u8; 3] = [0, 4, 12];

/// Maps without losses, with filling places, with empty places, and with nothing but empty places.
fn maps() -> Vec<(&'static str, FleetMap)> {
    let equal = |ssds, groups| FleetMap::equal(ssds, groups, 7, 1).expect("a valid map");
    let mut heavy = equal(5, 32).ssds;
    heavy[3].weight *= 4;
    vec![
        ("one SSD", equal(1, 1)),
        ("three SSDs", equal(3, 64)),
        ("three SSDs, one lost", equal(3, 64).without(1)),
        ("three SSDs, two lost", equal(3, 64).without(1).without(0)),
        ("two SSDs, both lost", equal(2, 16).without(0).without(1)),
        ("six SSDs, one lost", equal(6, 64).without(1)),
        ("five SSDs, two lost", equal(5, 64).without(4).without(2)),
        ("five SSDs, one of four times the weight", FleetMap::new(heavy, 32, 7, 1).expect("a valid map")),
    ]
}

fn word(place: Option<Member>) -> String {
    match place {
        None => "-".into(),
        Some(Member { ssd, filling }) => format!("{ssd}{}", if filling { "f" } else { "" }),
    }
}

fn write_map(text: &mut String, name: &str, map: &FleetMap) -> std::fmt::Result {
    writeln!(text, "map {name}")?;
    for line in map.encode().chunks(48) {
        let hex = line.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
        writeln!(text, "bytes {hex}")?;
    }
    for replicas in 1..=u8::try_from(map.width()).expect("at most 4") {
        for i in 0u32..12 {
            let vid = Vid::new(u16::try_from(1 + i * 5000).expect("below 65,535")).expect("not reserved");
            let vba = i.wrapping_mul(0x9E37_79B9) >> (i % 3 * 10);
            let factor = u64::from(i).wrapping_mul(0x0123_4567_89AB_CDEF) ^ u64::from(replicas);
            let shift = CHUNK_SHIFTS[i as usize % CHUNK_SHIFTS.len()];
            let group = group_of(vid, vba, shift, factor, map.groups());
            let places: Vec<_> = map.row(group).take(usize::from(replicas)).map(word).collect();
            writeln!(text, "block {vid} {vba} {shift} {factor} {replicas} : {group} : {}", places.join(" "))?;
            let held: Vec<_> = places.into_iter().filter(|place| place != "-").collect();
            let replicas: Vec<_> = map.replicas(group, replicas).map(|member| word(Some(member))).collect();
            assert_eq!(replicas, held, "of {name}");
        }
    }
    Ok(())
}

/// After a change of the format on purpose, run this test with `GNSTOR_WRITE_GOLDEN=1` and review the
/// difference.
#[test]
fn placement_agrees_with_the_golden_file() {
    let _deadline = Deadline::after(LIMIT);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/placement.txt");
    let mut now = String::from("# Written by proto/tests/placement_golden.rs, which describes the format.\n");
    for (name, map) in maps() {
        write_map(&mut now, name, &map).expect("a String takes all");
    }
    if std::env::var_os("GNSTOR_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, &now).expect("the golden file is writable");
    }
    let golden = std::fs::read_to_string(&path).expect("the golden file");
    for (line, (now, golden)) in now.lines().zip(golden.lines()).enumerate() {
        assert_eq!(now, golden, "line {} of {}", line + 1, path.display());
    }
    assert_eq!(now, golden, "{} is cut short or too long", path.display());
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The firmware's placement against the golden file of `proto` (`proto/tests/placement_golden.rs`).

use super::entry;
use crate::permission::fleet::{Fleet, Place};
use gnstor_proto::placement::FleetMap;
use gnstor_proto::slba::Vid;
use gnstor_proto::vendor::VolumeEntry;

/// The place of SSD `own` in the golden file's places.
fn expected(places: &[&str], own: u16) -> Place {
    let mut first = true;
    for place in places {
        let ssd = place.trim_end_matches('f');
        let filling = ssd.len() < place.len();
        if ssd == own.to_string() {
            return if filling { Place::Filling } else { Place::Serving { first } };
        }
        first &= filling || *place == "-";
    }
    Place::Absent
}

fn bytes(hex: &str) -> impl Iterator<Item = u8> + '_ {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal"))
}

#[test]
fn every_ssd_places_blocks_as_the_golden_file_says() {
    let _deadline = crate::deadline::deadline();
    let golden = include_str!("../../../proto/tests/golden/placement.txt");
    let (mut encoded, mut blocks) = (Vec::new(), 0);
    for line in golden.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[0] {
            "map" => encoded.clear(),
            "bytes" => encoded.extend(bytes(words[1])),
            "block" => {
                // Format 2 gives its places to any content.
                let any = gnstor_durable::SsdIdentity { uuid: [0; 16], incarnation: 0 };
                let map = FleetMap::decode(&encoded).expect("a map");
                let number = |at: usize| words[at].parse::<u64>().expect("a number");
                let entry = VolumeEntry {
                    vid: Vid::new(u16::try_from(number(1)).unwrap()).unwrap(),
                    chunk_shift: u8::try_from(number(3)).unwrap(),
                    factor: number(4),
                    replicas: u8::try_from(number(5)).unwrap(),
                    ..entry(1)
                };
                for ssd in 0..u16::try_from(map.ssds.len()).unwrap() {
                    let place = Fleet::new(map.clone().into(), ssd, any, false)
                        .place(&entry, u32::try_from(number(2)).unwrap());
                    assert_eq!(place, expected(&words[9..], ssd), "SSD {ssd}: {line}");
                }
                blocks += 1;
            }
            _ => {}
        }
    }
    assert_ne!(blocks, 0);
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fleet maps of format 3 with a byte that no map has, cut short, too long, with too many voters.

use super::*;

/// Where a map of four SSDs has a byte of an SSD, and of a row.
const fn ssd(n: usize, at: usize) -> usize {
    60 + n * 112 + at
}

const fn row(n: usize, at: usize) -> usize {
    60 + 448 + n * 10 + at
}

/// Bytes of a map and values that they may not have.
const WRONG: &[(usize, u8)] = &[
    (0, b'X'),
    (4, 4),
    (6, 5),
    (6, 2),
    (48, 3),
    (48, 0),
    (52, 0),
    (52, 5),
    (54, 0),
    (54, 2),
    (55, 1),
    (ssd(0, 16), 9),
    (ssd(0, 38), 0),
    (ssd(0, 38), 2),
    (ssd(0, 38), 3),
    (ssd(0, 38), 4),
    (ssd(0, 38), 6),
    (ssd(0, 39), 1),
    (ssd(0, 39), 2),
    (ssd(1, 39), 3),
    (ssd(2, 40), 72),
    (ssd(2, 40), 15),
    (ssd(2, 40), 14),
    (ssd(2, 41), 0xFF),
    (ssd(2, 111), 1),
    (ssd(0, 40), 1),
    (ssd(3, 38), 2),
    (row(0, 0), 1),
    (row(0, 0), 4),
    (row(0, 1), 0x80),
    (row(0, 3), 0x80),
    (row(0, 5), 0xFF),
    (row(0, 6), 3),
    (row(0, 8), 1),
    (row(0, 9), 3),
    (row(0, 9), 0xFE),
    (row(0, 9), 0xFF),
    (row(1, 6), 2),
    (row(1, 7), 0x80),
    (row(1, 8), 3),
    (row(1, 8), 0xFF),
    (row(1, 5), 0x80),
];

/// What no map may say, with a wrong checksum and with the right one.
pub(super) fn bent(scripts: &mut Vec<Script>) {
    let mut map = one_group([0, 1, 2], SERVE, Some(1));
    map.rows = vec![map.rows[0]; 2];
    map.rows[1].incoming = Some(Incoming3 { ssd: 3, place: 2 });
    map.ssds[1].vote = Vote::Voter;
    map.ssds[2].address = "10.0.0.2:4420 \u{e4}".into();
    let bytes = encoded(&map);
    let mut s = Writing::bare();
    for &(at, value) in WRONG {
        let mut wrong = bytes.clone();
        wrong[at] = value;
        s.set_map_bytes(&wrong);
        wrong[56..60].fill(0);
        let crc = crc32c::crc32c(&wrong);
        wrong[56..60].copy_from_slice(&crc.to_le_bytes());
        s.set_map_bytes(&wrong);
        s.get_map(4096);
    }
    for length in [4, 44, 60, 508, bytes.len() - 4] {
        s.set_map_bytes(&bytes[..length]);
    }
    let mut longer = bytes;
    longer.extend_from_slice(&[7; 100]);
    s.set_map_bytes(&longer);
    s.get_map(4096);
    // Seven voters, and eight.
    for voters in [7usize, 8] {
        let mut map = FleetMap3::of(&FleetMap::equal(8, 1, 7, 1).expect("a map"), ARRAY);
        map.ssds.iter_mut().take(7).for_each(|ssd| ssd.vote = Vote::Voter);
        let mut bytes = encoded(&map);
        if voters == 8 {
            (bytes[54], bytes[60 + 7 * 112 + 39]) = (8, 1);
            bytes[56..60].fill(0);
            let crc = crc32c::crc32c(&bytes);
            bytes[56..60].copy_from_slice(&crc.to_le_bytes());
        }
        s.set_map_bytes(&bytes);
        s.get_map(4096);
    }
    scripts.push(s.finish("map3-bent", "map 3: a map that is none changes nothing"));
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The permission entry as bytes.

use super::*;
use crate::deadline::{Deadline, LIMIT};
use crate::slba::{ClientId, Vid};
use proptest::prelude::*;

fn entry() -> VolumeEntry {
    let client = |raw| ClientId::new(raw).unwrap();
    VolumeEntry {
        vid: Vid::new(5).unwrap(),
        generation: 2,
        version: 9,
        term: 1,
        deleting: false,
        name: "corpus".into(),
        labels: "team=graph\n".into(),
        capacity_blocks: 1 << 20,
        replicas: 2,
        chunk_shift: 4,
        factor: 0xF00D,
        owner: client(1),
        any_reader: false,
        readers: alloc::vec![client(2), client(3)],
        writer: Some(client(1)),
        unsettled: false,
        lease_epoch: 4,
        lease_ms: 300_000,
        request_ids: alloc::vec![[7; 16]],
        limits: Limits { max_iops: 0x0102_0304, max_bytes_per_s: 0x1122_3344_5566_7788 },
        salvaged_s: 0x5566_7788,
    }
}

#[test]
fn an_entry_round_trips() {
    let _deadline = Deadline::after(LIMIT);
    assert_eq!(VolumeEntry::decode(entry().encode().as_bytes()), Ok(entry()));
}

#[test]
fn limits_are_where_the_format_says() {
    let _deadline = Deadline::after(LIMIT);
    let raw = entry().encode();
    assert_eq!(raw.as_bytes()[2312..2324], [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 4, 3, 2, 1]);
}

#[test]
fn rights_follow_the_entry() {
    let _deadline = Deadline::after(LIMIT);
    let e = entry();
    let client = |raw| ClientId::new(raw).unwrap();
    assert!(e.may_read(client(1)) && e.may_read(client(3)) && !e.may_read(client(4)));
}

proptest! {
    #[test]
    fn a_flipped_bit_is_refused(bit in 0usize..ENTRY_BYTES * 8) {
        let _deadline = Deadline::after(LIMIT);
        let mut bytes = entry().encode().as_bytes().to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(VolumeEntry::decode(&bytes).is_err());
    }

    #[test]
    fn any_bytes_with_a_right_checksum_decode_without_panic(
        mut bytes in proptest::collection::vec(any::<u8>(), ENTRY_BYTES),
    ) {
        let _deadline = Deadline::after(LIMIT);
        bytes[..4].copy_from_slice(b"GNVE");
        bytes[4..6].copy_from_slice(&RawEntry::FORMAT.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..ENTRY_BYTES - 4]);
        bytes[ENTRY_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        let _ = VolumeEntry::decode(&bytes);
    }
}

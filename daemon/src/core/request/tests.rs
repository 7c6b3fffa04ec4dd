// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What requests may say.

use super::*;
use crate::deadline::{Deadline, LIMIT};

#[test]
fn names_are_checked() {
    let _deadline = Deadline::after(LIMIT);
    for good in ["a", "Corpus-2.tmp_x", &"x".repeat(64)] {
        assert!(VolumeName::new(good).is_ok(), "{good}");
    }
    for bad in ["", ".a", "-a", "_a", "a b", "a/b", "ä", "a\n", &"x".repeat(65)] {
        assert!(VolumeName::new(bad).is_err(), "{bad}");
    }
}

#[test]
fn numbers_are_checked_at_their_limits() {
    let _deadline = Deadline::after(LIMIT);
    assert_eq!(capacity_blocks(MAX_CAPACITY_BYTES), Ok(1 << 32));
    for bad in [0, 1, 4095, 4097, MAX_CAPACITY_BYTES + 4096] {
        assert!(capacity_blocks(bad).is_err(), "{bad}");
    }
    assert_eq!((chunk_shift(0), chunk_shift(4096), chunk_shift(16 << 20)), (Ok(4), Ok(0), Ok(12)));
    for bad in [1, 2048, 4097, 12_288, 32 << 20, u32::MAX] {
        assert!(chunk_shift(bad).is_err(), "{bad}");
    }
    assert!(client_id(0).is_err() && client_id(65_535).is_err() && client_id(65_536).is_err());
    assert!(client_id(1).is_ok() && client_id(65_534).is_ok());
    assert!(replicas(4).is_ok() && replicas(5).is_err() && replicas(256).is_err());
    assert_eq!((lease_ms(0), lease_ms(1), lease_ms(u32::MAX)), (300_000, 1_000, 3_600_000));
    assert!(request_id(&[1; 15]).is_err() && request_id(&[0; 16]).is_err());
    assert_eq!((request_id(&[]), request_id(&[1; 16])), (Ok(None), Ok(Some([1; 16]))));
}

#[test]
fn labels_are_sorted_lines() {
    let _deadline = Deadline::after(LIMIT);
    assert_eq!(labels([("b", "2"), ("a", "x=y")]).unwrap(), "a=x=y\nb=2\n");
    for bad in [
        ("gnstor.owner", "x"),
        ("gnstor.owner.read", "x"),
        ("", "x"),
        ("a=b", "x"),
        ("a\n", "x"),
        ("a", "x\n"),
    ] {
        assert!(labels([bad]).is_err());
    }
    assert!(labels([("a", "x".repeat(1021).as_str())]).is_ok());
    assert!(labels([("a", "x".repeat(1022).as_str())]).is_err());
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lists of copies on the CPU, by both ways.

use super::*;
use gnstor_base::testing::deadline;
use libgnstor::Choice;

const HOST: usize = 256 << 10;
const DEVICE: usize = 128 << 10;

struct Bed {
    host: Arc<HostRegion>,
    memory: DeviceMem,
    copier: Copier,
}

/// Byte `at` of the host memory, and of the device memory, which differ everywhere.
fn bytes(host: bool, len: usize) -> Vec<u8> {
    let byte = |at| u8::try_from((at % 251 + at / 4096) % 128).expect("below 128");
    (0..len).map(|at| byte(at) | if host { 0x80 } else { 0 }).collect()
}

fn bed(by: CopyBy, most: usize) -> Bed {
    let device = Device::open(Choice::Host).expect("the CPU");
    let host = HostRegion::alloc(HOST).expect("memory");
    host.write(0, &bytes(true, HOST));
    let memory = device.alloc(DEVICE).expect("memory");
    memory.write(0, &bytes(false, DEVICE)).expect("it fits");
    let copier = Copier::new(&device, &host, by, most).expect("a copier");
    assert_eq!(copier.by(), by);
    Bed { host, memory, copier }
}

/// The contents of both memories.
fn state(bed: &Bed) -> (Vec<u8>, Vec<u8>) {
    let (mut host, mut device) = (vec![0; HOST], vec![0; DEVICE]);
    bed.host.read(0, &mut host);
    bed.memory.read(0, &mut device).expect("it is inside");
    (host, device)
}

fn segment(host: u64, device: u64, bytes: u64) -> Segment {
    Segment { host, device, bytes }
}

/// Segments out of order: neighbours, one of 16 bytes, one longer than a part, an empty one, the last bytes
/// of both memories.
fn several() -> Vec<Segment> {
    vec![
        segment(8192, 4096, 4096),
        segment(12288, 8192, 4096),
        segment(0, 65536, 16),
        segment(65552, 16400, PART_BYTES + 528),
        segment(48, 48, 0),
        segment(HOST as u64 - 4096, DEVICE as u64 - 4096, 4096),
    ]
}

#[test]
fn what_a_list_names_is_copied_both_ways_and_nothing_else() {
    let _deadline = deadline();
    for by in [CopyBy::Batch, CopyBy::Kernel] {
        for to_device in [true, false] {
            let mut bed = bed(by, 8);
            let (mut host, mut device) = state(&bed);
            for Segment { host: h, device: d, bytes } in several() {
                let (h, d, bytes) = (length(h), length(d), length(bytes));
                if to_device {
                    device[d..d + bytes].copy_from_slice(&host[h..h + bytes]);
                } else {
                    host[h..h + bytes].copy_from_slice(&device[d..d + bytes]);
                }
            }
            let copied = if to_device {
                bed.copier.copy_to_device(&bed.memory, &several())
            } else {
                bed.copier.copy_to_host(&bed.memory, &several())
            };
            copied.expect("a list that is right");
            assert!(state(&bed) == (host, device), "{by:?}, to the device: {to_device}");
        }
    }
}

#[test]
fn an_empty_list_and_one_of_everything_are_lists_too() {
    let _deadline = deadline();
    for by in [CopyBy::Batch, CopyBy::Kernel] {
        let mut bed = bed(by, 1);
        let before = state(&bed);
        bed.copier.copy_to_device(&bed.memory, &[]).expect("nothing to do");
        bed.copier.copy_to_host(&bed.memory, &[segment(0, 0, 0)]).expect("nothing to do");
        assert!(state(&bed) == before);
        bed.copier.copy_to_device(&bed.memory, &[segment(0, 0, DEVICE as u64)]).expect("all of it");
        assert!(state(&bed).1 == bytes(true, DEVICE), "{by:?}");
    }
}

#[test]
fn a_list_that_is_not_right_is_refused_and_nothing_is_copied() {
    let _deadline = deadline();
    let other = bed(CopyBy::Batch, 1);
    for by in [CopyBy::Batch, CopyBy::Kernel] {
        let mut bed = bed(by, 2);
        let before = state(&bed);
        let good = segment(0, 0, 4096);
        for (bad, why) in [
            (segment(0, 0, 4100), "multiples of 16"),
            (segment(8, 0, 16), "multiples of 16"),
            (segment(0, 8, 16), "multiples of 16"),
            (segment(HOST as u64, 0, 16), "leaves 262144 bytes of host memory"),
            (segment(0, DEVICE as u64 - 16, 32), "leaves 131072 bytes of device memory"),
            (segment(u64::MAX - 15, 0, 32), "of host memory"),
        ] {
            let error =
                bed.copier.copy_to_device(&bed.memory, &[good, bad]).expect_err("it is refused").to_string();
            assert!(error.contains(why), "{error}");
            bed.copier.copy_to_host(&bed.memory, &[good, bad]).expect_err("and the other way");
        }
        let error = bed.copier.copy_to_device(&bed.memory, &[good; 3]).expect_err("too many").to_string();
        assert!(error.contains("3 segments are more than 2"), "{error}");
        let error =
            bed.copier.copy_to_device(&other.memory, &[good]).expect_err("not its memory").to_string();
        assert!(error.contains("another device"), "{error}");
        assert!(state(&bed) == before, "{by:?}");
        bed.copier.copy_to_device(&bed.memory, &[good]).expect("it can be used as before");
    }
}

#[test]
fn neighbours_in_both_memories_are_one_copy() {
    let _deadline = deadline();
    let (a, b, c) = (segment(0, 32, 16), segment(16, 48, 16), segment(32, 96, 16));
    assert_eq!(runs(&[a, segment(7, 7, 0), b, c]), [segment(0, 32, 32), c]);
    assert_eq!(runs(&[b, a]), [b, a]);
    assert_eq!(runs(&[]), []);
}

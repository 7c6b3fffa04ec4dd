// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Regions: shared, mapped from files, with their bounds.

use super::*;
use crate::testing::deadline;

#[test]
fn two_mappings_of_one_shared_region_see_each_other() {
    let _deadline = deadline();
    let one = HostRegion::shared(10_000).unwrap();
    let file = File::from(one.backing().unwrap().try_clone_to_owned().unwrap());
    let two = HostRegion::map_file(&file, 4096, 4096).unwrap();
    assert_ne!(one.id(), two.id());
    one.write(4096 + 5, b"seen");
    let mut out = [0; 4];
    two.read(5, &mut out);
    assert_eq!(&out, b"seen");
    assert!(HostRegion::alloc(1).unwrap().backing().is_none());
}

/// The kernel's flags for the mapping at this address.
fn flags_of(region: &HostRegion) -> String {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut lines = maps.lines().skip_while(|line| {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let [from, to] =
            range.map_or([0, 0], |(a, b)| [a, b].map(|n| u64::from_str_radix(n, 16).unwrap_or(0)));
        !(from..to).contains(&region.address())
    });
    lines.find(|line| line.starts_with("VmFlags:")).unwrap_or_default().to_owned()
}

#[test]
fn both_kinds_of_memory_ask_for_huge_pages() {
    let _deadline = deadline();
    // "hg": advised; "ht": made of huge pages that were set aside. A kernel built without them has
    // neither.
    if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
        return;
    }
    for region in [HostRegion::alloc(5 << 20).unwrap(), HostRegion::shared(5 << 20).unwrap()] {
        region.write((5 << 20) - 1, &[1]);
        let flags = flags_of(&region);
        assert!(flags.split(' ').any(|flag| flag == "hg" || flag == "ht"), "{flags}");
    }
}

#[test]
fn a_mapped_file_has_what_was_written_and_its_bounds_are_kept() {
    let _deadline = deadline();
    let shared = HostRegion::shared(8192).unwrap();
    shared.fill(0, 8192, 7);
    let file = File::from(shared.backing().unwrap().try_clone_to_owned().unwrap());
    file.set_len(8192).unwrap();
    let region = HostRegion::map_file(&file, 4096, 4096).unwrap();
    region.write(0, b"new");
    region.sync().unwrap();
    let memory = HostRegion::alloc(8192).unwrap();
    memory.read_file(100, 8, &file, 4096).unwrap();
    let mut out = [0; 8];
    memory.read(100, &mut out);
    assert_eq!(&out, b"new\x07\x07\x07\x07\x07");
    memory.write_file(100, 8, &file, 0).unwrap();
    memory.copy_within(100, 300, 8);
    memory.read_file(200, 8, &file, 0).unwrap();
    memory.read(200, &mut out);
    assert_eq!(&out, b"new\x07\x07\x07\x07\x07");
    memory.read(300, &mut out);
    assert_eq!(&out, b"new\x07\x07\x07\x07\x07");

    assert_eq!(memory.read_file(0, 9, &file, 8192 - 8).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(HostRegion::map_file(&file, 4096, 4097).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(HostRegion::map_file(&file, 512, 512).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(
        HostRegion::map_file(&file, u64::MAX - 4095, 4096).unwrap_err().kind(),
        io::ErrorKind::InvalidInput
    );
}

#[test]
#[should_panic(expected = "must not overlap")]
fn an_overlapping_copy_is_refused() {
    let _deadline = deadline();
    HostRegion::alloc(8192).unwrap().copy_within(0, 100, 101);
}

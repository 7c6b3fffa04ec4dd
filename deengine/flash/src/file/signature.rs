// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of file systems and partition tables by their first bytes, so that a user can recognise the wrong
//! device.

/// Offset, bytes, name.
const MARKS: &[(usize, &[u8], &str)] = &[
    (0, b"GNSTFLSH", "an SSD of GNStor"),
    (0, b"XFSB", "an XFS file system"),
    (0, b"LUKS\xBA\xBE", "an encrypted volume"),
    (3, b"NTFS    ", "an NTFS file system"),
    (512, b"EFI PART", "a partition table"),
    (4096, b"EFI PART", "a partition table"),
    (512, b"LABELONE", "an LVM volume"),
    (1080, b"\x53\xEF", "an ext file system"),
    (4086, b"SWAPSPACE2", "swap space"),
    (65_600, b"_BHRfS_M", "a btrfs file system"),
    (510, b"\x55\xAA", "a partition table or a FAT file system"),
];

/// The name for a device that begins with these bytes.
pub(super) fn of(begin: &[u8]) -> &'static str {
    let has = |at: usize, mark: &[u8]| begin.get(at..).is_some_and(|from| from.starts_with(mark));
    MARKS.iter().find(|(at, mark, _)| has(*at, mark)).map_or("bytes that are not zero", |(.., name)| name)
}

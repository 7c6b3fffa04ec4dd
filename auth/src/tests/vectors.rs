// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Text forms of secrets that other programs made. This project's secrets have the same form.

use super::*;

/// The example of section 8.3.5 of the NVMe base specification, with each hash that this crate takes.
const OF_THE_SPECIFICATION: &str = "ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n";
const ITS_KEY: &str = "89aeb31a874eaf84841b46736b0dfdf2ba58d30aa2a545a3e235a3521e07594c";
/// Printed by `nvme gen-dhchap-key -m 1`.
const OF_NVME_CLI: &str = "DHHC-1:01:C7XNT6VDFTFfbGtrSimOlLFg7BAdH+UwUgkLTuSA5gcd+7/H:";
const ITS_OTHER_KEY: &str = "0bb5cd4fa54315315f6c6b6b4a298e94b160ec101d1fe53052090b4ee480e607";

fn bytes(hex: &str) -> [u8; KEY_BYTES] {
    let byte = |at: usize| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("digits");
    core::array::from_fn(byte)
}

/// CRC-32 of IEEE 802.3, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let of_bit = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), |crc, _| of_bit(crc)))
}

/// Base64 of RFC 4648, section 4, of a number of bytes that three divides.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = |three: &[u8]| {
        let word = three.iter().fold(0usize, |word, &byte| word << 8 | usize::from(byte));
        [18, 12, 6, 0].map(|shift| char::from(DIGITS[word >> shift & 63]))
    };
    bytes.chunks(3).flat_map(digits).collect()
}

#[test]
fn secrets_of_the_specification_and_of_nvme_cli_are_read_and_written_as_they_are() {
    let _deadline = Deadline::after(LIMIT);
    assert_eq!(crc32(b"123456789"), 0xCBF4_3926, "the check value of this CRC");
    let specified = |hash: &str| format!("DHHC-1:{hash}:{OF_THE_SPECIFICATION}:");
    for (text, key) in
        [(specified("00"), ITS_KEY), (specified("01"), ITS_KEY), (OF_NVME_CLI.into(), ITS_OTHER_KEY)]
    {
        let (key, read) = (bytes(key), Secret::parse(&text).expect("a secret"));
        assert_eq!(read.bytes(), &key, "{text}");
        assert_eq!(*read.to_text(), text);
        let with_sum = [&key[..], &crc32(&key).to_le_bytes()].concat();
        assert_eq!(text.split(':').nth(2), Some(base64(&with_sum).as_str()));
    }
    // The sum is of the key alone, and little-endian.
    let key = bytes(ITS_KEY);
    let mut reversed = crc32(&key).to_le_bytes();
    reversed.reverse();
    for sum in [reversed, crc32(&[&key[..], &[0; 4]].concat()).to_le_bytes()] {
        let text = format!("DHHC-1:01:{}:", base64(&[&key[..], &sum].concat()));
        assert_eq!(Secret::parse(&text).expect_err("another sum"), KeyError::Checksum);
    }
}

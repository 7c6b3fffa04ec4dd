// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Text forms of secrets that other programs made: this project's secrets have the same form. Responses that
//! another implementation computed.

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

/// Responses of the host and of the controller, and the proof of an I/O queue, in the run of [`run`] with
/// each group. Another implementation computed them once: Python, with integers and the modules hmac and
/// hashlib. It takes each prime from the formula of RFC 7919, appendix A, which has digits of e. This code
/// has the hex digits.
///
/// ```text
/// mac = lambda key, *parts: hmac.new(key, b"".join(parts), hashlib.sha256).digest()
/// p = 2**2048 - 2**1984 + (floor(2**1918 * e) + 560316) * 2**64 - 1
/// p = 2**3072 - 2**3008 + (floor(2**2942 * e) + 2625351) * 2**64 - 1
/// shared = pow(pow(2, x, p), y, p).to_bytes(bits // 8, "big")   # x = 0303.., y = 0101.., of 29 or 35 bytes
/// a = lambda c: mac(hashlib.sha256(shared).digest(), c)         # without a group: a(c) = c
/// kt = lambda nqn: mac(secret, nqn, b"NVMe-over-Fabrics")
/// r1 = mac(kt(host), a(c1), le32(3), le16(77), b"\0HostHost", host, b"\0", ssd)
/// r2 = mac(kt(ssd), a(c2), le32(2), le16(77), b"\0Controller", ssd, b"\0", host)
/// session = mac(kt(host), b"GNStor session key", a(c1), a(c2))
/// proof = mac(session, b"GNStor I/O queue", le16(3), le16(5), le64(9))
/// ```
const COMPUTED_ELSEWHERE: [(Group, [&str; 3]); 3] = [
    (
        Group::Null,
        [
            "275d04aae31484f98419deca1cf9c113b1ab2c5a254578b3601a8ff275dd70d7",
            "feeba969ee589df9a491dbe617ee35ceebf26186e2aef8dc2fd2342d1c186939",
            "64a5afca2af08bac4d2e4af0d6a42d8eb4c5650e1def2b8b71a5ce92c48316de",
        ],
    ),
    (
        Group::Ffdhe2048,
        [
            "98e4b0110cd643bc6b8e88f06c939d998889161ca6112b8bdaeb4c6dcbbc4994",
            "e10e48922db363040a5869cbef96fb2c665c0ed4265c677e95968eda1f6d3461",
            "bb5092f5328362c9a828fab72bd2cf9b063293a863931a2fbaec2419af15c5a9",
        ],
    ),
    (
        Group::Ffdhe3072,
        [
            "babe5cf00e8d1a21b6f9c3d2c67575000eb725e9a2d64b74f126c8922da4477b",
            "6e6a8f4cf304d0efe36d74ea4fe78b0290d5608259fd62382e881ea6a9df49aa",
            "49a9b2632ca2c04888b9985e8d86d783e52729e2269a76805a4129c160d1bf29",
        ],
    ),
];

#[test]
fn responses_and_proofs_are_the_ones_that_another_implementation_computes() {
    let _deadline = Deadline::after(LIMIT);
    for (group, [r1, r2, proof]) in COMPUTED_ELSEWHERE {
        let mut messages = Vec::new();
        let (host, _) = run(secret(5), secret(5), &[group], group, |_, message| {
            messages.push(message.clone());
        })
        .expect("both know the secret");
        // A response follows the 16 bytes at the head of DH-HMAC-CHAP_Reply and of Success1.
        let of_message = |at: usize| &messages[at][16..16 + KEY_BYTES];
        assert_eq!(of_message(2), bytes(r1), "R1, {group:?}");
        assert_eq!(of_message(3), bytes(r2), "R2, {group:?}");
        assert_eq!(host.prove(3, 5, 9).tag, bytes(proof), "proof, {group:?}");
    }
}

/// The key of a host: HMAC of the secret over its NQN and this text, by Python as above.
#[test]
fn the_transformed_key_is_the_specifications() {
    let _deadline = Deadline::after(LIMIT);
    let expected = bytes("b980a8c9ccb2a74405aca3f41d249e788be1fe58fdf7a7be60b784b095983177");
    assert_eq!(*Secret::new([0; 32]).transformed("nqn.2014-08.org.nvmexpress:uuid:x"), expected);
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first message of a TLS 1.3 handshake, built by hand. The array answers it with a key exchange and a
//! signature, while the client spends almost nothing.

#![expect(clippy::big_endian_bytes, reason = "lengths of TLS are big-endian")]

use crate::random::Random;

/// An extension: its number and its body.
fn extension(number: u16, body: &[u8]) -> Vec<u8> {
    [&number.to_be_bytes()[..], &short(body.len()), body].concat()
}

fn short(length: usize) -> [u8; 2] {
    u16::try_from(length).expect("a short message").to_be_bytes()
}

/// A ClientHello. Its key share of x25519 belongs to no private key.
pub fn client_hello(random: &mut Random) -> Vec<u8> {
    let share = [&[0x00, 0x24, 0x00, 0x1D, 0x00, 0x20][..], &random.bytes(32)].concat();
    let extensions = [
        // Groups: x25519.
        extension(0x000A, &[0x00, 0x02, 0x00, 0x1D]),
        // Signatures: ECDSA with P-256 or P-384, Ed25519, RSA-PSS.
        extension(0x000D, &[0x00, 0x08, 0x04, 0x03, 0x05, 0x03, 0x08, 0x07, 0x08, 0x04]),
        // Versions: 1.3.
        extension(0x002B, &[0x02, 0x03, 0x04]),
        extension(0x0033, &share),
    ]
    .concat();
    // Version field of TLS 1.2, no session, TLS_AES_128_GCM_SHA256, no compression.
    let body = [&[0x03, 0x03][..], &random.bytes(32), &[0, 0, 2, 0x13, 0x01, 1, 0]].concat();
    let body = [&body[..], &short(extensions.len()), &extensions].concat();
    let message = [&[0x01, 0][..], &short(body.len()), &body].concat();
    [&[0x16, 0x03, 0x01][..], &short(message.len()), &message].concat()
}

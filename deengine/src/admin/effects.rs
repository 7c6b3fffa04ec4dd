// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every command that this SSD supports, and its effects: the Commands Supported and Effects page.

use gnstor_proto::fabrics;
use gnstor_proto::nvme::{admin, io};
use gnstor_proto::vendor::opcode;

/// CSUPP: the command is supported.
const SUPPORTED: u32 = 1;
/// LBCC: it may change the content of blocks.
const CHANGES_BLOCKS: u32 = 1 << 1;
/// NCC: it may change what Identify Namespace tells (NUSE).
const CHANGES_NAMESPACE: u32 = 1 << 2;

/// Admin opcodes.
pub(crate) const ADMIN: &[(u8, u32)] = &[
    (admin::GET_LOG_PAGE, SUPPORTED),
    (admin::IDENTIFY, SUPPORTED),
    (admin::ABORT, SUPPORTED),
    (admin::SET_FEATURES, SUPPORTED),
    (admin::GET_FEATURES, SUPPORTED),
    (admin::ASYNC_EVENT_REQUEST, SUPPORTED),
    (admin::KEEP_ALIVE, SUPPORTED),
    (fabrics::OPCODE, SUPPORTED),
    (opcode::VOLUME_ADD, SUPPORTED),
    (opcode::VOLUME_LIST, SUPPORTED),
    (opcode::VOLUME_DELETE, SUPPORTED | CHANGES_BLOCKS | CHANGES_NAMESPACE),
    (opcode::VOLUME_CHMOD, SUPPORTED),
    (opcode::LEASE_RENEW, SUPPORTED),
    (opcode::MAP_SET, SUPPORTED),
    (opcode::MAP_GET, SUPPORTED),
    (opcode::MAP_HOLD, SUPPORTED),
    (opcode::TERM_TAKE, SUPPORTED),
    (opcode::ACTIVATE, SUPPORTED),
    (opcode::LEASE_ASK, SUPPORTED),
    (opcode::SETTLE, SUPPORTED | CHANGES_BLOCKS),
    (opcode::PEER_READ, SUPPORTED),
    (opcode::REPAIR, SUPPORTED | CHANGES_BLOCKS),
    (opcode::CLIENT_END, SUPPORTED),
    (opcode::OPENING, SUPPORTED),
];

/// I/O opcodes.
pub(crate) const IO: &[(u8, u32)] = &[
    (io::FLUSH, SUPPORTED),
    (io::WRITE, SUPPORTED | CHANGES_BLOCKS),
    (io::READ, SUPPORTED),
    (io::COMPARE, SUPPORTED),
    (io::WRITE_ZEROES, SUPPORTED | CHANGES_BLOCKS),
    (io::DATASET_MANAGEMENT, SUPPORTED | CHANGES_BLOCKS),
    (fabrics::OPCODE, SUPPORTED),
];

/// The page: 256 words for admin commands, 256 for I/O commands.
pub(crate) fn page() -> Vec<u8> {
    let mut page = vec![0; 4096];
    for (base, commands) in [(0, ADMIN), (1024, IO)] {
        for &(opcode, effects) in commands {
            let at = base + usize::from(opcode) * 4;
            page[at..at + 4].copy_from_slice(&effects.to_le_bytes());
        }
    }
    page
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reasons why the RDMA connection manager refused a connection.

/// A connection was refused: the reason.
pub type Refused = u16;
/// The peer does not exist.
pub const REFUSED_NO_PEER: Refused = 0xFFFF;

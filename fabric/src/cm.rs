// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the RDMA connection manager says of a connection that was not made.

/// A connection was refused: the reason.
pub type Refused = u16;
/// Reason given when the peer is not there.
pub const REFUSED_NO_PEER: Refused = 0xFFFF;

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long before its modelled time the emulator does what takes real time. Each of these constants
//! belongs to another crate's work; they stand together because each has to cover the next.
//!
//! ```text
//!   the SSD takes a command       the transport hands over      the queue owner sees
//!   ahead of its firmware         the SEND or fused response    the response, when it is due
//!        |--------- FIRMWARE -----------|                              |
//!                                       |--- SEND + HALF_TRIP_MOST --->|
//!                                             |-- FUSED -------------->|
//!                            |------------ HOLD_MOST ----------------->|
//! ```

use crate::time::Span;

/// How long before the modelled firmware is free an SSD takes its next command. The emulator's real work for
/// a command takes that long, until its response is due. The command's modelled time stays that of the
/// firmware.
pub const FIRMWARE: Span = Span::from_ns(90_000);

/// How long before a response is due the transport hands over its SEND, the way on the link not counted. The
/// agent holds up to 64 early responses a ring. The time covers delays under load.
pub const SEND: Span = Span::from_ns(80_000);

/// Half a round trip to an executor counts as no more than this.
pub const HALF_TRIP_MOST: Span = Span::from_ns(4_000);

/// How long before it is due the transport hands over a fused response. Copying its data takes less, even
/// when many are under way.
pub const FUSED: Span = Span::from_ns(40_000);

/// The longest time for which the agent holds a response, whatever the two clocks say. The device code has
/// the same constant; fabric's layout test compares them.
pub const HOLD_MOST: Span = Span::from_ns(200_000);

const _: () = {
    let send = SEND.as_ps() + HALF_TRIP_MOST.as_ps();
    assert!(FUSED.as_ps() <= send, "a fused response is handed over no earlier than a SEND");
    assert!(
        send <= FIRMWARE.as_ps(),
        "a command taken ahead has its response in time to be handed over early"
    );
    assert!(FIRMWARE.as_ps() < HOLD_MOST.as_ps(), "the agent holds every response that can come early");
};

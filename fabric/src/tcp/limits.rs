// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Resources that one TCP connection and one host may use, and how long they may wait. A Connect beyond a
//! quota is refused with `NO_RESOURCES`; a connection that is closed gets [`super::Frame::End`] with the
//! reason first, where its peer reads.

use gnstor_base::time::Span;

/// Bytes for the peer that the array holds. Beyond them it encodes no more data for the peer, and reads no
/// more frames from it.
pub const OUTBOX_BYTES: usize = 512 << 10;
/// Bytes for the array that a client holds. An array asks for [`TRANSFERS`] blocks at a time: a client that
/// stops reading earlier could wait for an array that waits for it.
pub const CLIENT_OUTBOX_BYTES: usize = 8 << 20;
/// The limit of an outbox, and of a read, while the peer has proven nothing. It is also the limit while the
/// connections of its host hold [`HOST_HELD`], or [`SPARED_HELD`] while all hold [`HELD`].
pub const FEW_BYTES: usize = 2 * super::MAX_DATA;
/// If an outbox exceeds this size, the connection ends at once. Only responses can fill it so far.
pub const MOST_OUTBOX_BYTES: usize = 4 * CLIENT_OUTBOX_BYTES;
/// Longest time for which a peer may leave bytes waiting and take fewer than [`FEW_BYTES`].
pub const STALL: Span = Span::from_ms(10_000);

/// Queue pairs.
pub const QUEUE_PAIRS: usize = 2048;
/// Queue pairs that wait: their Connect command is under way, or the proof of their client.
pub const PENDING_CONNECTS: usize = 256;
/// Transfers that wait for the client. The array holds further ones back.
pub const TRANSFERS: usize = 1024;
/// Longest time for which a client may have transfers in flight and end none.
pub const ANSWER: Span = Span::from_ms(30_000);

/// Longest time from accepting a TCP connection to its first Connect.
pub const HANDSHAKE: Span = Span::from_ms(10_000);
/// From accepting a queue pair to its client's admission. An SSD may be restoring its map meanwhile.
pub const PENDING: Span = Span::from_ms(60_000);
/// Longest time for which a connection may have no queue pair.
pub const IDLE: Span = Span::from_ms(60_000);

/// TCP connections of a listener.
pub const CONNECTIONS: usize = 16_384;
/// Bytes from and for peers that a listener's connections hold, without the first [`FEW_BYTES`] of each.
pub const HELD: usize = 128 << 20;
/// Most bytes that all connections hold. Beyond [`HELD`], a host gets only [`SPARED_HELD`].
pub const MOST_HELD: usize = HELD / 2 * 3;
/// TLS handshakes of a listener that are under way.
pub const HANDSHAKES: usize = 1024;

// Limits for all connections of one host together: three quarters, or less.
/// TCP connections.
pub const HOST_CONNECTIONS: usize = CONNECTIONS / 4 * 3;
/// Bytes that they hold.
pub const HOST_HELD: usize = HELD / 4 * 3;
/// Bytes that they may hold though other hosts hold [`HELD`], as long as all hold less than [`MOST_HELD`].
pub const SPARED_HELD: usize = 2 * OUTBOX_BYTES;
/// TLS handshakes that are under way.
pub const HOST_HANDSHAKES: usize = HANDSHAKES / 4;
/// Queue pairs of one SSD, which has 65,536, and ids for 16,384 controllers.
pub const HOST_QUEUE_PAIRS: u32 = 12_288;
/// Queue pairs of all SSDs. An engine has 65,536 names of connections, however many SSDs it has.
pub const HOST_NAMES: u32 = (1 << 16) / 4 * 3;
/// Queue pairs of one SSD that wait. Each may hold one of its 4,096 small buffers. For a further one the
/// oldest gives way.
pub const HOST_PENDING_CONNECTS: u32 = 1024;
/// Queue pairs of one SSD, and connections, that were told to give way and have not gone yet.
pub const HOST_LEAVING: u32 = 256;
/// Entries that a queue pair counts at most while it waits. It has one command in flight then.
pub const WAITING_ENTRIES: u32 = 16;
/// Queue entries at one SSD, which has 2^18 in all.
pub const HOST_ENTRIES: u32 = (1 << 18) / 4 * 3;

// Of each limit of a host, clients leave so much to key holders, and to peers that have proven nothing. Key
// holders are the daemon and other SSDs: the clients of their host cannot keep them out.
/// Queue pairs of key holders at one SSD.
pub const HOLDERS_QUEUE_PAIRS: u32 = 256;
/// Their entries.
pub const HOLDERS_ENTRIES: u32 = 64 * HOLDERS_QUEUE_PAIRS;
/// Queue pairs of clients at one SSD.
pub const CLIENTS_QUEUE_PAIRS: u32 =
    HOST_QUEUE_PAIRS - HOLDERS_QUEUE_PAIRS - HOST_PENDING_CONNECTS - HOST_LEAVING;
/// Their entries.
pub const CLIENTS_ENTRIES: u32 =
    HOST_ENTRIES - HOLDERS_ENTRIES - WAITING_ENTRIES * (HOST_PENDING_CONNECTS + HOST_LEAVING);
/// Queue pairs of clients at all SSDs.
pub const CLIENTS_NAMES: u32 = HOST_NAMES / 6 * 5;
/// Of so many connections clients leave one to others, of a host and of all hosts.
pub const SPARED_CONNECTION: usize = 16;

// Limits for one client on a host, at one SSD. A process's HCA has 1,024 queue pairs.
/// Queue pairs. A client that connects anew may have all of them twice for a moment.
pub const CLIENT_QUEUE_PAIRS: u32 = 2048;
/// Queue entries.
pub const CLIENT_ENTRIES: u32 = HOST_ENTRIES / 2;
/// Queue pairs that a client may have when less than a quarter of its host's part is left.
pub const FEW_QUEUE_PAIRS: u32 = 8;
/// The same for queue entries.
pub const FEW_ENTRIES: u32 = 512;

// Each connection must be able to hold one frame and to have one transfer under way.
const _: () = assert!(OUTBOX_BYTES >= 4 * super::MAX_DATA && TRANSFERS >= 1);
const _: () = assert!(FEW_BYTES > super::frame::MAX_FRAME && OUTBOX_BYTES <= HELD - HOST_HELD);
// All transfers that an array may request at a time fit a client's outbox, with their headers.
const _: () = assert!(TRANSFERS * (super::MAX_DATA + 64) + OUTBOX_BYTES <= CLIENT_OUTBOX_BYTES);
const _: () = assert!(HOST_QUEUE_PAIRS < HOST_NAMES && HOST_NAMES < 1 << 16);
const _: () = assert!(PENDING_CONNECTS <= QUEUE_PAIRS && QUEUE_PAIRS <= HOST_QUEUE_PAIRS as usize);
const _: () =
    assert!(FEW_QUEUE_PAIRS < CLIENT_QUEUE_PAIRS && CLIENT_QUEUE_PAIRS < CLIENTS_QUEUE_PAIRS / 4 * 3);
// Peers that have proven nothing take less than half of what the last quarter of clients is.
const _: () = assert!(HOST_PENDING_CONNECTS * WAITING_ENTRIES <= CLIENTS_ENTRIES / 4 / 2);
const _: () = assert!(FEW_ENTRIES < CLIENT_ENTRIES && CLIENT_ENTRIES < CLIENTS_ENTRIES / 4 * 3);
const _: () = assert!(PENDING_CONNECTS <= HOST_PENDING_CONNECTS as usize && HOST_CONNECTIONS < CONNECTIONS);

/// Why the array ends a connection, as [`super::Frame::End`] carries it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// No Connect within [`HANDSHAKE`].
    NoHandshake,
    /// No queue pair for [`IDLE`].
    Idle,
    /// Too few bytes taken for [`STALL`].
    Stalled,
    /// Responses beyond [`MOST_OUTBOX_BYTES`].
    Outbox,
    /// The listener has [`CONNECTIONS`].
    TooMany,
    /// No transfer ended for [`ANSWER`].
    Unanswered,
    /// The client's host has [`HOST_CONNECTIONS`].
    TooManyOfHost,
    /// Another client of the host needed the place, and no client was admitted on this connection yet.
    GaveWay,
}

impl End {
    /// All reasons.
    pub const ALL: [Self; 8] = [
        Self::NoHandshake,
        Self::Idle,
        Self::Stalled,
        Self::Outbox,
        Self::TooMany,
        Self::Unanswered,
        Self::TooManyOfHost,
        Self::GaveWay,
    ];

    /// The reason's code in a frame.
    pub fn code(self) -> u16 {
        match self {
            Self::NoHandshake => 1,
            Self::Idle => 2,
            Self::Stalled => 3,
            Self::Outbox => 4,
            Self::TooMany => 5,
            Self::Unanswered => 6,
            Self::TooManyOfHost => 7,
            Self::GaveWay => 8,
        }
    }

    /// The reason with this number.
    pub fn of(code: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|end| end.code() == code)
    }

    /// A sentence for a person.
    pub fn why(self) -> &'static str {
        match self {
            Self::NoHandshake => "no Connect came within 10 s of the TCP connection",
            Self::Idle => "the connection had no queue pair for 60 s",
            Self::Stalled => "the peer took too few bytes for 10 s",
            Self::Outbox => "the peer does not take its responses",
            Self::TooMany => "the array has as many TCP connections as it takes: close some, or try again",
            Self::Unanswered => "the client ended none of its transfers for 30 s",
            Self::TooManyOfHost => "this host has as many TCP connections as one host may have: close some",
            Self::GaveWay => "another client of this host needed the place before this one had proven itself",
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! gnstord: volumes, leases and the fleet map.
//!
//! The daemon creates, shares and deletes volumes and says which SSD holds what. It is never on the path of
//! an I/O. It writes its decisions to the SSDs' permission tables, and the SSDs check every command
//! themselves.
//!
//! ```text
//!   client --gRPC--> server --Request--> core --Command--> port --admin command--> SSD 0..n
//!          <--------        <--Reply---       <--Answer---      <--completion-----
//!                   tokio, the clock    no I/O, no clock   one thread for all SSDs
//! ```
//!
//! * A change of a volume is on **every** SSD of the map before its call returns. If one fails, the daemon
//!   undoes the change on the others. A change that cannot be undone (renewal, release, deletion) is repeated
//!   until it is everywhere. The call says which SSD failed.
//! * The array is its own database: a daemon that starts reads all it needs to know from the SSDs.
//! * A daemon that starts takes a term above the last one; SSDs refuse the older daemon from then on, and
//!   it stops.
//! * A write lease is granted after every SSD refuses the one before.
//! * The daemon tries an SSD that goes away again and again. Where the map names voters it drops that SSD: a
//!   majority of the voters holds the next map. Where not, it refuses changes with the SSD's name until the
//!   SSD is back and has the changes that it missed.
//!
//! The daemon moves no data: SSDs fill and scrub themselves, and ask each other for their serving leases.
//!
//! A caller is a principal with a name that a certificate or a token proves. A volume has an owner, and
//! principals that it is shared with. A client id is used by the principal that registered it.
//!
//! | module | what |
//! |---|---|
//! | [`core`] | the state machine: all rules, all sentences |
//! | [`openings`] | how often each SSD was opened, in a file |
//! | [`port`] | the core's commands as NVMe vendor commands |
//! | [`server`] | gRPC, threads, the clock |

pub mod core;
pub mod openings;
pub mod port;
pub mod server;

#[cfg(test)]
#[path = "../../proto/testing/deadline.rs"]
mod deadline;

pub use openings::Openings;
pub use port::connector::Connector;
pub use port::{Reconnect, SsdPort};
pub use server::{
    Access, Daemon, DaemonConfig, DaemonError, Look, NO_AUTH, ROOM, SSD_DAMAGED, SSD_DOWN, SSD_FILLING, Tls,
    Tokens, serve,
};

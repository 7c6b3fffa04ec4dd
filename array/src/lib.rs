// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Puts an array together: SSDs of this process or of other processes, and the daemon.
//!
//! ```text
//!   array              ArrayConfig -> Array: engine, SSDs here or elsewhere, daemon, TCP listener
//!   media              Plan -> SSD: formatted, or restored from its data file; plan, data_file, preset
//!   manager_key        the array's manager key in a file; held_key: SSDs are given it, and tell it later
//!   power              SSDs in their engines, until a shutdown or a power failure
//!   listener           accepts clients of other processes; handshakes: of TLS, before an engine has them
//!   peers              carries what an SSD asks of other SSDs
//!   remote_ssd         the daemon's connection to an SSD in another process
//!   recovery_listener  answers "not ready" on the port of an SSD that is being restored
//! ```
//! The command, the benchmark and the tests start arrays with it. It reads no command line and prints
//! nothing on standard output.

mod absent;
mod array;
mod data_file;
mod degraded;
mod handshakes;
pub mod held_key;
pub mod listener;
pub mod manager_key;
pub mod media;
mod media_error;
mod openings;
pub mod peers;
mod plan;
pub mod power;
mod preset;
pub mod recovery_listener;
mod remote_ssd;
mod units;
mod unnumbered;
mod waiting_streams;

pub use array::{Array, ArrayConfig, ArrayError, SsdSummary, Ssds, check_ssds};
pub use degraded::make_array;
pub use gnstor_auth::{Group, Secret};
pub use gnstor_daemon::core::MapFormat;
pub use remote_ssd::{OUT_AFTER, PATIENCE};
pub use units::human_bytes;

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Labels of volumes that mean something to the daemon and to `gnstor cp`.

/// The volume is being copied in under a temporary name; the value is the name that it gets when it is
/// whole. The daemon takes the label away when it publishes the volume.
pub const PARTIAL: &str = "gnstor.partial";
/// Length in bytes of the file in the volume: volumes are whole blocks, files are not.
pub const LENGTH: &str = "gnstor.length";
/// SHA-256 of the file in the volume, in hexadecimal. The daemon takes the label away when it grants a
/// write lease.
pub const SHA256: &str = "gnstor.sha256";
/// `VID.GENERATION` of the volume whose name a published volume took. Only the daemon sets it.
pub const REPLACES: &str = "gnstor.replaces";

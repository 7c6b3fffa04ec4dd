// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Labels of volumes that the daemon and `gnstor cp` interpret.

/// A volume with this label is being copied in under a temporary name. The value is the name that it gets
/// when it is whole. The daemon removes the label when it publishes the volume.
pub const PARTIAL: &str = "gnstor.partial";
/// Length in bytes of the file in the volume: volumes are whole blocks, files are not.
pub const LENGTH: &str = "gnstor.length";
/// SHA-256 of the file in the volume, in hexadecimal. The daemon removes the label when it grants a write
/// lease.
pub const SHA256: &str = "gnstor.sha256";
/// Begins the labels with the owner and the rights of a volume, which only the daemon sets.
pub const OWNER: &str = "gnstor.owner";
/// `VID.GENERATION` of the volume that a published volume replaced. Only the daemon sets this label.
pub const REPLACES: &str = "gnstor.replaces";

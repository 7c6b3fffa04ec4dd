// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a restore works on.

use gnstor_flash::Flash;
use gnstor_map::{Map, MapWriter};
use std::sync::Arc;

/// Progress of a restore: done, and total, in words of the map, or in pages where the map is rebuilt.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// Flash, and the map that comes back.
pub(crate) struct Parts {
    pub(crate) flash: Arc<Flash>,
    pub(crate) map: Arc<Map>,
    pub(crate) writer: MapWriter,
    pub(crate) logical_pages: u64,
}

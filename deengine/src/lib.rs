// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The emulated SSD: controller, permission table, merged map, media, timing.

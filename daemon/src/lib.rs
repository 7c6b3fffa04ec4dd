// SPDX-License-Identifier: Apache-2.0 OR MIT
//! gnstord: volumes, leases and the fleet map; a sans-I/O core in a gRPC shell.

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Settings of the core.

use super::Quotas;
use gnstor_proto::placement::DEFAULT_GROUPS;

/// Format of the fleet map for a fresh array. An array of format 3 keeps it. An array of format 2 changes to
/// format 3 if this setting says so and all SSDs are intact.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum MapFormat {
    /// Each change needs all SSDs, and an SSD that is down keeps its places.
    Two,
    /// With voters: the daemon drops an SSD that is lost, and gives it its places when it is back.
    Three,
    /// Format 3, but format 2 for two SSDs: only one of them would vote, and without it the other would serve
    /// nothing. More SSDs than `MOST_BY_COUNT` have format 2, too.
    #[default]
    ByCount,
}

/// If all SSDs are in one process and there are more than this, their questions for serving leases cost too
/// much.
const MOST_BY_COUNT: usize = 8;

impl MapFormat {
    /// Whether the SSDs vote in an array with this number of SSDs.
    pub(super) fn has_voters(self, ssds: usize) -> bool {
        match self {
            Self::Two => false,
            Self::Three => true,
            Self::ByCount => ssds != 2 && ssds <= MOST_BY_COUNT,
        }
    }
}

/// Settings of the core.
#[derive(Clone, Copy, Debug)]
pub struct CoreConfig {
    /// Placement groups of a fresh array, a power of two.
    pub groups: u32,
    /// Seed of a fresh map and of the volumes' hash factors.
    pub seed: u64,
    /// Format of a fresh map.
    pub map_format: MapFormat,
    /// The last connected SSD is a witness: it votes, and holds no blocks. The array is new, has this witness
    /// already, or has a map of format 2.
    pub has_witness: bool,
    /// The SSDs run in processes of their own, and find each other by the addresses in the map. A map with
    /// other addresses than the daemon's is replaced.
    pub names_addresses: bool,
    /// Which start of a daemon this is: drawn, so that no two starts have the same.
    pub instance: u64,
    /// How much longer than a writer's lease the daemon waits: the longest lease at the worst difference
    /// between the clocks of daemon and SSD. The default is 139 ppm of an hour.
    pub drift_ms: u64,
    /// First wait before an SSD that failed is tried again; it doubles up to [`Self::retry_max_ms`].
    pub retry_ms: u64,
    /// Longest wait before an SSD that failed is tried again.
    pub retry_max_ms: u64,
    /// After this time a request is answered, done or not.
    pub request_ms: u64,
    /// How long the places of a lost SSD are kept for it, before other SSDs fill them. [`u64::MAX`]: for
    /// ever.
    pub out_after_ms: u64,
    /// Whether an SSD with much less than its share of the places takes the rest of it.
    pub spreads: bool,
    /// How long after a volume's deletion its id is not reused.
    pub sweep_ms: u64,
    /// Most requests under way.
    pub max_requests: usize,
    /// Largest number of requests that wait for one volume.
    pub max_queue: usize,
    /// Limits of ids and opens.
    pub quotas: Quotas,
}

impl Default for CoreConfig {
    fn default() -> Self {
        Self {
            groups: DEFAULT_GROUPS,
            seed: 0x676E_5374_6F72,
            map_format: MapFormat::default(),
            has_witness: false,
            names_addresses: false,
            instance: 1,
            drift_ms: 500,
            retry_ms: 500,
            retry_max_ms: 30_000,
            request_ms: 30_000,
            out_after_ms: 30_000,
            spreads: true,
            sweep_ms: 1_000,
            max_requests: 4096,
            max_queue: 256,
            quotas: Quotas::default(),
        }
    }
}

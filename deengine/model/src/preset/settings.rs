// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Choices of an SSD that are no figures: how it collects, and its faults.

use super::PresetError;
use super::checks::range;
use gnstor_flash::{Chances, Faults};
use gnstor_proto::placement::mix64;
use serde::{Deserialize, Serialize};

/// How collection chooses its victim.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// The fewest valid pages.
    #[default]
    Greedy,
    /// The most space freed for its cost, weighted by age: (1 - u) / 2u x age.
    CostBenefit,
}

/// Settings of collection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Collection {
    /// How collection chooses victims.
    pub policy: Policy,
    /// Whether quiet times are used.
    pub background: bool,
    /// Erases by which the most worn superblock may be ahead of the coldest full one.
    pub wear_bound: u32,
}

impl Default for Collection {
    fn default() -> Self {
        Self { policy: Policy::Greedy, background: true, wear_bound: 200 }
    }
}

/// A die that is slower than the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SlowDie {
    /// Number of the die.
    pub die: u32,
    /// Percent of the time that a healthy one takes.
    pub percent: u32,
}

/// Faults. Probabilities are from 0, never, to 1, always.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct FaultPlan {
    /// Seed of all faults, together with the SSD's number. The same seed and the same commands give the same
    /// faults.
    pub seed: u32,
    /// A read of a page cannot be corrected.
    pub read_errors: f64,
    /// The program of a unit fails; its block is retired.
    pub program_failures: f64,
    /// The erase of a block fails; the block is retired.
    pub erase_failures: f64,
    /// A page has lost a bit when it is read, for good.
    pub bit_rot: f64,
    /// Share of blocks that are bad from the factory.
    pub factory_bad_blocks: f64,
    /// Slow dies, if flash takes time.
    pub slow_dies: Vec<SlowDie>,
}

impl FaultPlan {
    /// The faults of the SSD of this number in an array.
    pub fn faults(&self, index: u16) -> Faults {
        // Not of 0, which is mixed to itself: its first draw would be below any chance.
        let seed = mix64((u64::from(self.seed) << 16 | u64::from(index)) + 1);
        let faults = Faults::drawn(seed, self.factory_bad_blocks);
        let chances = Chances {
            read: self.read_errors,
            program: self.program_failures,
            erase: self.erase_failures,
            rot: self.bit_rot,
        };
        // Without injected faults, flash only checks one flag.
        if chances != Chances::default() {
            faults.set_chances(chances);
        }
        self.slow_dies.iter().for_each(|slow| faults.set_slow(slow.die, slow.percent));
        faults
    }

    pub(super) fn check(&self, dies: u32) -> Result<(), PresetError> {
        let chances = [
            ("faults.read_errors", self.read_errors, 1.0),
            ("faults.program_failures", self.program_failures, 1.0),
            ("faults.erase_failures", self.erase_failures, 1.0),
            ("faults.bit_rot", self.bit_rot, 1.0),
            // More would leave no SSD of any over-provisioning.
            ("faults.factory_bad_blocks", self.factory_bad_blocks, 0.5),
        ];
        for (key, value, most) in chances {
            if !(0.0..=most).contains(&value) {
                return Err(PresetError::Chance { key, value, most });
            }
        }
        for slow in &self.slow_dies {
            range("faults.slow_dies.die", slow.die.into(), 0, u64::from(dies) - 1)?;
            range("faults.slow_dies.percent", slow.percent.into(), 1, 100_000)?;
        }
        Ok(())
    }
}

impl Collection {
    pub(super) fn check(self) -> Result<(), PresetError> {
        range("collection.wear_bound", self.wear_bound.into(), 1, 1_000_000)
    }
}

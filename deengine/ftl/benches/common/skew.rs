// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Chooses the block to overwrite next, uniformly or skewed, and measures the cost of collection.

use super::closed_loop::Ssd;
use gnstor_flash::Shape;
use gnstor_ftl::{Collection, Policy, Wear};
use gnstor_model::Preset;
use gnstor_proto::placement::mix64;

/// Distribution of overwrites over the blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Skew {
    /// All blocks equally often.
    Uniform,
    /// Four in five go to a fifth of the blocks.
    EightyTwenty,
    /// The k-th most written one has a share of k to the power of -0.99.
    Zipf,
    /// All go to a tenth of the blocks; the rest is never written again.
    Tenth,
}

impl Skew {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::EightyTwenty => "80/20",
            Self::Zipf => "Zipf 0.99",
            Self::Tenth => "a tenth",
        }
    }

    /// Block of the `number`th write of a run.
    pub(crate) fn picker(self, blocks: u32) -> impl FnMut(u64) -> u32 {
        let shares = if self == Self::Zipf { zipf(blocks) } else { Vec::new() };
        let hot = blocks / if self == Self::Tenth { 10 } else { 5 };
        move |number| {
            let (dice, coin) = (mix64(number), mix64(number ^ 0xC01));
            let of = |count: u32| u32::try_from(dice % u64::from(count)).expect("below a u32");
            let rank = match self {
                Self::Uniform => of(blocks),
                Self::EightyTwenty if coin % 5 == 0 => hot + of(blocks - hot),
                Self::EightyTwenty | Self::Tenth => of(hot),
                Self::Zipf => {
                    let rank = shares.partition_point(|share| *share <= dice);
                    u32::try_from(rank).expect("below a u32").min(blocks - 1)
                }
            };
            scatter(rank, blocks)
        }
    }
}

/// Scatters hot blocks, so that they are not neighbours. It repeats a one-to-one hash of 32 bits until the
/// result is a block number.
fn scatter(rank: u32, blocks: u32) -> u32 {
    let bits = 32 - (blocks - 1).leading_zeros();
    let mask = (1u32 << bits) - 1;
    let mut at = rank;
    loop {
        at = at.wrapping_mul(0x9E37_79B1) & mask;
        at ^= at >> (bits / 2);
        if at < blocks {
            return at;
        }
    }
}

/// Upper ends of the ranks' shares of 2^64.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "shares: the last digits do not matter"
)]
fn zipf(blocks: u32) -> Vec<u64> {
    let weight = |rank: u32| f64::from(rank + 1).powf(-0.99);
    let all: f64 = (0..blocks).map(weight).sum();
    let mut sum = 0.0;
    (0..blocks)
        .map(|rank| {
            sum += weight(rank);
            (sum / all * u64::MAX as f64) as u64
        })
        .collect()
}

/// One SSD, filled and overwritten until it is in its steady state, and then once more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) policy: Policy,
    pub(crate) wear_bound: u32,
    /// Spare space beyond the logical space, in thousandths of the latter.
    pub(crate) spare_permille: u32,
    pub(crate) skew: Skew,
    pub(crate) logical_pages: u64,
    /// Pages of a superblock on each of its 4 dies.
    pub(crate) rows: u32,
    /// How often as much as the SSD holds is written before anything is counted, and while it is.
    pub(crate) laps: [u64; 2],
}

/// Cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) amplification: f64,
    pub(crate) wear: Wear,
}

impl Run {
    pub(crate) fn cost(&self) -> Cost {
        let mut preset = Preset::by_name("null").expect("a preset");
        let rows = self.rows;
        preset.shape =
            Shape { channels: 2, dies_per_channel: 2, planes: 1, unit_pages: 4, sense_pages: 4, rows };
        (preset.buffer_pages, preset.over_provisioning_permille) = (64, self.spare_permille);
        let collection = Collection { policy: self.policy, background: false, wear_bound: self.wear_bound };
        let mut ssd = Ssd::collecting(&preset, self.logical_pages, collection);
        let blocks = ssd.logical_pages;
        ssd.fill();
        let mut pick = self.skew.picker(blocks);
        ssd.overwrite(self.laps[0] * u64::from(blocks), &mut pick);
        let amplification = ssd.overwrite(self.laps[1] * u64::from(blocks), &mut pick);
        Cost { amplification, wear: ssd.ftl.health().wear }
    }
}

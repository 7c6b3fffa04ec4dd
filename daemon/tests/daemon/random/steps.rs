// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The steps of a random schedule.

use proptest::prelude::*;

/// A step of a schedule.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Create {
        name: u8,
        id: Option<u8>,
    },
    Publish {
        from: u8,
        name: u8,
    },
    Rename {
        from: u8,
        name: u8,
    },
    Delete {
        name: u8,
        client: u16,
        force: bool,
    },
    /// A client's lease is revoked, or its place as a reader.
    Revoke {
        name: u8,
        client: u16,
    },
    Read {
        name: u8,
        client: u16,
    },
    Write {
        name: u8,
        client: u16,
        lease_ms: u32,
    },
    Renew {
        name: u8,
        client: u16,
        lease_ms: u32,
    },
    Release {
        name: u8,
        client: u16,
        clean: bool,
    },
    Execute {
        ssd: usize,
        commands: u8,
        which: u8,
    },
    RunUntilQuiet,
    Pass {
        ms: u64,
    },
    Fail {
        ssd: usize,
        kind: u8,
    },
    Die {
        ssd: usize,
        dead: bool,
    },
    Lose {
        ssd: usize,
    },
    Find {
        ssd: usize,
    },
    /// Without voters: the next map drops the last SSD, or adds one in its place that was formatted.
    Epoch {
        add: bool,
    },
    /// With voters: the SSD restarts and has lost writes.
    Lossy {
        ssd: usize,
    },
    /// With voters: the SSD restarts with all that it acknowledged, and forgets what it was filling.
    Reboot {
        ssd: usize,
    },
    /// With voters: an empty SSD is put in the place, if a majority of the voters is left.
    Swap {
        ssd: usize,
    },
    /// The operator gives it the place.
    Replace {
        ssd: u16,
        lose_data: bool,
    },
    /// The operator takes it back; with leave to lose data as it is.
    Resume {
        ssd: u16,
        lose_data: bool,
    },
    /// With voters: the operator has it leave.
    Drain {
        ssd: u16,
    },
    /// With voters: one more SSD joins, if none has.
    Add,
    Restart,
}

impl Step {
    /// The SSD that it is about.
    pub(super) fn ssd(&self) -> Option<usize> {
        match *self {
            Self::Execute { ssd, .. }
            | Self::Fail { ssd, .. }
            | Self::Die { ssd, .. }
            | Self::Lose { ssd }
            | Self::Find { ssd }
            | Self::Lossy { ssd }
            | Self::Reboot { ssd }
            | Self::Swap { ssd } => Some(ssd),
            Self::Replace { ssd, .. } | Self::Resume { ssd, .. } | Self::Drain { ssd } => Some(ssd.into()),
            _ => None,
        }
    }
}

/// Draws a step of an array of so many SSDs.
pub(super) fn step(ssds: usize) -> impl Strategy<Value = Step> {
    let (name, client, ssd) = (0u8..4, 1u16..5, 0..ssds);
    let index = 0..u16::try_from(ssds).expect("few");
    let lease = 1_000u32..20_000;
    prop_oneof![
        4 => (name.clone(), proptest::option::of(0u8..6)).prop_map(|(name, id)| Step::Create { name, id }),
        3 => (name.clone(), name.clone()).prop_map(|(from, name)| Step::Publish { from, name }),
        3 => (name.clone(), name.clone()).prop_map(|(from, name)| Step::Rename { from, name }),
        2 => (name.clone(), client.clone(), any::<bool>())
            .prop_map(|(name, client, force)| Step::Delete { name, client, force }),
        2 => (name.clone(), client.clone()).prop_map(|(name, client)| Step::Revoke { name, client }),
        3 => (name.clone(), client.clone()).prop_map(|(name, client)| Step::Read { name, client }),
        4 => (name.clone(), client.clone(), lease.clone())
            .prop_map(|(name, client, lease_ms)| Step::Write { name, client, lease_ms }),
        2 => (name.clone(), client.clone(), lease)
            .prop_map(|(name, client, lease_ms)| Step::Renew { name, client, lease_ms }),
        2 => (name, client, any::<bool>())
            .prop_map(|(name, client, clean)| Step::Release { name, client, clean }),
        8 => (ssd.clone(), 1u8..4, 0u8..4)
            .prop_map(|(ssd, commands, which)| Step::Execute { ssd, commands, which }),
        3 => Just(Step::RunUntilQuiet),
        4 => (0u64..8_000).prop_map(|ms| Step::Pass { ms }),
        2 => (ssd.clone(), 0u8..4).prop_map(|(ssd, kind)| Step::Fail { ssd, kind }),
        1 => (ssd.clone(), any::<bool>()).prop_map(|(ssd, dead)| Step::Die { ssd, dead }),
        1 => ssd.clone().prop_map(|ssd| Step::Lose { ssd }),
        2 => ssd.clone().prop_map(|ssd| Step::Find { ssd }),
        1 => ssd.clone().prop_map(|ssd| Step::Lossy { ssd }),
        2 => ssd.clone().prop_map(|ssd| Step::Reboot { ssd }),
        1 => ssd.clone().prop_map(|ssd| Step::Swap { ssd }),
        2 => (index.clone(), any::<bool>()).prop_map(|(ssd, lose_data)| Step::Replace { ssd, lose_data }),
        1 => (index.clone(), any::<bool>()).prop_map(|(ssd, lose_data)| Step::Resume { ssd, lose_data }),
        2 => index.prop_map(|ssd| Step::Drain { ssd }),
        2 => any::<bool>().prop_map(|add| Step::Epoch { add }),
        1 => Just(Step::Restart),
    ]
}

/// The seed and the number of cases come from `PROPTEST_RNG_SEED` and `PROPTEST_CASES`. No file keeps the
/// cases that failed: they are tests of their own in [`super::found`].
pub(super) fn cases() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

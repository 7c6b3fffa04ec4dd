// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plays a script on two sides that have the same keys and numbers. Both must produce the same entries and
//! the same bytes.

#[cfg(test)]
use gnstor_fabric::device::Choice;
use gnstor_fabric::device::Device;
use std::sync::Arc;

pub(crate) use super::side::*;

/// The device that runs the agent.
pub(crate) struct Harness {
    device: Arc<Device>,
}

impl Harness {
    pub(crate) fn new(device: Arc<Device>) -> Self {
        Self { device }
    }

    /// With the agent's device code on the CPU.
    #[cfg(test)]
    pub(crate) fn on_the_cpu() -> Self {
        Self::new(Device::open(Choice::Host).expect("the CPU is always there"))
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Plays a script on both sides, and demands the same from them; returns the agent's.
    pub(crate) fn both(&self, size: Size, script: impl Fn(&mut Side)) -> Side {
        let play = |device| {
            let mut side = Side::new(device, size);
            script(&mut side);
            side
        };
        let (soft, agent) = (play(None), play(Some(&self.device)));
        for (i, (left, right)) in soft.seen.iter().zip(&agent.seen).enumerate() {
            assert_eq!(left, right, "entry {i}: Rust executor on the left, device code on the right");
        }
        assert_eq!(soft.seen.len(), agent.seen.len(), "number of entries");
        let (left, right) = (soft.written(), agent.written());
        let different = left.iter().zip(&right).find(|(left, right)| left != right);
        assert_eq!(different, None, "first byte of queues and data that was written differently");
        assert_eq!(left.len(), right.len(), "number of bytes written");
        assert!(soft.array_bytes() == agent.array_bytes(), "the array's memory differs");
        agent
    }
}

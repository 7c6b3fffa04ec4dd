// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A GPU node: one device with one emulated HCA, attached to an engine. Clients of one process share it.

use gnstor_fabric::device::{Device, DeviceError, Residency};
use gnstor_fabric::engine::HalfId;
use gnstor_fabric::hca::agent::{AgentHca, ClientKernel, Shape};
use gnstor_fabric::runtime::{EngineError, EngineHandle};
use std::sync::Arc;
use std::time::Duration;

/// A GPU node.
#[derive(Debug)]
pub struct Node {
    engine: EngineHandle,
    hca: AgentHca,
    agent: HalfId,
    soft: HalfId,
}

/// Why a node, session or channel could not be set up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// An admin queue.
    #[error(transparent)]
    Admin(#[from] gnstor_fabric::admin::ChannelError),
    /// An I/O queue was refused.
    #[error("SSD {ssd} refused the I/O queue: {cause}")]
    Queue {
        /// Index of the SSD.
        ssd: usize,
        /// Why.
        cause: String,
    },
    /// More SSDs than a channel can hold.
    #[error("a channel reaches at most {max} SSDs, the array has {ssds}")]
    TooManySsds {
        /// SSDs asked for.
        ssds: usize,
        /// The limit.
        max: usize,
    },
}

impl Node {
    /// Attaches a device to an engine.
    ///
    /// # Errors
    /// Device and engine errors.
    pub fn new(engine: EngineHandle, device: &Arc<Device>, residency: Residency) -> Result<Self, NodeError> {
        let (hca, half) = AgentHca::new(device, residency)?;
        let (agent, soft) = engine.call(move |e, _| (e.add_agent(half), e.add_soft()))?;
        Ok(Self { engine, hca, agent, soft })
    }

    /// The engine.
    pub fn engine(&self) -> &EngineHandle {
        &self.engine
    }

    /// The HCA.
    pub fn hca(&self) -> &AgentHca {
        &self.hca
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        self.hca.device()
    }

    /// The engine's name for queue pairs in device memory.
    pub fn agent_half(&self) -> HalfId {
        self.agent
    }

    /// The engine's name for queue pairs in host memory.
    pub fn soft_half(&self) -> HalfId {
        self.soft
    }

    /// Runs a client kernel beside the agent.
    ///
    /// # Errors
    /// As [`gnstor_fabric::device::Device::run`].
    pub fn launch(&self, kernel: ClientKernel, shape: Shape, args: u64, deadline: Duration) -> Result<(), DeviceError> {
        let half = self.agent;
        self.engine.cast(move |e, now| e.calibrate(now, half));
        self.hca.launch(kernel, shape, args, deadline)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let (agent, soft) = (self.agent, self.soft);
        self.engine.cast(move |e, now| {
            e.remove_half(now, agent);
            e.remove_half(now, soft);
        });
    }
}

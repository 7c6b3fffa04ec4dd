// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The executors of a transport: added, polled in their order, removed.

use super::remote::{Owner, Remote, Staging};
use super::{ExecutorId, RcTransport};
use crate::hca::QpExecutor;
use crate::hca::agent::AgentExecutor;
use crate::hca::soft::SoftExecutor;
use crate::tcp::{EngineLoad, PeerExecutor, StreamSlot, Wire};
use gnstor_base::region::{HostRegion, RegionId};
use gnstor_base::time::Time;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// An executor. Only that of queue pairs in host memory has a control path through the transport.
pub(super) enum AnyExecutor {
    Soft(SoftExecutor),
    /// A client of another process, polled when its stream is ready.
    Peer(Box<PeerExecutor>),
    Other(Box<dyn QpExecutor>),
}

impl AnyExecutor {
    /// The executor of a client of another process, if it is one.
    #[inline]
    pub(super) fn peer(&mut self) -> Option<&mut PeerExecutor> {
        match self {
            Self::Peer(peer) => Some(peer),
            Self::Soft(_) | Self::Other(_) => None,
        }
    }
}

impl Deref for AnyExecutor {
    type Target = dyn QpExecutor;

    #[inline]
    fn deref(&self) -> &Self::Target {
        match self {
            Self::Soft(executor) => executor,
            Self::Peer(executor) => executor.as_ref(),
            Self::Other(executor) => executor.as_ref(),
        }
    }
}

impl DerefMut for AnyExecutor {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::Soft(executor) => executor,
            Self::Peer(executor) => executor.as_mut(),
            Self::Other(executor) => executor.as_mut(),
        }
    }
}

/// An executor in the order in which the transport polls, with what it has said of itself.
#[derive(Clone, Copy)]
pub(super) struct Polled {
    pub(super) id: ExecutorId,
    /// [`QpExecutor::poll_interval`].
    pub(super) interval: u32,
    /// [`QpExecutor::poll_ahead`].
    pub(super) ahead: usize,
}

impl RcTransport {
    /// Adds the resident kernel's executor.
    pub fn add_agent(&mut self, executor: AgentExecutor) -> ExecutorId {
        self.add_other(Box::new(executor))
    }

    /// Adds an executor for queue pairs in host memory.
    pub fn add_soft(&mut self) -> ExecutorId {
        self.add_executor(AnyExecutor::Soft(SoftExecutor::new()))
    }

    /// Adds a client that has connected over TCP.
    pub fn add_peer(&mut self, wire: Wire) -> ExecutorId {
        self.add_stream(PeerExecutor::new(wire, Arc::clone(&self.peer_regions)))
    }

    /// The same for a stream that has a slot in [`Self::load`].
    pub fn add_client(&mut self, now: Time, wire: Wire, slot: StreamSlot) -> ExecutorId {
        self.newcomers.arrive(now);
        self.add_stream(PeerExecutor::new(wire, Arc::clone(&self.peer_regions)).on(slot))
    }

    /// The published load of this transport, by which streams get slots.
    pub fn load(&self) -> Arc<EngineLoad> {
        Arc::clone(&self.newcomers.load)
    }

    fn add_stream(&mut self, peer: PeerExecutor) -> ExecutorId {
        let peer = AnyExecutor::Peer(Box::new(peer));
        let id = self.executors.insert(peer).expect("far fewer executors than 65,536");
        if let Some(peer) = self.executors.get_mut(&id).and_then(AnyExecutor::peer) {
            self.ready.add(Owner::Peer(id), peer.wire());
        }
        id
    }

    /// Adds an executor of the caller's own, such as a load generator.
    pub fn add_other(&mut self, executor: Box<dyn QpExecutor>) -> ExecutorId {
        self.add_executor(AnyExecutor::Other(executor))
    }

    fn add_executor(&mut self, mut executor: AnyExecutor) -> ExecutorId {
        self.regions().iter().for_each(|region| executor.add_region(region));
        let (interval, ahead) = (executor.poll_interval(), executor.poll_ahead());
        let id = self.executors.insert(executor).expect("far fewer executors than 65,536");
        self.order.push(Polled { id, interval, ahead });
        id
    }

    /// The memory that transfers of its SSDs and links touch now. A caller may map it before it adds an
    /// executor, since pinning gigabytes takes seconds.
    pub fn regions(&self) -> Vec<Arc<HostRegion>> {
        let targets = self.targets.iter().flat_map(|target| target.regions.iter().cloned());
        let links =
            self.remotes.values().map(Remote::region).chain(self.spare_staging.iter().map(Staging::region));
        targets.chain(links).collect()
    }

    /// The memory that only its SSDs themselves touch.
    pub fn own_memory(&self) -> Vec<Arc<HostRegion>> {
        self.targets.iter().flat_map(|target| target.controller.own_memory()).collect()
    }

    /// Tells every executor of a region that messages may refer to.
    pub(super) fn add_region(&mut self, region: &Arc<HostRegion>) {
        Arc::make_mut(&mut self.peer_regions).insert(region.id(), Arc::clone(region));
        self.each_region_user(|executor| executor.add_region(region));
    }

    /// No later message refers to this region.
    pub(super) fn remove_region(&mut self, region: RegionId) {
        Arc::make_mut(&mut self.peer_regions).remove(&region);
        self.each_region_user(|executor| executor.remove_region(region));
    }

    fn each_region_user(&mut self, mut change: impl FnMut(&mut dyn QpExecutor)) {
        let regions = &self.peer_regions;
        self.executors.values_mut().for_each(|executor| match executor.peer() {
            Some(peer) => peer.set_regions(regions),
            None => change(&mut **executor),
        });
    }

    /// The soft executor with this id.
    pub fn soft(&mut self, id: ExecutorId) -> Option<&mut SoftExecutor> {
        match self.executors.get_mut(&id) {
            Some(AnyExecutor::Soft(executor)) => Some(executor),
            _ => None,
        }
    }

    /// Removes an executor and everything that goes through it. Memory that it may still touch stays taken
    /// until it has stopped.
    pub fn remove_executor(&mut self, now: Time, id: ExecutorId) {
        for pair in self.by_qp.sorted(|(executor, _), _| *executor == id) {
            if let Some(&conn) = self.by_qp.get(&pair) {
                self.close(now, conn);
            }
        }
        if let Some(mut executor) = self.executors.remove(&id) {
            if let Some(token) = executor.peer().and_then(|peer| peer.wire().token()) {
                self.ready.remove(token);
            }
            self.leaving.keep(id, executor);
        }
        self.order.retain(|polled| polled.id != id);
        self.best_rtt.remove(&id);
    }
}

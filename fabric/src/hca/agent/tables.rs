// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The HCA's queue pairs, completion queues and memory regions, in tables that the agent reads.

use super::*;

impl AgentHca {
    /// A new protection domain.
    pub fn alloc_pd(&self) -> u32 {
        let mut tables = self.tables();
        tables.next_pd += 1;
        tables.next_pd
    }

    /// Registers a completion queue, which the owner has filled with invalid entries.
    ///
    /// # Errors
    /// When the table is full; driver errors.
    pub fn create_cq(&self, cq: DeviceCq) -> Result<u32, DeviceError> {
        let DeviceCq { address, log_entries, dbr, in_host } = cq;
        let _alone = self.quiet()?;
        let mut tables = self.tables();
        let free = tables.cqs.iter().position(|used| !used);
        let index = free.ok_or_else(|| memory("completion queues", 1, "the HCA's table is full"))?;
        let (mask, dbr_addr) = ((1 << log_entries) - 1, dbr.unwrap_or(0));
        let ctx = CqCtx { addr: address, mask, in_host: in_host.into(), dbr_addr, ..CqCtx::default() };
        self.contexts.write(CQS_AT + index * size_of::<CqCtx>(), ctx.as_bytes())?;
        tables.cqs[index] = true;
        Ok(u32::try_from(index).expect("a small table"))
    }

    /// Frees a completion queue that has no queue pairs.
    pub fn destroy_cq(&self, cq: u32) {
        self.tables().cqs[cq as usize] = false;
    }

    /// Registers queue pairs with consecutive numbers, ready to send; returns the first number.
    ///
    /// # Errors
    /// When the table is full; driver errors.
    pub fn create_qps(&self, specs: &[DeviceQp]) -> Result<u32, DeviceError> {
        self.create_spared(specs, 0)
    }

    /// As [`Self::create_qps`], but the last `spares` queue pairs are not polled before they begin anew
    /// ([`Down::QpAnew`](crate::hca::Down::QpAnew)).
    ///
    /// # Errors
    /// As [`Self::create_qps`].
    pub fn create_spared(&self, specs: &[DeviceQp], spares: usize) -> Result<u32, DeviceError> {
        let _alone = self.quiet()?;
        let mut tables = self.tables();
        // Numbers go round. A message for a destroyed queue pair may still wait in the ring for the next
        // launch. It must not reach a new queue pair of the same number.
        let fits = |first: &usize| tables.qps[*first..*first + specs.len()].iter().all(|used| !used);
        let last = (MAX_QPS as usize).checked_sub(specs.len());
        let run = last.and_then(|last| (tables.next_qp..=last).chain(0..=last).find(fits));
        let first = run.ok_or_else(|| memory("queue pairs", specs.len(), "the HCA's table is full"))?;
        tables.next_qp = first + specs.len();
        for (i, spec) in (first..).zip(specs) {
            let qpn = FIRST_QPN + u32::try_from(i).expect("a small table");
            let ctx = QpCtx {
                sq_addr: spec.sq.0,
                rq_addr: spec.rq.0,
                dbr_addr: spec.dbr,
                uar_addr: spec.uar,
                qpn,
                state: if i < first + specs.len() - spares { QP_RTS } else { QP_SPARE },
                sq_mask: spec.sq.1 - 1,
                rq_mask: spec.rq.1 - 1,
                cq: spec.cq,
                pd: spec.pd,
                ring: u32::try_from(spec.ring % self.rings.len()).expect("few rings"),
                ..QpCtx::default()
            };
            self.contexts.write(QPS_AT + i * size_of::<QpCtx>(), ctx.as_bytes())?;
            tables.qps[i] = true;
        }
        Ok(FIRST_QPN + u32::try_from(first).expect("a small table"))
    }

    /// Registers memory; returns its key, local and remote.
    ///
    /// # Errors
    /// When the table is full; driver errors.
    pub fn register(&self, mr: DeviceMr) -> Result<u32, DeviceError> {
        let _alone = self.quiet()?;
        let mut tables = self.tables();
        let free = tables.mrs.iter().position(Option::is_none);
        let index = free.ok_or_else(|| memory("memory regions", 1, "the HCA's table is full"))?;
        tables.variants = tables.variants.wrapping_add(1);
        let key = u32::try_from(index).expect("a small table") << 8 | (tables.variants & 0xFF);
        let ctx = MrCtx { base: mr.base, bytes: mr.bytes, key, access: mr.access, pd: mr.pd, invalid: 0 };
        self.contexts.write(MRS_AT + index * size_of::<MrCtx>(), ctx.as_bytes())?;
        tables.mrs[index] = Some(key);
        Ok(key)
    }

    /// Forgets a memory region. Its key opens nothing from here on.
    ///
    /// # Errors
    /// Driver errors.
    pub fn deregister(&self, key: u32) -> Result<(), DeviceError> {
        let _alone = self.quiet()?;
        let mut tables = self.tables();
        let index = (key >> 8) as usize;
        if tables.mrs.get(index) == Some(&Some(key)) {
            self.contexts.write(MRS_AT + index * size_of::<MrCtx>(), MrCtx::default().as_bytes())?;
            tables.mrs[index] = None;
        }
        Ok(())
    }

    /// Frees queue pairs `first..first + count` and their completion queue.
    ///
    /// # Errors
    /// Driver errors.
    pub fn destroy_qps(&self, first: u32, count: usize, cq: u32) -> Result<(), DeviceError> {
        let _alone = self.quiet()?;
        let mut tables = self.tables();
        for i in (first - FIRST_QPN) as usize..(first - FIRST_QPN) as usize + count {
            self.contexts.write(QPS_AT + i * size_of::<QpCtx>(), QpCtx::default().as_bytes())?;
            tables.qps[i] = false;
        }
        tables.cqs[cq as usize] = false;
        let qpns = first..first + u32::try_from(count).expect("a small table");
        tables.held.as_ref().map_or(Ok(()), |(held, _)| self.forget_held(held, &qpns))
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The connections of a new channel: RDMA by the CPU, Fabrics Connect by a kernel.

use crate::abi::{self, ConnectArgs};
use crate::channel::{Channel, QID};
use crate::error::NodeError;
use crate::layout::nvme_queue_entries;
use crate::node::IoQueue;
use crate::session::Session;
use gnstor_fabric::device::Kernel;
use gnstor_fabric::hca::agent::{ClientKernel, DeviceQp, Shape};
use gnstor_proto::fabrics::CmRequest;
use std::ffi::c_void;
use std::mem::size_of;
use std::time::Duration;
use zerocopy::{FromBytes, IntoBytes};

const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

#[expect(unsafe_code, reason = "the kernel's entries for the CPU execution")]
mod entry {
    use std::ffi::c_void;
    unsafe extern "C" {
        pub(super) fn gn_channel_connect(launch: *mut c_void);
        pub(super) fn gn_channel_connect_one_grid(launch: *mut c_void);
    }
}

#[expect(unsafe_code, reason = "forwards to the C++ entry")]
unsafe extern "C" fn connect_entry(launch: *mut c_void) {
    // SAFETY: called by the CPU runtime with the launch's argument.
    unsafe { entry::gn_channel_connect(launch) }
}

#[expect(unsafe_code, reason = "forwards to the C++ entry")]
unsafe extern "C" fn connect_one_grid_entry(launch: *mut c_void) {
    // SAFETY: called by the CPU runtime with the launch's argument.
    unsafe { entry::gn_channel_connect_one_grid(launch) }
}

fn connect_kernel() -> ClientKernel {
    let image = include_bytes!("../cuda/gnor.fatbin");
    ClientKernel {
        beside_agent: Kernel { name: "gn_channel_connect", image, host: connect_entry },
        one_grid: Kernel { name: "gn_channel_connect_one_grid", image, host: connect_one_grid_entry },
    }
}

impl Channel {
    /// Connects the queue pairs.
    pub(crate) fn connect_rdma(&mut self, session: &Session, specs: &[DeviceQp]) -> Result<(), NodeError> {
        let cntlids = session.controller_ids();
        for (ssd, spec) in specs.iter().enumerate() {
            let request = CmRequest {
                qid: QID.into(),
                hrqsize: u16::try_from(self.layout.depth).expect("small").into(),
                hsqsize_z: u16::try_from(nvme_queue_entries(self.layout.depth) - 1).expect("small").into(),
                cntlid: cntlids[ssd].into(),
                ..CmRequest::default()
            };
            let qpn = self.first_qpn + u32::try_from(ssd).expect("at most MAX_SSDS");
            self.connections.push(session.connect_io(
                &self.node,
                IoQueue { ring: spec.ring, qpn, ssd },
                request,
            )?);
        }
        Ok(())
    }

    /// Has the device post the receives and send Fabrics Connect to every SSD.
    pub(crate) fn connect_fabrics(&self, session: &Session) -> Result<(), NodeError> {
        let timeout_ns = u64::try_from(CONNECT_DEADLINE.as_nanos()).expect("ten seconds");
        let args = ConnectArgs { channel: self.memory.address(), timeout_ns, ..ConnectArgs::default() };
        let memory = self.node.device().alloc(size_of::<ConnectArgs>())?;
        memory.write(0, args.as_bytes())?;
        let shape = Shape { blocks: 1, threads: 32, smem_bytes: 0 };
        self.node.launch(connect_kernel(), shape, memory.address(), CONNECT_DEADLINE * 2)?;
        let mut raw = vec![0; size_of::<ConnectArgs>()];
        memory.read(0, &mut raw)?;
        let args = ConnectArgs::read_from_bytes(&raw).expect("the length matches");
        for ssd in 0..session.addresses().len() {
            if args.status[ssd] != 0 {
                let cause = format!("Fabrics Connect: {}", abi::describe(args.status[ssd], args.dw0[ssd]));
                return Err(NodeError::Queue { ssd, cause });
            }
        }
        Ok(())
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory of a side's queues: the host's, or the device's.

use gnstor_base::region::HostRegion;
use gnstor_fabric::device::{Device, DeviceMem};
use std::sync::Arc;

pub(crate) enum Place {
    Host(Arc<HostRegion>),
    Device(DeviceMem),
}

/// The memory of a side's queues, from offset `start` of what was allocated on.
pub(crate) struct Memory {
    pub(crate) place: Place,
    pub(crate) start: u64,
}

/// The addresses of both sides have the same low bits, so that the same damage leads to the same place.
const ALIGNED: u64 = 1 << 24;

pub(crate) fn to_usize(n: u64) -> usize {
    usize::try_from(n).expect("64-bit host")
}

impl Memory {
    pub(crate) fn new(device: Option<&Arc<Device>>, bytes: u64) -> Self {
        assert!(bytes <= ALIGNED, "queues of {bytes} bytes");
        let all = to_usize(bytes + ALIGNED);
        let place = match device {
            None => Place::Host(HostRegion::alloc(all).expect("memory")),
            Some(device) => Place::Device(device.alloc(all).expect("memory")),
        };
        let address = match &place {
            Place::Host(memory) => memory.address(),
            Place::Device(memory) => memory.address(),
        };
        Self { place, start: address.next_multiple_of(ALIGNED) - address }
    }

    pub(crate) fn address(&self) -> u64 {
        self.start
            + match &self.place {
                Place::Host(memory) => memory.address(),
                Place::Device(memory) => memory.address(),
            }
    }

    pub(crate) fn write(&self, at: u64, bytes: &[u8]) {
        match &self.place {
            Place::Host(memory) => memory.write(self.start + at, bytes),
            Place::Device(memory) => memory.write(to_usize(self.start + at), bytes).expect("the driver"),
        }
    }

    pub(crate) fn read(&self, at: u64, out: &mut [u8]) {
        match &self.place {
            Place::Host(memory) => memory.read(self.start + at, out),
            Place::Device(memory) => memory.read(to_usize(self.start + at), out).expect("the driver"),
        }
    }
}

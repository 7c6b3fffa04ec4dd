// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A queue pair in host memory that sends any 64 bytes as a command, without filling in or checking a field.

use gnstor_fabric::admin::ChannelError;
use gnstor_fabric::host_queue::{Completion, HostQp, SsdPath};
use gnstor_fabric::runtime::TransportHandle;
use gnstor_fabric::transport::{ExecutorId, Port};
use gnstor_proto::fabrics::{self, ConnectData, ConnectFields, Identity, fctype};
use gnstor_proto::nvme::{self, Cqe, KeyedSgl, Sqe};
use gnstor_proto::status::Status;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

const CONNECT: Duration = Duration::from_secs(5);
const PEER: &str = "the SSD";

/// A queue pair.
#[derive(Debug)]
pub struct RawQueue(HostQp);

impl RawQueue {
    /// Opens an RDMA connection for queue `qid`, without a Fabrics Connect.
    ///
    /// # Errors
    /// [`ChannelError::Refused`] with the reject reason.
    pub fn open(
        transport: &TransportHandle,
        executor: ExecutorId,
        port: Port,
        qid: u16,
    ) -> Result<Self, ChannelError> {
        let path = SsdPath { transport, executor, port, subnqn: PEER };
        HostQp::connect(&path, qid, CONNECT).map(Self)
    }

    /// Fabrics Connect of an I/O queue of controller `cntlid`.
    ///
    /// # Errors
    /// As [`Self::exchange`].
    pub fn connect_io(
        &mut self,
        qid: u16,
        cntlid: u16,
        subnqn: &str,
        identity: Identity,
    ) -> Result<Status, ChannelError> {
        self.connect_with(qid, &ConnectData::new(identity, cntlid, subnqn))
    }

    /// Fabrics Connect of an I/O queue with this Connect data.
    ///
    /// # Errors
    /// As [`Self::exchange`].
    pub fn connect_with(&mut self, qid: u16, data: &ConnectData) -> Result<Status, ChannelError> {
        self.0.write_data(data.as_bytes());
        let fields = ConnectFields { qid: qid.into(), sqsize_z: 15.into(), ..ConnectFields::default() };
        let mut sqe = fabrics::command(fctype::CONNECT, &fields);
        sqe.flags = nvme::FLAGS_SGL;
        sqe.dptr = self.data(1024);
        let answer = self.exchange(&sqe, CONNECT)?;
        Ok(Status(answer.status_word()))
    }

    /// A data pointer to the first `bytes` of this queue's registered data.
    pub fn data(&self, bytes: u32) -> KeyedSgl {
        self.0.data(bytes)
    }

    /// Sends one capsule unchanged and waits for the response.
    ///
    /// # Errors
    /// [`ChannelError::Broken`] or [`ChannelError::Timeout`].
    ///
    /// # Panics
    /// If the response is for another command.
    #[expect(clippy::disallowed_methods, reason = "a blocking wait with a deadline in real time")]
    pub fn exchange(&mut self, capsule: &Sqe, deadline: Duration) -> Result<Cqe, ChannelError> {
        self.0.send(capsule);
        let start = Instant::now();
        loop {
            match self.0.poll() {
                Some(Completion::Sent) => {}
                Some(Completion::Response(cqe)) => {
                    assert_eq!(cqe.cid, capsule.cid, "the response is for another command");
                    return Ok(cqe);
                }
                Some(Completion::Failed(cause)) => {
                    return Err(ChannelError::Broken { peer: PEER.into(), cause: cause.into() });
                }
                None if start.elapsed() > deadline => {
                    return Err(ChannelError::Timeout { what: PEER.into(), after: deadline });
                }
                None => std::thread::sleep(Duration::from_micros(20)),
            }
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An open volume: host reads and writes, user kernels, and the lease that is renewed behind them.

use crate::client::{Client, Rights, vid_of};
use crate::error::Error;
use crate::io_failure::IoFailure;
use crate::lease::Lease;
use crate::manager::VolumeInfo;
use crate::ssds::Fabric;
use crate::transfer::{FileAbi, STAGING_BYTES, Target, Work, transfer};
use gnstor_fabric::device::DeviceMem;
use gnstor_fabric::hca::agent::{ClientKernel, Shape};
use gnstor_gnor::abi::{FOLLOWS_BROKEN, FOLLOWS_REFUSALS, GN_TIMED_OUT, VolumeAbi};
use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::grpc;
use gnstor_proto::placement::{AnyMap, Rows};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tonic::Code;
use zerocopy::IntoBytes;

/// How long an open is retried: long enough for the daemon to drop a dead SSD.
const DROPPED: Duration = Duration::from_secs(3);
/// Pause between two tries of an open.
const REST: Duration = Duration::from_millis(100);

/// The argument of a kernel: `gn::file` of `gnstor/gnstor.cuh`, by value.
#[derive(Clone, Copy, Debug, IntoBytes, zerocopy::Immutable)]
#[repr(C)]
pub struct DeviceFile {
    /// Device address of the channel.
    pub channel: u64,
    /// Device address of the volume.
    pub volume: u64,
    /// Deadline of a request.
    pub timeout_ns: u64,
}

/// An open volume. Dropping a client's last file of a volume gives the rights back. That waits five seconds
/// for a daemon that is away, and up to a minute for the answer of one that is there.
#[derive(Debug)]
pub struct File {
    client: Arc<Client>,
    info: VolumeInfo,
    rights: Rights,
    granted: bool,
    map: Arc<AnyMap>,
    device: Arc<DeviceMem>,
    lease: Option<Lease>,
    /// Set if a write may have ended without an acknowledgement. That is so after a host call that failed,
    /// and after any kernel, whose requests the host does not see.
    in_doubt: OnceLock<()>,
}

impl Client {
    /// Opens a volume. When this returns, every SSD knows the rights. If an SSD has just failed, the open is
    /// retried for up to 3 s, where SSDs vote on the map.
    ///
    /// # Errors
    /// The daemon's: there is no such volume, or another client holds the write lease.
    pub fn open(self: &Arc<Self>, name: &str, rights: Rights) -> Result<File, Error> {
        self.open_for(name, rights, Duration::ZERO)
    }

    /// As [`Self::open`], with a write lease of this length, zero for the daemon's default. It is renewed at
    /// a third of that; a client that dies keeps others from writing and from deleting the volume until it
    /// has ended.
    ///
    /// # Errors
    /// As [`Self::open`]; a length that the daemon does not grant.
    #[expect(clippy::disallowed_methods, reason = "a blocking call with a deadline in real time")]
    pub fn open_for(self: &Arc<Self>, name: &str, rights: Rights, lease: Duration) -> Result<File, Error> {
        let lease_ms = u32::try_from(lease.as_millis()).unwrap_or(u32::MAX);
        let wire = match rights {
            Rights::Read => grpc::Rights::Read,
            Rights::Write => grpc::Rights::Write,
        };
        let request = grpc::OpenRequest {
            name: name.into(),
            client_id: self.id.get().into(),
            rights: wire.into(),
            lease_ms,
            follows_drains: true,
        };
        let (begun, mut first) = (Instant::now(), None);
        loop {
            match self.open_once(request.clone(), rights) {
                Err(Error::Daemon(why))
                    if why.code() == Code::Unavailable
                        && matches!(*self.maps.current(), AnyMap::Three(_))
                        && begun.elapsed() < DROPPED =>
                {
                    first.get_or_insert(why);
                    std::thread::sleep(REST);
                }
                // The daemon waits for the SSD that it named before.
                Err(Error::Silent { .. }) if let Some(why) = first => return Err(Error::Daemon(why)),
                opened => return opened,
            }
        }
    }

    fn open_once(self: &Arc<Self>, request: grpc::OpenRequest, rights: Rights) -> Result<File, Error> {
        let name = request.name.clone();
        let mut open_files = self.open_files.lock().expect("no panic while held");
        let answer = self.rpc.change("the opening of a volume", self.rpc.volumes().open(request))?;
        let volume =
            answer.volume.ok_or_else(|| Error::Protocol("an open volume without a description".into()))?;
        let file =
            File::new(self, volume.into(), rights, Some(Duration::from_millis(answer.lease_ms.into())))?;
        let opened = open_files.entry(name).or_default();
        opened.count += 1;
        if rights == Rights::Write {
            opened.lease_epoch = file.info.lease_epoch;
        }
        Ok(file)
    }

    /// A handle on a volume without asking the daemon for rights, as a client that breaks the rules would
    /// make it. With it a test shows that the SSDs refuse its commands.
    ///
    /// # Errors
    /// The daemon's: there is no such volume.
    pub fn attach_without_rights(self: &Arc<Self>, name: &str, claim: Rights) -> Result<File, Error> {
        let info = self.get(name)?;
        File::new(self, info, claim, None)
    }
}

impl File {
    /// Makes a handle; `lease` is `None` without a grant.
    pub(crate) fn new(
        client: &Arc<Client>,
        info: VolumeInfo,
        rights: Rights,
        lease: Option<Duration>,
    ) -> Result<Self, Error> {
        let vid = vid_of(&info)?;
        let wrong = |what: &str| Error::Protocol(format!("volume {}: {what}", info.name));
        let chunk_blocks = info.chunk_bytes / BLOCK_BYTES;
        let map = client.maps.current();
        if !chunk_blocks.is_power_of_two() || info.replicas as usize > map.width() {
            return Err(wrong("a chunk or a number of replicas that cannot be"));
        }
        let abi = VolumeAbi {
            factor: info.factor,
            capacity_blocks: info.capacity_bytes / u64::from(BLOCK_BYTES),
            next_sequence: 1,
            lease_epoch: info.lease_epoch,
            vid: vid.get(),
            client: client.id.get(),
            replicas: u8::try_from(info.replicas).map_err(|_| wrong("too many replicas"))?,
            chunk_shift: u8::try_from(chunk_blocks.trailing_zeros()).expect("below 32"),
            writer: u8::from(rights == Rights::Write),
            // Within one process an SSD that is cut off is a fault of the SSD: no map drops it.
            follows: match client.link_options.fabric {
                Fabric::Daemon => FOLLOWS_REFUSALS | FOLLOWS_BROKEN,
                Fabric::InProcess => FOLLOWS_REFUSALS,
            },
            // `maps.open` below sets the fields that come from the map.
            ..VolumeAbi::default()
        };
        let device = client.maps.open(abi)?;
        let granted = lease.is_some();
        let lease =
            lease.filter(|_| rights == Rights::Write).map(|length| Lease::start(client, &info, length));
        Ok(Self {
            client: Arc::clone(client),
            info,
            rights,
            granted,
            map,
            device,
            lease,
            in_doubt: OnceLock::new(),
        })
    }

    /// Properties of the volume at the time of the open.
    pub fn info(&self) -> &VolumeInfo {
        &self.info
    }

    /// The rights with which the file was opened.
    pub fn rights(&self) -> Rights {
        self.rights
    }

    /// The fleet map that the client went by when the volume was opened, for a caller that places commands by
    /// itself. The client's own reads, writes and kernels follow the fleet's map.
    pub fn fleet_map(&self) -> &AnyMap {
        &self.map
    }

    /// The client.
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Sequence of the next write's stamp; between launches.
    ///
    /// # Errors
    /// Driver errors.
    pub fn next_sequence(&self) -> Result<u64, Error> {
        let mut raw = [0; 8];
        self.device.read(std::mem::offset_of!(VolumeAbi, next_sequence), &mut raw)?;
        Ok(u64::from_le_bytes(raw))
    }

    /// The argument by which a kernel uses this file.
    pub fn device_file(&self) -> DeviceFile {
        let _ = self.in_doubt.set(());
        let FileAbi { channel, volume, timeout_ns } = self.abi();
        DeviceFile { channel, volume, timeout_ns }
    }

    fn abi(&self) -> FileAbi {
        FileAbi {
            channel: self.client.channel.address(),
            volume: self.device.address(),
            timeout_ns: u64::try_from(self.client.io_timeout.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    fn target(&self) -> Target<'_> {
        let chunk_blocks = self.info.chunk_bytes / BLOCK_BYTES;
        let Client { channel, maps, session, ssds, .. } = &*self.client;
        let (again, info) = (&*self.client, &self.info);
        Target { channel, maps, session, ssds, info, again, file: self.abi(), chunk_blocks }
    }

    fn check(&self, offset: u64, bytes: u64) -> Result<(), Error> {
        let block = u64::from(BLOCK_BYTES);
        if !offset.is_multiple_of(block) || !bytes.is_multiple_of(block) {
            return Err(Error::Unaligned { offset, bytes });
        }
        let capacity = self.info.capacity_bytes;
        if offset.checked_add(bytes).is_none_or(|end| end > capacity) {
            return Err(Error::Range { offset, bytes, capacity });
        }
        if let Some(cause) = self.lease.as_ref().and_then(Lease::lost) {
            return Err(Error::LeaseLost { volume: self.info.name.clone(), cause });
        }
        Ok(())
    }

    fn vba(offset: u64) -> u32 {
        u32::try_from(offset / u64::from(BLOCK_BYTES)).expect("a volume has at most 2^32 blocks")
    }

    /// Reads whole blocks.
    ///
    /// # Errors
    /// [`Error::Unaligned`], [`Error::Range`], or [`Error::Io`] with the SSD's status.
    pub fn read_at(&self, offset: u64, data: &mut [u8]) -> Result<(), Error> {
        self.read(offset, data, 0)
    }

    /// Reads whole blocks from one replica; 0 is the first of each block's group. Any replica answers the
    /// writer, or any client if there is no writer.
    ///
    /// # Errors
    /// As [`Self::read_at`].
    pub fn read_replica_at(&self, replica: u32, offset: u64, data: &mut [u8]) -> Result<(), Error> {
        self.read(offset, data, replica + 1)
    }

    fn read(&self, offset: u64, data: &mut [u8], replica: u32) -> Result<(), Error> {
        self.check(offset, data.len() as u64)?;
        let mut at = offset;
        for part in data.chunks_mut(STAGING_BYTES) {
            let bytes = part.len() as u64;
            transfer(&self.client.transfers, self.target(), Self::vba(at), Work::Read(part, replica))?;
            at += bytes;
        }
        Ok(())
    }

    /// Writes whole blocks to all replicas.
    ///
    /// # Errors
    /// As [`Self::read_at`], and [`Error::LeaseLost`].
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.check(offset, data.len() as u64)?;
        let mut at = offset;
        for part in data.chunks(STAGING_BYTES) {
            let written = transfer(&self.client.transfers, self.target(), Self::vba(at), Work::Write(part));
            if written.is_err() {
                let _ = self.in_doubt.set(());
                self.lease.iter().for_each(Lease::put_in_doubt);
            }
            written?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Flush on every SSD of the fleet map. When it returns, every acknowledged write of this client is
    /// durable, and so is every one to the volumes that it may write.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn flush(&self) -> Result<(), Error> {
        transfer(&self.client.transfers, self.target(), 0, Work::Flush)
    }

    /// Waits until nothing of the channel is in flight, including requests that ended kernels left behind
    /// (`gn::submit_async`). It does not call their callbacks;
    /// [`ChannelStats::uncalled`](crate::ChannelStats) counts these.
    ///
    /// # Errors
    /// [`Error::Io`] with a time-out if something is left after `timeout`; device errors.
    pub fn drain(&self, timeout: Duration) -> Result<(), Error> {
        let transfers = self.client.transfers.lock().expect("no panic while held");
        let lock = self.client.node().launch_lock();
        match transfers.drain((&lock, &self.client.channel), Some(self.device.address()), timeout)? {
            0 => Ok(()),
            _ => {
                let (what, status) = ("drain", GN_TIMED_OUT);
                Err(IoFailure { what, vba: 0, status, dw0: 0, dw1: 0, ssd: None }.into())
            }
        }
    }

    /// Runs a user's kernel with the HCA beside it. `args` is the device address of its argument, which
    /// contains this file as [`Self::device_file`]. If a lost SSD has been found, the client reconnects
    /// first. While a kernel runs, requests of a broken connection wait until the fleet map leaves the SSD
    /// out. At their deadline they end with `GN_QP_BROKEN`.
    ///
    /// # Errors
    /// Device errors. The kernel itself reports I/O errors.
    pub fn launch(
        &self,
        kernel: ClientKernel,
        shape: Shape,
        args: u64,
        deadline: Duration,
    ) -> Result<(), Error> {
        self.client.reconnect_if_found();
        Ok(self.client.node().launch(kernel, shape, args, deadline)?)
    }
}

impl File {
    /// Whether the channel has no asynchronous request left: such a request would go on reading its volume.
    fn left_alone(&self) -> bool {
        let parked = || self.client.channel_stats().map_or(true, |stats| stats.parked != 0);
        if !parked() {
            return true;
        }
        if let Err(e) = self.drain(self.client.io_timeout) {
            tracing::warn!("closing {}: {e}", self.info.name);
        }
        !parked()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // If requests still use the volume's description, it outlives the file.
        if self.left_alone() {
            self.client.maps.close(&self.device);
        }
        if let Some(lease) = self.lease.take() {
            lease.end();
        }
        if !self.granted {
            return;
        }
        let mut open_files = self.client.open_files.lock().expect("no panic while held");
        let Some(opened) = open_files.get_mut(&self.info.name) else { return };
        opened.count -= 1;
        opened.in_doubt |= self.in_doubt.get().is_some();
        let (all_acknowledged, lease_epoch) = (!opened.in_doubt, Some(opened.lease_epoch));
        if opened.count == 0 {
            open_files.remove(&self.info.name);
            let request = grpc::ReleaseRequest {
                name: self.info.name.clone(),
                client_id: self.client.id.get().into(),
                all_acknowledged,
                lease_epoch,
            };
            // It names its lease, so the daemon may carry it out twice.
            let rpc = &self.client.rpc;
            let release = || async { rpc.volumes().release(request.clone()).await };
            if let Err(e) = rpc.change_if_back("the release of a lease", release) {
                tracing::warn!("releasing {}: {e}", self.info.name);
            }
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client: an identity, the fleet map, admin queues and a channel to every SSD.

use crate::credentials::Credentials;
use crate::error::Error;
use crate::link::{ArrayConnector, LinkOptions};
use crate::manager::{CreateOptions, Manager, VolumeInfo};
use crate::maps::{Maps, Rooms, room_for};
use crate::rpc::Rpc;
use crate::ssds::{Fabric, SsdInfo};
use crate::transfer::Transfers;
use gnstor_fabric::device::DeviceMem;
use gnstor_gnor::channel::{Channel, ChannelStats};
use gnstor_gnor::node::{Node, NodeError};
use gnstor_gnor::session::{ADMIN_DEADLINE, Missing, Session};
use gnstor_proto::placement::{AnyMap, Rows};
use gnstor_proto::slba::{ClientId, Vid};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Options of a connection.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// `host:port` of the daemon.
    pub endpoint: String,
    /// The client's name, for people.
    pub name: String,
    /// Credentials that prove the client's principal.
    pub credentials: Credentials,
    /// How the client reaches the SSDs.
    pub fabric: Fabric,
    /// Deadline of one I/O. Until then the client reconnects if a connection breaks.
    pub io_timeout: Duration,
    /// Device memory to get and register for the caller's kernels, beside the channel's pool; see
    /// [`Client::buffer`].
    pub buffer_bytes: usize,
    /// Largest size of the channel's pool, in bytes. The channel reserves addresses for all of it. It starts
    /// with 8 MiB, and adds memory when kernels find the pool empty.
    pub pool_bytes: usize,
}

impl ConnectOptions {
    /// Options for a daemon at `endpoint`, with the credentials of the environment.
    pub fn new(endpoint: impl Into<String>) -> Self {
        Self {
            endpoint: endpoint.into(),
            name: format!("pid {}", std::process::id()),
            credentials: Credentials::from_env(),
            fabric: Fabric::Daemon,
            io_timeout: Duration::from_secs(10),
            buffer_bytes: 0,
            pool_bytes: 64 << 20,
        }
    }
}

/// Rights to a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rights {
    /// Read.
    Read,
    /// Read, and write under a lease. Only one client has it at a time.
    Write,
}

/// Device memory that was registered for I/O.
#[derive(Debug)]
pub struct DeviceBuffer {
    /// The memory.
    pub memory: DeviceMem,
    /// Key of the memory for requests of the client's channel.
    pub key: u32,
}

/// The open files of a volume.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    pub(crate) count: usize,
    /// One of these files, perhaps closed by now, may have a write that ended without an acknowledgement.
    pub(crate) in_doubt: bool,
    /// Epoch of the last write lease of one of these files; 0: none of them had one.
    pub(crate) lease_epoch: u32,
}

/// A client of an array.
#[derive(Debug)]
pub struct Client {
    manager: Manager,
    pub(crate) rpc: Arc<Rpc>,
    pub(crate) id: ClientId,
    pub(crate) maps: Arc<Maps>,
    pub(crate) transfers: Mutex<Transfers>,
    /// Open files by volume name. The daemon keeps rights by client and releases all of them at once, so the
    /// last file requests that. The lock is held during the calls that open and release, so that one cannot
    /// undo the other.
    pub(crate) open_files: Mutex<HashMap<String, Opened>>,
    // Declared before the session: the channel's queues end before the controllers they belong to.
    pub(crate) channel: Arc<Channel>,
    buffer: Option<DeviceBuffer>,
    pub(crate) session: Session,
    pub(crate) ssds: Vec<SsdInfo>,
    pub(crate) link_options: LinkOptions,
    pub(crate) io_timeout: Duration,
    /// Time at which a call that needs no lost SSD last failed to reconnect.
    pub(crate) last_failure: Mutex<Option<Instant>>,
}

/// The SSDs of a map. The daemon's list may also have an SSD that is joining.
fn of_map(map: &AnyMap, list: Vec<gnstor_proto::grpc::Ssd>) -> Result<Vec<SsdInfo>, Error> {
    if list.len() < map.count() {
        let (named, listed) = (map.count(), list.len());
        return Err(Error::Protocol(format!("{named} SSDs in the map, {listed} in the list")));
    }
    Ok(list.into_iter().take(map.count()).map(SsdInfo::from).collect())
}

impl Client {
    /// Connects: gets an identity and the map from the daemon, and opens admin queues and a channel to the
    /// SSDs. It leaves out an SSD that does not answer in time ([`Self::unreached`]): reads go to other
    /// replicas, and writes wait for it until their deadline. The client tries such an SSD again in the
    /// background, and adds it between two launches.
    ///
    /// # Errors
    /// [`Error`] says which part failed; no SSD is reached.
    pub fn connect(node: &Arc<Node>, options: &ConnectOptions) -> Result<Arc<Self>, Error> {
        let manager = Manager::connect_with(&options.endpoint, &options.name, &options.credentials)?;
        let (rpc, id) = (Arc::clone(&manager.rpc), manager.id);
        let answer = rpc.map()?;
        let map = AnyMap::decode(&answer.map).map_err(|e| Error::Protocol(e.to_string()))?;
        let ssds = of_map(&map, answer.ssds)?;
        let epoch = map.epoch();
        let link_options = LinkOptions {
            fabric: options.fabric,
            daemon: options.endpoint.clone(),
            credentials: options.credentials.clone(),
        };
        let room = if options.fabric == Fabric::InProcess { map.count() } else { room_for(&map) };
        let transport = node.transport().clone();
        let connector = Arc::new(ArrayConnector::new(transport, link_options.clone(), ssds.clone(), room));
        let rooms = Rooms::new(Arc::clone(&connector), room);
        let maps = Arc::new(Maps::new(Arc::clone(&rpc), node.device(), map, rooms)?);
        let session = Session::connect(node, manager.registration.clone(), Arc::clone(&connector) as _);
        let session = session.map_err(|e| match e {
            NodeError::NoLink { .. } => connector.first_failure().unwrap_or(Error::Node(e)),
            e => Error::Node(e),
        })?;
        let channel = Arc::new(Channel::open(node, &session, options.pool_bytes)?);
        for Missing { ssd, why } in session.missing() {
            tracing::warn!("SSD {ssd} is left out of the channel for now, as it is not reached: {why}");
        }
        session.follow(Arc::clone(&maps) as _, epoch);
        session.make_anew_for(&channel);
        let transfers = Mutex::new(Transfers::new(&channel)?);
        let buffer = match options.buffer_bytes {
            0 => None,
            bytes => {
                let memory = node.device().alloc(bytes)?;
                let key = channel.register(&memory)?;
                Some(DeviceBuffer { memory, key })
            }
        };
        Ok(Arc::new(Self {
            manager,
            rpc,
            id,
            maps,
            transfers,
            buffer,
            open_files: Mutex::default(),
            channel,
            session,
            ssds,
            link_options,
            io_timeout: options.io_timeout,
            last_failure: Mutex::default(),
        }))
    }

    /// The client's id.
    pub fn id(&self) -> u16 {
        self.id.get()
    }

    /// The node.
    pub fn node(&self) -> &Arc<Node> {
        self.channel.node()
    }

    /// The session with the SSDs, for a caller that builds queue pairs of its own beside the channel.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The fleet map that this client goes by now. It follows the fleet's, also while kernels run.
    pub fn fleet_map(&self) -> Arc<AnyMap> {
        self.maps.current()
    }

    /// The SSDs that the array had when this client connected.
    pub fn ssds(&self) -> &[SsdInfo] {
        &self.ssds
    }

    /// The SSDs that the channel does not reach now, and why.
    pub fn unreached(&self) -> Vec<Missing> {
        self.session.missing()
    }

    /// The epoch of [`Self::fleet_map`].
    pub fn map_epoch(&self) -> u64 {
        self.maps.current().epoch()
    }

    /// Counters of the channel; between launches.
    ///
    /// # Errors
    /// Driver errors.
    pub fn channel_stats(&self) -> Result<ChannelStats, Error> {
        Ok(self.channel.stats()?)
    }

    /// Bytes of a channel's queues and of its pool.
    pub fn channel_bytes(&self) -> (usize, usize) {
        self.channel.memory_bytes()
    }

    /// The memory of [`ConnectOptions::buffer_bytes`].
    pub fn buffer(&self) -> Option<&DeviceBuffer> {
        self.buffer.as_ref()
    }

    /// Registers device memory of the caller's (of `cudaMalloc`, say) for I/O; returns the key that
    /// requests name it by. The caller keeps the memory until it is deregistered, or the client has ended.
    /// Waits until no kernel runs.
    ///
    /// # Errors
    /// [`DeviceError::Memory`](gnstor_fabric::device::DeviceError::Memory): it is not this device's memory,
    /// or the HCA's table is full.
    pub fn register_buffer(&self, address: u64, bytes: usize) -> Result<u32, Error> {
        Ok(self.channel.register_range(address, bytes)?)
    }

    /// Ends what [`Self::register_buffer`] began. I/O to it must have ended; later requests fail. False:
    /// not such a key.
    ///
    /// # Errors
    /// Driver errors.
    pub fn deregister_buffer(&self, key: u32) -> Result<bool, Error> {
        // The caller must not invalidate the key of the staging memory.
        let own = self.transfers.lock().expect("no panic while held").key() == key
            || self.buffer.as_ref().is_some_and(|buffer| buffer.key == key);
        if own { Ok(false) } else { Ok(self.channel.deregister(key)?) }
    }

    /// Model and firmware of an SSD, from Identify Controller.
    ///
    /// # Errors
    /// Admin queue errors; the SSD is not reached.
    pub fn identify(&self, ssd: usize) -> Result<gnstor_proto::nvme::IdentifyController, Error> {
        let identify = self.session.with_queue(ssd, |q| q.identify(ADMIN_DEADLINE));
        let lost = || NodeError::NoLink { ssd, cause: "it is lost, and tried again".into() };
        Ok(identify.ok_or_else(lost)?.map_err(NodeError::from)?)
    }

    /// The management calls: create, list, get, delete.
    pub fn manager(&self) -> &Manager {
        &self.manager
    }

    /// Creates a volume; see [`Manager::create`].
    ///
    /// # Errors
    /// The daemon's.
    pub fn create(&self, name: &str, options: &CreateOptions) -> Result<VolumeInfo, Error> {
        self.manager.create(name, options)
    }

    /// One volume; see [`Manager::get`].
    ///
    /// # Errors
    /// The daemon's.
    pub fn get(&self, name: &str) -> Result<VolumeInfo, Error> {
        self.manager.get(name)
    }

    /// All volumes; see [`Manager::list`].
    ///
    /// # Errors
    /// The daemon's.
    pub fn list(&self) -> Result<Vec<VolumeInfo>, Error> {
        self.manager.list()
    }

    /// Deletes a volume; see [`Manager::delete`].
    ///
    /// # Errors
    /// The daemon's.
    pub fn delete(&self, name: &str) -> Result<(), Error> {
        self.manager.delete(name)
    }
}

/// The volume id of a description.
pub(crate) fn vid_of(info: &VolumeInfo) -> Result<Vid, Error> {
    let raw = u16::try_from(info.vid).unwrap_or(0);
    Vid::new(raw).ok_or_else(|| Error::Protocol(format!("volume id {}", info.vid)))
}

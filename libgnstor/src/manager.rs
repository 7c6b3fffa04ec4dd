// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The management plane by itself: volumes without a device or a channel.

use crate::credentials::Credentials;
use crate::error::Error;
use crate::pages::{PAGE, pages};
use crate::rpc::Rpc;
use gnstor_auth::{Secret, ShownClient, random};
use gnstor_gnor::session::Registration;
use gnstor_proto::grpc;
use gnstor_proto::slba::ClientId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Properties of a new volume.
#[derive(Clone, Debug, Default)]
pub struct CreateOptions {
    /// Capacity in bytes, a multiple of 4096.
    pub capacity_bytes: u64,
    /// Copies; 0 = the default of two.
    pub replicas: u32,
    /// Chunk in bytes; 0 = the default of 64 KiB.
    pub chunk_bytes: u32,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Commands a second that each SSD serves of it; 0 = no limit.
    pub max_iops: u32,
    /// Bytes a second that each SSD serves of it; 0 = no limit.
    pub max_bytes_per_s: u64,
}

/// A volume as the daemon describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "named and documented in gnstor.proto")]
pub struct VolumeInfo {
    pub name: String,
    pub vid: u32,
    pub generation: u32,
    pub capacity_bytes: u64,
    pub replicas: u32,
    pub chunk_bytes: u32,
    pub factor: u64,
    pub owner: u32,
    pub readers: Vec<u32>,
    pub any_reader: bool,
    pub writer: Option<u32>,
    pub lease_epoch: u32,
    pub labels: BTreeMap<String, String>,
    pub max_iops: u32,
    pub max_bytes_per_s: u64,
    pub unsettled: bool,
    /// When copies that had all lost writes were last merged, in seconds since 1970; `None`: never.
    pub salvaged_s: Option<u32>,
}

impl From<grpc::Volume> for VolumeInfo {
    fn from(v: grpc::Volume) -> Self {
        let limits = v.limits.unwrap_or_default();
        Self {
            name: v.name,
            vid: v.vid,
            generation: v.generation,
            capacity_bytes: v.capacity_bytes,
            replicas: v.replicas,
            chunk_bytes: v.chunk_bytes,
            factor: v.factor,
            owner: v.owner,
            readers: v.readers,
            any_reader: v.any_reader,
            writer: (v.writer != 0).then_some(v.writer),
            lease_epoch: v.lease_epoch,
            labels: v.labels.into_iter().collect(),
            max_iops: limits.max_iops,
            max_bytes_per_s: limits.max_bytes_per_s,
            unsettled: v.unsettled,
            salvaged_s: (v.salvaged_s != 0).then_some(v.salvaged_s),
        }
    }
}

/// A right of a principal to a volume; each includes those before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Right {
    /// See and read.
    Read,
    /// Write.
    Write,
    /// Delete, share and revoke.
    Admin,
}

/// Names a change. The daemon carries it out once, however often it is asked for.
pub(crate) fn request_id() -> Vec<u8> {
    let mut id = vec![0; 16];
    random::fill(&mut id);
    id
}

/// A connection to a daemon with an identity.
#[derive(Debug)]
pub struct Manager {
    pub(crate) rpc: Arc<Rpc>,
    pub(crate) id: ClientId,
    pub(crate) registration: Registration,
}

impl Manager {
    /// Connects with the credentials of the environment and asks for a client id.
    ///
    /// # Errors
    /// [`Error::Unreachable`], [`Error::Credentials`], or the daemon's.
    pub fn connect(endpoint: &str, name: &str) -> Result<Self, Error> {
        Self::connect_with(endpoint, name, &Credentials::from_env())
    }

    /// Connects and asks for a client id.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn connect_with(endpoint: &str, name: &str, credentials: &Credentials) -> Result<Self, Error> {
        let (rpc, registered) = Rpc::register(endpoint, credentials, name)?;
        let raw = u16::try_from(registered.client_id).unwrap_or(0);
        let id = ClientId::new(raw)
            .ok_or_else(|| Error::Protocol(format!("client id {}", registered.client_id)))?;
        let secret = match registered.secret.as_str() {
            "" => None,
            text => {
                Some(Secret::parse(text).map_err(|e| Error::Protocol(format!("the client's secret: {e}")))?)
            }
        };
        match &secret {
            Some(secret) => rpc.prove(&ShownClient::of(raw, registered.serial, secret)),
            // A daemon of an earlier version does not say which registration it is.
            None if registered.registration == 0 => {}
            None => rpc.prove(&ShownClient::without_secret(raw, registered.registration)),
        }
        rpc.keep(registered.client_id);
        let registration = Registration { client: id, serial: registered.serial, secret };
        Ok(Self { rpc: Arc::new(rpc), id, registration })
    }

    /// Creates a volume.
    ///
    /// # Errors
    /// The daemon's: the name is taken or not valid, the capacity or the replicas are not possible.
    pub fn create(&self, name: &str, options: &CreateOptions) -> Result<VolumeInfo, Error> {
        let request = grpc::CreateRequest {
            name: name.into(),
            capacity_bytes: options.capacity_bytes,
            replicas: options.replicas,
            chunk_bytes: options.chunk_bytes,
            client_id: self.id.get().into(),
            labels: options.labels.clone().into_iter().collect(),
            request_id: request_id(),
            limits: Some(grpc::Limits {
                max_iops: options.max_iops,
                max_bytes_per_s: options.max_bytes_per_s,
            }),
        };
        let create = || async { self.rpc.volumes().create(request.clone()).await };
        Ok(self.rpc.change_again("a new volume", create)?.into())
    }

    /// All volumes.
    ///
    /// # Errors
    /// The daemon's.
    pub fn list(&self) -> Result<Vec<VolumeInfo>, Error> {
        let volumes = pages(|page_token| {
            let request = grpc::ListRequest { page_size: PAGE, page_token };
            let list = || async { self.rpc.volumes().list(request.clone()).await };
            let page = self.rpc.wait_again("the list of volumes", list)?;
            Ok((page.volumes, page.next_page_token))
        })?;
        Ok(volumes.into_iter().map(VolumeInfo::from).collect())
    }

    /// One volume.
    ///
    /// # Errors
    /// The daemon's: there is no volume of this name.
    pub fn get(&self, name: &str) -> Result<VolumeInfo, Error> {
        let get = || async { self.rpc.volumes().get(grpc::GetRequest { name: name.into() }).await };
        Ok(self.rpc.wait_again("a volume's description", get)?.into())
    }

    /// Gives a volume that this client has created its name and further labels, in one change. The volume was
    /// created with the label [`gnstor_proto::labels::PARTIAL`], and is written and flushed. If `replace` is
    /// set, a volume that has the name is deleted.
    ///
    /// # Errors
    /// The daemon's: another client writes to one of the two, or the name exists.
    pub fn publish(
        &self,
        volume: &VolumeInfo,
        name: &str,
        labels: BTreeMap<String, String>,
        replace: bool,
    ) -> Result<VolumeInfo, Error> {
        let request = grpc::PublishRequest {
            vid: volume.vid,
            generation: volume.generation,
            client_id: self.id.get().into(),
            name: name.into(),
            labels: labels.into_iter().collect(),
            replace,
        };
        Ok(self.rpc.change("the publishing of a volume", self.rpc.volumes().publish(request))?.into())
    }

    /// Gives a principal a right to a volume. It replaces the right that the principal had.
    ///
    /// # Errors
    /// The daemon's: the caller has no admin right.
    pub fn share(&self, name: &str, principal: &str, right: Right) -> Result<VolumeInfo, Error> {
        let right = match right {
            Right::Read => grpc::Right::Read,
            Right::Write => grpc::Right::Write,
            Right::Admin => grpc::Right::Admin,
        };
        let request =
            grpc::ShareRequest { name: name.into(), principal: principal.into(), right: right.into() };
        Ok(self.rpc.change("a share of a volume", self.rpc.volumes().share(request))?.into())
    }

    /// Takes a principal's right to a volume away.
    ///
    /// # Errors
    /// The daemon's: the caller has no admin right.
    pub fn revoke(&self, name: &str, principal: &str) -> Result<VolumeInfo, Error> {
        let request = grpc::RevokeRequest { name: name.into(), principal: principal.into() };
        Ok(self.rpc.change("the end of a share", self.rpc.volumes().revoke(request))?.into())
    }

    /// Deletes a volume.
    ///
    /// # Errors
    /// The daemon's: there is none, or another client writes to it.
    pub fn delete(&self, name: &str) -> Result<(), Error> {
        self.delete_ending(name, false).map(drop)
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The messages of the gRPC calls: they are checked once, here, and become requests of the core.

use crate::core::failure::Failure;
use crate::core::request::{self, Create, Request, Rights, VolumeName};
use crate::core::rights::{self, Right};
use gnstor_proto::grpc::{
    self, CreateRequest, DeleteRequest, OpenRequest, ReleaseRequest, RenewRequest, RevokeRequest,
    ShareRequest, Volume,
};
use gnstor_proto::slba::ClientId;
use gnstor_proto::status::GrpcCode;
use gnstor_proto::vendor::{Limits, VolumeEntry};
use gnstor_proto::{BLOCK_BYTES, BLOCK_SHIFT};

pub(super) fn create(message: CreateRequest) -> Result<Request, Failure> {
    Ok(Request::Create(Create {
        name: VolumeName::new(&message.name)?,
        capacity_blocks: request::capacity_blocks(message.capacity_bytes)?,
        replicas: request::replicas(message.replicas)?,
        chunk_shift: request::chunk_shift(message.chunk_bytes)?,
        client: request::client_id(message.client_id)?,
        labels: request::labels(message.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())))?,
        request_id: request::request_id(&message.request_id)?,
        limits: message.limits.as_ref().map(limits).unwrap_or_default(),
    }))
}

pub(super) fn limits(message: &grpc::Limits) -> Limits {
    Limits { max_iops: message.max_iops, max_bytes_per_s: message.max_bytes_per_s }
}

pub(super) fn delete(message: &DeleteRequest) -> Result<Request, Failure> {
    Ok(Request::Delete {
        name: VolumeName::new(&message.name)?,
        client: request::client_id(message.client_id)?,
        request_id: request::request_id(&message.request_id)?,
        force: message.force,
        only: request::only(message.vid, message.generation)?,
    })
}

pub(super) fn open(message: &OpenRequest) -> Result<Request, Failure> {
    let rights = match grpc::Rights::try_from(message.rights) {
        Ok(grpc::Rights::Read) => Rights::Read,
        Ok(grpc::Rights::Write) => Rights::Write { lease_ms: request::lease_ms(message.lease_ms) },
        Ok(grpc::Rights::Unspecified) | Err(_) => {
            return Err(Failure::new(
                GrpcCode::InvalidArgument,
                format!(
                    "volume {:?} cannot be opened with rights {}: ask for read (1) or write (2)",
                    message.name, message.rights
                ),
            ));
        }
    };
    Ok(Request::Open {
        name: VolumeName::new(&message.name)?,
        client: request::client_id(message.client_id)?,
        rights,
        follows_drains: message.follows_drains,
    })
}

pub(super) fn renew(message: &RenewRequest) -> Result<Request, Failure> {
    Ok(Request::Renew {
        name: VolumeName::new(&message.name)?,
        client: request::client_id(message.client_id)?,
        lease_epoch: message.lease_epoch,
        lease_ms: request::lease_ms(message.lease_ms),
        reaches: message.reaches,
        in_doubt: message.in_doubt,
        follows_drains: message.follows_drains,
    })
}

pub(super) fn share(message: &ShareRequest) -> Result<Request, Failure> {
    let right = match grpc::Right::try_from(message.right) {
        Ok(grpc::Right::Read) => Right::Read,
        Ok(grpc::Right::Write) => Right::Write,
        Ok(grpc::Right::Admin) => Right::Admin,
        Ok(grpc::Right::Unspecified) | Err(_) => {
            return Err(Failure::new(
                GrpcCode::InvalidArgument,
                format!("right {} is none: use read (1), write (2) or admin (3)", message.right),
            ));
        }
    };
    let name = VolumeName::new(&message.name)?;
    Ok(Request::Share { name, principal: rights::principal(&message.principal)?, right })
}

pub(super) fn revoke(message: &RevokeRequest) -> Result<Request, Failure> {
    let name = VolumeName::new(&message.name)?;
    Ok(Request::Revoke { name, principal: rights::principal(&message.principal)? })
}

pub(super) fn release(message: &ReleaseRequest) -> Result<Request, Failure> {
    Ok(Request::Release {
        name: VolumeName::new(&message.name)?,
        client: request::client_id(message.client_id)?,
        all_acknowledged: message.all_acknowledged,
        lease_epoch: message.lease_epoch,
    })
}

pub(super) fn volume(entry: &VolumeEntry) -> Volume {
    let labels = entry.labels.lines().filter_map(|line| line.split_once('='));
    Volume {
        name: entry.name.clone(),
        vid: u32::from(entry.vid.get()),
        generation: entry.generation,
        capacity_bytes: entry.capacity_blocks << BLOCK_SHIFT,
        replicas: u32::from(entry.replicas),
        chunk_bytes: BLOCK_BYTES << entry.chunk_shift,
        factor: entry.factor,
        owner: u32::from(entry.owner.get()),
        readers: entry.readers.iter().map(|reader| u32::from(reader.get())).collect(),
        any_reader: entry.any_reader,
        writer: u32::from(entry.writer.map_or(0, ClientId::get)),
        lease_epoch: entry.lease_epoch,
        labels: labels.map(|(key, value)| (key.into(), value.into())).collect(),
        version: entry.version,
        limits: Some(grpc::Limits {
            max_iops: entry.limits.max_iops,
            max_bytes_per_s: entry.limits.max_bytes_per_s,
        }),
        unsettled: entry.unsettled,
        salvaged_s: entry.salvaged_s,
    }
}

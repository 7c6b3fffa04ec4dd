// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The messages of what clients have open, of names and of labels.

use crate::core::failure::Failure;
use crate::core::request::{self, Request, VolumeName};
use crate::core::{Holder, Label, Page, Rename, Resize};
use gnstor_proto::grpc::{
    LabelRequest, Lease, ListLeasesRequest, RenameRequest, ResizeRequest, RevokeLeaseRequest, Rights,
};

pub(super) fn rename(message: &RenameRequest) -> Result<Request, Failure> {
    Ok(Request::Rename(Rename {
        name: VolumeName::new(&message.name)?,
        new_name: VolumeName::new(&message.new_name)?,
        request_id: request::request_id(&message.request_id)?,
    }))
}

pub(super) fn label(message: LabelRequest) -> Result<Request, Failure> {
    let name = VolumeName::new(&message.name)?;
    let set = request::labels(message.set.iter().map(|(key, value)| (key.as_str(), value.as_str())))?;
    Label::new(name, set, message.remove).map(Request::Label)
}

pub(super) fn resize(message: &ResizeRequest) -> Result<Request, Failure> {
    Ok(Request::Resize(Resize {
        name: VolumeName::new(&message.name)?,
        capacity_blocks: request::capacity_blocks(message.capacity_bytes)?,
    }))
}

pub(super) fn leases(message: &ListLeasesRequest) -> Result<Request, Failure> {
    let name = Some(message.name.as_str()).filter(|name| !name.is_empty());
    let page = Page::new(message.page_size, &message.page_token)?;
    Ok(Request::ListLeases { name: name.map(VolumeName::new).transpose()?, page })
}

pub(super) fn revoke_lease(message: &RevokeLeaseRequest) -> Result<Request, Failure> {
    Ok(Request::RevokeLease {
        name: VolumeName::new(&message.name)?,
        client: request::client_id(message.client_id)?,
    })
}

pub(super) fn held(holders: &[Holder]) -> Vec<Lease> {
    let lease = |holder: &Holder| Lease {
        volume: holder.volume.clone(),
        client_id: holder.client.get().into(),
        principal: holder.principal.as_deref().unwrap_or_default().into(),
        rights: if holder.lease.is_some() { Rights::Write } else { Rights::Read }.into(),
        lease_epoch: holder.lease.map_or(0, |lease| lease.epoch),
        left_ms: holder.lease.map_or(0, |lease| lease.left_ms),
    };
    holders.iter().map(lease).collect()
}

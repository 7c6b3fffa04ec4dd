// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lists and ends opens of clients; renames and labels volumes.

use crate::client::Rights;
use crate::error::Error;
use crate::manager::{Manager, VolumeInfo, request_id};
use crate::pages::{PAGE, pages};
use gnstor_proto::grpc;
use std::collections::BTreeMap;
use std::time::Duration;

/// The caller lacks a right.
const DENIED: tonic::Code = tonic::Code::PermissionDenied;

/// An open of a client: the write lease of a volume, or a place among its readers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseInfo {
    /// Name of the volume.
    pub volume: String,
    /// The client.
    pub client: u32,
    /// The client's principal; `None`: the daemon does not know it.
    pub principal: Option<String>,
    /// What the client may do.
    pub rights: Rights,
    /// Epoch of the write lease; 0 for readers.
    pub lease_epoch: u32,
    /// Time after which the write lease ends unless it is renewed; `None` for readers.
    pub left: Option<Duration>,
}

impl From<grpc::Lease> for LeaseInfo {
    fn from(lease: grpc::Lease) -> Self {
        let writes = lease.rights() == grpc::Rights::Write;
        Self {
            volume: lease.volume,
            client: lease.client_id,
            principal: Some(lease.principal).filter(|name| !name.is_empty()),
            rights: if writes { Rights::Write } else { Rights::Read },
            lease_epoch: lease.lease_epoch,
            left: writes.then(|| Duration::from_millis(lease.left_ms)),
        }
    }
}

impl Manager {
    /// Gives a volume another name. No client may have it open.
    ///
    /// # Errors
    /// The daemon's: there is no such volume, the name is taken, a client has the volume open.
    pub fn rename(&self, name: &str, new_name: &str) -> Result<VolumeInfo, Error> {
        let request =
            grpc::RenameRequest { name: name.into(), new_name: new_name.into(), request_id: request_id() };
        let rename = || async { self.rpc.volumes().rename(request.clone()).await };
        Ok(self.rpc.change_again("the new name of a volume", rename)?.into())
    }

    /// Removes the labels with these keys, and sets others.
    ///
    /// # Errors
    /// The daemon's: there is no such volume, a label is not valid.
    pub fn label(
        &self,
        name: &str,
        set: BTreeMap<String, String>,
        remove: Vec<String>,
    ) -> Result<VolumeInfo, Error> {
        let request = grpc::LabelRequest { name: name.into(), set: set.into_iter().collect(), remove };
        // The same labels may be set again.
        let label = || async { self.rpc.volumes().label(request.clone()).await };
        Ok(self.rpc.change_again("the new labels of a volume", label)?.into())
    }

    /// Gives a volume more capacity. A client that has it open knows that when it opens the volume again.
    ///
    /// # Errors
    /// The daemon's: there is no such volume, it has more than that, there is no room, the caller may not.
    pub fn resize(&self, name: &str, capacity_bytes: u64) -> Result<VolumeInfo, Error> {
        let request = grpc::ResizeRequest { name: name.into(), capacity_bytes };
        // A volume that has this capacity keeps it.
        let resize = || async { self.rpc.volumes().resize(request.clone()).await };
        Ok(self.rpc.change_again("the new capacity of a volume", resize)?.into())
    }

    /// What clients have open of one volume, or of all volumes to which the caller has the admin right.
    ///
    /// # Errors
    /// The daemon's: there is no such volume, the caller has no admin right to it.
    pub fn leases(&self, volume: Option<&str>) -> Result<Vec<LeaseInfo>, Error> {
        let leases = pages(|page_token| {
            let name = volume.unwrap_or_default().to_owned();
            let request = grpc::ListLeasesRequest { name, page_size: PAGE, page_token };
            let list = || async { self.rpc.volumes().list_leases(request.clone()).await };
            let page = self.rpc.wait_again("the list of leases", list)?;
            Ok((page.leases, page.next_page_token))
        })?;
        Ok(leases.into_iter().map(LeaseInfo::from).collect())
    }

    /// Ends what a client has open of a volume. Returns the leases that ended: none, if it had
    /// nothing open.
    ///
    /// # Errors
    /// The daemon's: there is no such volume, the caller has no admin right to it.
    pub fn revoke_lease(&self, volume: &str, client: u32) -> Result<Vec<LeaseInfo>, Error> {
        let request = grpc::RevokeLeaseRequest { name: volume.into(), client_id: client };
        // This call is not repeated: the client may have opened the volume again meanwhile.
        let ended = self.rpc.change("the end of a lease", self.rpc.volumes().revoke_lease(request))?.ended;
        Ok(ended.into_iter().map(LeaseInfo::from).collect())
    }

    /// Deletes a volume. If `force` is set, it is deleted also where another client writes to it. Returns the
    /// leases of other clients that ended.
    ///
    /// # Errors
    /// The daemon's: there is none, or another client writes to it.
    pub fn delete_ending(&self, name: &str, force: bool) -> Result<Vec<LeaseInfo>, Error> {
        // A late request, or one that is repeated at the next daemon, must not delete a later volume of the
        // name.
        let find = || async { self.rpc.volumes().get(grpc::GetRequest { name: name.into() }).await };
        let found = match self.rpc.wait_again("a volume's entry", find) {
            Err(Error::Daemon(status)) if [crate::NOT_FOUND, DENIED].contains(&status.code()) => None,
            found => Some(found?),
        };
        let request = grpc::DeleteRequest {
            name: name.into(),
            client_id: self.id.get().into(),
            request_id: request_id(),
            force,
            vid: found.as_ref().map_or(0, |volume| volume.vid),
            generation: found.as_ref().map_or(0, |volume| volume.generation),
        };
        let what = "the end of a volume";
        let ended = match found {
            Some(_) => {
                let delete = || async { self.rpc.volumes().delete(request.clone()).await };
                self.rpc.change_again(what, delete)?.ended
            }
            // The deletion of a volume may have been decided, and not be everywhere: then this call waits for
            // it. Or the daemon says which right is missing. It names no volume, and so it is not repeated.
            None => self.rpc.wait(what, self.rpc.volumes().delete(request))?.ended,
        };
        Ok(ended.into_iter().map(LeaseInfo::from).collect())
    }
}

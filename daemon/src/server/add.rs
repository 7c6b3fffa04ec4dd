// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The call that adds an SSD. The core chooses the SSD's number, and a thread inspects the SSD. Then the core
//! accepts it or says why not.

use super::service::{Answered, Service, mismatch};
use crate::core::failure::Failure;
use crate::core::request::Request;
use crate::core::{Add, Found, Reply};
use crate::port::connector::{Connector, look};
use gnstor_proto::grpc::{AddRequest, AddResponse};
use gnstor_proto::status::GrpcCode;
use std::sync::Arc;
use tonic::{Response, Status};

/// The weight of an SSD with a full share.
const WHOLE_WEIGHT: u32 = 1 << 16;

impl Service {
    pub(super) async fn add_ssd(&self, call: tonic::Request<AddRequest>) -> Answered<AddResponse> {
        let (metadata, extensions, message) = call.into_parts();
        let call = |add: Result<Add, Failure>| {
            let call = tonic::Request::from_parts(metadata.clone(), extensions.clone(), add);
            self.ask("Add", call, |add| Ok(Request::Add(Box::new(add?))))
        };
        let add = wish(&message);
        let ssd = match call(add.clone()).await? {
            Reply::Joins { ssd, is_done: true } => return answer(ssd),
            Reply::Joins { ssd, is_done: false } => ssd,
            other => return mismatch(&other),
        };
        let found = self.found(ssd, message.address.clone()).await?;
        match call(add.map(|add| Add { found: Some(found), ..add })).await? {
            Reply::Joins { ssd, .. } => answer(ssd),
            other => mismatch(&other),
        }
    }

    /// Inspects the SSD at this address, which may take some seconds.
    async fn found(&self, ssd: u16, address: String) -> Result<Found, Status> {
        let cannot =
            |why: &str| Status::failed_precondition(format!("the SSD at {address} cannot be added: {why}"));
        let connector = self.connector.clone();
        let connector = connector.ok_or_else(|| cannot("this daemon connects to no further SSDs"))?;
        let to = address.clone();
        let looked = tokio::task::spawn_blocking(move || found_at(&connector, ssd, &to)).await;
        looked.map_err(|_| Status::internal("internal error: the look at the SSD panicked"))?.map_err(|why| {
            cannot(&format!(
                "{why}; start an SSD with an empty file there that has the array's manager key: gnstor ssd --index \
                 {ssd} --listen {address} --data FILE --size SIZE --manager-key FILE"
            ))
        })
    }
}

fn found_at(connector: &Arc<dyn Connector>, ssd: u16, address: &str) -> Result<Found, String> {
    let mut queue = connector.connect(ssd, address).map_err(|error| error.to_string())?;
    look(ssd, &mut *queue)
}

fn answer(ssd: u16) -> Answered<AddResponse> {
    Ok(Response::new(AddResponse { ssd: ssd.into() }))
}

fn wish(message: &AddRequest) -> Result<Add, Failure> {
    let domain = |what: &str, raw: u32| {
        u16::try_from(raw).map_err(|_| {
            let why = format!("the SSD at {} cannot be added: {what} {raw} is beyond 65535", message.address);
            Failure::new(GrpcCode::InvalidArgument, why)
        })
    };
    Ok(Add {
        address: message.address.clone(),
        spare: message.spare,
        node: message.node.map(|node| domain("node", node)).transpose()?,
        rack: domain("rack", message.rack)?,
        weight: if message.weight == 0 { WHOLE_WEIGHT } else { message.weight },
        found: None,
    })
}

/// Number of SSDs that an encoded map names. One of format 2 gets no more.
pub(super) fn named(map: &[u8]) -> usize {
    match (map.get(4..6), map.get(52..54)) {
        (Some([3, 0]), Some(&[low, high])) => u16::from_le_bytes([low, high]).into(),
        _ => usize::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_proto::placement::map3::FleetMap3;
    use gnstor_proto::placement::{AnyMap, FleetMap};

    #[test]
    fn the_head_of_a_map_says_how_many_ssds_it_names() {
        let _deadline = crate::deadline::Deadline::after(crate::deadline::LIMIT);
        for ssds in [1, 4, 64] {
            let two = FleetMap::equal(ssds, 64, 7, 1).unwrap();
            let three = AnyMap::from(FleetMap3::of(&two, [5; 16]));
            assert_eq!(named(&three.encode().unwrap()), ssds);
            assert_eq!(named(&two.encode()), usize::MAX);
        }
        assert_eq!(named(b"GNFM"), usize::MAX);
    }
}

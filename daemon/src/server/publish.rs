// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The message of Publish as a request of the core.

use crate::core::failure::Failure;
use crate::core::request::{self, Publish, Request, VolumeName};
use gnstor_proto::grpc::PublishRequest;
use gnstor_proto::slba::Vid;
use gnstor_proto::status::GrpcCode;

pub(super) fn publish(message: &PublishRequest) -> Result<Request, Failure> {
    let vid = u16::try_from(message.vid).ok().and_then(Vid::new).ok_or_else(|| {
        Failure::new(GrpcCode::InvalidArgument, format!("{} is not the number of a volume", message.vid))
    })?;
    Ok(Request::Publish(Publish {
        vid,
        generation: message.generation,
        client: request::client_id(message.client_id)?,
        name: VolumeName::new(&message.name)?,
        labels: request::labels(message.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())))?,
        replace: message.replace,
    }))
}

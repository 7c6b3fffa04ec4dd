// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A gRPC codec for bytes that need not be messages. Tests of the daemon and of the whole system include this
//! file by its path.

use tonic::Status;

/// A codec that writes bytes as they are, and drops the answer.
#[derive(Clone, Copy)]
pub(crate) struct Bytes;

impl tonic::codec::Codec for Bytes {
    type Encode = Vec<u8>;
    type Decode = ();
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl tonic::codec::Encoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, out: &mut tonic::codec::EncodeBuf<'_>) -> Result<(), Status> {
        bytes::BufMut::put_slice(out, &item);
        Ok(())
    }
}

impl tonic::codec::Decoder for Bytes {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, answer: &mut tonic::codec::DecodeBuf<'_>) -> Result<Option<()>, Status> {
        let length = bytes::Buf::remaining(answer);
        bytes::Buf::advance(answer, length);
        Ok(Some(()))
    }
}

//! Calls with messages that no type could encode.

use bytes::{Buf, BufMut, Bytes};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Request, Status};

/// Calls a method with any bytes as its message.
pub async fn call(channel: &Channel, path: &'static str, message: Bytes) -> Result<Bytes, Status> {
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    let ready = grpc.ready().await;
    ready.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = PathAndQuery::from_static(path);
    let response = grpc.unary(Request::new(message), path, AnyBytes).await?;
    Ok(response.into_inner())
}

/// Calls a method of any kind with one message; returns when the call is accepted or refused.
pub async fn call_for_head(channel: &Channel, path: &str, message: Bytes) -> Result<(), Status> {
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    let ready = grpc.ready().await;
    ready.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = PathAndQuery::try_from(path).unwrap();
    let request = Request::new(message);
    grpc.server_streaming(request, path, AnyBytes).await?;
    Ok(())
}

#[derive(Clone, Copy)]
struct AnyBytes;

impl Codec for AnyBytes {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = AnyBytes;
    type Decoder = AnyBytes;

    fn encoder(&mut self) -> AnyBytes {
        AnyBytes
    }

    fn decoder(&mut self) -> AnyBytes {
        AnyBytes
    }
}

impl Encoder for AnyBytes {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for AnyBytes {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

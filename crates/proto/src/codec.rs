//! The codec of the generated services.
//!
//! tonic's codec lets a message's buffer grow by doubling from 8 KiB. A list of ten megabytes is
//! then copied about twice, into newly allocated memory each time, and a put's answer of thirty
//! bytes takes 8 KiB. This codec allocates a buffer of the message's size.

use std::marker::PhantomData;

use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, EncodeBuf, Encoder};
use tonic_prost::ProstDecoder;

/// Initial buffer size: fits most messages and the five bytes before each.
const SMALL_MESSAGE_BYTES: usize = 512;

/// Messages of a stream are sent together up to this many bytes.
const STREAM_BYTES: usize = 32 * 1024;

/// A codec for prost messages with buffers of the message's size.
#[derive(Debug, Clone)]
pub struct SizedCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for SizedCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for SizedCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = SizedEncoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> SizedEncoder<T> {
        SizedEncoder(PhantomData)
    }

    fn decoder(&mut self) -> ProstDecoder<U> {
        ProstDecoder::new(buffer_settings())
    }
}

/// The encoder of [`SizedCodec`].
#[derive(Debug, Clone)]
pub struct SizedEncoder<T>(PhantomData<T>);

impl<T: Message> Encoder for SizedEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, message: T, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.reserve(message.encoded_len());
        message
            .encode(buffer)
            .map_err(|error| Status::internal(error.to_string()))
    }

    fn buffer_settings(&self) -> BufferSettings {
        buffer_settings()
    }
}

fn buffer_settings() -> BufferSettings {
    BufferSettings::new(SMALL_MESSAGE_BYTES, STREAM_BYTES)
}

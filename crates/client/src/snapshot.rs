//! A snapshot of a member's data, with its checksum verified.
//!
//! A server sends the bytes of its database, then their SHA-256. The last 32 bytes are therefore held
//! back until the stream ends.

use bytes::{Buf, Bytes, BytesMut};
use futures_core::Stream;
use portunus_proto::etcdserverpb::SnapshotResponse;
use sha2::{Digest, Sha256};
use tonic::Streaming;

use crate::connection::Client;
use crate::error::ClientError;

/// The bytes of the checksum.
const CHECKSUM_BYTES: usize = 32;

/// Why a snapshot is not usable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The stream ended before the checksum.
    #[error("the snapshot ended after {bytes} bytes, before its checksum; take another one")]
    Truncated {
        /// The received bytes.
        bytes: u64,
    },
    /// The bytes do not have the checksum that the server sent.
    #[error("the checksum of the snapshot does not match its {bytes} bytes; take another one")]
    Checksum {
        /// The received bytes, without the checksum.
        bytes: u64,
    },
    /// The server's error, or a timeout.
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// A snapshot being received; see [`Client::snapshot_stream`].
#[derive(Debug)]
pub struct Snapshot {
    responses: Streaming<SnapshotResponse>,
    verifier: Verifier,
    version: String,
    remaining_bytes: u64,
    checksum: Option<[u8; CHECKSUM_BYTES]>,
}

impl Client {
    /// Receives a snapshot of the data of the member that answers. Use a client with one endpoint to
    /// choose the member. [`Client::snapshot`] has the unverified messages.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn snapshot_stream(&self) -> Result<Snapshot, ClientError> {
        Ok(Snapshot {
            responses: self.snapshot().await?,
            verifier: Verifier::default(),
            version: String::new(),
            remaining_bytes: 0,
            checksum: None,
        })
    }
}

impl Snapshot {
    /// Returns the next bytes of the database; `None` at the end, when the checksum has been verified.
    ///
    /// # Errors
    /// If the checksum is wrong or missing; the server's error.
    pub async fn next(&mut self) -> Result<Option<Bytes>, SnapshotError> {
        if self.checksum.is_some() {
            return Ok(None);
        }
        loop {
            let received = self.responses.message().await;
            let Some(response) = received.map_err(ClientError::from)? else {
                self.checksum = Some(self.verifier.finish()?);
                return Ok(None);
            };
            self.remaining_bytes = response.remaining_bytes;
            if !response.version.is_empty() {
                self.version = response.version;
            }
            let data = self.verifier.accept(response.blob);
            if !data.is_empty() {
                return Ok(Some(data));
            }
        }
    }

    /// Returns the bytes as a stream, which ends after an error.
    pub fn into_stream(mut self) -> impl Stream<Item = Result<Bytes, SnapshotError>> + Send {
        async_stream::stream! {
            loop {
                match self.next().await {
                    Ok(Some(data)) => yield Ok(data),
                    Ok(None) => return,
                    Err(error) => {
                        yield Err(error);
                        return;
                    }
                }
            }
        }
    }

    /// Returns the storage version of the database; empty before the first bytes, and if the server is
    /// older than 3.6.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns how many bytes the server has yet to send, for a progress bar.
    #[must_use]
    pub fn remaining_bytes(&self) -> u64 {
        self.remaining_bytes
    }

    /// Returns the verified checksum after the end. A snapshot file of etcd has it at its end.
    #[must_use]
    pub fn checksum(&self) -> Option<[u8; CHECKSUM_BYTES]> {
        self.checksum
    }
}

/// Separates the checksum from the data and compares it.
#[derive(Debug, Default)]
struct Verifier {
    /// The last bytes: the checksum, if nothing follows.
    held_back: BytesMut,
    hasher: Sha256,
    bytes: u64,
}

impl Verifier {
    /// Takes bytes and returns those that are certainly not the checksum.
    fn accept(&mut self, blob: Bytes) -> Bytes {
        self.held_back.extend_from_slice(&blob);
        let data_bytes = self.held_back.len().saturating_sub(CHECKSUM_BYTES);
        let data = self.held_back.split_to(data_bytes).freeze();
        self.hasher.update(&data);
        self.bytes += u64::try_from(data.len()).unwrap_or(u64::MAX);
        data
    }

    /// Compares the checksum after the last bytes.
    fn finish(&mut self) -> Result<[u8; CHECKSUM_BYTES], SnapshotError> {
        let bytes = self.bytes;
        let Ok(sent) = <[u8; CHECKSUM_BYTES]>::try_from(self.held_back.chunk()) else {
            return Err(SnapshotError::Truncated { bytes });
        };
        let computed: [u8; CHECKSUM_BYTES] = self.hasher.finalize_reset().into();
        match computed == sent {
            true => Ok(computed),
            false => Err(SnapshotError::Checksum { bytes }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot_of(data: &[u8]) -> Vec<u8> {
        let checksum = Sha256::digest(data);
        [data, &checksum].concat()
    }

    #[test]
    fn checksum_is_found_wherever_the_messages_are_cut() {
        let data: Vec<u8> = (0..200).collect();
        let sent = snapshot_of(&data);
        for cut in [1, 7, 31, 32, 33, 64, 200, 232] {
            let mut verifier = Verifier::default();
            let mut received = Vec::new();
            for blob in sent.chunks(cut) {
                received.extend_from_slice(&verifier.accept(Bytes::copy_from_slice(blob)));
            }
            assert_eq!(received, data, "{cut}");
            assert_eq!(verifier.finish().unwrap(), sent[200..], "{cut}");
        }
    }

    #[test]
    fn changed_or_missing_bytes_are_noticed() {
        let mut changed = snapshot_of(b"the database");
        changed[3] ^= 1;
        let mut verifier = Verifier::default();
        verifier.accept(changed.into());
        let error = verifier.finish().unwrap_err();
        assert!(
            matches!(error, SnapshotError::Checksum { bytes: 12 }),
            "{error:?}"
        );

        let cut = snapshot_of(b"the database");
        let mut verifier = Verifier::default();
        verifier.accept(Bytes::copy_from_slice(&cut[..40]));
        let error = verifier.finish().unwrap_err();
        assert!(
            matches!(error, SnapshotError::Checksum { bytes: 8 }),
            "{error:?}"
        );
        let mut verifier = Verifier::default();
        verifier.accept(Bytes::from_static(b"short"));
        let error = verifier.finish().unwrap_err();
        assert!(
            matches!(error, SnapshotError::Truncated { bytes: 0 }),
            "{error:?}"
        );
    }
}

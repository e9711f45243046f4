//! The store as a bbolt file, written piece by piece with bounded memory.
//!
//! The opposite of [`crate::import`]. Clients get it as a backup, with a digest at its end; a
//! member that lags gets it from its leader, without one.

use std::io::{self, Write};
use std::ops::ControlFlow;

use bytes::{Bytes, BytesMut};
use portunus_bolt::snapshot::{DIGEST_BYTES, DigestWriter};
use portunus_bolt::{BulkOptions, Layout, Planner, StreamWriter, WriteError};
use portunus_mvcc::backend::{BackendError, Bucket, Snapshot};
use thiserror::Error;

/// Why a snapshot was not written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The backend could not be read.
    #[error("the backend could not be read")]
    Backend(#[from] BackendError),
    /// The file could not be encoded.
    #[error("the snapshot could not be written")]
    Write(#[from] WriteError),
    /// Writing to the receiver failed.
    #[error("the snapshot could not be sent")]
    Io(#[from] io::Error),
}

/// A fixed view of the store, and the layout of its file.
pub struct Export {
    snapshot: Box<dyn Snapshot>,
    layout: Layout,
}

impl Export {
    /// Plans the file; reads all records once, for their sizes.
    pub fn plan(snapshot: Box<dyn Snapshot>, options: BulkOptions) -> Result<Export, ExportError> {
        let mut planner = Planner::new(options);
        for bucket in Bucket::ALL {
            planner.bucket(bucket.name().as_bytes())?;
            scan(&*snapshot, bucket, |key, value| {
                planner.entry(key, value.len() as u64)
            })?;
        }
        Ok(Export {
            snapshot,
            layout: planner.finish()?,
        })
    }

    /// Returns the size of the file, with the digest if `with_digest`.
    pub fn bytes(&self, with_digest: bool) -> u64 {
        let digest = if with_digest { DIGEST_BYTES } else { 0 };
        self.layout.file_bytes() + digest
    }

    /// Writes the file.
    pub fn write<W: Write>(self, out: W) -> Result<W, ExportError> {
        let mut writer = StreamWriter::new(self.layout, out)?;
        for bucket in Bucket::ALL {
            writer.bucket(bucket.name().as_bytes())?;
            scan(&*self.snapshot, bucket, |key, value| {
                writer.entry(key, value)
            })?;
        }
        Ok(writer.finish()?)
    }

    /// Writes the file and its digest.
    pub fn write_with_digest<W: Write>(self, out: W) -> Result<W, ExportError> {
        Ok(self.write(DigestWriter::new(out))?.finish()?)
    }
}

fn scan(
    snapshot: &dyn Snapshot,
    bucket: Bucket,
    mut each: impl FnMut(&[u8], &[u8]) -> Result<(), WriteError>,
) -> Result<(), ExportError> {
    let mut failed = None;
    snapshot.scan(bucket, b"", &mut |key, value| match each(key, value) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            failed = Some(error);
            ControlFlow::Break(())
        }
    })?;
    failed.map_or(Ok(()), |error| Err(error.into()))
}

/// Splits the written bytes into pieces of one size.
pub struct Pieces<F> {
    piece_bytes: usize,
    buffer: BytesMut,
    each: F,
}

impl<F: FnMut(Bytes) -> io::Result<()>> Pieces<F> {
    /// Creates a writer that calls `each` with the pieces, in order; the last may be shorter.
    pub fn new(piece_bytes: usize, each: F) -> Pieces<F> {
        Pieces {
            piece_bytes,
            buffer: BytesMut::with_capacity(piece_bytes),
            each,
        }
    }
}

impl<F: FnMut(Bytes) -> io::Result<()>> Write for Pieces<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        while self.buffer.len() >= self.piece_bytes {
            let piece = self.buffer.split_to(self.piece_bytes).freeze();
            (self.each)(piece)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.buffer.is_empty() {
            let piece = self.buffer.split().freeze();
            (self.each)(piece)?;
        }
        Ok(())
    }
}

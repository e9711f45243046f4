//! The SHA-256 digest that etcd appends to a snapshot. It detects a truncated or changed file
//! before a restore.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

/// Length of the digest at the end of a snapshot.
pub const DIGEST_BYTES: u64 = 32;

/// Databases are whole pages and pages are multiples of this, so a remainder is the digest.
const SECTOR_BYTES: u64 = 512;

/// Whether a file of this length ends with a digest; etcd uses the same rule.
pub fn carries_digest(file_bytes: u64) -> bool {
    file_bytes % SECTOR_BYTES == DIGEST_BYTES
}

/// A writer that appends the digest of the written bytes at the end.
#[derive(Debug)]
pub struct DigestWriter<W: Write> {
    out: W,
    hasher: Sha256,
}

impl<W: Write> DigestWriter<W> {
    /// Creates a writer whose digest covers all bytes written through it.
    pub fn new(out: W) -> Self {
        Self {
            out,
            hasher: Sha256::new(),
        }
    }

    /// Writes the digest and returns the target.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.write_all(&self.hasher.finalize())?;
        Ok(self.out)
    }
}

impl<W: Write> Write for DigestWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.out.write(bytes)?;
        self.hasher.update(bytes.get(..taken).unwrap_or(bytes));
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// An error of verifying a snapshot.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The file could not be read to its end.
    #[error("cannot read the snapshot")]
    Io(#[from] io::Error),
    /// The file has no digest.
    #[error(
        "a file of {file_bytes} bytes carries no digest; it is a copied database or was truncated. \
         Skip the hash check only if you copied it yourself"
    )]
    NoDigest {
        /// Length of the file.
        file_bytes: u64,
    },
    /// The digest does not match the content.
    #[error("the digest does not match; the snapshot was changed or damaged, take another one")]
    Mismatch,
}

/// Reads a snapshot of `file_bytes` bytes to its end and compares its digest.
/// Returns the length of the database in it.
pub fn verify(mut input: impl Read, file_bytes: u64) -> Result<u64, VerifyError> {
    if !carries_digest(file_bytes) {
        return Err(VerifyError::NoDigest { file_bytes });
    }
    let database_bytes = file_bytes - DIGEST_BYTES;
    let mut hasher = Sha256::new();
    let copied = io::copy(&mut input.by_ref().take(database_bytes), &mut hasher)?;
    if copied != database_bytes {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    let mut saved = [0; DIGEST_BYTES as usize];
    input.read_exact(&mut saved)?;
    if hasher.finalize()[..] != saved {
        return Err(VerifyError::Mismatch);
    }
    Ok(database_bytes)
}

/// Calls [`verify`] for a file.
pub fn verify_file(path: impl AsRef<Path>) -> Result<u64, VerifyError> {
    let file = File::open(path)?;
    let file_bytes = file.metadata()?.len();
    verify(file, file_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_digest(content: &[u8]) -> Vec<u8> {
        let mut writer = DigestWriter::new(Vec::new());
        writer.write_all(content).unwrap();
        writer.finish().unwrap()
    }

    #[test]
    fn verify_returns_the_length_of_the_database() {
        let file = with_digest(&[7; 1024]);
        assert_eq!(file.len(), 1024 + 32);
        assert_eq!(verify(&file[..], file.len() as u64).unwrap(), 1024);
    }

    #[test]
    fn digest_is_sha256_of_the_content() {
        let file = with_digest(b"abc");
        assert_eq!(file[3..7], [0xba, 0x78, 0x16, 0xbf]);
    }

    #[test]
    fn verify_detects_any_changed_byte() {
        let file = with_digest(&[7; 512]);
        for at in 0..file.len() {
            let mut changed = file.clone();
            changed[at] ^= 1;
            assert!(matches!(
                verify(&changed[..], changed.len() as u64),
                Err(VerifyError::Mismatch)
            ));
        }
    }

    #[test]
    fn verify_refuses_a_database_without_digest() {
        assert!(matches!(
            verify(&[0; 8192][..], 8192),
            Err(VerifyError::NoDigest { file_bytes: 8192 })
        ));
    }

    #[test]
    fn verify_of_a_short_input_is_an_io_error() {
        let file = with_digest(&[7; 512]);
        assert!(matches!(
            verify(&file[..200], file.len() as u64),
            Err(VerifyError::Io(_))
        ));
    }
}

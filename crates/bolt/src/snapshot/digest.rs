//! The SHA-256 that etcd appends to a snapshot, so that a file cut or changed on its way to a
//! backup is found before it is restored.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

/// Length of the digest at the end of a snapshot.
pub const DIGEST_BYTES: u64 = 32;

/// Databases are whole pages and pages are multiples of this, so a remainder is the digest.
const SECTOR_BYTES: u64 = 512;

/// Whether a file of this length ends with a digest; the rule etcd itself applies.
pub fn carries_digest(file_bytes: u64) -> bool {
    file_bytes % SECTOR_BYTES == DIGEST_BYTES
}

/// Passes bytes on and appends their digest at the end.
#[derive(Debug)]
pub struct DigestWriter<W: Write> {
    out: W,
    hasher: Sha256,
}

impl<W: Write> DigestWriter<W> {
    /// Everything written from now on is covered.
    pub fn new(out: W) -> Self {
        Self {
            out,
            hasher: Sha256::new(),
        }
    }

    /// Writes the digest and gives the target back.
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

/// A snapshot file cannot be trusted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The file could not be read to its end.
    #[error("cannot read the snapshot")]
    Io(#[from] io::Error),
    /// There is no digest to compare with.
    #[error(
        "a file of {file_bytes} bytes carries no digest; it is a copied database or was cut. \
         Skip the hash check only if you copied it yourself"
    )]
    NoDigest {
        /// Length of the file.
        file_bytes: u64,
    },
    /// The contents are not the ones that were saved.
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

/// [`verify`] for a file.
pub fn verify_file(path: impl AsRef<Path>) -> Result<u64, VerifyError> {
    let file = File::open(path)?;
    let file_bytes = file.metadata()?.len();
    verify(file, file_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(content: &[u8]) -> Vec<u8> {
        let mut writer = DigestWriter::new(Vec::new());
        writer.write_all(content).unwrap();
        writer.finish().unwrap()
    }

    #[test]
    fn a_sealed_snapshot_verifies_and_tells_the_length_of_its_database() {
        let file = sealed(&[7; 1024]);
        assert_eq!(file.len(), 1024 + 32);
        assert_eq!(verify(&file[..], file.len() as u64).unwrap(), 1024);
    }

    #[test]
    fn the_digest_is_plain_sha256() {
        let file = sealed(b"abc");
        assert_eq!(file[3..7], [0xba, 0x78, 0x16, 0xbf]);
    }

    #[test]
    fn any_changed_byte_is_found() {
        let file = sealed(&[7; 512]);
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
    fn a_copied_database_has_no_digest() {
        assert!(matches!(
            verify(&[0; 8192][..], 8192),
            Err(VerifyError::NoDigest { file_bytes: 8192 })
        ));
    }

    #[test]
    fn an_input_shorter_than_announced_is_an_input_error() {
        let file = sealed(&[7; 512]);
        assert!(matches!(
            verify(&file[..200], file.len() as u64),
            Err(VerifyError::Io(_))
        ));
    }
}

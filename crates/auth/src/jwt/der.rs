//! The few structures of DER that key files have.
//!
//! The bytes come from files that the operator names. Every length is checked before use.

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
/// `[0]` and `[1]`: the version of a certificate, and the optional parts of an EC private key.
const CONTEXT_0: u8 = 0xa0;
const CONTEXT_1: u8 = 0xa1;

/// The kinds of public keys.
pub(super) const OID_RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
pub(super) const OID_EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
pub(super) const OID_ED25519: &[u8] = &[0x2b, 0x65, 0x70];
/// The curves.
pub(super) const OID_P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
pub(super) const OID_P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];

/// A public key: its kind, its curve, and its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PublicKeyInfo<'a> {
    pub algorithm: &'a [u8],
    pub curve: Option<&'a [u8]>,
    pub key: &'a [u8],
}

/// An EC private key of RFC 5915.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EcPrivateKey<'a> {
    pub curve: Option<&'a [u8]>,
    pub private: &'a [u8],
    pub public: Option<&'a [u8]>,
}

/// The bytes that were not read yet.
#[derive(Debug, Clone, Copy)]
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// Reads the next element if it has this tag; returns its content.
    fn next(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (&found, rest) = self.0.split_first()?;
        if found != tag {
            return None;
        }
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x83 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
                let length = bytes
                    .iter()
                    .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
                (length, rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some(content)
    }

    fn sequence(&mut self) -> Option<Der<'a>> {
        self.next(SEQUENCE).map(Der)
    }

    /// Reads a bit string of whole bytes.
    fn bytes_of_bit_string(&mut self) -> Option<&'a [u8]> {
        let (&unused_bits, bytes) = self.next(BIT_STRING)?.split_first()?;
        (unused_bits == 0).then_some(bytes)
    }
}

/// Reads a SubjectPublicKeyInfo.
pub(super) fn public_key_info(der: &[u8]) -> Option<PublicKeyInfo<'_>> {
    public_key_info_of(Der(der).sequence()?)
}

fn public_key_info_of(mut info: Der<'_>) -> Option<PublicKeyInfo<'_>> {
    let mut algorithm = info.sequence()?;
    Some(PublicKeyInfo {
        algorithm: algorithm.next(OBJECT_IDENTIFIER)?,
        curve: algorithm.next(OBJECT_IDENTIFIER),
        key: info.bytes_of_bit_string()?,
    })
}

/// Reads the public key of a certificate.
pub(super) fn public_key_of_certificate(der: &[u8]) -> Option<PublicKeyInfo<'_>> {
    let mut signed = Der(der).sequence()?.sequence()?;
    signed.next(CONTEXT_0);
    signed.next(INTEGER)?;
    for _signature_issuer_validity_subject in 0..4 {
        signed.sequence()?;
    }
    public_key_info_of(signed.sequence()?)
}

/// Returns whether this is an RSA public key of PKCS #1: two numbers.
pub(super) fn is_pkcs1_public_key(der: &[u8]) -> bool {
    let read = || {
        let mut key = Der(der).sequence()?;
        key.next(INTEGER)?;
        key.next(INTEGER)?;
        Some(key.0.is_empty())
    };
    read().unwrap_or(false)
}

/// Returns whether this is a private key of PKCS #8: a version and the kind of the key come first.
pub(super) fn is_pkcs8_private_key(der: &[u8]) -> bool {
    let read = || {
        let mut key = Der(der).sequence()?;
        key.next(INTEGER)?;
        key.sequence()
    };
    read().is_some()
}

/// Reads an EC private key of RFC 5915, which is SEC 1.
pub(super) fn ec_private_key(der: &[u8]) -> Option<EcPrivateKey<'_>> {
    let mut key = Der(der).sequence()?;
    key.next(INTEGER)?;
    let private = key.next(OCTET_STRING)?;
    let curve = key.next(CONTEXT_0);
    let public = key.next(CONTEXT_1);
    Some(EcPrivateKey {
        curve: curve.and_then(|curve| Der(curve).next(OBJECT_IDENTIFIER)),
        private,
        public: public.and_then(|public| Der(public).bytes_of_bit_string()),
    })
}

//! Tokens of users, and the keys and options of signed tokens.

use std::sync::LazyLock;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portunus_auth::jwt::{Algorithm, JwtOptions, JwtTokens};
use portunus_auth::{SimpleTokens, TokenIndex, decode_hash, encode_hash, full_token};
use ring::hmac;

use crate::input::{line, take_byte};

const SECRET: &[u8] = b"a secret of thirty-two bytes or so";
const NOW: Duration = Duration::from_secs(1_700_000_000);

fn options(algorithm: Algorithm) -> JwtOptions {
    JwtOptions {
        algorithm,
        public_key_file: None,
        private_key_file: None,
        ttl: Duration::from_secs(300),
        unknown: Vec::new(),
    }
}

static HMAC_TOKENS: LazyLock<JwtTokens> = LazyLock::new(|| {
    let options = options(Algorithm::Hs256);
    JwtTokens::new(&options, None, Some(SECRET)).expect("a secret")
});

/// Verifies a signed token. With an odd first byte the rest is a header and claims, in two lines,
/// which are encoded and signed.
pub fn signed_tokens(mut data: &[u8]) {
    let is_signed = take_byte(&mut data) % 2 == 1;
    let token = if is_signed {
        let (header, claims) = line(data);
        let encode = |part: &[u8]| URL_SAFE_NO_PAD.encode(part);
        let signed = format!("{}.{}", encode(header), encode(claims));
        let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET);
        let signature = hmac::sign(&key, signed.as_bytes());
        format!("{signed}.{}", encode(signature.as_ref()))
    } else {
        String::from_utf8_lossy(data).into_owned()
    };
    let verified = HMAC_TOKENS.verify(&token, NOW);
    assert!(
        is_signed || verified.is_err(),
        "an invented token is refused"
    );
    if let Ok(claims) = verified
        && let Ok(again) = HMAC_TOKENS.sign(&claims.username, claims.revision, NOW)
    {
        assert_eq!(HMAC_TOKENS.verify(&again, NOW), Ok(claims));
    }
}

/// Reads the key files of signed tokens; the first byte selects the algorithm and the file.
pub fn token_keys(mut data: &[u8]) {
    const ALGORITHMS: [Algorithm; 8] = [
        Algorithm::Hs256,
        Algorithm::Rs256,
        Algorithm::Rs512,
        Algorithm::Ps256,
        Algorithm::Es256,
        Algorithm::Es384,
        Algorithm::EdDsa,
        Algorithm::Hs512,
    ];
    let control = take_byte(&mut data);
    let options = options(ALGORITHMS[usize::from(control % 8)]);
    let (public, private) = match control / 8 % 3 {
        0 => (Some(data), None),
        1 => (None, Some(data)),
        _ => (Some(data), Some(data)),
    };
    if let Ok(tokens) = JwtTokens::new(&options, public, private)
        && let Ok(token) = tokens.sign("user", 7, NOW)
    {
        let claims = tokens.verify(&token, NOW).expect("an own token");
        assert_eq!((claims.username.as_str(), claims.revision), ("user", 7));
    }
}

/// Looks up a simple token, and parses the options of signed ones and stored hashes of passwords.
pub fn simple_tokens(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut tokens = SimpleTokens::new(1000);
    tokens.assign(full_token("abcdefghijklmnop", 7), "user", 0);
    let found = tokens.user_of(&text, 1);
    assert!(found.is_none() || text == full_token("abcdefghijklmnop", 7));
    if let Some(index) = TokenIndex::of(&text) {
        let (prefix, _) = text.rsplit_once('.').expect("a prefix and an index");
        assert_eq!(TokenIndex::of(&full_token(prefix, index.0)), Some(index));
    }
    let _ = JwtOptions::parse(&text, Duration::from_secs(300));
    let (password, hash) = text.split_once('\n').unwrap_or(("", &text));
    if let Ok(hash) = decode_hash(password, hash) {
        assert_eq!(decode_hash("", &encode_hash(&hash)).as_ref(), Ok(&hash));
    }
}

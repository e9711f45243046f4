//! Continue tokens of lists: base64url JSON `{v, rv, start}` as Kubernetes makes them.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

const TOKEN_VERSION: &str = "meta.k8s.io/v1";
/// The most bytes of a token: a key and some JSON.
const TOKEN_BYTES_MAX: usize = 4096;
/// The revision of a token that goes on with the newest state.
pub(crate) const INCONSISTENT: i64 = -1;

/// The place where a list goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ContinueToken {
    /// The revision of the list, or [`INCONSISTENT`].
    pub(crate) revision: i64,
    /// The first key of the next part, relative to the prefix of the collection.
    pub(crate) start: String,
}

#[derive(Serialize, Deserialize)]
struct Encoded {
    v: String,
    #[serde(default)]
    rv: i64,
    #[serde(default)]
    start: String,
}

impl ContinueToken {
    pub(crate) fn encode(&self) -> String {
        let encoded = Encoded {
            v: TOKEN_VERSION.to_owned(),
            rv: self.revision,
            start: self.start.clone(),
        };
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&encoded).unwrap_or_default())
    }

    /// Decodes a token.
    ///
    /// # Errors
    /// The text of Kubernetes for a token that is not one of its own.
    pub(crate) fn decode(token: &str) -> Result<ContinueToken, String> {
        let invalid = |why: &str| format!("continue key is not valid: {why}");
        if token.len() > TOKEN_BYTES_MAX {
            return Err(invalid("it is too long"));
        }
        let bytes = URL_SAFE_NO_PAD.decode(token.trim_end_matches('='));
        let bytes = bytes.map_err(|error| invalid(&error.to_string()))?;
        let encoded: Encoded =
            serde_json::from_slice(&bytes).map_err(|error| invalid(&error.to_string()))?;
        if encoded.v != TOKEN_VERSION {
            return Err(invalid(&format!(
                "server does not recognize this encoded version {:?}",
                encoded.v
            )));
        }
        if encoded.rv == 0 || encoded.rv < INCONSISTENT {
            return Err(invalid(
                "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ));
        }
        let leaves_collection = encoded.start.split('/').any(|part| part == "..");
        if encoded.start.is_empty() || encoded.start.starts_with('/') || leaves_collection {
            return Err(invalid(&format!("{:?}", encoded.start)));
        }
        Ok(ContinueToken {
            revision: encoded.rv,
            start: encoded.start,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: K27
    #[test]
    fn tokens_survive_encoding_and_have_the_fields_of_kubernetes() {
        let token = ContinueToken {
            revision: 7,
            start: "ns/a\0".to_owned(),
        };
        let text = token.encode();
        let json = String::from_utf8(URL_SAFE_NO_PAD.decode(&text).unwrap()).unwrap();
        assert_eq!(
            json,
            r#"{"v":"meta.k8s.io/v1","rv":7,"start":"ns/a\u0000"}"#
        );
        assert_eq!(ContinueToken::decode(&text), Ok(token));
    }

    #[test]
    fn foreign_tokens_are_refused() {
        let encode = |json: &str| URL_SAFE_NO_PAD.encode(json);
        for text in [
            "x!".to_owned(),
            "a".repeat(TOKEN_BYTES_MAX + 1),
            encode("{}"),
            encode(r#"{"v":"v2","rv":1,"start":"a"}"#),
            encode(r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a"}"#),
            encode(r#"{"v":"meta.k8s.io/v1","rv":-2,"start":"a"}"#),
            encode(r#"{"v":"meta.k8s.io/v1","rv":1,"start":""}"#),
            encode(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"/a"}"#),
            encode(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"ns/../../b"}"#),
        ] {
            assert!(ContinueToken::decode(&text).is_err(), "{text}");
        }
    }
}

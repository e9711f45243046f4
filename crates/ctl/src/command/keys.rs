//! Keys and ranges from arguments.

use std::ffi::OsString;

use bytes::Bytes;

use crate::outcome::{ExitWith, Failure};

/// The range end for "all keys from here on", and the smallest key.
pub const ZERO: &[u8] = &[0];

/// The bytes of an argument, valid UTF-8 or not.
pub fn argument_bytes(argument: &OsString) -> Bytes {
    Bytes::copy_from_slice(argument.as_encoded_bytes())
}

/// The end of the range of all keys that begin with `prefix`.
pub fn prefix_end(prefix: &[u8]) -> Bytes {
    let kept = prefix.iter().rposition(|byte| *byte < 0xff);
    match kept {
        None => Bytes::from_static(ZERO),
        Some(last) => {
            let mut end = prefix[..=last].to_vec();
            end[last] += 1;
            end.into()
        }
    }
}

/// Whether `--consistency` asks for a local read.
pub fn is_serializable(consistency: &str) -> Result<bool, Failure> {
    match consistency {
        "s" => Ok(true),
        "l" => Ok(false),
        other => Err(Failure::new(
            ExitWith::BadFeature,
            format!(
                "unknown consistency flag {}",
                crate::go::quote::quote(other.as_bytes())
            ),
        )),
    }
}

/// The key and range end that `<key> [range_end]`, `--prefix` and `--from-key` describe.
pub fn range(
    arguments: &[OsString],
    prefix: bool,
    from_key: bool,
) -> Result<(Bytes, Bytes), Failure> {
    let bad = |message: &str| Err(Failure::new(ExitWith::BadArgs, message));
    if prefix && from_key {
        return bad("`--prefix` and `--from-key` cannot be set at the same time, choose one");
    }
    if arguments.len() > 1 && (prefix || from_key) {
        return bad(
            "too many arguments, only accept one argument when `--prefix` or `--from-key` is set",
        );
    }
    let key = arguments.first().map(argument_bytes).unwrap_or_default();
    if prefix || from_key {
        return Ok(match (key.is_empty(), prefix) {
            (true, _) => (Bytes::from_static(ZERO), Bytes::from_static(ZERO)),
            (false, true) => {
                let end = prefix_end(&key);
                (key, end)
            }
            (false, false) => (key, Bytes::from_static(ZERO)),
        });
    }
    let end = arguments.get(1).map(argument_bytes).unwrap_or_default();
    Ok((key, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_end_increments_the_last_byte_below_0xff() {
        assert_eq!(prefix_end(b"ab"), "ac");
        assert_eq!(prefix_end(b"a\xff\xff"), "b");
        assert_eq!(prefix_end(b"\xff"), ZERO);
    }

    #[test]
    fn empty_prefix_selects_every_key() {
        let all = (Bytes::from_static(ZERO), Bytes::from_static(ZERO));
        assert_eq!(range(&["".into()], true, false).unwrap(), all);
        assert_eq!(range(&["".into()], false, true).unwrap(), all);
    }
}

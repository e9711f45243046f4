//! Checks of arguments that all implementations make before they send or change anything.

use super::{Error, GetOptions, ListOptions, WatchOptions};

/// Checks the key of a get, put or delete.
pub(super) fn check_key(key: &[u8]) -> Result<(), Error> {
    if key.is_empty() {
        return Err(Error::EmptyKey);
    }
    Ok(())
}

/// Checks the arguments of a get.
pub(super) fn check_get(key: &[u8], options: &GetOptions) -> Result<(), Error> {
    check_key(key)?;
    check_not_negative("revision", options.revision)
}

/// Checks the arguments of a put or delete.
pub(super) fn check_write(key: &[u8], expected_revision: i64) -> Result<(), Error> {
    check_key(key)?;
    check_not_negative("expected revision", expected_revision)
}

/// Checks the arguments of a list.
pub(super) fn check_list(prefix: &[u8], options: &ListOptions) -> Result<(), Error> {
    if prefix.is_empty() {
        return Err(Error::EmptyPrefix);
    }
    check_not_negative("revision", options.revision)?;
    check_not_negative("limit", options.limit)?;
    let continue_key = &options.continue_key;
    if !continue_key.is_empty() && !continue_key.starts_with(prefix) {
        return Err(Error::ContinueOutsidePrefix {
            continue_key: String::from_utf8_lossy(continue_key).into_owned(),
            prefix: String::from_utf8_lossy(prefix).into_owned(),
        });
    }
    Ok(())
}

/// Checks the arguments of a watch.
pub(super) fn check_watch(key: &[u8], options: &WatchOptions) -> Result<(), Error> {
    if key.is_empty() {
        return Err(match options.prefix {
            true => Error::EmptyPrefix,
            false => Error::EmptyKey,
        });
    }
    check_not_negative("revision", options.revision)
}

fn check_not_negative(name: &'static str, value: i64) -> Result<(), Error> {
    if value < 0 {
        return Err(Error::Negative { name, value });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// Proves: K36
    #[test]
    fn negative_numbers_are_refused_by_name() {
        let negative = |checked: Result<(), Error>| match checked {
            Err(Error::Negative { name, value: -1 }) => name,
            other => panic!("{other:?}"),
        };
        let get = check_get(b"a", &GetOptions { revision: -1 });
        assert_eq!(negative(get), "revision");
        assert_eq!(negative(check_write(b"a", -1)), "expected revision");
        let limit = ListOptions {
            limit: -1,
            ..ListOptions::default()
        };
        assert_eq!(negative(check_list(b"a", &limit)), "limit");
        let watch = WatchOptions {
            revision: -1,
            ..WatchOptions::default()
        };
        assert_eq!(negative(check_watch(b"a", &watch)), "revision");
    }

    #[test]
    fn continue_key_outside_of_the_prefix_is_refused() {
        let options = |key: &'static [u8]| ListOptions {
            continue_key: Bytes::from_static(key),
            ..ListOptions::default()
        };
        for outside in [&b"/registry/o"[..], b"/registry/q/", b"/registry/pods"] {
            let refused = check_list(b"/registry/pods/", &options(outside));
            let Err(Error::ContinueOutsidePrefix { continue_key, .. }) = refused else {
                panic!("{refused:?}");
            };
            assert_eq!(continue_key.as_bytes(), outside);
        }
        for inside in [&b""[..], b"/registry/pods/", b"/registry/pods/a\0"] {
            assert!(check_list(b"/registry/pods/", &options(inside)).is_ok());
        }
    }
}

//! The key range of `watch`, from arguments or from environment variables, and the command
//! after `--`.

use std::env;
use std::ffi::OsString;

use bytes::Bytes;
use portunus_proto::etcdserverpb::WatchCreateRequest;

use super::keys::{ZERO, argument_bytes, prefix_end};
use super::watch::WatchFlags;
use crate::go::quote::quote;
use crate::outcome::{ExitWith, Failure};
use crate::settings::ENV_PREFIXES;

/// A key, and perhaps the end of a range, given by the environment.
#[derive(Debug, Clone, Default)]
pub struct WatchEnvironment {
    key: Option<OsString>,
    range_end: Option<OsString>,
}

impl WatchEnvironment {
    /// Reads the environment variables.
    pub fn read() -> Result<Self, Failure> {
        let variable = |name: &str| {
            ENV_PREFIXES
                .iter()
                .filter_map(|prefix| env::var_os(format!("{prefix}{name}")))
                .find(|value| !value.is_empty())
        };
        let (key, range_end) = (variable("WATCH_KEY"), variable("WATCH_RANGE_END"));
        if let (None, Some(end)) = (&key, &range_end) {
            let end = quote(end.as_encoded_bytes());
            let message =
                format!("ETCDCTL_WATCH_KEY is empty but got ETCDCTL_WATCH_RANGE_END={end}");
            return Err(Failure::new(ExitWith::BadArgs, message));
        }
        Ok(Self { key, range_end })
    }

    /// Whether there is a key.
    pub fn has_key(&self) -> bool {
        self.key.is_some()
    }

    /// The request that arguments and environment describe together.
    pub fn request(
        &self,
        arguments: &[OsString],
        flags: &WatchFlags,
    ) -> Result<WatchCreateRequest, Failure> {
        let bad = |message: &str| Err(Failure::new(ExitWith::BadArgs, message));
        if self.key.is_some() && !arguments.is_empty() {
            return bad("bad number of arguments (found conflicting environment key)");
        }
        let from_environment: Vec<OsString>;
        let words = match &self.key {
            Some(key) => {
                let words = [Some(key), self.range_end.as_ref()];
                from_environment = words.into_iter().flatten().cloned().collect();
                &from_environment
            }
            None => arguments,
        };
        let Some(mut key) = words.first().map(argument_bytes) else {
            return bad("bad number of arguments");
        };
        let range_end = match words {
            [_, _] if flags.prefix => {
                return bad("`range_end` and `--prefix` are mutually exclusive");
            }
            [_, end] => argument_bytes(end),
            _ if flags.prefix && key.is_empty() => {
                key = Bytes::from_static(ZERO);
                Bytes::from_static(ZERO)
            }
            _ if flags.prefix => prefix_end(&key),
            _ => Bytes::new(),
        };
        Ok(WatchCreateRequest {
            key,
            range_end,
            start_revision: flags.rev,
            progress_notify: flags.progress_notify,
            prev_kv: flags.prev_kv,
            ..WatchCreateRequest::default()
        })
    }
}

/// Refuses a separator without a command after it.
pub fn refuse_lone_separator<T: AsRef<[u8]>>(
    words: impl Iterator<Item = T>,
) -> Result<(), Failure> {
    let mut words = words.skip_while(|word| word.as_ref() != b"--");
    if words.next().is_some() && words.next().is_none() {
        return Err(Failure::new(
            ExitWith::BadArgs,
            "bad number of arguments (found separator --, but no commands)",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(
        environment: (Option<&str>, Option<&str>),
        words: &[&str],
        prefix: bool,
    ) -> Result<WatchCreateRequest, String> {
        let environment = WatchEnvironment {
            key: environment.0.map(OsString::from),
            range_end: environment.1.map(OsString::from),
        };
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let flags = WatchFlags {
            prefix,
            ..WatchFlags::default()
        };
        environment
            .request(&words, &flags)
            .map_err(|failure| failure.message.unwrap())
    }

    #[test]
    fn watch_key_comes_from_arguments_or_environment_but_not_both() {
        let ranged = request((None, None), &["a", "b"], false).unwrap();
        assert_eq!(
            (&ranged.key[..], &ranged.range_end[..]),
            (&b"a"[..], &b"b"[..])
        );
        let from_environment = request((Some("a"), Some("b")), &[], false).unwrap();
        assert_eq!(from_environment, ranged);
        for (environment, words, prefix, message) in [
            (
                (Some("a"), None),
                &["a"][..],
                false,
                "bad number of arguments (found conflicting environment key)",
            ),
            ((None, None), &[], false, "bad number of arguments"),
            (
                (None, None),
                &["a", "b"],
                true,
                "`range_end` and `--prefix` are mutually exclusive",
            ),
        ] {
            assert_eq!(request(environment, words, prefix), Err(message.to_owned()));
        }
    }

    #[test]
    fn separator_without_command_is_refused() {
        assert!(refuse_lone_separator(["watch", "a", "--", "echo"].iter()).is_ok());
        assert!(refuse_lone_separator(["watch", "a"].iter()).is_ok());
        assert!(refuse_lone_separator(["watch", "a", "--"].iter()).is_err());
    }
}

//! Users by bearer tokens of a file, in the CSV format of kube-apiserver's `--token-auth-file`.
//!
//! ```text
//!  token,user,uid,"group1,group2"
//! ```
//!
//! The file is read once: a changed file needs a restart, as in Kubernetes. Only digests of the
//! tokens stay in memory, and a token is compared with all of them in constant time.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use http::HeaderMap;
use http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::{Authenticator, Unauthenticated};
use crate::identity::{Connection, Identity};

/// The columns that every line has.
const COLUMNS_MIN: usize = 3;

/// The tokens of a file and their users.
#[derive(Debug, Clone, Default)]
pub struct Tokens {
    users: Vec<(TokenDigest, Identity)>,
}

type TokenDigest = [u8; 32];

/// Why a file of tokens cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum TokenFileError {
    /// The file cannot be read.
    #[error("cannot read the token file {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A line has too few columns.
    #[error(
        "line {line} of the token file has {found} columns: it takes at least {COLUMNS_MIN}, as \
         in token,user,uid,\"group1,group2\""
    )]
    Columns { line: usize, found: usize },
    /// A quotation mark in the middle of a column, or one that is never closed.
    #[error(
        "line {line} of the token file has a misplaced quotation mark: quote a whole column and \
         write a quotation mark inside of it twice"
    )]
    Quote { line: usize },
    /// A token or a user is empty.
    #[error("line {line} of the token file has no {column}: give one or remove the line")]
    Empty { line: usize, column: &'static str },
    /// Two lines have one token.
    #[error("line {line} of the token file repeats a token of an earlier line: remove one")]
    Duplicate { line: usize },
}

impl Tokens {
    /// Reads a file.
    ///
    /// # Errors
    /// If the file cannot be read or a line is malformed.
    pub fn from_file(path: &Path) -> Result<Tokens, TokenFileError> {
        let text = fs::read_to_string(path).map_err(|source| TokenFileError::Read {
            path: path.to_owned(),
            source,
        })?;
        Tokens::parse(&text)
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// If a line is malformed.
    pub fn parse(text: &str) -> Result<Tokens, TokenFileError> {
        let mut tokens = Tokens::default();
        for (at, text) in text.lines().enumerate() {
            let line = at + 1;
            if text.trim().is_empty() {
                continue;
            }
            let columns = columns(text).ok_or(TokenFileError::Quote { line })?;
            tokens.add(line, &columns)?;
        }
        Ok(tokens)
    }

    fn add(&mut self, line: usize, columns: &[String]) -> Result<(), TokenFileError> {
        let [token, user, uid, rest @ ..] = columns else {
            let found = columns.len();
            return Err(TokenFileError::Columns { line, found });
        };
        for (column, value) in [("token", token), ("user", user)] {
            if value.is_empty() {
                return Err(TokenFileError::Empty { line, column });
            }
        }
        let digest = digest(token);
        if self.users.iter().any(|(known, _)| *known == digest) {
            return Err(TokenFileError::Duplicate { line });
        }
        let groups = rest.first().map(String::as_str).unwrap_or_default();
        let groups = groups.split(',').map(str::trim);
        let groups = groups.filter(|group| !group.is_empty());
        let mut identity = Identity::new(user, groups.map(str::to_owned).collect());
        identity.uid.clone_from(uid);
        self.users.push((digest, identity));
        Ok(())
    }

    fn user_of(&self, token: &str) -> Option<&Identity> {
        let digest = digest(token);
        let mut found = None;
        // Every entry is compared, so that the time does not depend on the token.
        for (known, identity) in &self.users {
            if is_equal(known, &digest) {
                found = Some(identity);
            }
        }
        found
    }
}

impl Authenticator for Tokens {
    fn authenticate(
        &self,
        headers: &mut HeaderMap,
        _: &Connection,
    ) -> Result<Option<Identity>, Unauthenticated> {
        let refused = |reason: &str| Unauthenticated {
            reason: reason.to_owned(),
        };
        let Some(header) = headers.get(AUTHORIZATION).cloned() else {
            return Ok(None);
        };
        let header = header.to_str();
        let header = header.map_err(|_| refused("the Authorization header is not text"))?;
        let Some(token) = bearer(header) else {
            return Ok(None);
        };
        headers.remove(AUTHORIZATION);
        match self.user_of(token) {
            Some(identity) => Ok(Some(identity.clone())),
            None => Err(refused("invalid bearer token")),
        }
    }
}

/// Returns the token of an `Authorization` header; none for another scheme.
fn bearer(header: &str) -> Option<&str> {
    let mut words = header.split_ascii_whitespace();
    let scheme = words.next()?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    words.next()
}

fn digest(token: &str) -> TokenDigest {
    Sha256::digest(token.as_bytes()).into()
}

fn is_equal(left: &TokenDigest, right: &TokenDigest) -> bool {
    let pairs = left.iter().zip(right);
    pairs.fold(0, |differences, (left, right)| differences | (left ^ right)) == 0
}

/// Splits a line of CSV. Returns none if a quotation mark is misplaced.
fn columns(line: &str) -> Option<Vec<String>> {
    let mut columns = Vec::new();
    let mut rest = line;
    loop {
        let (column, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_column(quoted)?,
            None => match rest.split_once(',') {
                Some((column, after)) => (column.to_owned(), Some(after)),
                None => (rest.to_owned(), None),
            },
        };
        let is_quoted = rest.starts_with('"');
        if !is_quoted && column.contains('"') {
            return None;
        }
        columns.push(column);
        match after {
            Some(after) => rest = after,
            None => return Some(columns),
        }
    }
}

/// Reads a column after its opening quotation mark. Returns the text after the next comma, if
/// there is one.
fn quoted_column(text: &str) -> Option<(String, Option<&str>)> {
    let mut column = String::new();
    let mut rest = text;
    loop {
        let (piece, after) = rest.split_once('"')?;
        column.push_str(piece);
        match after.strip_prefix('"') {
            Some(after) => {
                column.push('"');
                rest = after;
            }
            None if after.is_empty() => return Some((column, None)),
            None => return Some((column, Some(after.strip_prefix(',')?))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "secret,alice,7,\"admins,readers\"\n\nother,bob,8\nq\"\"x,carol,9\n";

    fn authenticate(file: &str, header: Option<&str>) -> (Result<Option<Identity>, String>, bool) {
        let tokens = Tokens::parse(file).unwrap();
        let mut headers = HeaderMap::new();
        if let Some(header) = header {
            headers.insert(AUTHORIZATION, header.parse().unwrap());
        }
        let found = tokens.authenticate(&mut headers, &Connection::default());
        let found = found.map_err(|refused| refused.reason);
        (found, headers.contains_key(AUTHORIZATION))
    }

    #[test]
    fn token_is_a_user_with_groups() {
        let file = FILE.lines().take(3).collect::<Vec<_>>().join("\n");
        let (found, is_kept) = authenticate(&file, Some("Bearer secret"));
        let alice = found.unwrap().unwrap();
        assert_eq!((&*alice.user, &*alice.uid), ("alice", "7"));
        assert_eq!(alice.groups, ["admins", "readers", "system:authenticated"]);
        assert!(!is_kept, "the token stayed in the request");
        let (found, _) = authenticate(&file, Some("bearer   other"));
        let bob = found.unwrap().unwrap();
        assert_eq!((bob.user, bob.groups.len()), ("bob".to_owned(), 1));
    }

    #[test]
    fn unknown_token_is_refused_and_other_schemes_are_ignored() {
        let file = "secret,alice,7";
        for header in ["Bearer wrong", "Bearer secre", "Bearer secrett"] {
            let (found, is_kept) = authenticate(file, Some(header));
            assert_eq!(found, Err("invalid bearer token".to_owned()), "{header}");
            assert!(!is_kept);
        }
        let mut headers = HeaderMap::new();
        let bytes = http::HeaderValue::from_bytes(b"Bearer s\xe9cret").unwrap();
        headers.insert(AUTHORIZATION, bytes);
        let tokens = Tokens::parse(file).unwrap();
        let refused = tokens.authenticate(&mut headers, &Connection::default());
        assert!(refused.is_err(), "{refused:?}");
        for header in [None, Some("Basic secret"), Some("Bearer"), Some("")] {
            assert_eq!(authenticate(file, header).0, Ok(None), "{header:?}");
        }
    }

    #[test]
    fn malformed_lines_are_refused_with_their_number() {
        for (text, expected) in [
            ("a,b", "line 1 of the token file has 2 columns"),
            ("a,b,c\n\nd,e", "line 3 of the token file has 2 columns"),
            (",b,c", "has no token"),
            ("a,,c", "has no user"),
            ("a,b,c\na,d,e", "line 2 of the token file repeats a token"),
            ("a,b,c,\"open", "misplaced quotation mark"),
            ("a,b,c,\"x\"y", "misplaced quotation mark"),
            (
                FILE,
                "line 4 of the token file has a misplaced quotation mark",
            ),
        ] {
            let refused = Tokens::parse(text).unwrap_err().to_string();
            assert!(refused.contains(expected), "{text}: {refused}");
        }
    }

    #[test]
    fn columns_are_split_as_csv() {
        for (line, expected) in [
            ("a,b,c", &["a", "b", "c"][..]),
            ("\"a\",b,\"c,d\"", &["a", "b", "c,d"]),
            ("\"a\"\"b\",c,", &["a\"b", "c", ""]),
            ("", &[""]),
        ] {
            assert_eq!(columns(line).unwrap(), expected, "{line}");
        }
    }
}

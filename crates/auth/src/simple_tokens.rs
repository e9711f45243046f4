//! Simple tokens: random letters and the index before the login's entry, `ABCDabcd….42` for a
//! login at index 43. etcd takes the index that was applied before the login, so a member with
//! another one would assign tokens that Go members do not know.
//!
//! Every member assigns the token when it applies the entry, so any member accepts it, and a
//! member that lags behind waits for the index. A token lives for a time after its last use on
//! the member; each member counts for itself, as in etcd.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The letters of a token.
pub const TOKEN_LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
/// The number of random letters of a token.
pub const TOKEN_PREFIX_LETTERS: usize = 16;
/// The longest token that is looked up.
const TOKEN_BYTES_MAX: usize = 256;

/// Returns the token of a login whose entry has this index.
#[must_use]
pub fn full_token(prefix: &str, login_index: u64) -> String {
    format!("{prefix}.{}", login_index.saturating_sub(1))
}

/// The index of the login entry, parsed from a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenIndex(pub u64);

impl TokenIndex {
    /// Reads the index of a token; `None` for a text that is no token.
    #[must_use]
    pub fn of(token: &str) -> Option<TokenIndex> {
        let (_, index) = token.split_once('.')?;
        let is_decimal = !index.is_empty() && index.bytes().all(|it| it.is_ascii_digit());
        let before: u64 = is_decimal.then(|| index.parse().ok())??;
        before.checked_add(1).map(TokenIndex)
    }
}

#[derive(Debug)]
struct Token {
    username: Arc<str>,
    expires_ms: AtomicU64,
}

/// The tokens that this member accepts.
#[derive(Debug)]
pub struct SimpleTokens {
    ttl_ms: u64,
    tokens: HashMap<String, Token>,
    /// When expired tokens are removed next.
    next_removal_ms: u64,
}

impl SimpleTokens {
    /// Creates an empty set. Tokens expire this long after their last use.
    #[must_use]
    pub fn new(ttl_ms: u64) -> SimpleTokens {
        SimpleTokens {
            ttl_ms,
            tokens: HashMap::new(),
            next_removal_ms: 0,
        }
    }

    /// Accepts a token of a user from now on. A token without the random letters is not accepted:
    /// it comes from a member with signed tokens, and could be guessed. Removes expired tokens from time to time, so that
    /// logins without end take no memory without end.
    pub fn assign(&mut self, token: String, username: &str, now_ms: u64) {
        let letters = token.split('.').next().unwrap_or_default();
        if letters.len() < TOKEN_PREFIX_LETTERS {
            return;
        }
        if now_ms >= self.next_removal_ms {
            self.tokens
                .retain(|_, token| *token.expires_ms.get_mut() >= now_ms);
            self.next_removal_ms = now_ms + self.ttl_ms / 2;
        }
        let token_of_user = Token {
            username: Arc::from(username),
            expires_ms: AtomicU64::new(now_ms.saturating_add(self.ttl_ms)),
        };
        self.tokens.insert(token, token_of_user);
    }

    /// Returns the user of a token and prolongs the token.
    #[must_use]
    pub fn user_of(&self, token: &str, now_ms: u64) -> Option<Arc<str>> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let token = self.tokens.get(token)?;
        if token.expires_ms.load(Ordering::Relaxed) < now_ms {
            return None;
        }
        let expires_ms = now_ms.saturating_add(self.ttl_ms);
        token.expires_ms.store(expires_ms, Ordering::Relaxed);
        Some(Arc::clone(&token.username))
    }

    /// Forgets the tokens of a user.
    pub fn invalidate_user(&mut self, username: &str) {
        self.tokens.retain(|_, token| *token.username != *username);
    }

    /// Forgets all tokens.
    pub fn clear(&mut self) {
        self.tokens.clear();
    }

    /// The number of tokens, expired ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there is no token.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_lives_from_its_last_use_on() {
        let mut tokens = SimpleTokens::new(300);
        tokens.assign(full_token(&"a".repeat(16), 7), "u", 1000);
        assert_eq!(
            tokens.user_of("aaaaaaaaaaaaaaaa.6", 1300).as_deref(),
            Some("u")
        );
        assert_eq!(
            tokens.user_of("aaaaaaaaaaaaaaaa.6", 1600).as_deref(),
            Some("u")
        );
        assert_eq!(tokens.user_of("aaaaaaaaaaaaaaaa.6", 1901), None);
        assert_eq!(tokens.user_of("aaaaaaaaaaaaaaaa.7", 1600), None);
        tokens.assign(full_token(&"d".repeat(16), 9), "u", 5000);
        assert_eq!(tokens.len(), 1, "the expired token is removed");
    }

    #[test]
    fn deleted_users_have_no_tokens() {
        let mut tokens = SimpleTokens::new(300);
        tokens.assign(full_token(&"a".repeat(16), 1), "u", 0);
        tokens.assign(full_token(&"b".repeat(16), 2), "v", 0);
        tokens.invalidate_user("u");
        assert_eq!(tokens.user_of("aaaaaaaaaaaaaaaa.0", 0), None);
        assert_eq!(
            tokens.user_of("bbbbbbbbbbbbbbbb.1", 0).as_deref(),
            Some("v")
        );
        tokens.clear();
        assert!(tokens.is_empty());
    }

    #[test]
    fn token_that_can_be_guessed_is_not_accepted() {
        let mut tokens = SimpleTokens::new(300);
        tokens.assign(full_token("", 1), "root", 0);
        tokens.assign(full_token("short", 2), "root", 0);
        assert!(tokens.is_empty());
    }

    #[test]
    fn token_has_the_index_before_its_login_as_in_etcd() {
        let token = full_token("abc", 43);
        assert_eq!(token, "abc.42");
        assert_eq!(TokenIndex::of(&token), Some(TokenIndex(43)));
        for text in [
            "",
            "abc",
            "abc.",
            "abc.x",
            "abc.+1",
            "a.b.1",
            "a.18446744073709551615",
            "a.18446744073709551616",
        ] {
            assert_eq!(TokenIndex::of(text), None, "{text}");
        }
    }
}

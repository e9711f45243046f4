//! Users and roles as applied, and the tokens that this member accepts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arc_swap::{ArcSwap, Guard};
use portunus_auth::jwt::JwtTokens;
use portunus_auth::{AuthState, Caller, SimpleTokens, TokenIndex};
use portunus_proto::{EtcdError, LogIndex};
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;

use super::caller_limits::CallerLimits;
use super::passwords::Passwords;

/// The tokens of `--auth-token`.
pub enum Tokens {
    /// Random tokens, which every member assigns when it applies a login.
    Simple(RwLock<SimpleTokens>),
    /// Signed tokens.
    Jwt(Box<JwtTokens>),
    /// No tokens: only certificates identify users.
    None,
}

impl Tokens {
    /// Simple tokens that expire this long after their last use.
    pub fn simple(ttl: Duration) -> Tokens {
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        Tokens::Simple(RwLock::new(SimpleTokens::new(ttl_ms)))
    }
}

/// What a token says before its user is looked up.
pub enum TokenCheck {
    /// The token belongs to this caller.
    Valid(Caller),
    /// The token is assigned by an entry that this member has not applied.
    AfterIndex(LogIndex),
}

/// Users, roles and tokens. Only the apply thread changes the users and roles.
pub struct Auth {
    state: ArcSwap<AuthState>,
    /// Incremented after each change of the state.
    generation: AtomicU64,
    /// Wakes streams after each change of the state; they compare the generation.
    changed: watch::Sender<()>,
    tokens: Tokens,
    started: Instant,
    /// Hashes and compares passwords.
    pub passwords: Passwords,
    /// Limits of callers that are not known.
    pub limits: CallerLimits,
}

impl Auth {
    /// Starts with the state of the store.
    pub fn new(
        state: AuthState,
        tokens: Tokens,
        passwords: Passwords,
        limits: CallerLimits,
    ) -> Auth {
        Auth {
            state: ArcSwap::from_pointee(state),
            generation: AtomicU64::new(0),
            changed: watch::Sender::new(()),
            tokens,
            started: Instant::now(),
            passwords,
            limits,
        }
    }

    /// Users and roles as applied.
    pub fn state(&self) -> Guard<Arc<AuthState>> {
        self.state.load()
    }

    /// A number that changes with the state. A check that was made after loading it still holds
    /// while it is the same.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// Returns a stream with an item after each change of the state.
    pub fn changes(&self) -> WatchStream<()> {
        WatchStream::from_changes(self.changed.subscribe())
    }

    /// Publishes a new state. Without authentication, no token stays valid.
    pub fn publish(&self, state: AuthState) {
        let is_enabled = state.is_enabled();
        self.state.store(Arc::new(state));
        self.generation.fetch_add(1, Ordering::SeqCst);
        self.changed.send_replace(());
        if !is_enabled {
            self.change_tokens(SimpleTokens::clear);
        }
    }

    /// Publishes the state of a snapshot. Which users were deleted or changed their password
    /// before it is unknown, so all tokens become invalid.
    pub fn publish_installed(&self, state: AuthState) {
        self.change_tokens(SimpleTokens::clear);
        self.publish(state);
    }

    /// Accepts the token of a login from now on.
    pub fn assign_token(&self, token: String, username: &str) {
        let now_ms = self.now_ms();
        self.change_tokens(|tokens| tokens.assign(token, username, now_ms));
    }

    /// Accepts none of a user's tokens any more.
    pub fn invalidate_tokens(&self, username: &str) {
        self.change_tokens(|tokens| tokens.invalidate_user(username));
    }

    /// Returns the caller of a token, or what has to be applied first. `applied` is the applied
    /// index.
    ///
    /// # Errors
    /// [`EtcdError::InvalidAuthToken`].
    pub fn check_token(&self, token: &str, applied: LogIndex) -> Result<TokenCheck, EtcdError> {
        // Before the look-up: a user that is deleted after it has an old revision then.
        let revision = self.state().revision();
        let invalid = EtcdError::InvalidAuthToken;
        match &self.tokens {
            Tokens::Simple(tokens) => {
                let TokenIndex(index) = TokenIndex::of(token).ok_or(invalid)?;
                let index = LogIndex(index);
                if index > applied {
                    return Ok(TokenCheck::AfterIndex(index));
                }
                let tokens = tokens.read().unwrap_or_else(PoisonError::into_inner);
                let username = tokens.user_of(token, self.now_ms()).ok_or(invalid)?;
                Ok(TokenCheck::Valid(Caller::new(username, revision)))
            }
            Tokens::Jwt(tokens) => {
                let claims = tokens.verify(token, since_1970()).map_err(|_| invalid)?;
                let caller = Caller::new(claims.username, claims.revision);
                Ok(TokenCheck::Valid(caller))
            }
            Tokens::None => Err(invalid),
        }
    }

    /// The token that the client of a login gets: the simple token, or a signed one.
    ///
    /// # Errors
    /// If tokens cannot be signed.
    pub fn token_of_login(
        &self,
        simple_token: String,
        username: &str,
        revision: u64,
    ) -> Result<String, String> {
        match &self.tokens {
            Tokens::Simple(_) => Ok(simple_token),
            Tokens::Jwt(tokens) => {
                let signed = tokens.sign(username, revision, since_1970());
                signed.map_err(|error| error.to_string())
            }
            Tokens::None => Ok(String::new()),
        }
    }

    /// Whether logins need random letters for the log.
    pub fn has_simple_tokens(&self) -> bool {
        matches!(self.tokens, Tokens::Simple(_))
    }

    fn change_tokens(&self, change: impl FnOnce(&mut SimpleTokens)) {
        if let Tokens::Simple(tokens) = &self.tokens {
            change(&mut tokens.write().unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

fn since_1970() -> Duration {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default()
}

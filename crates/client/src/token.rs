//! The identity of a client: its credentials, and the token that it sends with its calls.
//!
//! ```text
//!   no token yet ──first call, or log_in──▶ token ──┐ the server refuses the token, or its auth
//!        │                                    ▲     │ revision is old, or a stream is opened
//!        │ "authentication is not enabled"    └─────┘
//!        └──────────▶ calls without a token
//! ```
//!
//! The rules are those of etcd's Go client. A fixed token, such as a JWT, is sent as given and never
//! renewed. Passwords and tokens never appear in debug output.

use std::error::Error;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::AuthenticateRequest;
use portunus_proto::etcdserverpb::auth_client::AuthClient;
use tokio::time::timeout;
use tonic::Code;
use tonic::metadata::{Ascii, MetadataValue};

use crate::calls;
use crate::connection::Client;
use crate::error::{ClientError, ConnectError};

/// Proof of a client's identity.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// A user and its password, exchanged for a token.
    Password {
        /// The user name.
        user: String,
        /// The password.
        password: String,
    },
    /// A token that was issued elsewhere, such as a JWT.
    Token(String),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Password { user, .. } => write!(formatter, "Password {{ user: {user:?}, .. }}"),
            Self::Token(_) => formatter.write_str("Token(..)"),
        }
    }
}

/// The credentials of a client and its current token; shared by its clones.
#[derive(Debug)]
pub(crate) struct Identity {
    credentials: Option<Credentials>,
    state: Mutex<State>,
    /// Held while a token is requested, so that calls that fail together request one token.
    renewal: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// `None` before the first request for a token, and if the server has authentication disabled.
    token: Option<MetadataValue<Ascii>>,
    /// The number of answered requests for a token.
    generation: u64,
}

impl Identity {
    /// An identity without a token, unless the credentials are one.
    ///
    /// # Errors
    /// If the token cannot be sent.
    pub(crate) fn new(credentials: Option<Credentials>) -> Result<Identity, ConnectError> {
        let token = match &credentials {
            Some(Credentials::Token(token)) => {
                Some(metadata_value(token).ok_or(ConnectError::Token)?)
            }
            _ => None,
        };
        let state = State {
            token,
            generation: 0,
        };
        Ok(Identity {
            credentials,
            state: Mutex::new(state),
            renewal: tokio::sync::Mutex::new(()),
        })
    }

    /// Returns the token to send.
    pub(crate) fn token(&self) -> Option<MetadataValue<Ascii>> {
        self.state().token.clone()
    }

    /// Returns the number of tokens received, which identifies the current one.
    pub(crate) fn generation(&self) -> u64 {
        self.state().generation
    }

    /// Returns whether a call that failed with this error may succeed with a new token, or, for a
    /// client that its certificate identifies, at the new auth revision.
    pub(crate) fn may_recover_from(&self, error: &ClientError) -> bool {
        let is_stale = |error| {
            matches!(
                error,
                EtcdError::InvalidAuthToken | EtcdError::AuthOldRevision
            )
        };
        match (&self.credentials, error.etcd()) {
            (Some(Credentials::Token(_)), _) => false,
            // Authentication was enabled after the token was requested.
            (Some(Credentials::Password { .. }), Some(EtcdError::UserEmpty)) => true,
            (_, Some(error)) => is_stale(error),
            _ => false,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the request for a token, unless the client has no password.
    fn request(&self) -> Option<AuthenticateRequest> {
        match &self.credentials {
            // As etcd's Go client: a user without a password is not authenticated.
            Some(Credentials::Password { user, password })
                if !user.is_empty() && !password.is_empty() =>
            {
                Some(AuthenticateRequest {
                    name: user.clone(),
                    password: password.clone(),
                })
            }
            _ => None,
        }
    }
}

/// Returns a token as the value of a header that is neither logged nor kept in compression tables.
fn metadata_value(token: &str) -> Option<MetadataValue<Ascii>> {
    let mut value: MetadataValue<Ascii> = token.parse().ok()?;
    value.set_sensitive(true);
    Some(value)
}

impl Client {
    /// Requests a token for the user and password of the options, within the dial timeout. Calls
    /// do it if necessary; this is for programs that report a refused password before anything
    /// else. Without a password nothing is sent.
    ///
    /// # Errors
    /// The server's error, or a timeout. A server with authentication disabled is no error.
    pub async fn log_in(&self) -> Result<(), ClientError> {
        let mut last_error = None;
        let outcome = timeout(
            self.options().dial_timeout,
            self.ensure_token(&mut last_error),
        )
        .await;
        outcome.unwrap_or_else(|_| Err(self.deadline_exceeded(last_error)))
    }

    /// Requests the first token.
    pub(crate) async fn ensure_token(
        &self,
        last_error: &mut Option<Box<dyn Error + Send + Sync>>,
    ) -> Result<(), ClientError> {
        match self.identity().generation() {
            0 => self.renew_token(0, last_error).await,
            _ => Ok(()),
        }
    }

    /// Requests a token for a new stream: the current one may expire unnoticed while the stream is
    /// open.
    pub(crate) async fn renew_token_for_stream(&self) -> Result<(), ClientError> {
        let current = self.identity().generation();
        self.renew_token(current, &mut None).await
    }

    /// Requests a token, unless another call has replaced the one with generation `seen` already.
    pub(crate) async fn renew_token(
        &self,
        seen: u64,
        last_error: &mut Option<Box<dyn Error + Send + Sync>>,
    ) -> Result<(), ClientError> {
        let identity = self.identity();
        let Some(request) = identity.request() else {
            return Ok(());
        };
        let _renewal = identity.renewal.lock().await;
        if identity.generation() != seen {
            return Ok(());
        }
        let authenticate = |channel| {
            let request = self.request_without_token(request.clone());
            async move { AuthClient::new(channel).authenticate(request).await }
        };
        let call = calls::AUTHENTICATE;
        let answer = self.attempts(call, &authenticate, last_error).await;
        let token = match answer {
            Ok(response) => Some(metadata_value(&response.token).ok_or(ClientError::Rpc {
                code: Code::Internal,
                message: "the server issued a token that cannot be sent in a header".to_owned(),
            })?),
            Err(ClientError::Etcd(EtcdError::AuthNotEnabled)) => None,
            Err(error) => return Err(error),
        };
        let mut state = identity.state();
        state.token = token;
        state.generation += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn password(user: &str, password: &str) -> Credentials {
        Credentials::Password {
            user: user.to_owned(),
            password: password.to_owned(),
        }
    }

    #[test]
    fn debug_output_has_no_secret() {
        for credentials in [
            password("root", "s3cret"),
            Credentials::Token("s3cret".to_owned()),
        ] {
            let identity = Identity::new(Some(credentials)).unwrap();
            let text = format!("{identity:?}");
            assert!(!text.contains("s3cret"), "{text}");
        }
    }

    #[test]
    fn fixed_token_is_sent_at_once_and_never_renewed() {
        let identity = Identity::new(Some(Credentials::Token("a.b.c".to_owned()))).unwrap();
        assert_eq!(identity.token().unwrap(), "a.b.c");
        assert_eq!(identity.request(), None);
        let refused = ClientError::Etcd(EtcdError::InvalidAuthToken);
        assert!(!identity.may_recover_from(&refused));
    }

    #[test]
    fn token_that_cannot_be_sent_is_refused() {
        let refused = Identity::new(Some(Credentials::Token("a\nb".to_owned()))).unwrap_err();
        assert!(matches!(refused, ConnectError::Token));
        assert!(!refused.to_string().contains("a\nb"));
    }

    #[test]
    fn user_without_a_password_requests_no_token() {
        for (user, secret) in [("", "x"), ("root", "")] {
            let identity = Identity::new(Some(password(user, secret))).unwrap();
            assert_eq!(identity.request(), None);
        }
    }

    #[test]
    fn errors_after_which_a_call_is_repeated_are_those_of_the_go_client() {
        let with_password = Identity::new(Some(password("u", "p"))).unwrap();
        let without = Identity::new(None).unwrap();
        for (error, by_password, by_certificate) in [
            (EtcdError::InvalidAuthToken, true, true),
            (EtcdError::AuthOldRevision, true, true),
            (EtcdError::UserEmpty, true, false),
            (EtcdError::PermissionDenied, false, false),
            (EtcdError::AuthFailed, false, false),
        ] {
            let error = ClientError::Etcd(error);
            assert_eq!(with_password.may_recover_from(&error), by_password);
            assert_eq!(without.may_recover_from(&error), by_certificate);
        }
    }
}

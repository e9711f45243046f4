//! Logins, and who sent a request.

use portunus_auth::{Caller, PasswordCheck, TOKEN_LETTERS, TOKEN_PREFIX_LETTERS};
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::{
    AuthenticateResponse, InternalAuthenticateRequest, InternalRaftRequest,
};
use portunus_statemachine::Response;
use tonic::Status;

use super::Member;
use crate::coarse_timeout::coarse_timeout;
use crate::handles::auth::TokenCheck;
use crate::handles::caller_limits::ClientAddress;

impl Member {
    /// Identifies the sender of a request by its token, else by the common name of its
    /// certificate. Without either, or without authentication, the caller is anonymous.
    pub async fn identify(
        &self,
        token: Option<&str>,
        common_name: Option<&str>,
    ) -> Result<Caller, EtcdError> {
        let state = self.auth.state();
        if !state.is_enabled() {
            return Ok(Caller::default());
        }
        let Some(token) = token else {
            let revision = state.revision();
            let by_name = |name: &str| Caller::new(name, revision);
            return Ok(common_name.map(by_name).unwrap_or_default());
        };
        drop(state);
        let applied = self.store.applied.index();
        let wanted = match self.auth.check_token(token, applied)? {
            TokenCheck::Valid(caller) => return Ok(caller),
            TokenCheck::AfterIndex(index) => index,
        };
        // A member that has applied the login handed out the token, so its index is committed.
        self.store.linearizable().await?;
        let applied = self.store.applied.index();
        if applied < wanted {
            return Err(EtcdError::InvalidAuthToken);
        }
        match self.auth.check_token(token, applied)? {
            TokenCheck::Valid(caller) => Ok(caller),
            TokenCheck::AfterIndex(_) => Err(EtcdError::InvalidAuthToken),
        }
    }

    /// Checks a password and assigns a token on every member.
    pub async fn log_in(
        &self,
        username: &str,
        password: &str,
        address: Option<ClientAddress>,
    ) -> Result<AuthenticateResponse, Status> {
        let attempts = self.log_in_attempts(username, password, address);
        let timeout = self.process.request_timeout();
        match coarse_timeout(timeout, attempts).await {
            Some(answer) => answer,
            None => Err(self.process.status(EtcdError::Timeout)),
        }
    }

    async fn log_in_attempts(
        &self,
        username: &str,
        password: &str,
        address: Option<ClientAddress>,
    ) -> Result<AuthenticateResponse, Status> {
        let status = |error| self.process.status(error);
        self.store.linearizable().await.map_err(status)?;
        loop {
            let checked_at = self.check_password(username, password, address).await?;
            let login = self.login_request(username.to_owned())?;
            let answer = self.proposals.propose(login).await.map_err(status)?;
            let Response::Authenticated {
                header,
                username,
                token,
                auth_revision,
            } = answer
            else {
                return Err(Status::internal("the response belongs to another request"));
            };
            // The password may have been changed between the check and the login.
            if auth_revision != checked_at {
                tracing::info!("revision when password checked became stale; retrying");
                continue;
            }
            let token = self.auth.token_of_login(token, &username, auth_revision);
            let token = token.map_err(Status::unknown)?;
            let mut header = Some(header);
            self.store.complete(&mut header);
            return Ok(AuthenticateResponse { header, token });
        }
    }

    /// Returns the revision of users and roles at which the password was right.
    async fn check_password(
        &self,
        username: &str,
        password: &str,
        address: Option<ClientAddress>,
    ) -> Result<u64, Status> {
        let check = self.auth.state().check_password(username);
        let (hash, revision) = match check.map_err(|error| self.process.status(error))? {
            PasswordCheck::Compare { hash, revision } => (Some(hash), revision),
            PasswordCheck::Pretend => (None, 0),
        };
        let matches = self.auth.passwords.matches(password.to_owned(), hash);
        if matches.await.map_err(|error| error.status())? {
            return Ok(revision);
        }
        self.auth.limits.login_failed(username, address);
        Err(self.process.status(EtcdError::AuthFailed))
    }

    fn login_request(&self, name: String) -> Result<InternalRaftRequest, Status> {
        let simple_token = match self.auth.has_simple_tokens() {
            true => {
                let passwords = &self.auth.passwords;
                let letters = passwords.random_letters(TOKEN_LETTERS, TOKEN_PREFIX_LETTERS);
                letters.map_err(|error| error.status())?
            }
            false => String::new(),
        };
        Ok(InternalRaftRequest {
            authenticate: Some(InternalAuthenticateRequest {
                name,
                simple_token,
                ..InternalAuthenticateRequest::default()
            }),
            ..InternalRaftRequest::default()
        })
    }
}

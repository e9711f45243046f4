//! Requests about users and roles.

use bytes::Bytes;
use portunus_auth::{Caller, full_token};
use portunus_mvcc::ApplyError;
use portunus_proto::LeaseId;
use portunus_proto::etcdserverpb::InternalAuthenticateRequest;

use super::StateMachine;
use crate::command::AuthCommand;
use crate::effect::{Applied, Effect, Response};
use crate::entry_error::EntryError;

impl StateMachine {
    pub(super) fn apply_auth(
        &mut self,
        index: u64,
        caller: &Caller,
        command: &AuthCommand,
    ) -> Result<Applied, EntryError> {
        match self.change_auth(index, caller, command) {
            Ok(applied) => Ok(applied),
            Err(error) => match error.refusal() {
                Some(refusal) => Ok(Applied {
                    answer: Err(refusal),
                    ..Applied::without_request()
                }),
                None => Err(EntryError::Store {
                    index,
                    source: error,
                }),
            },
        }
    }

    fn change_auth(
        &mut self,
        index: u64,
        caller: &Caller,
        command: &AuthCommand,
    ) -> Result<Applied, ApplyError> {
        match command {
            AuthCommand::Read => return Ok(Applied::without_request()),
            AuthCommand::Authenticate(login) => return self.apply_login(index, login),
            _ => self.auth.check_admin(caller)?,
        }
        let (auth, store) = (&mut self.auth, &mut self.store);
        let mut effects = vec![Effect::AuthChanged];
        match command {
            AuthCommand::Read | AuthCommand::Authenticate(_) => {}
            AuthCommand::Enable => auth.enable(store)?,
            AuthCommand::Disable => auth.disable(store)?,
            AuthCommand::UserAdd(request) => auth.user_add(store, request)?,
            AuthCommand::UserDelete(request) => {
                auth.user_delete(store, request)?;
                effects.push(invalidated(&request.name));
            }
            AuthCommand::UserChangePassword(request) => {
                auth.user_change_password(store, request)?;
                effects.push(invalidated(&request.name));
            }
            AuthCommand::UserGrantRole(request) => auth.user_grant_role(store, request)?,
            AuthCommand::UserRevokeRole(request) => auth.user_revoke_role(store, request)?,
            AuthCommand::RoleAdd(request) => auth.role_add(store, request)?,
            AuthCommand::RoleDelete(request) => auth.role_delete(store, request)?,
            AuthCommand::RoleGrantPermission(request) => {
                auth.role_grant_permission(store, request)?;
            }
            AuthCommand::RoleRevokePermission(request) => {
                auth.role_revoke_permission(store, request)?;
            }
        }
        Ok(Applied {
            answer: Ok(Response::AuthChanged(self.revision_header())),
            effects,
            ..Applied::without_request()
        })
    }

    /// Assigns the token of a login. The member that proposed it has checked the password.
    fn apply_login(
        &mut self,
        index: u64,
        login: &InternalAuthenticateRequest,
    ) -> Result<Applied, ApplyError> {
        self.auth.check_login(&login.name)?;
        let token = full_token(&login.simple_token, index);
        let assigned = Effect::TokenAssigned {
            username: login.name.clone(),
            token: token.clone(),
        };
        Ok(Applied {
            answer: Ok(Response::Authenticated {
                header: self.revision_header(),
                username: login.name.clone(),
                token,
                auth_revision: self.auth.revision(),
            }),
            effects: vec![assigned],
            ..Applied::without_request()
        })
    }

    /// The keys of a lease; none if it does not exist.
    pub(super) fn leased_keys(&self, lease: LeaseId) -> Vec<Bytes> {
        match self.lessor.lock().exists(lease) {
            true => self.store.keys_of(lease).cloned().collect(),
            false => Vec::new(),
        }
    }
}

fn invalidated(username: &str) -> Effect {
    Effect::UserTokensInvalidated {
        username: username.to_owned(),
    }
}

//! Authentication and authorisation of calls.
//!
//! ```text
//!  metadata, certificate ─▶ Caller ─▶ rule of the RPC (access.rs) ─▶ keys of the request
//! ```
//! A member may lag behind, so a refusal is repeated with the newest state before the client gets
//! it. Writes are checked once more when they are applied. A read is checked again after it if
//! users or roles have changed meanwhile.

use std::sync::Arc;

use portunus_auth::{AuthState, Caller};
use portunus_gates::cluster::MemberId;
use portunus_proto::EtcdError;
use portunus_proto::wire::metadata::{AUTHORIZATION, GATEWAY_ACCEPT, TOKEN};
use portunus_tls::ClientCertificate;
use tonic::metadata::MetadataMap;
use tonic::{Extensions, Status};

use super::Api;
use super::access::{Access, Rpc};
use crate::handles::caller_limits::ClientAddress;

const BEARER: &str = "Bearer ";

/// A permitted call: its caller, and when it was permitted.
#[derive(Debug)]
pub(crate) struct Permit {
    pub(super) caller: Caller,
    pub(super) generation: u64,
}

/// The token of a request; `None` without one. A token that is no text is invalid.
fn token(metadata: &MetadataMap) -> Result<Option<&str>, EtcdError> {
    let value = metadata.get(TOKEN).or_else(|| metadata.get(AUTHORIZATION));
    let Some(value) = value else {
        return Ok(None);
    };
    let text = std::str::from_utf8(value.as_bytes());
    let text = text.map_err(|_| EtcdError::InvalidAuthToken)?;
    Ok(Some(text.strip_prefix(BEARER).unwrap_or(text)))
}

/// The common name of the certificate of a request; `None` without one. The gateway of etcd
/// forwards requests of others with its own certificate, so that certificate is no identity.
fn common_name<'a>(metadata: &MetadataMap, extensions: &'a Extensions) -> Option<&'a str> {
    let certificate = extensions.get::<Arc<ClientCertificate>>()?;
    let name = certificate.common_name.as_str();
    let is_forwarded = metadata.contains_key(GATEWAY_ACCEPT);
    (!name.is_empty() && !is_forwarded).then_some(name)
}

/// The refusal of a caller that is over a limit.
pub(super) fn too_many_requests() -> Status {
    Status::resource_exhausted(EtcdError::TooManyRequests.text())
}

/// Checks that a read uses the users and roles by which its caller was identified. etcd checks it
/// after each read, also if the request names no key.
pub(super) fn check_current(auth: &AuthState, caller: &Caller) -> Result<(), EtcdError> {
    match caller.revision() == 0 || caller.revision() == auth.revision() {
        true => Ok(()),
        false => Err(EtcdError::AuthOldRevision),
    }
}

impl Api {
    /// Identifies the caller and checks the rule of the RPC. For [`Access::Keys`] and
    /// [`Access::Depends`] the service checks the rest with [`Api::permit`].
    pub(crate) async fn authorize(
        &self,
        rpc: Rpc,
        metadata: &MetadataMap,
        extensions: &Extensions,
    ) -> Result<Permit, Status> {
        let caller = self.identify(metadata, extensions).await?;
        match rpc.access() {
            Access::Public | Access::Keys(_) | Access::Depends(_) => Ok(Permit {
                caller,
                generation: self.member.auth.generation(),
            }),
            Access::Authenticated => self.permit(caller, AuthState::check_authenticated).await,
            Access::Root => {
                self.catch_up_before_administration().await;
                self.permit(caller, AuthState::check_admin).await
            }
        }
    }

    /// Applies what is committed before a caller is checked for the role `root`: most calls that
    /// need it are not checked again at apply, and a member that lags behind may not know that the
    /// role was revoked. Without a leader the applied state decides, because an administrator must
    /// be able to save a snapshot of a member that has lost its quorum.
    async fn catch_up_before_administration(&self) {
        let has_leader = self.member.consensus.status().leader != MemberId::NONE;
        if has_leader && self.member.auth.state().is_enabled() {
            let _ = self.member.store.linearizable().await;
        }
    }

    /// Identifies the sender of a request.
    pub(super) async fn identify(
        &self,
        metadata: &MetadataMap,
        extensions: &Extensions,
    ) -> Result<Caller, Status> {
        if !self.member.auth.state().is_enabled() {
            return Ok(Caller::default());
        }
        let address = extensions.get::<ClientAddress>().copied();
        let token = token(metadata);
        let client = &self.member.process.config.tls.client;
        let common_name = match client.client_cert_auth {
            true => common_name(metadata, extensions),
            false => None,
        };
        let caller = match token {
            Ok(token) => self.member.identify(token, common_name).await,
            Err(error) => Err(error),
        };
        let is_identified = caller.as_ref().is_ok_and(|caller| !caller.is_anonymous());
        if !is_identified && !self.member.auth.limits.allow_unauthenticated(address) {
            return Err(too_many_requests());
        }
        caller.map_err(|error| self.refuse(error))
    }

    /// Checks a caller. Before it is refused, this member applies what is committed: the refusal
    /// must not depend on the member that gives it.
    pub(super) async fn permit(
        &self,
        caller: Caller,
        check: impl Fn(&AuthState, &Caller) -> Result<(), EtcdError>,
    ) -> Result<Permit, Status> {
        let auth = &self.member.auth;
        let generation = auth.generation();
        let first = check(&auth.state(), &caller);
        let Err(refusal) = first else {
            return Ok(Permit { caller, generation });
        };
        if self.member.store.linearizable().await.is_err() {
            return Err(self.refuse(refusal));
        }
        let generation = auth.generation();
        match check(&auth.state(), &caller) {
            Ok(()) => Ok(Permit { caller, generation }),
            Err(refusal) => Err(self.refuse(refusal)),
        }
    }

    /// Checks after a read that its permission still held when it was made: nothing that was
    /// written after a permission was revoked is sent.
    pub(super) fn confirm(
        &self,
        permit: &Permit,
        check: impl Fn(&AuthState, &Caller) -> Result<(), EtcdError>,
    ) -> Result<(), Status> {
        let auth = &self.member.auth;
        if auth.generation() == permit.generation {
            return Ok(());
        }
        let state = auth.state();
        let revision = permit.caller.revision();
        if revision != 0 && revision != state.revision() {
            return Err(self.refuse(EtcdError::AuthOldRevision));
        }
        check(&state, &permit.caller).map_err(|refusal| self.refuse(refusal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_taken_from_either_key_and_without_its_prefix() {
        let mut metadata = MetadataMap::new();
        assert_eq!(token(&metadata), Ok(None));
        metadata.insert(AUTHORIZATION, "Bearer abc".parse().unwrap());
        assert_eq!(token(&metadata), Ok(Some("abc")));
        metadata.insert(TOKEN, "def".parse().unwrap());
        assert_eq!(token(&metadata), Ok(Some("def")));
    }
}

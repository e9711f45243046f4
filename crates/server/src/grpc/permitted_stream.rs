//! A response stream that ends when its caller loses the permission for its RPC.
//!
//! Snapshots and watches of gates use it. Watches of keys do not: the watch hub cancels them, because
//! each has a range of its own and events before the change must still arrive.

use std::pin::Pin;
use std::task::{Context, Poll};

use portunus_auth::{AuthState, Caller};
use portunus_features::WatchPermissionRecheck;
use portunus_proto::EtcdError;
use tokio_stream::Stream;
use tokio_stream::wrappers::WatchStream;
use tonic::Status;

use super::Api;
use super::access::{Access, Rpc};
use super::authorize::Permit;

/// The responses of an RPC as long as its caller is permitted.
pub(super) struct PermittedStream<S> {
    api: Api,
    rpc: Rpc,
    permit: Permit,
    /// Wakes the stream after each change of users and roles; `None` without the gate.
    changes: Option<WatchStream<()>>,
    /// `None` after the permission was lost: what produces the responses has ended.
    responses: Option<S>,
}

impl Api {
    /// Ends `responses` with an error when the caller of `permit` loses the permission for the
    /// RPC, unless the gate `WatchPermissionRecheck` is off.
    pub(super) fn while_permitted<S>(
        &self,
        rpc: Rpc,
        permit: Permit,
        responses: S,
    ) -> PermittedStream<S> {
        let is_rechecked = self.member.process.gates.enabled(WatchPermissionRecheck);
        PermittedStream {
            api: self.clone(),
            rpc,
            permit,
            changes: is_rechecked.then(|| self.member.auth.changes()),
            responses: Some(responses),
        }
    }
}

/// Returns whether the caller of a running stream may still get responses. The revision of the
/// caller does not count: other users and roles may change while the stream runs.
fn is_permitted(state: &AuthState, rpc: Rpc, caller: &Caller) -> bool {
    match rpc.access() {
        _ if !state.is_enabled() => true,
        Access::Public => true,
        Access::Authenticated => state.user(caller.username()).is_some(),
        // No stream with rules for keys uses this; a new one must not get more than the rest.
        Access::Root | Access::Keys(_) | Access::Depends(_) => state.check_admin(caller).is_ok(),
    }
}

impl<S> PermittedStream<S> {
    /// Checks the permission if users or roles have changed since the last check.
    fn check(&mut self, context: &mut Context<'_>) -> Result<(), Status> {
        let Some(changes) = &mut self.changes else {
            return Ok(());
        };
        // Every change is taken, so that the next one wakes the stream.
        while let Poll::Ready(Some(())) = Pin::new(&mut *changes).poll_next(context) {}
        let auth = &self.api.member.auth;
        let generation = auth.generation();
        if generation == self.permit.generation {
            return Ok(());
        }
        if !is_permitted(&auth.state(), self.rpc, &self.permit.caller) {
            return Err(self.api.refuse(EtcdError::PermissionDenied));
        }
        self.permit.generation = generation;
        Ok(())
    }
}

impl<T, S> Stream for PermittedStream<S>
where
    S: Stream<Item = Result<T, Status>> + Unpin,
{
    type Item = Result<T, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.responses.is_none() {
            return Poll::Ready(None);
        }
        if let Err(status) = this.check(context) {
            this.responses = None;
            tracing::info!(
                user = this.permit.caller.username(),
                rpc = this.rpc.path(),
                "stream ended: its user is not permitted any more"
            );
            return Poll::Ready(Some(Err(status)));
        }
        match &mut this.responses {
            Some(responses) => Pin::new(responses).poll_next(context),
            None => Poll::Ready(None),
        }
    }
}

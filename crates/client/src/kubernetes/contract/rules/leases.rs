//! Rules about leases of keys.

use std::time::Duration;

use bytes::Bytes;

use crate::kubernetes::contract::context::{Checked, Context, deleted, demand, demand_eq};
use crate::kubernetes::{Error, PutOptions};

/// Longer than a check takes: leases end because they are revoked.
const TTL: Duration = Duration::from_secs(600);
/// The attempts to revoke a lease during a put.
const RACES: usize = 10;

pub(super) async fn lease_is_replaced_and_cleared(context: &Context<'_>) -> Checked {
    let first = context.control.grant_lease(TTL).await?;
    let second = context.control.grant_lease(TTL).await?;
    let revision = context.put_with_lease("a", "1", 0, first).await?;
    demand_eq!(
        context.existing("a").await?.lease,
        first,
        "the lease of a key"
    );
    let revision = context.put_with_lease("a", "2", revision, second).await?;
    demand_eq!(
        context.existing("a").await?.lease,
        second,
        "the lease of a key after it was replaced"
    );
    context.control.revoke_lease(first).await?;
    demand!(
        context.get("a").await?.kv.is_some(),
        "a lease that was replaced deleted the key"
    );
    context.update("a", "3", revision).await?;
    demand_eq!(
        context.existing("a").await?.lease,
        0,
        "the lease of a key after a put without one"
    );
    context.control.revoke_lease(second).await?;
    demand!(
        context.get("a").await?.kv.is_some(),
        "a lease that was removed from its key deleted the key"
    );
    Ok(())
}

pub(super) async fn lease_must_exist(context: &Context<'_>) -> Checked {
    let lease = context.control.grant_lease(TTL).await?;
    context.control.revoke_lease(lease).await?;
    let options = PutOptions {
        lease_id: lease,
        ..PutOptions::default()
    };
    let key = context.key("a");
    let put = context
        .store
        .optimistic_put(&key, Bytes::new(), 0, options.clone());
    let put = put.await;
    demand!(
        matches!(put, Err(Error::LeaseNotFound)),
        "a put with an unknown lease returned {put:?}"
    );
    demand!(
        context.get("a").await?.kv.is_none(),
        "a put with an unknown lease wrote the key"
    );
    let mismatch = context.store.optimistic_put(&key, Bytes::new(), 1, options);
    demand!(
        !mismatch.await?.succeeded,
        "a put with another expected revision succeeded"
    );
    Ok(())
}

pub(super) async fn lease_deletes_its_keys(context: &Context<'_>) -> Checked {
    let lease = context.control.grant_lease(TTL).await?;
    for name in ["a", "b"] {
        context.put_with_lease(name, "1", 0, lease).await?;
    }
    let last = context.create("c", "1").await?;
    let mut watch = context.watch(last).await?;
    context.control.revoke_lease(lease).await?;
    let mut lines = watch.lines(2).await?;
    lines.sort();
    let revision = context.get("a").await?.revision;
    let expected = |at| [deleted("a", "1", at), deleted("b", "1", at)];
    let is_one_revision = (last + 1..=revision).any(|at| lines == expected(at));
    demand!(
        is_one_revision,
        "a revoked lease of two keys caused {lines:?}, which are not two deletions in one revision"
    );
    for (name, exists) in [("a", false), ("b", false), ("c", true)] {
        let kv = context.get(name).await?.kv;
        demand_eq!(
            kv.is_some(),
            exists,
            "whether {name:?} exists after its lease was revoked"
        );
    }
    Ok(())
}

pub(super) async fn lease_revoked_during_put(context: &Context<'_>) -> Checked {
    for round in 0..RACES {
        let name = round.to_string();
        let lease = context.control.grant_lease(TTL).await?;
        let options = PutOptions {
            lease_id: lease,
            ..PutOptions::default()
        };
        let key = context.key(&name);
        let put = context.store.optimistic_put(&key, Bytes::new(), 0, options);
        // Alternately, because the first one is often faster.
        let (put, revoked) = match round % 2 {
            0 => tokio::join!(put, context.control.revoke_lease(lease)),
            _ => {
                let (revoked, put) = tokio::join!(context.control.revoke_lease(lease), put);
                (put, revoked)
            }
        };
        revoked?;
        match put {
            Ok(put) => demand!(put.succeeded, "a create of a new key did not succeed"),
            Err(Error::LeaseNotFound) => {}
            Err(error) => return Err(error.into()),
        }
        let left = context.get(&name).await?.kv;
        demand!(
            left.is_none(),
            "a key has a lease that was revoked: {left:?}"
        );
    }
    Ok(())
}

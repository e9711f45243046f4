//! Rules about reads of one key.

use bytes::Bytes;

use crate::kubernetes::contract::context::{Checked, Context, demand, demand_eq};
use crate::kubernetes::{Error, GetOptions, KeyValue, PutOptions};

/// A value that is larger than one frame of HTTP/2.
const LARGE_VALUE_BYTES: usize = 256 * 1024;

pub(super) async fn get_returns_pair_or_nothing(context: &Context<'_>) -> Checked {
    let absent = context.get("a").await?;
    demand!(
        absent.kv.is_none(),
        "a key that was never written exists: {:?}",
        absent.kv
    );
    demand!(
        absent.revision > 0,
        "a get has revision {}",
        absent.revision
    );
    let revision = context.create("a", "1").await?;
    let read = context.get("a").await?;
    let expected = KeyValue {
        key: context.key("a"),
        value: "1".into(),
        mod_revision: revision,
        create_revision: revision,
        version: 1,
        lease: 0,
    };
    demand_eq!(read.kv, Some(expected), "a get after a create");
    demand!(
        read.revision >= revision,
        "a get after revision {revision} has revision {}",
        read.revision
    );
    Ok(())
}

pub(super) async fn get_is_linearizable(context: &Context<'_>) -> Checked {
    let mut revision = context.create("a", "0").await?;
    for round in 1..=20 {
        revision = context.update("a", &round.to_string(), revision).await?;
        let probe = context.get("never-written").await?;
        demand!(
            probe.revision >= revision,
            "a read after the write of revision {revision} has revision {}",
            probe.revision
        );
    }
    Ok(())
}

pub(super) async fn get_reads_history(context: &Context<'_>) -> Checked {
    let first = context.create("a", "1").await?;
    let second = context.update("a", "2", first).await?;
    let gone = context.delete("a", second).await?;
    for (revision, expected) in [(first, Some(&b"1"[..])), (second, Some(b"2")), (gone, None)] {
        let read = context.get_at("a", revision).await?;
        let value = read.kv.map(|kv| kv.value);
        let expected = expected.map(Bytes::from_static);
        demand_eq!(value, expected, "the value at revision {revision}");
        demand!(
            read.revision >= gone,
            "a get at revision {revision} has revision {} instead of the newest one, {gone}",
            read.revision
        );
    }
    let before = context.get_at("a", first - 1).await?.kv;
    demand!(
        before.is_none(),
        "the key exists before it was created: {before:?}"
    );
    Ok(())
}

pub(super) async fn get_refuses_future_revision(context: &Context<'_>) -> Checked {
    let newest = context.create("a", "1").await?;
    let options = GetOptions {
        revision: newest + 1_000_000,
    };
    let read = context.store.get(&context.key("a"), options).await;
    demand!(
        matches!(read, Err(Error::FutureRevision)),
        "a get at a future revision returned {read:?}"
    );
    Ok(())
}

pub(super) async fn get_refuses_compacted_revision(context: &Context<'_>) -> Checked {
    let first = context.create("a", "1").await?;
    let second = context.update("a", "2", first).await?;
    context.update("a", "3", second).await?;
    context.control.compact(second).await?;
    let options = GetOptions { revision: first };
    let read = context.store.get(&context.key("a"), options).await;
    demand!(
        matches!(read, Err(Error::Compacted { .. })),
        "a get at a compacted revision returned {read:?}"
    );
    let kept = context.get_at("a", second).await?.kv.map(|kv| kv.value);
    demand_eq!(kept, Some("2".into()), "the value at the compact revision");
    Ok(())
}

pub(super) async fn values_are_opaque(context: &Context<'_>) -> Checked {
    let all_bytes: Vec<u8> = (0..=u8::MAX).collect();
    let values = [
        Bytes::new(),
        Bytes::from(all_bytes.clone()),
        Bytes::from(vec![0xff; LARGE_VALUE_BYTES]),
    ];
    for (index, value) in values.into_iter().enumerate() {
        let mut key = context.key(&index.to_string()).to_vec();
        key.extend(&all_bytes);
        let put = context
            .store
            .optimistic_put(&key, value.clone(), 0, PutOptions::default());
        demand!(
            put.await?.succeeded,
            "a create of a key of any bytes did not succeed"
        );
        let read = context.store.get(&key, GetOptions::default()).await?;
        let Some(kv) = read.kv else {
            demand!(
                false,
                "a key of any bytes does not exist after it was written"
            );
            return Ok(());
        };
        demand!(kv.key == key, "a key of any bytes was changed");
        demand!(
            kv.value == value,
            "a value of {} bytes was changed",
            value.len()
        );
    }
    Ok(())
}

//! The rules of leases, one test each.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use portunus_mvcc::lease::{
    CHECKPOINT_BATCH_MAX, Lessor, LessorConfig, Renewal, TTL_S_MAX, TimeToLive, decode_record,
    encode_record, record_key,
};
use portunus_proto::{EtcdError, LeaseId, Term, leasepb};

/// The term in which the lessor is primary.
const TERM: Term = Term(7);
/// The term after it.
const NEXT_TERM: Term = Term(8);

const CHECKPOINTING: LessorConfig = LessorConfig {
    min_ttl_s: 2,
    revoke_rate_per_s: 1000,
    retry_interval_ms: 3000,
    checkpoint_interval_s: Some(300),
};

fn primary(config: LessorConfig) -> Lessor {
    let mut lessor = Lessor::new(config);
    lessor.promote(TERM, 0, 0);
    lessor
}

fn remaining(lessor: &Lessor, id: LeaseId, now_ms: u64) -> i64 {
    lessor
        .time_to_live(Some(TERM), id, now_ms)
        .unwrap()
        .remaining_s
}

#[test]
fn grant_is_refused_in_the_cases_and_order_of_etcd() {
    let mut lessor = primary(LessorConfig::default());
    assert_eq!(
        lessor.grant(LeaseId::NONE, 10, 0),
        Err(EtcdError::LeaseNotFound)
    );
    assert_eq!(
        lessor.grant(LeaseId(1), TTL_S_MAX + 1, 0),
        Err(EtcdError::LeaseTtlTooLarge)
    );
    assert_eq!(
        lessor.grant(LeaseId(1), TTL_S_MAX, 0).unwrap().ttl,
        TTL_S_MAX
    );
    assert_eq!(lessor.grant(LeaseId(1), 10, 0), Err(EtcdError::LeaseExists));
    // The time to live is checked before the id.
    assert_eq!(
        lessor.grant(LeaseId(1), TTL_S_MAX + 1, 0),
        Err(EtcdError::LeaseTtlTooLarge)
    );
    for (id, ttl_s) in [(2, 1), (3, 0), (-4, -5)] {
        let record = lessor.grant(LeaseId(id), ttl_s, 0).unwrap();
        assert_eq!(
            (record.id, record.ttl, record.remaining_ttl),
            (id, 2, 0),
            "raised"
        );
        assert!(lessor.exists(LeaseId(id)));
    }
}

#[test]
fn time_to_live_counts_down_in_whole_seconds() {
    let mut lessor = primary(LessorConfig::default());
    lessor.grant(LeaseId(1), 10, 500).unwrap();
    let answer = lessor.time_to_live(Some(TERM), LeaseId(1), 1000).unwrap();
    assert_eq!(
        answer,
        TimeToLive {
            remaining_s: 9,
            granted_ttl_s: 10
        }
    );
    assert_eq!(remaining(&lessor, LeaseId(1), 10_499), 0);
    assert_eq!(
        remaining(&lessor, LeaseId(1), 12_600),
        -2,
        "over, but not revoked"
    );
    assert_eq!(
        lessor.time_to_live(Some(TERM), LeaseId(2), 0),
        Err(EtcdError::LeaseNotFound)
    );
    lessor.demote(TERM);
    assert_eq!(
        lessor.time_to_live(Some(TERM), LeaseId(1), 0),
        Err(EtcdError::LeaderChanged)
    );
}

#[test]
fn renew_needs_the_primary_and_an_unexpired_lease() {
    let mut lessor = Lessor::new(LessorConfig::default());
    lessor.grant(LeaseId(1), 10, 0).unwrap();
    assert_eq!(
        lessor.renew(TERM, LeaseId(1), 0),
        Err(EtcdError::NotPrimaryLessor)
    );
    lessor.promote(TERM, 0, 0);
    assert_eq!(
        lessor.renew(TERM, LeaseId(2), 0),
        Err(EtcdError::LeaseNotFound)
    );
    assert_eq!(
        lessor.renew(TERM, LeaseId(1), 9999),
        Ok(Renewal::Renewed { ttl_s: 10 })
    );
    assert_eq!(remaining(&lessor, LeaseId(1), 9999), 10);
    assert_eq!(
        lessor.renew(TERM, LeaseId(1), 19_999),
        Ok(Renewal::AwaitRevoke)
    );
    lessor.revoke(LeaseId(1)).unwrap();
    assert_eq!(
        lessor.renew(TERM, LeaseId(1), 19_999),
        Err(EtcdError::LeaseNotFound)
    );
    assert_eq!(lessor.revoke(LeaseId(1)), Err(EtcdError::LeaseNotFound));
}

#[test]
fn due_returns_leases_by_expiry_and_again_if_not_revoked() {
    let mut lessor = primary(LessorConfig::default());
    for (id, ttl_s) in [(1, 30), (2, 10), (3, 20), (4, 40)] {
        lessor.grant(LeaseId(id), ttl_s, 0).unwrap();
    }
    let _ = lessor.renew(TERM, LeaseId(2), 5000).unwrap();
    assert_eq!(lessor.list(), [2, 3, 1, 4].map(LeaseId));
    assert!(lessor.due(TERM, 14_999, 9).is_empty());
    assert_eq!(lessor.due(TERM, 35_000, 2), [2, 3].map(LeaseId));
    assert_eq!(
        lessor.due(TERM, 35_000, 2),
        [LeaseId(1)],
        "those handed out wait"
    );
    lessor.revoke(LeaseId(3)).unwrap();
    assert!(lessor.due(TERM, 37_999, 9).is_empty());
    assert_eq!(lessor.due(TERM, 38_000, 9), [1, 2].map(LeaseId));
    lessor.demote(TERM);
    assert!(
        lessor.due(TERM, 100_000, 9).is_empty(),
        "only the primary keeps time"
    );
}

#[test]
fn promotion_restarts_every_lease_with_the_extension() {
    let mut lessor = Lessor::new(LessorConfig::default());
    lessor.grant(LeaseId(1), 10, 0).unwrap();
    lessor.grant(LeaseId(2), 500, 0).unwrap();
    lessor.checkpoint(LeaseId(2), 100, 0, false);
    lessor.promote(TERM, 1_000_000, 1500);
    assert_eq!(lessor.list(), [1, 2].map(LeaseId));
    assert!(lessor.due(TERM, 1_011_499, 9).is_empty());
    assert_eq!(lessor.due(TERM, 1_011_500, 9), [LeaseId(1)]);
    assert_eq!(
        remaining(&lessor, LeaseId(2), 1_000_000),
        101,
        "what the checkpoint left"
    );
}

#[test]
fn renewal_after_promotion_may_shorten_the_expiry() {
    let mut lessor = Lessor::new(LessorConfig::default());
    lessor.grant(LeaseId(1), 10, 0).unwrap();
    lessor.promote(TERM, 0, 60_000);
    let _ = lessor.renew(TERM, LeaseId(1), 1000).unwrap();
    assert!(lessor.due(TERM, 10_999, 9).is_empty());
    assert_eq!(lessor.due(TERM, 11_000, 9), [LeaseId(1)]);
}

#[test]
fn promotion_spreads_expiries_below_the_revoke_rate() {
    let mut lessor = Lessor::new(LessorConfig::default());
    for id in 1..=5000 {
        lessor.grant(LeaseId(id), 10, 0).unwrap();
    }
    lessor.promote(TERM, 0, 0);
    let mut ended = 0;
    for second in 1..=20 {
        let due = lessor.due(TERM, second * 1000, 100_000);
        let in_this_second = due.len();
        for id in due {
            lessor.revoke(id).unwrap();
        }
        assert!(in_this_second <= 751, "{in_this_second} in second {second}");
        assert!(
            second >= 10 || in_this_second == 0,
            "none earlier than promised"
        );
        ended += in_this_second;
    }
    assert_eq!(ended, 5000);
}

#[test]
fn promotion_does_not_spread_few_leases() {
    let mut lessor = Lessor::new(LessorConfig::default());
    for id in 1..1000 {
        lessor.grant(LeaseId(id), 10, 0).unwrap();
    }
    lessor.promote(TERM, 0, 0);
    assert_eq!(lessor.due(TERM, 10_000, 10_000).len(), 999);
}

#[test]
fn long_leases_are_checkpointed_once_per_interval() {
    let mut lessor = primary(CHECKPOINTING);
    lessor.grant(LeaseId(1), 1000, 0).unwrap();
    lessor.grant(LeaseId(2), 300, 0).unwrap();
    assert!(lessor.checkpoints_due(TERM, 299_999).is_empty());
    let batch = lessor.checkpoints_due(TERM, 300_000);
    assert_eq!(
        batch.len(),
        1,
        "a lease no longer than the interval is not worth it"
    );
    assert_eq!((batch[0].id, batch[0].remaining_ttl), (1, 700));
    assert!(lessor.checkpoints_due(TERM, 300_000).is_empty());
    assert_eq!(
        lessor.checkpoints_due(TERM, 600_500)[0].remaining_ttl,
        400,
        "rounded up"
    );
    assert_eq!(lessor.checkpoints_due(TERM, 900_500)[0].remaining_ttl, 100);
    assert!(
        lessor.checkpoints_due(TERM, 2_000_000).is_empty(),
        "too short, then over"
    );
}

#[test]
fn renewing_a_checkpointed_lease_requires_clearing_the_checkpoint() {
    let mut lessor = primary(CHECKPOINTING);
    lessor.grant(LeaseId(1), 1000, 0).unwrap();
    lessor.checkpoint(LeaseId(1), 700, 300_000, true);
    assert_eq!(
        lessor.renew(TERM, LeaseId(1), 310_000),
        Ok(Renewal::ClearCheckpointFirst)
    );
    assert_eq!(
        remaining(&lessor, LeaseId(1), 310_000),
        690,
        "nothing changed yet"
    );
    lessor.checkpoint(LeaseId(1), 0, 310_000, true);
    assert_eq!(
        lessor.renew(TERM, LeaseId(1), 310_000),
        Ok(Renewal::Renewed { ttl_s: 1000 })
    );
    assert_eq!(remaining(&lessor, LeaseId(1), 310_000), 1000);
}

#[test]
fn renewed_lease_is_checkpointed_again() {
    let mut lessor = primary(CHECKPOINTING);
    lessor.grant(LeaseId(1), 500, 0).unwrap();
    assert_eq!(lessor.checkpoints_due(TERM, 300_000)[0].remaining_ttl, 200);
    // The proposal was lost, so there is no checkpoint to clear.
    let _ = lessor.renew(TERM, LeaseId(1), 400_000).unwrap();
    assert_eq!(lessor.checkpoints_due(TERM, 700_000)[0].remaining_ttl, 200);
}

#[test]
fn checkpoints_due_are_limited_per_batch() {
    let mut lessor = primary(CHECKPOINTING);
    for id in 1..=2500 {
        lessor.grant(LeaseId(id), 1000, 0).unwrap();
    }
    let sizes: Vec<usize> = (0..4)
        .map(|_| lessor.checkpoints_due(TERM, 300_000).len())
        .collect();
    assert_eq!(sizes, [CHECKPOINT_BATCH_MAX, CHECKPOINT_BATCH_MAX, 500, 0]);
}

#[test]
fn disabled_checkpoints_are_never_due_and_do_not_affect_renewals() {
    let mut lessor = primary(LessorConfig::default());
    lessor.grant(LeaseId(1), 10_000, 0).unwrap();
    lessor.checkpoint(LeaseId(1), 50, 0, false);
    assert!(lessor.checkpoints_due(TERM, 9_000_000).is_empty());
    assert_eq!(
        lessor.renew(TERM, LeaseId(1), 1000),
        Ok(Renewal::Renewed { ttl_s: 10_000 })
    );
    assert_eq!(remaining(&lessor, LeaseId(1), 1000), 10_000);
}

#[test]
fn remaining_time_is_persisted_only_if_requested() {
    let mut lessor = primary(CHECKPOINTING);
    lessor.grant(LeaseId(1), 1000, 0).unwrap();
    assert_eq!(lessor.checkpoint(LeaseId(1), 700, 0, false), None);
    assert_eq!(lessor.record(LeaseId(1), false).unwrap().remaining_ttl, 0);
    let record = lessor.checkpoint(LeaseId(1), 600, 0, true).unwrap();
    assert_eq!(
        (record.id, record.ttl, record.remaining_ttl),
        (1, 1000, 600)
    );
    assert_eq!(
        lessor.checkpoint(LeaseId(9), 600, 0, true),
        None,
        "gone leases need none"
    );
}

#[test]
fn lease_records_equal_etcd_bytes_and_survive_a_restart() {
    let record = leasepb::Lease {
        id: 0x0102,
        ttl: 300,
        remaining_ttl: 7,
    };
    assert_eq!(record_key(LeaseId(0x0102)), [0, 0, 0, 0, 0, 0, 1, 2]);
    assert_eq!(
        encode_record(&record),
        [0x08, 0x82, 0x02, 0x10, 0xac, 0x02, 0x18, 0x07]
    );
    assert_eq!(decode_record(&encode_record(&record)).unwrap(), record);
    assert!(decode_record(&[0xff]).is_err());

    let mut lessor = primary(LessorConfig::default());
    lessor.grant(LeaseId(5), 10, 0).unwrap();
    let short = leasepb::Lease {
        id: 1,
        ttl: 1,
        remaining_ttl: 0,
    };
    lessor.recover([record, short]);
    assert_eq!(
        (
            lessor.len(),
            lessor.exists(LeaseId(5)),
            lessor.primary_term()
        ),
        (2, false, None)
    );
    assert_eq!(
        lessor.record(LeaseId(1), true).unwrap().ttl,
        2,
        "raised to the minimum"
    );
    lessor.promote(TERM, 0, 0);
    assert_eq!(remaining(&lessor, LeaseId(0x0102), 0), 7);
}

#[test]
fn lease_granted_again_does_not_inherit_times() {
    let mut lessor = primary(CHECKPOINTING);
    lessor.grant(LeaseId(1), 1000, 0).unwrap();
    lessor.revoke(LeaseId(1)).unwrap();
    lessor.grant(LeaseId(1), 2000, 100_000).unwrap();
    assert!(lessor.checkpoints_due(TERM, 300_000).is_empty());
    assert_eq!(lessor.checkpoints_due(TERM, 400_000)[0].remaining_ttl, 1700);
    assert!(lessor.due(TERM, 1_000_000, 9).is_empty());
    assert_eq!(lessor.due(TERM, 2_100_000, 9), [LeaseId(1)]);
}

/// The lessor of a former leader must neither revoke nor renew, whether the demotion or the
/// promotion arrives last.
#[test]
fn lessor_serves_only_the_term_it_is_primary_for() {
    let mut lessor = Lessor::new(CHECKPOINTING);
    lessor.grant(LeaseId(1), 1000, 0).unwrap();
    lessor.demote(TERM);
    lessor.promote(TERM, 0, 0);
    assert_eq!(lessor.primary_term(), None, "the term was already closed");

    lessor.promote(NEXT_TERM, 0, 0);
    lessor.demote(TERM);
    assert_eq!(
        lessor.primary_term(),
        Some(NEXT_TERM),
        "the demotion is for an older term"
    );
    let end_ms = 1_000_000;
    for other in [TERM, Term(9)] {
        assert!(lessor.due(other, end_ms, 9).is_empty());
        assert!(lessor.checkpoints_due(other, 300_000).is_empty());
        assert_eq!(
            lessor.renew(other, LeaseId(1), 0),
            Err(EtcdError::NotPrimaryLessor)
        );
        let left = lessor.time_to_live(Some(other), LeaseId(1), 0);
        assert_eq!(left, Err(EtcdError::LeaderChanged));
    }
    let unled = lessor.time_to_live(None, LeaseId(1), 0);
    assert_eq!(unled, Err(EtcdError::LeaderChanged));
    assert_eq!(lessor.due(NEXT_TERM, end_ms, 9), [LeaseId(1)]);
}

//! Any sequence of calls returns what a plain list of leases returns.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;

use portunus_mvcc::lease::{Lessor, LessorConfig, Renewal};
use portunus_proto::{EtcdError, LeaseId, Term};
use proptest::prelude::*;

const CONFIG: LessorConfig = LessorConfig {
    min_ttl_s: 2,
    revoke_rate_per_s: 1000,
    retry_interval_ms: 3000,
    checkpoint_interval_s: Some(5),
};

#[derive(Debug, Clone)]
enum Step {
    Grant { id: LeaseId, ttl_s: i64 },
    Revoke { id: LeaseId },
    Renew { id: LeaseId },
    Pass { ms: u64 },
    Due { leases_max: usize },
    Checkpoints,
    Checkpoint { id: LeaseId, remaining_s: i64 },
    Promote { extend_ms: u64 },
    Demote,
    Restart,
}

#[derive(Clone, Copy)]
struct ModelLease {
    ttl_s: i64,
    checkpointed_s: i64,
    expiry_ms: u64,
    /// When `due` may return the lease again.
    retry_ms: u64,
}

#[derive(Default)]
struct Model {
    leases: BTreeMap<LeaseId, ModelLease>,
    primary: bool,
    term: Term,
    now_ms: u64,
}

fn seconds(s: i64) -> u64 {
    u64::try_from(s).unwrap() * 1000
}

impl Model {
    fn run(&mut self, lessor: &mut Lessor, step: Step) {
        let now_ms = self.now_ms;
        match step {
            Step::Grant { id, ttl_s } => {
                let granted = lessor.grant(id, ttl_s, now_ms);
                if self.leases.contains_key(&id) {
                    assert_eq!(granted, Err(EtcdError::LeaseExists));
                    return;
                }
                let ttl_s = ttl_s.max(CONFIG.min_ttl_s);
                assert_eq!(granted.unwrap().ttl, ttl_s);
                let expiry_ms = now_ms + seconds(ttl_s);
                let lease = ModelLease {
                    ttl_s,
                    checkpointed_s: 0,
                    expiry_ms,
                    retry_ms: 0,
                };
                self.leases.insert(id, lease);
            }
            Step::Revoke { id } => {
                let gone = self.leases.remove(&id).is_some();
                assert_eq!(lessor.revoke(id).is_ok(), gone);
            }
            Step::Renew { id } => {
                let renewed = lessor.renew(self.term, id, now_ms);
                let expected = match self.leases.get_mut(&id) {
                    _ if !self.primary => Err(EtcdError::NotPrimaryLessor),
                    None => Err(EtcdError::LeaseNotFound),
                    Some(lease) if lease.expiry_ms <= now_ms => Ok(Renewal::AwaitRevoke),
                    Some(lease) if lease.checkpointed_s > 0 => Ok(Renewal::ClearCheckpointFirst),
                    Some(lease) => {
                        lease.expiry_ms = now_ms + seconds(lease.ttl_s);
                        Ok(Renewal::Renewed { ttl_s: lease.ttl_s })
                    }
                };
                assert_eq!(renewed, expected);
            }
            Step::Pass { ms } => self.now_ms += ms,
            Step::Due { leases_max } => {
                let mut due: Vec<(u64, LeaseId)> = self
                    .leases
                    .iter()
                    .map(|(id, lease)| (lease.expiry_ms.max(lease.retry_ms), *id))
                    .filter(|(due_ms, _)| self.primary && *due_ms <= now_ms)
                    .collect();
                due.sort_unstable();
                let due = due.into_iter().map(|(_, id)| id);
                let ids: Vec<LeaseId> = due.take(leases_max).collect();
                for id in &ids {
                    self.leases.get_mut(id).unwrap().retry_ms = now_ms + CONFIG.retry_interval_ms;
                }
                assert_eq!(lessor.due(self.term, now_ms, leases_max), ids);
            }
            Step::Checkpoints => {
                let batch = lessor.checkpoints_due(self.term, now_ms);
                assert!(self.primary || batch.is_empty());
                for checkpoint in batch {
                    let id = LeaseId(checkpoint.id);
                    let lease = self.leases.get_mut(&id).expect("unknown lease");
                    let left_ms = lease.expiry_ms - now_ms;
                    assert_eq!(
                        seconds(checkpoint.remaining_ttl),
                        left_ms.div_ceil(1000) * 1000
                    );
                    assert!(checkpoint.remaining_ttl > 0);
                    assert!(checkpoint.remaining_ttl < lease.ttl_s);
                }
            }
            Step::Checkpoint { id, remaining_s } => {
                let record = lessor.checkpoint(id, remaining_s, now_ms, true);
                let lease = self.leases.get_mut(&id);
                assert_eq!(record.is_some(), lease.is_some());
                if let Some(lease) = lease {
                    lease.checkpointed_s = remaining_s;
                }
            }
            Step::Promote { extend_ms } => {
                self.term = Term(self.term.0 + 1);
                lessor.promote(self.term, now_ms, extend_ms);
                self.primary = true;
                for lease in self.leases.values_mut() {
                    let life_s = match lease.checkpointed_s {
                        0 => lease.ttl_s,
                        left => left,
                    };
                    lease.expiry_ms = now_ms + extend_ms + seconds(life_s);
                    lease.retry_ms = 0;
                }
            }
            Step::Demote => {
                lessor.demote(self.term);
                // A late promotion, for a term that was already closed.
                lessor.promote(self.term, now_ms, 0);
                self.primary = false;
            }
            Step::Restart => {
                let records: Vec<_> = self
                    .leases
                    .keys()
                    .map(|id| lessor.record(*id, true).unwrap())
                    .collect();
                *lessor = Lessor::new(CONFIG);
                lessor.recover(records);
                self.primary = false;
            }
        }
        self.check(lessor);
    }

    fn check(&self, lessor: &Lessor) {
        assert_eq!(lessor.len(), self.leases.len());
        let mut order: Vec<(u64, LeaseId)> = self
            .leases
            .iter()
            .map(|(id, lease)| (if self.primary { lease.expiry_ms } else { 0 }, *id))
            .collect();
        order.sort_unstable();
        let order: Vec<LeaseId> = order.into_iter().map(|(_, id)| id).collect();
        assert_eq!(lessor.list(), order);
        for (id, lease) in &self.leases {
            let left = lessor.time_to_live(Some(self.term), *id, self.now_ms);
            if self.primary {
                let left_ms = lease.expiry_ms.cast_signed() - self.now_ms.cast_signed();
                let left = left.unwrap();
                assert_eq!(
                    (left.remaining_s, left.granted_ttl_s),
                    (left_ms / 1000, lease.ttl_s)
                );
            } else {
                assert_eq!(left, Err(EtcdError::LeaderChanged));
            }
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let id = (1i64..8).prop_map(LeaseId);
    prop_oneof![
        4 => (id.clone(), -1i64..20).prop_map(|(id, ttl_s)| Step::Grant { id, ttl_s }),
        2 => id.clone().prop_map(|id| Step::Revoke { id }),
        4 => id.clone().prop_map(|id| Step::Renew { id }),
        6 => (0u64..8000).prop_map(|ms| Step::Pass { ms }),
        6 => (0usize..5).prop_map(|leases_max| Step::Due { leases_max }),
        2 => Just(Step::Checkpoints),
        2 => (id, 0i64..20).prop_map(|(id, remaining_s)| Step::Checkpoint { id, remaining_s }),
        1 => (0u64..5000).prop_map(|extend_ms| Step::Promote { extend_ms }),
        1 => Just(Step::Demote),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Same results, order and times as the list.
    #[test]
    fn lessor_agrees_with_a_list_of_leases(steps in prop::collection::vec(step(), 1..100)) {
        let mut lessor = Lessor::new(CONFIG);
        let mut model = Model::default();
        for step in steps {
            model.run(&mut lessor, step);
        }
    }
}

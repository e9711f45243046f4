//! Benchmarks of a million leases: promotion, renewal, expiry.
//!
//! Compare runs on one machine only; absolute times depend on it.

#![allow(missing_docs, clippy::unwrap_used)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use portunus_mvcc::lease::{Lessor, LessorConfig};
use portunus_proto::{LeaseId, Term};

const LEASES: i64 = 1_000_000;
const TERM: Term = Term(1);

/// A primary lessor with distributed ids and times to live between one and ten minutes.
fn million() -> Lessor {
    let config = LessorConfig {
        checkpoint_interval_s: Some(300),
        ..LessorConfig::default()
    };
    let mut lessor = Lessor::new(config);
    for number in 1..=LEASES {
        lessor.grant(spread(number), 60 + number % 540, 0).unwrap();
    }
    lessor
}

fn spread(number: i64) -> LeaseId {
    LeaseId(number.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64.cast_signed()) | 1)
}

fn leases(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("lease");
    group.sample_size(10);

    let mut lessor = million();
    group.bench_function("promote_1m", |bencher| {
        bencher.iter(|| lessor.promote(TERM, black_box(0), 1500));
    });

    let mut number = 0;
    group.bench_function("renew_1_of_1m", |bencher| {
        bencher.iter(|| {
            number = number % LEASES + 1;
            black_box(lessor.renew(TERM, spread(number), 1000))
        });
    });

    group.bench_function("expire_500_of_1m", |bencher| {
        bencher.iter_custom(|rounds| {
            let mut spent = Duration::ZERO;
            for _ in 0..rounds {
                lessor.promote(TERM, 0, 0);
                let start = Instant::now();
                black_box(lessor.due(TERM, u64::MAX / 4, 500));
                spent += start.elapsed();
            }
            spent
        });
    });
    group.finish();
}

criterion_group!(benches, leases);
criterion_main!(benches);

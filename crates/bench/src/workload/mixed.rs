//! A mixed load, roughly as of a control plane: mostly reads, some updates, few lists and puts,
//! and one watch on all keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::kv::{RANGE_KEYS, expect_keys, get_any, put_any, range_any};
use super::txn::Updater;
use super::watch::Watcher;
use super::{Load, LoadOutcome, WorkloadError};
use crate::client::{self, RandomNumbers, VALUE_BYTES};
use crate::closed_loop::{Completion, Requester, closed_loop};
use crate::wire::{Connection, Method};

const GET_PERCENT: usize = 70;
const UPDATE_PERCENT: usize = 20;
const LIST_PERCENT: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Get,
    Update,
    List,
    Put,
}

pub(super) async fn run(load: &Load<'_>) -> Result<LoadOutcome, WorkloadError> {
    let keys = load.scale.hot_keys;
    client::fill(&load.endpoint, keys, VALUE_BYTES).await?;
    let events = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&events);
    let mut watcher = Watcher::open(Connection::open(&load.endpoint).await?, 1).await?;
    let watching = tokio::spawn(async move {
        let count = |count, _: Option<&[u8]>| {
            counted.fetch_add(count, Ordering::Relaxed);
        };
        watcher.read(count).await
    });
    let clients = (0..load.clients).map(|number| MixedRequester {
        part: Part::Get,
        numbers: RandomNumbers::of_client(number),
        updater: Updater::of_client(number),
        keys,
    });
    let connections = load.connect().await?;
    let clients = clients.collect();
    let (mut seen, usage_in_window) = closed_loop(
        connections,
        clients,
        load.scale.durations,
        &load.process_ids,
    )
    .await?;
    watching.abort();
    if events.load(Ordering::Relaxed) == 0 {
        seen.failed("the watch received no events");
    }
    Ok((seen, usage_in_window))
}

struct MixedRequester {
    part: Part,
    numbers: RandomNumbers,
    updater: Updater,
    keys: usize,
}

impl Requester for MixedRequester {
    fn next(&mut self, message: &mut Vec<u8>) -> Method {
        self.part = part_of(self.numbers.below(100));
        match self.part {
            Part::Get => {
                get_any(&mut self.numbers, self.keys, false, message);
                Method::Range
            }
            Part::Update => self.updater.next(message),
            Part::List => {
                range_any(&mut self.numbers, self.keys, message);
                Method::Range
            }
            Part::Put => {
                put_any(&mut self.numbers, self.keys, message);
                Method::Put
            }
        }
    }

    fn answered(&mut self, answer: &[u8]) -> Result<Completion, String> {
        match self.part {
            Part::Get => expect_keys(answer, 1)?,
            Part::Update => return self.updater.answered(answer),
            Part::List => expect_keys(answer, RANGE_KEYS)?,
            Part::Put => {}
        }
        Ok(Completion::Done)
    }
}

fn part_of(percent: usize) -> Part {
    match percent {
        percent if percent < GET_PERCENT => Part::Get,
        percent if percent < GET_PERCENT + UPDATE_PERCENT => Part::Update,
        percent if percent < GET_PERCENT + UPDATE_PERCENT + LIST_PERCENT => Part::List,
        _ => Part::Put,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixed_load_has_the_configured_shares() {
        let share = |part| (0..100).filter(|n| part_of(*n) == part).count();
        assert_eq!(share(Part::Get), 70);
        assert_eq!(share(Part::Update), 20);
        assert_eq!(share(Part::List), 5);
        assert_eq!(share(Part::Put), 5);
    }
}

//! Any schedule of writes, watches, slow readers, rounds, compactions, progress
//! and restores: the events that clients read are compared with the list of all
//! events.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use portunus_mvcc::watch::{Hub, KeyRange, Limits, NO_WATCH_ID, SyncBudget, SyncPlan, WatchState};
use portunus_proto::etcdserverpb::watch_create_request::FilterType;
use portunus_proto::etcdserverpb::{WatchCreateRequest, WatchResponse};
use portunus_proto::mvccpb::Event;
use portunus_proto::mvccpb::event::EventType;
use proptest::prelude::*;
use support::{Client, ModelStore, Op, PROGRESS_INTERVAL, from, on_key, on_range};

const KEYS: [&str; 5] = ["a", "b", "ba", "c", "d"];
const CLIENTS: usize = 3;
const LIMITS: Limits = Limits {
    responses_max: 5,
    bytes_max: 700,
    answers_max: 3,
    watches_max: 1000,
    connection_watches_max: 1000,
    fragment_bytes: 330,
    catch_up_bytes_max: 300,
};

#[derive(Debug, Clone)]
enum Step {
    Write {
        ops: Vec<(usize, bool, usize)>,
    },
    Create {
        client: usize,
        request: WatchCreateRequest,
        start_offset: Option<i64>,
    },
    Cancel {
        client: usize,
        number: usize,
    },
    Read {
        client: usize,
        responses: usize,
    },
    Sync {
        budget: SyncBudget,
    },
    Plan {
        budget: SyncBudget,
    },
    Commit,
    Compact {
        back: i64,
    },
    Progress {
        client: usize,
    },
    Tick,
    Restore {
        missed: usize,
    },
}

/// The client's state of a watch after the created response.
#[derive(Debug, Clone)]
struct Watch {
    range: KeyRange,
    request: WatchCreateRequest,
    /// The client has read every matching event before this revision.
    next: i64,
    start: i64,
    /// Fragments read so far of an unfinished response.
    fragments: Vec<Event>,
}

#[derive(Default)]
struct Reader {
    announced: VecDeque<Watch>,
    live: BTreeMap<i64, Watch>,
}

struct World {
    hub: Hub,
    store: ModelStore,
    clients: Vec<Client>,
    readers: Vec<Reader>,
    plans: VecDeque<SyncPlan>,
    now: Duration,
}

impl World {
    fn new() -> Self {
        let mut hub = Hub::new(1, LIMITS);
        let clients = (0..CLIENTS).map(|_| Client::open(&mut hub)).collect();
        let readers = (0..CLIENTS).map(|_| Reader::default()).collect();
        Self {
            hub,
            store: ModelStore::default(),
            clients,
            readers,
            plans: VecDeque::new(),
            now: Duration::ZERO,
        }
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Write { ops } => {
                if let Some(ops) = self.effective(&ops) {
                    let events = self.store.txn(&ops);
                    self.hub.publish(&events).unwrap();
                }
            }
            Step::Create {
                client,
                request,
                start_offset,
            } => {
                let now = self.hub.revision();
                let start = start_offset.map_or(0, |offset| (now + offset).max(1));
                let request = from(start, request);
                let created = self
                    .hub
                    .create(self.clients[client].stream, request.clone());
                if let Ok(Some(_)) = created {
                    let start = if start == 0 { now + 1 } else { start };
                    let range =
                        KeyRange::from_request(request.key.clone(), request.range_end.clone());
                    self.readers[client].announced.push_back(Watch {
                        range: range.unwrap(),
                        request,
                        next: start,
                        start,
                        fragments: Vec::new(),
                    });
                }
            }
            Step::Cancel { client, number } => {
                let ids: Vec<i64> = self.readers[client].live.keys().copied().collect();
                if !ids.is_empty() {
                    let id = ids[number % ids.len()];
                    let _ = self.hub.cancel(self.clients[client].stream, id);
                }
            }
            Step::Read { client, responses } => {
                for _ in 0..responses {
                    self.read_one(client);
                }
            }
            Step::Sync { budget } => {
                let _ = self.hub.sync_step(&self.store, budget);
            }
            Step::Plan { budget } => self.plans.push_back(self.hub.sync_plan(budget)),
            Step::Commit => {
                if let Some(plan) = self.plans.pop_front() {
                    let _ = self.hub.sync_commit(plan.read(&self.store));
                }
            }
            Step::Compact { back } => {
                let revision = (self.store.revision_now() - back).max(1);
                self.store.compact = self.store.compact.max(revision);
            }
            Step::Progress { client } => {
                let _ = self.hub.request_progress(self.clients[client].stream);
            }
            Step::Tick => {
                self.now += PROGRESS_INTERVAL;
                self.hub.tick(self.now);
            }
            Step::Restore { missed } => {
                for number in 0..missed {
                    self.store.put(KEYS[number % KEYS.len()], "missed");
                }
                self.hub.restore(self.store.revision_now());
            }
        }
        self.check_queues();
    }

    fn effective(&self, ops: &[(usize, bool, usize)]) -> Option<Vec<Op>> {
        let mut by_key = BTreeMap::new();
        for (key, put, size) in ops {
            let key = KEYS[*key];
            if *put {
                by_key.insert(key, Op::Put(key.into(), "v".repeat(*size)));
            } else if self.store.exists(key) {
                by_key.insert(key, Op::Delete(key.into()));
            }
        }
        (!by_key.is_empty()).then(|| by_key.into_values().collect())
    }

    fn check_queues(&self) {
        for (client, reader) in self.clients.iter().zip(&self.readers) {
            let queued = client.receiver.queued();
            // Answers and cancellations are bounded by requests and watches.
            let owed = LIMITS.answers_max + reader.announced.len() + reader.live.len();
            assert!(
                queued.responses <= LIMITS.responses_max + owed,
                "{queued:?}"
            );
            // A revision larger than the limit may be queued alone.
            assert!(queued.bytes <= LIMITS.bytes_max.max(4000), "{queued:?}");
        }
    }

    fn read_one(&mut self, client: usize) -> bool {
        let Some(response) = self.clients[client].next() else {
            return false;
        };
        let reader = &mut self.readers[client];
        let store = &self.store;
        let revision = response.header.as_ref().unwrap().revision;
        if response.created {
            if response.canceled {
                assert_eq!(response.watch_id, NO_WATCH_ID);
            } else {
                let watch = reader.announced.pop_front().expect("nothing was created");
                let old = reader.live.insert(response.watch_id, watch);
                assert!(old.is_none(), "two watches with one id");
            }
        } else if response.canceled {
            let watch = reader
                .live
                .remove(&response.watch_id)
                .expect("unknown watch ended");
            if response.compact_revision > 0 {
                assert!(watch.next < response.compact_revision, "ended without need");
                assert!(response.compact_revision <= store.compact);
                assert_eq!((revision, response.cancel_reason.as_str()), (0, ""));
            }
        } else if response.events.is_empty() {
            for (id, watch) in &mut reader.live {
                if response.watch_id == NO_WATCH_ID || response.watch_id == *id {
                    check_progress(store, watch, revision);
                }
            }
        } else {
            let watch = reader
                .live
                .get_mut(&response.watch_id)
                .expect("events before created");
            check_events(store, watch, response, revision);
        }
        true
    }

    /// Lets all clients read and runs all rounds; then no event may be missing.
    fn finish(&mut self) {
        self.plans.clear();
        loop {
            let mut moved = false;
            for client in 0..CLIENTS {
                while self.read_one(client) {
                    moved = true;
                }
            }
            let report = self.hub.sync_step(&self.store, SyncBudget::default());
            let empty = self
                .clients
                .iter()
                .all(|c| c.receiver.queued().responses == 0);
            if !moved && empty && report.runnable + report.waiting_for_reader == 0 {
                break;
            }
        }
        let revision = self.hub.revision();
        for (client, reader) in self.clients.iter().zip(&self.readers) {
            assert!(reader.announced.is_empty());
            for (id, watch) in &reader.live {
                let missing =
                    (watch.next..=revision).find(|r| !wanted(&self.store, watch, *r).is_empty());
                assert_eq!(missing, None, "watch {id} missed a revision: {watch:?}");
                match self.hub.state(client.stream, *id).expect("watch is gone") {
                    WatchState::Synced => assert!(watch.start <= revision + 1),
                    WatchState::Future { start } => assert!(start > revision),
                    state => panic!("watch {id} is still {state:?}"),
                }
            }
        }
    }
}

/// The events of a revision that the watch must deliver.
fn wanted(store: &ModelStore, watch: &Watch, revision: i64) -> Vec<Event> {
    if revision < 2 || revision > store.revision_now() {
        return Vec::new();
    }
    let rejects = |kind: EventType| {
        let filter = match kind {
            EventType::Put => FilterType::Noput,
            EventType::Delete => FilterType::Nodelete,
        };
        watch.request.filters().any(|f| f == filter)
    };
    store
        .events_at(revision)
        .iter()
        .filter(|e| watch.range.contains(&e.kv.as_ref().unwrap().key) && !rejects(e.r#type()))
        .cloned()
        .collect()
}

fn check_progress(store: &ModelStore, watch: &mut Watch, revision: i64) {
    assert!(
        revision >= watch.start || watch.request.start_revision == 0,
        "progress before start"
    );
    for early in watch.next..=revision {
        assert!(
            wanted(store, watch, early).is_empty(),
            "progress overtook an event: {watch:?}"
        );
    }
    watch.next = watch.next.max(revision + 1);
}

fn check_events(store: &ModelStore, watch: &mut Watch, response: WatchResponse, revision: i64) {
    watch.fragments.extend(response.events);
    if response.fragment {
        assert!(watch.request.fragment, "fragment not asked for");
        return;
    }
    let events = std::mem::take(&mut watch.fragments);
    for same in events.chunk_by(|a, b| revision_of(a) == revision_of(b)) {
        let at = revision_of(&same[0]);
        assert!(
            at >= watch.next,
            "revision {at} again or out of order: {watch:?}"
        );
        assert!(at <= revision, "header is older than its events");
        for skipped in watch.next..at {
            assert!(
                wanted(store, watch, skipped).is_empty(),
                "skipped {skipped}: {watch:?}"
            );
        }
        let wanted = wanted(store, watch, at);
        assert_eq!(same.len(), wanted.len(), "revision {at} is not whole");
        for (got, want) in same.iter().zip(wanted) {
            check_event(store, watch, got, want);
        }
        watch.next = at + 1;
    }
}

fn check_event(store: &ModelStore, watch: &Watch, got: &Event, want: Event) {
    assert_eq!((got.r#type, &got.kv), (want.r#type, &want.kv));
    let compacted = revision_of(got) - 1 < store.compact;
    match &got.prev_kv {
        Some(_) => assert!(watch.request.prev_kv && got.prev_kv == want.prev_kv),
        None => assert!(!watch.request.prev_kv || want.prev_kv.is_none() || compacted),
    }
}

fn revision_of(event: &Event) -> i64 {
    event.kv.as_ref().unwrap().mod_revision
}

fn request() -> impl Strategy<Value = WatchCreateRequest> {
    let range = prop_oneof![
        (0..KEYS.len()).prop_map(|key| on_key(KEYS[key])),
        Just(on_range("a", "c")),
        Just(on_range("b", "\0")),
        Just(on_range("", "\0")),
        Just(on_range("c", "b")),
    ];
    let filters = prop_oneof![
        4 => Just(vec![]),
        1 => Just(vec![i32::from(FilterType::Noput)]),
        1 => Just(vec![i32::from(FilterType::Nodelete)]),
    ];
    (
        range,
        filters,
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        0i64..3,
    )
        .prop_map(
            |(range, filters, prev_kv, fragment, progress_notify, watch_id)| WatchCreateRequest {
                filters,
                prev_kv,
                fragment,
                progress_notify,
                watch_id,
                ..range
            },
        )
}

fn step() -> impl Strategy<Value = Step> {
    let client = 0..CLIENTS;
    let budget = (1usize..6, 1usize..12).prop_map(|(watchers_max, revisions_max)| SyncBudget {
        watchers_max,
        revisions_max,
    });
    let op = (0..KEYS.len(), prop::bool::weighted(0.75), 0usize..200);
    prop_oneof![
        10 => prop::collection::vec(op, 1..4).prop_map(|ops| Step::Write { ops }),
        4 => (client.clone(), request(), prop::option::of(-6i64..5)).prop_map(
            |(client, request, start_offset)| Step::Create { client, request, start_offset }
        ),
        1 => (client.clone(), 0usize..8).prop_map(|(client, number)| Step::Cancel { client, number }),
        6 => (client.clone(), 1usize..8)
            .prop_map(|(client, responses)| Step::Read { client, responses }),
        4 => budget.clone().prop_map(|budget| Step::Sync { budget }),
        1 => budget.prop_map(|budget| Step::Plan { budget }),
        2 => Just(Step::Commit),
        1 => (0i64..10).prop_map(|back| Step::Compact { back }),
        2 => client.prop_map(|client| Step::Progress { client }),
        1 => Just(Step::Tick),
        1 => (0usize..4).prop_map(|missed| Step::Restore { missed }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    /// Every matching event exactly once, in order, in whole revisions, nothing
    /// before the start, right previous versions, no progress ahead of events,
    /// bounded queues.
    ///
    /// Proves: K18, K19, K20, K21
    #[test]
    fn every_schedule_delivers_each_event_once_in_order(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for step in steps {
            world.run(step);
        }
        world.finish();
    }
}

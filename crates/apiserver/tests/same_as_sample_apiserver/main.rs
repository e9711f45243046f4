//! The same requests to this library and to Kubernetes' sample API server, with the same resources:
//! status codes, documents, headers and watch events are the same, apart from the differences of
//! [`rules::RULES`].
//!
//! `PORTUNUS_TEST_SEED` chooses the requests and `PORTUNUS_TEST_REQUESTS` their number. The sample
//! API server is built from its Go module; without Go the test is skipped.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod canonical;
mod known;
mod requests;
mod rules;
mod servers;
#[path = "../../examples/wardle/definition.rs"]
mod wardle;

use std::collections::BTreeMap;
use std::time::Duration;

use canonical::Canonical;
use known::{Known, Object};
use portunus_testkit::go_program;
use portunus_testkit::random::Random;
use requests::{Requests, Step, WatchStep, merge, post};
use rules::{RULES, Rule};
use serde_json::{Value, json};
use servers::{Answer, Events, Sent, Servers};

const TEST: &str = "same_requests_have_same_answers_as_sample_apiserver";
/// Its requests need every rule.
const SEED: u64 = 37;
const REQUESTS: u64 = 1500;
/// The most watches at a time.
const WATCHES_MAX: usize = 2;
/// How long the servers have to read the first objects of a watch, before they change.
const INITIAL_EVENTS_TIME: Duration = Duration::from_millis(100);
/// The most differences that are shown.
const SHOWN_MAX: usize = 20;

/// A watch that is open at both servers.
struct OpenWatch {
    step: WatchStep,
    events: [Events; 2],
    until: u64,
}

struct Comparison {
    servers: Servers,
    requests: Requests,
    known: Known,
    canonical: [Canonical; 2],
    watches: Vec<OpenWatch>,
    used: BTreeMap<&'static str, u64>,
    differences: Vec<String>,
    answers: BTreeMap<u16, u64>,
    events: u64,
}

impl Comparison {
    /// Sends a request to both servers and compares the answers.
    async fn send(&mut self, number: u64, step: &Step) -> [Answer; 2] {
        let sent = [0, 1].map(|side| self.known.sent_to(side, step));
        let [sample, ours] = &mut self.servers.peers;
        let (sample, ours) = tokio::join!(sample.send(&sent[0]), ours.send(&sent[1]));
        self.known.learn(step, [&sample, &ours]);
        *self.answers.entry(sample.code).or_default() += 1;
        self.compare(number, &sent[0], [sample.clone(), ours.clone()]);
        [sample, ours]
    }

    fn compare(&mut self, number: u64, sent: &Sent, answers: [Answer; 2]) {
        let [sample, ours] = answers;
        let [canonical, own_canonical] = &mut self.canonical;
        let (mut sample, mut ours) = (canonical.answer(sample), own_canonical.answer(ours));
        for rule in RULES {
            if sample == ours {
                return;
            }
            let before = (sample.clone(), ours.clone());
            (rule.forgive)(sent, &mut sample, &mut ours);
            if (&sample, &ours) != (&before.0, &before.1) {
                *self.used.entry(rule.name).or_default() += 1;
            }
        }
        if sample != ours {
            let Sent { method, target, .. } = sent;
            let headers = (sent.content_type, sent.accept);
            self.differences.push(format!(
                "request {number}: {method} {target} {headers:?} {}\n  sample: {}\n  ours:   {}",
                sent.body,
                shown(&sample),
                shown(&ours)
            ));
        }
    }

    async fn open_watch(&mut self, number: u64) {
        let step = self.requests.watch(&self.known);
        let [sample, ours] = &self.servers.peers;
        let opened = tokio::join!(sample.watch(&step.sent), ours.watch(&step.sent));
        match opened {
            (Ok(sample), Ok(ours)) => {
                // The sample reads the first objects of a watch after it has begun to answer.
                tokio::time::sleep(INITIAL_EVENTS_TIME).await;
                let until = number + step.steps;
                let head = |headers: &BTreeMap<String, String>| Answer {
                    code: 200,
                    headers: headers.clone(),
                    body: Value::Null,
                };
                let heads = [head(&sample.headers), head(&ours.headers)];
                self.compare(number, &step.sent, heads);
                self.watches.push(OpenWatch {
                    step,
                    events: [sample, ours],
                    until,
                });
            }
            (sample, ours) => {
                let answer = |opened: Result<Events, Answer>| match opened {
                    Err(answer) => answer,
                    Ok(events) => Answer {
                        code: 200,
                        headers: events.headers,
                        body: "a watch".into(),
                    },
                };
                self.compare(number, &step.sent, [answer(sample), answer(ours)]);
            }
        }
    }

    /// Makes a change that a watch selects, and compares all events up to it.
    async fn close_watch(&mut self, number: u64, mut watch: OpenWatch) {
        let step = &watch.step;
        let name = format!("end-{number}");
        let name = step.selected_name.clone().unwrap_or(name);
        let object = Object::new(step.resource, &step.namespace, &name);
        let body = json!({"metadata": {"name": name, "labels": step.selected_labels}});
        let create = Step {
            sent: post(step.resource.collection(&step.namespace), &body),
            object: Some(object.clone()),
            is_dry_run: false,
        };
        let mut answers = self.send(number, &create).await;
        if answers[0].code == 409 {
            let note = json!({"metadata": {"annotations": {"note": format!("end-{number}")}}});
            let patch = Step {
                sent: merge(object.path(), &note),
                ..create
            };
            answers = self.send(number, &patch).await;
        }
        for answer in &answers {
            assert!(answer.code < 300, "{answer:?}");
        }
        let last = answers.map(|answer| version(&answer.body["metadata"]));
        let mut seen: [Vec<Value>; 2] = Default::default();
        for side in 0..2 {
            loop {
                let Some(event) = watch.events[side].next().await else {
                    let target = &watch.step.sent.target;
                    let lost = format!("request {number}: server {side}: no last event: {target}");
                    self.differences.push(lost);
                    break;
                };
                let reached = version(&event["object"]["metadata"]);
                let is_error = event["type"] == "ERROR";
                let is_bookmark = event["type"] == "BOOKMARK";
                seen[side].push(event);
                if is_error || (reached >= last[side] && !is_bookmark) {
                    break;
                }
            }
        }
        self.events += u64::try_from(seen[0].len()).unwrap();
        let answer = |events: Vec<Value>| Answer {
            code: 200,
            headers: BTreeMap::new(),
            body: events.into(),
        };
        let [sample, ours] = seen;
        self.compare(number, &watch.step.sent, [answer(sample), answer(ours)]);
    }
}

/// Returns a resource version as a number.
fn version(metadata: &Value) -> u64 {
    let text = metadata["resourceVersion"].as_str().unwrap_or_default();
    text.parse().unwrap_or(0)
}

fn shown(answer: &Answer) -> String {
    format!("{} {:?} {}", answer.code, answer.headers, answer.body)
}

/// Both servers keep their objects in Portunus: Kubernetes' own storage code reads, writes and watches
/// there, without its watch cache.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn same_requests_have_same_answers_as_sample_apiserver() {
    let Some(program) = go_program::build_for_test("sample-apiserver", TEST) else {
        return;
    };
    let count = std::env::var("PORTUNUS_TEST_REQUESTS").ok();
    let is_default = count.is_none() && std::env::var_os("PORTUNUS_TEST_SEED").is_none();
    let count = count.map_or(REQUESTS, |text| text.parse().expect("a number"));
    let random = Random::seeded_or(TEST, SEED);
    println!("{TEST}: the seed is PORTUNUS_TEST_SEED, or {SEED}");
    let mut comparison = Comparison {
        servers: Servers::start(&program).await,
        requests: Requests::new(random),
        known: Known::default(),
        canonical: [Canonical::new(), Canonical::new()],
        watches: Vec::new(),
        used: BTreeMap::new(),
        differences: Vec::new(),
        answers: BTreeMap::new(),
        events: 0,
    };
    for number in 0..count {
        if number % 25 == 20 && comparison.watches.len() < WATCHES_MAX {
            comparison.open_watch(number).await;
        }
        let step = comparison.requests.next(&comparison.known);
        comparison.send(number, &step).await;
        while let Some(at) = comparison.watches.iter().position(|it| it.until <= number) {
            let watch = comparison.watches.remove(at);
            comparison.close_watch(number, watch).await;
        }
    }
    let Comparison {
        servers,
        used,
        differences,
        answers,
        events,
        ..
    } = comparison;
    servers.stop();
    println!("{count} requests, {events} watch events, codes {answers:?}");
    for Rule { name, reason, .. } in RULES {
        let uses = used.get(name).unwrap_or(&0);
        println!("{uses:5} x {name}: {reason}");
    }
    let total = differences.len();
    let first = differences.into_iter().take(SHOWN_MAX).collect::<Vec<_>>();
    assert!(
        total == 0,
        "{total} differences, repeat with the seed above:\n{}",
        first.join("\n")
    );
    if is_default {
        for rule in RULES {
            assert!(used.contains_key(rule.name), "{} is not used", rule.name);
        }
    }
}

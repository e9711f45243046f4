//! Requests that wait for their entry to be applied, by request id.
//!
//! ```text
//!  serve-0: register ─▶ shards ─▶ apply: Answers ──(once per batch and queue)──▶ ReplyQueue 0 ─▶ serve-0
//! ```
//! Waking a task of another thread costs a system call. So the apply thread collects answers
//! during a batch, appends them to the reply queue of the serving thread that has the request,
//! and wakes that thread once for all of them; the thread completes the requests itself.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portunus_consensus::ProposalProgress;
use portunus_proto::EtcdError;
use portunus_proto::Term;
use tokio::sync::{Notify, oneshot};

use portunus_statemachine::Answer;

/// Enough shards that threads seldom contend for one.
const SHARDS: usize = 32;

/// Answers collected before they are delivered, even in the middle of a batch.
const ANSWERS_COLLECTED_MAX: usize = 256;

thread_local! {
    /// The reply queue of this thread, if it has one.
    static REPLY_QUEUE: Cell<Option<usize>> = const { Cell::new(None) };
}

struct Waiter {
    sender: oneshot::Sender<Answer>,
    queue: Option<usize>,
    /// The term in which the request was proposed, once it was.
    progress: ProposalProgress,
}

type Reply = (oneshot::Sender<Answer>, Answer);

/// The answers for the requests of one thread.
#[derive(Default)]
struct ReplyQueue {
    replies: Mutex<Vec<Reply>>,
    not_empty: Notify,
}

/// Waiting requests. Registered by services, answered by the apply thread; each lock is held
/// briefly.
pub struct Waiters {
    shards: [Mutex<HashMap<u64, Waiter>>; SHARDS],
    queues: Vec<ReplyQueue>,
}

impl Waiters {
    /// Creates one reply queue for each serving thread.
    pub fn new(queues: usize) -> Waiters {
        Waiters {
            shards: std::array::from_fn(|_| Mutex::default()),
            queues: (0..queues).map(|_| ReplyQueue::default()).collect(),
        }
    }

    /// Makes the calling thread the reader of reply queue `queue`. The thread has to run the
    /// returned future as long as it has requests that wait.
    pub fn attach_thread(self: &Arc<Self>, queue: usize) -> impl Future<Output = ()> + use<> {
        let queues = self.queues.len();
        assert!(
            queue < queues,
            "reply queue {queue} of {queues}: answers of its thread would be lost"
        );
        REPLY_QUEUE.set(Some(queue));
        let waiters = Arc::clone(self);
        async move {
            let queue = &waiters.queues[queue];
            loop {
                queue.not_empty.notified().await;
                let replies = std::mem::take(&mut *lock(&queue.replies));
                for (sender, answer) in replies {
                    // The client may have gone away meanwhile.
                    let _ = sender.send(answer);
                }
            }
        }
    }

    /// Registers a request before it is proposed; dropping the guard removes it.
    pub fn register(&self, id: u64, progress: ProposalProgress) -> Waiting<'_> {
        let (sender, receiver) = oneshot::channel();
        let waiter = Waiter {
            sender,
            queue: REPLY_QUEUE.get(),
            progress,
        };
        self.shard(id).insert(id, waiter);
        Waiting {
            waiters: self,
            id,
            receiver,
        }
    }

    /// Whether this request is registered here.
    pub fn is_waiting(&self, id: u64) -> bool {
        self.shard(id).contains_key(&id)
    }

    /// Refuses all requests that still wait, because the member stops. Their entries may be
    /// committed all the same.
    pub fn refuse_all(&self) {
        for shard in &self.shards {
            for waiter in std::mem::take(&mut *lock(shard)).into_values() {
                // The client may have gone away.
                let _ = waiter.sender.send(Err(EtcdError::Stopped));
            }
        }
    }

    fn shard(&self, id: u64) -> MutexGuard<'_, HashMap<u64, Waiter>> {
        lock(&self.shards[(id % SHARDS as u64) as usize])
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A registered request.
pub struct Waiting<'a> {
    waiters: &'a Waiters,
    id: u64,
    receiver: oneshot::Receiver<Answer>,
}

impl Waiting<'_> {
    /// Waits for the answer.
    pub async fn answer(mut self) -> Answer {
        (&mut self.receiver)
            .await
            .unwrap_or(Err(EtcdError::Stopped))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.waiters.shard(self.id).remove(&self.id);
    }
}

/// The answers of the batch that is being applied.
pub struct Answers {
    waiters: Arc<Waiters>,
    by_queue: Vec<Vec<Reply>>,
    collected: usize,
}

impl Answers {
    /// Creates the collection for the apply thread.
    pub fn new(waiters: Arc<Waiters>) -> Answers {
        Answers {
            by_queue: waiters.queues.iter().map(|_| Vec::new()).collect(),
            waiters,
            collected: 0,
        }
    }

    /// Answers a request that is registered here, with [`Answers::hand_out`] at the latest.
    pub fn add(&mut self, id: u64, answer: Answer) {
        let waiter = self.waiters.shard(id).remove(&id);
        if let Some(waiter) = waiter {
            self.collect(waiter, answer);
        }
    }

    /// Fails the requests that were proposed before `term` and still wait, once the first entry
    /// of that term is applied. Everything that an earlier leader had committed is applied before
    /// that entry, so these were lost with their leader, unless a former leader still forwards
    /// them. Therefore the answer leaves the outcome open.
    pub fn fail_proposed_before(&mut self, term: Term) {
        for shard in 0..SHARDS {
            let is_lost = |waiter: &Waiter| waiter.progress.term().is_some_and(|it| it < term);
            let lost: Vec<Waiter> = lock(&self.waiters.shards[shard])
                .extract_if(|_, waiter| is_lost(waiter))
                .map(|(_, waiter)| waiter)
                .collect();
            for waiter in lost {
                self.collect(waiter, Err(EtcdError::TimeoutDueToLeaderFail));
            }
        }
    }

    fn collect(&mut self, waiter: Waiter, answer: Answer) {
        let Waiter { sender, queue, .. } = waiter;
        match queue {
            Some(queue) => self.by_queue[queue].push((sender, answer)),
            // No queue: the thread is woken for this answer. The client may have gone away.
            None => drop(sender.send(answer)),
        }
        self.collected += 1;
        if self.collected >= ANSWERS_COLLECTED_MAX {
            self.hand_out();
        }
    }

    /// Delivers the collected answers and wakes each thread that has some, once.
    pub fn hand_out(&mut self) {
        self.collected = 0;
        for (queue, replies) in self.waiters.queues.iter().zip(&mut self.by_queue) {
            if !replies.is_empty() {
                lock(&queue.replies).append(replies);
                queue.not_empty.notify_one();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn done(waiters: &Arc<Waiters>, ids: impl IntoIterator<Item = u64>) -> Answers {
        let mut answers = Answers::new(Arc::clone(waiters));
        for id in ids {
            answers.add(id, Ok(portunus_statemachine::Response::Done));
        }
        answers
    }

    async fn answered(waiting: Waiting<'_>) -> bool {
        let patience = Duration::from_secs(20);
        let answer = tokio::time::timeout(patience, waiting.answer()).await;
        answer.is_ok_and(|answer| answer.is_ok())
    }

    #[tokio::test]
    async fn answers_reach_requests_with_and_without_a_queue() {
        let waiters = Arc::new(Waiters::new(1));
        let without = waiters.register(1, ProposalProgress::default());
        let reader = waiters.attach_thread(0);
        let with = waiters.register(2, ProposalProgress::default());
        done(&waiters, [1, 2, 3]).hand_out();
        let requests = async { (answered(without).await, answered(with).await) };
        tokio::select! {
            () = reader => unreachable!("it never ends"),
            answers = requests => assert_eq!(answers, (true, true)),
        }
    }

    #[tokio::test]
    async fn answers_of_a_long_batch_are_sent_before_its_end() {
        let waiters = Arc::new(Waiters::new(1));
        let reader = waiters.attach_thread(0);
        let count = ANSWERS_COLLECTED_MAX as u64;
        let mut waiting: Vec<_> = (0..count)
            .map(|id| waiters.register(id, ProposalProgress::default()))
            .collect();
        let answers = done(&waiters, 0..count);
        tokio::select! {
            () = reader => unreachable!("it never ends"),
            got = answered(waiting.remove(0)) => assert!(got),
        }
        drop(answers);
    }

    #[test]
    fn dropped_waiter_leaves_no_state() {
        let waiters = Waiters::new(1);
        drop(waiters.register(7, ProposalProgress::default()));
        assert!(!waiters.is_waiting(7));
    }

    /// A request that is not proposed yet waits for the new leader; one that the new leader
    /// proposed waits for its entry.
    #[tokio::test]
    async fn requests_proposed_in_an_earlier_term_fail_and_others_go_on_waiting() {
        let waiters = Arc::new(Waiters::new(1));
        let terms = [Some(4), Some(5), None];
        let waiting = terms.map(|term| {
            let progress = term.map_or_else(ProposalProgress::default, ProposalProgress::in_term);
            waiters.register(term.unwrap_or(0), progress)
        });
        let mut answers = Answers::new(Arc::clone(&waiters));
        answers.fail_proposed_before(Term(5));
        answers.hand_out();
        assert!(!waiters.is_waiting(4));
        assert!(waiters.is_waiting(5) && waiters.is_waiting(0));
        let [lost, ..] = waiting;
        let refused = lost.answer().await.unwrap_err();
        assert_eq!(refused, EtcdError::TimeoutDueToLeaderFail);
    }

    #[tokio::test]
    async fn waiters_fail_when_the_member_stops() {
        let waiters = Arc::new(Waiters::new(1));
        let waiting = waiters.register(1, ProposalProgress::default());
        waiters.refuse_all();
        assert_eq!(waiting.answer().await.unwrap_err(), EtcdError::Stopped);
    }
}

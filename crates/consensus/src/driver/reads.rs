//! Linearizable reads: one round for all waiting readers.
//!
//! ```text
//!   readers ──▶ collecting ──(no round in flight)──▶ in flight ──▶ answered together
//!                   ▲                                    │
//!                   └──── readers that come now ─────────┘ wait for the next round
//! ```
//! A reader must not share a round that began before it arrived: the index might be too old.
//! Joining a round costs a reference count; only the first reader of a round wakes the driver.

use std::{
    future::Future,
    mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use portunus_gates::cluster::MemberId;
use portunus_proto::LogIndex;

use super::errors::ReadIndexError;

type Answer = Result<LogIndex, ReadIndexError>;

/// Ticks after which an unanswered round is retried: messages get lost. etcd's 500 ms at its
/// default heartbeat.
const RETRY_TICKS: u32 = 5;

#[derive(Default)]
struct RoundState {
    answer: Option<Answer>,
    wakers: Vec<Option<Waker>>,
    /// Places in `wakers` of readers that gave up, for later readers: a round may wait for a
    /// leader for hours, and readers come and go.
    free: Vec<usize>,
}

/// The readers that share one read index.
#[derive(Default)]
pub(super) struct Round {
    state: Mutex<RoundState>,
}

impl Round {
    fn lock(&self) -> MutexGuard<'_, RoundState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, answer: Answer) {
        let wakers = {
            let mut state = self.lock();
            state.answer = Some(answer);
            mem::take(&mut state.wakers)
        };
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

/// Resolves to an index: once that is applied, a read is linearizable.
///
/// Without a leader it waits; drop it at a timeout.
#[must_use = "the index is the answer"]
pub struct ReadIndexFuture(Waiting);

enum Waiting {
    Answered(Answer),
    Round {
        round: Arc<Round>,
        slot: Option<usize>,
    },
}

impl ReadIndexFuture {
    pub(super) fn answered(answer: Answer) -> Self {
        Self(Waiting::Answered(answer))
    }

    fn joining(round: Arc<Round>) -> Self {
        Self(Waiting::Round { round, slot: None })
    }

    /// Blocks this thread until the index is known.
    ///
    /// # Errors
    /// If there is no read index.
    pub fn wait(mut self) -> Result<LogIndex, ReadIndexError> {
        struct Unpark(Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Arc::new(Unpark(thread::current())).into();
        let mut context = Context::from_waker(&waker);
        loop {
            match Pin::new(&mut self).poll(&mut context) {
                Poll::Ready(answer) => return answer,
                Poll::Pending => thread::park(),
            }
        }
    }
}

impl Future for ReadIndexFuture {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let (round, slot) = match &mut self.0 {
            Waiting::Answered(answer) => return Poll::Ready(*answer),
            Waiting::Round { round, slot } => (round, slot),
        };
        let mut state = round.lock();
        if let Some(answer) = state.answer {
            return Poll::Ready(answer);
        }
        let place = *slot.get_or_insert_with(|| {
            state.free.pop().unwrap_or_else(|| {
                state.wakers.push(None);
                state.wakers.len() - 1
            })
        });
        match &mut state.wakers[place] {
            Some(waker) => waker.clone_from(context.waker()),
            empty => *empty = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

impl Drop for ReadIndexFuture {
    fn drop(&mut self) {
        // A reader that gave up must not be woken later.
        let Waiting::Round {
            round,
            slot: Some(place),
        } = &self.0
        else {
            return;
        };
        let mut state = round.lock();
        if let Some(waker) = state.wakers.get_mut(*place) {
            *waker = None;
            state.free.push(*place);
        }
    }
}

struct InFlight {
    /// The context of the first request; each retry has the next number.
    first_context: u64,
    /// The context of the newest request.
    context: u64,
    leader: MemberId,
    ticks: u32,
    round: Arc<Round>,
}

impl InFlight {
    fn has_asked(&self, context: u64) -> bool {
        let newest = self.context.wrapping_sub(self.first_context);
        context.wrapping_sub(self.first_context) <= newest
    }
}

/// All rounds of a member.
pub(super) struct Reads {
    collecting: Option<Arc<Round>>,
    in_flight: Option<InFlight>,
    next_context: u64,
    stopped: bool,
}

/// A round with its result; deliver it without holding a lock.
#[must_use]
pub(super) struct Answered(Arc<Round>, Answer);

impl Answered {
    pub(super) fn deliver(self) {
        self.0.answer(self.1);
    }
}

impl Reads {
    pub(super) fn new(first_context: u64) -> Self {
        Self {
            collecting: None,
            in_flight: None,
            next_context: first_context,
            stopped: false,
        }
    }

    /// Joins the round that collects readers. True if the driver must be woken.
    pub(super) fn join(&mut self) -> (ReadIndexFuture, bool) {
        if self.stopped {
            return (
                ReadIndexFuture::answered(Err(ReadIndexError::Stopped)),
                false,
            );
        }
        let is_first = self.collecting.is_none();
        let round = self.collecting.get_or_insert_default();
        (ReadIndexFuture::joining(Arc::clone(round)), is_first)
    }

    /// Begins the next round, if one waits and none is in flight. `ask` sends the request to
    /// the leader and returns whether there is one.
    pub(super) fn begin(&mut self, leader: MemberId, ask: impl FnOnce(u64) -> bool) {
        if self.in_flight.is_some() || leader == MemberId::NONE {
            return;
        }
        let Some(round) = self.collecting.take() else {
            return;
        };
        let context = self.fresh_context();
        if ask(context) {
            self.in_flight = Some(InFlight {
                first_context: context,
                context,
                leader,
                ticks: 0,
                round,
            });
        } else {
            self.collecting = Some(round);
        }
    }

    /// Completes the round in flight. Any request of the round may be answered: all were sent
    /// after its last reader arrived. On a slow network only the older ones may be answered in
    /// time.
    pub(super) fn answer(&mut self, context: u64, index: LogIndex) -> Option<Answered> {
        let answered = self.in_flight.take_if(|round| round.has_asked(context))?;
        Some(Answered(answered.round, Ok(index)))
    }

    pub(super) fn leader_changed(&mut self, leader: MemberId) -> Option<Answered> {
        let lost = self.in_flight.take_if(|round| round.leader != leader)?;
        Some(Answered(lost.round, Err(ReadIndexError::LeaderChanged)))
    }

    /// Retries if the answer is overdue, with a context never used before: the leader takes a
    /// known one for a request in progress.
    pub(super) fn tick(&mut self, ask: impl FnOnce(u64) -> bool) {
        let context = self.next_context;
        let Some(in_flight) = &mut self.in_flight else {
            return;
        };
        in_flight.ticks += 1;
        if in_flight.ticks >= RETRY_TICKS && ask(context) {
            in_flight.ticks = 0;
            in_flight.context = context;
            self.next_context = context.wrapping_add(1);
        }
    }

    pub(super) fn stop(&mut self) -> Vec<Answered> {
        self.stopped = true;
        let in_flight = self.in_flight.take().map(|in_flight| in_flight.round);
        [in_flight, self.collecting.take()]
            .into_iter()
            .flatten()
            .map(|round| Answered(round, Err(ReadIndexError::Stopped)))
            .collect()
    }

    fn fresh_context(&mut self) -> u64 {
        let context = self.next_context;
        self.next_context = context.wrapping_add(1);
        context
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reader_never_joins_a_round_that_has_begun() {
        let mut reads = Reads::new(1);
        let (early, first) = reads.join();
        assert!(first);
        reads.begin(MemberId(7), |context| context == 1);
        let (late, first) = reads.join();
        assert!(first, "the driver must be woken for the second round");
        reads.begin(MemberId(7), |_| panic!("one round at a time"));
        reads.answer(1, LogIndex(10)).unwrap().deliver();
        assert_eq!(early.wait(), Ok(LogIndex(10)));
        reads.begin(MemberId(7), |context| context == 2);
        reads.answer(2, LogIndex(20)).unwrap().deliver();
        assert_eq!(late.wait(), Ok(LogIndex(20)));
    }

    #[test]
    fn readers_of_a_round_share_one_read_index_request() {
        let mut reads = Reads::new(1);
        let readers: Vec<_> = (0..100).map(|_| reads.join()).collect();
        assert_eq!(readers.iter().filter(|(_, first)| *first).count(), 1);
        reads.begin(MemberId(7), |_| true);
        reads.answer(1, LogIndex(5)).unwrap().deliver();
        for (reader, _) in readers {
            assert_eq!(reader.wait(), Ok(LogIndex(5)));
        }
    }

    #[test]
    fn round_waits_while_there_is_no_leader() {
        let mut reads = Reads::new(1);
        let (reader, _) = reads.join();
        reads.begin(MemberId(0), |_| panic!("there is no leader"));
        reads.begin(MemberId(7), |_| false);
        reads.begin(MemberId(7), |_| true);
        reads.answer(3, LogIndex(9)).map_or_else(
            || reads.answer(2, LogIndex(9)).unwrap().deliver(),
            Answered::deliver,
        );
        assert_eq!(reader.wait(), Ok(LogIndex(9)));
    }

    /// Where an answer takes longer than the retry interval, every answer is for an older
    /// request.
    #[test]
    fn overdue_round_is_requested_again_and_accepts_any_response() {
        for answered in [1, 2] {
            let mut reads = Reads::new(1);
            let (reader, _) = reads.join();
            reads.begin(MemberId(7), |_| true);
            for _ in 1..RETRY_TICKS {
                reads.tick(|_| panic!("too early"));
            }
            reads.tick(|context| context == 2);
            assert!(
                reads.answer(0, LogIndex(9)).is_none(),
                "of an earlier round"
            );
            assert!(reads.answer(3, LogIndex(9)).is_none(), "never asked");
            reads.answer(answered, LogIndex(10)).unwrap().deliver();
            assert_eq!(reader.wait(), Ok(LogIndex(10)));
        }
    }

    #[test]
    fn leader_change_fails_the_round_in_flight_but_not_the_next() {
        let mut reads = Reads::new(1);
        let (asked, _) = reads.join();
        reads.begin(MemberId(7), |_| true);
        let (collected, _) = reads.join();
        assert!(reads.leader_changed(MemberId(7)).is_none());
        reads.leader_changed(MemberId(8)).unwrap().deliver();
        assert_eq!(asked.wait(), Err(ReadIndexError::LeaderChanged));
        reads.begin(MemberId(8), |_| true);
        reads.answer(2, LogIndex(3)).unwrap().deliver();
        assert_eq!(collected.wait(), Ok(LogIndex(3)));
    }

    /// While there is no leader, readers join, wait and give up.
    #[test]
    fn abandoned_readers_leave_no_state() {
        let mut reads = Reads::new(1);
        let mut context = Context::from_waker(Waker::noop());
        let (mut patient, _) = reads.join();
        assert!(Pin::new(&mut patient).poll(&mut context).is_pending());
        for _ in 0..1000 {
            let (mut reader, _) = reads.join();
            assert!(Pin::new(&mut reader).poll(&mut context).is_pending());
        }
        let round = Arc::clone(reads.collecting.as_ref().unwrap());
        let state = round.lock();
        assert_eq!((state.wakers.len(), state.free.len()), (2, 1));
        drop(state);
        reads.begin(MemberId(7), |_| true);
        reads.answer(1, LogIndex(5)).unwrap().deliver();
        assert_eq!(patient.wait(), Ok(LogIndex(5)));
    }

    #[test]
    fn readers_fail_after_a_stop() {
        let mut reads = Reads::new(1);
        let (asked, _) = reads.join();
        reads.begin(MemberId(7), |_| true);
        let (collected, _) = reads.join();
        reads.stop().into_iter().for_each(Answered::deliver);
        let (late, wake) = reads.join();
        assert!(!wake);
        for reader in [asked, collected, late] {
            assert_eq!(reader.wait(), Err(ReadIndexError::Stopped));
        }
    }
}

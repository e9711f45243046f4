//! The requests of clients and the streams of watchers.

use portunus_auth::{AuthState, Caller};
use portunus_proto::etcdserverpb::RequestHeader;
use portunus_proto::{EtcdError, LeaseId};
use portunus_statemachine::Response;

use super::super::client::{Pending, Request, any_keys};
use super::super::member::{Proposal, REQUIRED, Reply};
use super::super::planted::PlantedBug;
use super::super::scenario::TICK;
use super::super::users::user_of;
use super::super::violation::Violation;
use super::super::watcher::Watcher;
use super::{Event, World};

/// The most requests of a run, so that a run without faults does not take long.
const REQUESTS_MAX: u64 = 1200;
/// A client gives up after this time, as a server does.
const REQUEST_TICKS_MAX: u64 = 70;

/// Returns the caller of a request as the server identifies it.
fn caller(auth: &AuthState, user: Option<&str>, bug: Option<PlantedBug>) -> Caller {
    match user {
        Some(_) if !auth.is_enabled() => Caller::default(),
        Some(_) if bug == Some(PlantedBug::ProposesAsRoot) => Caller::new("root", auth.revision()),
        Some(user) => Caller::new(user, auth.revision()),
        None => Caller::default(),
    }
}

fn header(id: u64, caller: &Caller) -> RequestHeader {
    RequestHeader {
        id,
        username: caller.username().to_owned(),
        auth_revision: caller.revision(),
    }
}

impl World<'_> {
    pub(super) fn open_watchers(&mut self) {
        for number in 0..self.scenario.watchers {
            let keys = any_keys(&mut self.random);
            let with_previous = self.random.below(2) == 0;
            // Some begin in the future, most at the newest revision.
            let next = (self.random.below(4) == 0)
                .then(|| i64::try_from(self.random.between(1, 30)).unwrap_or(1));
            self.watchers
                .push(Watcher::new(number, keys, with_previous, next));
            let delay = self.random.below(30 * TICK);
            let watcher = self.watchers.len() - 1;
            self.after(delay, Event::Watch { watcher });
        }
    }

    /// A client sends its next request to some member.
    pub(super) fn request(&mut self, client: usize) -> Result<(), Violation> {
        let is_busy = self.clients[client].pending.is_some();
        if is_busy || self.faults_stopped || self.report.requests >= REQUESTS_MAX {
            return Ok(());
        }
        let running = self.running_ids();
        let Some(&member) = self.random.choose(&running) else {
            self.after(TICK, Event::Request { client });
            return Ok(());
        };
        let number = self.number();
        let request = self.clients[client].next(
            &mut self.random,
            &self.oracle,
            number,
            REQUIRED,
            self.scenario.payload_bytes_max,
        );
        self.submit(client, number, member, request)
    }

    pub(super) fn submit(
        &mut self,
        client: usize,
        number: u64,
        member: u64,
        request: Request,
    ) -> Result<(), Violation> {
        self.report.requests += 1;
        self.note(|| format!("client {client} sends {number} to {member:x}: {request:?}"));
        self.clients[client].pending = Some(Pending {
            number,
            request: request.clone(),
            called_at: self.now,
            floor: self.oracle.floor(),
            member,
        });
        let user = self.scenario.has_users.then(|| user_of(client));
        if let Some(user) = user {
            self.oracle.sends(number, user);
        }
        let timeout = REQUEST_TICKS_MAX * TICK;
        self.after(timeout, Event::Timeout { client, number });
        match request {
            Request::Write { request, required } => {
                let start = self.members.get(&member).map(|it| it.start.clone());
                let running = self.members.get(&member).and_then(|it| it.running.as_ref());
                let machine = running.map(|it| &it.replica.machine);
                let bug = self.bug;
                let data = machine.zip(start).and_then(|(machine, start)| {
                    let caller = caller(machine.auth(), user, bug);
                    let membership = machine.membership();
                    start.encode(membership, header(number, &caller), *request, &required)
                });
                let Some(data) = data else {
                    // A required feature may be unknown to a member.
                    self.finished(client);
                    return Ok(());
                };
                self.with_member(member, |member, around| {
                    member.submit(Some(number), Proposal::Normal(data), around)
                })
            }
            Request::Read { range, .. } => self.with_member(member, |member, around| {
                member.read(number, range, user, around)
            }),
            Request::Renew { .. } => {
                let running = self.members.get(&member).and_then(|it| it.running.as_ref());
                let leader = running.map_or(0, |it| it.core().current_leadership().leader.0);
                let is_cut = self.is_blocked(member, leader) || self.is_blocked(leader, member);
                if leader == 0 || is_cut {
                    self.finished(client);
                    return Ok(());
                }
                let delay = 1 + self.random.below(self.scenario.delay_max);
                self.after(
                    delay,
                    Event::Renewal {
                        client,
                        number,
                        leader,
                    },
                );
                Ok(())
            }
        }
    }

    pub(super) fn renew(
        &mut self,
        client: usize,
        number: u64,
        leader: u64,
    ) -> Result<(), Violation> {
        let pending = self.clients[client].pending.as_mut();
        let Some(pending) = pending.filter(|it| it.number == number) else {
            return Ok(());
        };
        let Request::Renew { lease } = pending.request else {
            return Ok(());
        };
        pending.member = leader;
        self.with_member(leader, |member, around| {
            member.renew(number, LeaseId(lease), around)
        })
    }

    /// The client's request has ended; it sends the next one after a while.
    fn finished(&mut self, client: usize) {
        self.clients[client].pending = None;
        if !self.faults_stopped {
            let delay = self.random.below(self.scenario.think_time_max);
            self.after(delay, Event::Request { client });
        }
    }

    pub(super) fn gives_up(&mut self, client: usize, number: u64) -> Result<(), Violation> {
        let pending = self.clients[client].pending.as_ref();
        let Some(pending) = pending.filter(|it| it.number == number) else {
            return Ok(());
        };
        let at = pending.member;
        let bug = self.bug;
        let member = self.members.get_mut(&at);
        let is_withdrawn = member.is_some_and(|it| it.withdraw(number, bug));
        self.note(|| format!("client {client} gives up {number}, withdrawn: {is_withdrawn}"));
        self.report.timeouts += 1;
        if is_withdrawn {
            self.oracle.fails(number)?;
        }
        self.finished(client);
        Ok(())
    }

    /// All requests at a member end without an answer.
    pub(super) fn lose_requests(&mut self, id: u64) {
        for client in 0..self.clients.len() {
            let pending = self.clients[client].pending.as_ref();
            if pending.is_some_and(|it| it.member == id) {
                self.finished(client);
            }
        }
    }

    /// Checks an answer.
    pub(super) fn replied(&mut self, number: u64, reply: Reply) -> Result<(), Violation> {
        if let Reply::Applied { index, .. } = &reply
            && self.pending_changes.remove(&number)
        {
            self.newest_change_index = self.newest_change_index.max(*index);
        }
        let is_of = |client: &super::Client| {
            let pending = client.pending.as_ref();
            pending.is_some_and(|it| it.number == number)
        };
        let Some(client) = self.clients.iter().position(is_of) else {
            return Ok(());
        };
        let Some(pending) = self.clients[client].pending.take() else {
            return Ok(());
        };
        match (&pending.request, reply) {
            (Request::Write { .. }, Reply::Applied { index, answer }) => {
                self.note(|| format!("client {client}: {number} applied at {index}: {answer:?}"));
                self.oracle.answers_write(number, index, &answer)?;
                if let Ok(Response::LeaseGrant(granted)) = &answer {
                    self.clients[client].leases.push((granted.id, granted.ttl));
                    let called_at = pending.called_at;
                    self.oracle.lease_lives(granted.id, called_at, granted.ttl);
                }
            }
            (Request::Read { range, keys }, Reply::Read { index, answer }) => {
                if self.scenario.has_users {
                    self.oracle.answers_reader(number, range, index, &answer)?;
                }
                self.note(|| format!("client {client}: {number} read {answer:?}"));
                let floor = pending.floor;
                self.oracle
                    .answers_read(number, range, keys, floor, &answer)?;
            }
            (Request::Renew { lease }, Reply::Renewed(answer)) => {
                self.note(|| format!("client {client}: {number} renewed {lease}: {answer:?}"));
                match answer {
                    Ok(ttl_s) => {
                        self.report.leases_renewed += 1;
                        self.oracle.lease_lives(*lease, pending.called_at, ttl_s);
                    }
                    Err(EtcdError::LeaseNotFound) => {
                        self.oracle.lease_not_found(*lease)?;
                        self.clients[client].leases.retain(|(id, _)| id != lease);
                    }
                    Err(_) => {}
                }
            }
            _ => self.note(|| format!("client {client}: the outcome of {number} is unknown")),
        }
        self.finished(client);
        Ok(())
    }

    /// A watcher reads some responses, or opens its stream at another member.
    pub(super) fn read_watch(&mut self, watcher: usize) -> Result<(), Violation> {
        let delay = 1 + self.random.below(self.scenario.watch_delay_max);
        self.after(delay, Event::Watch { watcher });
        let at = self.watchers[watcher].at;
        let is_open = at.is_some_and(|(id, incarnation)| self.is_current(id, incarnation));
        let moves = !self.faults_stopped && self.random.below(60) == 0;
        if !is_open || moves {
            self.open_watch(watcher);
            return Ok(());
        }
        let Some((id, _)) = at else {
            return Ok(());
        };
        let count = 1 + self.random.below(8);
        let asks = self.random.below(10) == 0;
        let number = watcher as u64;
        let running = self.members.get_mut(&id).and_then(|it| it.running.as_mut());
        let Some(running) = running else {
            return Ok(());
        };
        let mut responses = running.take_responses(number, count).unwrap_or_default();
        if asks {
            running.request_progress(number);
        }
        if self.bug == Some(PlantedBug::ProgressOvertakesEvents) {
            responses.sort_by_key(|response| !response.is_progress());
        }
        for response in responses {
            self.note(|| format!("watcher {watcher} at {id:x}: {response:?}"));
            let mut goes_on = self.watchers[watcher].receives(&response, &self.oracle)?;
            let repeats = self.bug == Some(PlantedBug::RepeatsEvents) && response.event_count() > 0;
            if repeats && self.random.below(20) == 0 {
                goes_on = self.watchers[watcher].receives(&response, &self.oracle)?;
            }
            if !goes_on {
                self.watchers[watcher].at = None;
                break;
            }
        }
        Ok(())
    }

    fn open_watch(&mut self, watcher: usize) {
        let number = watcher as u64;
        if let Some((id, incarnation)) = self.watchers[watcher].at.take()
            && self.is_current(id, incarnation)
            && let Some(running) = self.members.get_mut(&id).and_then(|it| it.running.as_mut())
        {
            running.stop_watching(number);
        }
        let running = self.running_ids();
        let Some(&id) = self.random.choose(&running) else {
            return;
        };
        let Some(member) = self.members.get_mut(&id) else {
            return;
        };
        let incarnation = member.incarnation;
        let Some(running) = &mut member.running else {
            return;
        };
        let revision = running.replica.hub.revision();
        let request = self.watchers[watcher].request(revision, self.bug);
        running.watch(number, request, self.now);
        self.watchers[watcher].at = Some((id, incarnation));
        let next = self.watchers[watcher].next();
        self.note(|| format!("watcher {watcher} watches at {id:x} from {next:?}"));
    }
}

//! Servers that are one store: a single member, or several.
//!
//! Workloads get one that was started for them. Everything about who leads is asked over the
//! wire, so it works alike for both servers.

use std::time::{Duration, Instant};

use portunus_proto::etcdserverpb::{MemberAddRequest, StatusResponse};
use thiserror::Error;

use crate::client;
use crate::server::{Ending, Founding, Place, Program, Server, ServerError};
use crate::wire::Method;

/// Members that do not agree on a leader by then never will.
const AGREEMENT_TIME_MAX: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A cluster whose members all run.
#[derive(Debug)]
pub struct Cluster {
    program: Program,
    flags: &'static [&'static str],
    /// In the order in which they were started.
    pub servers: Vec<Server>,
}

/// A cluster that does not do what clusters do.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum ClusterError {
    /// One of its members.
    #[error("a member failed")]
    Server(#[from] ServerError),
    /// Nobody leads, or opinions differ.
    #[error("the members of {label} did not agree on a leader within {seconds} s")]
    NoLeader { label: String, seconds: u64 },
    /// No new member wanted.
    #[error("{label} refused a new member: is the cluster healthy?")]
    MemberRefused { label: String },
    /// Added, but not everywhere.
    #[error("not all members of {label} had heard of the new member within {seconds} s")]
    MemberUnknown { label: String, seconds: u64 },
}

impl Cluster {
    /// Starts so many members, empty, and waits until each of them answers.
    pub async fn start(
        program: &Program,
        members: usize,
        flags: &'static [&'static str],
    ) -> Result<Cluster, ClusterError> {
        let places = (0..members).map(|number| Place::new(&name(number)));
        let places = places.collect::<Result<Vec<Place>, ServerError>>()?;
        let introductions: Vec<String> = places.iter().map(Place::introduction).collect();
        let founding = Founding {
            initial_cluster: introductions.join(","),
            is_joining: false,
            flags,
        };
        let mut cluster = Cluster {
            program: program.clone(),
            flags,
            servers: Vec::with_capacity(members),
        };
        for place in places {
            let server = Server::launch(program, place, founding.clone())?;
            cluster.servers.push(server);
        }
        for server in &mut cluster.servers {
            server.wait_until_it_answers().await?;
        }
        Ok(cluster)
    }

    /// The only member, or the first of several.
    pub fn first(&mut self) -> &mut Server {
        // Started with at least one, and none is ever taken out.
        &mut self.servers[0]
    }

    /// Where clients connect.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        self.servers.iter().map(Server::address).collect()
    }

    /// For the meters.
    #[must_use]
    pub fn process_ids(&self) -> Vec<u32> {
        self.servers.iter().map(Server::process_id).collect()
    }

    /// Where the leader is in [`Cluster::servers`], and its term, once all agree on it.
    pub async fn leader(&self) -> Result<(usize, u64), ClusterError> {
        let deadline = Instant::now() + AGREEMENT_TIME_MAX;
        while Instant::now() < deadline {
            let mut statuses = Vec::with_capacity(self.servers.len());
            for server in &self.servers {
                statuses.push(client::status(&server.address()).await);
            }
            if let Some(leader) = agreed_leader(&statuses) {
                return Ok(leader);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Err(ClusterError::NoLeader {
            label: self.program.label.clone(),
            seconds: AGREEMENT_TIME_MAX.as_secs(),
        })
    }

    /// Adds a learner to the cluster and launches it; returns where it is in
    /// [`Cluster::servers`]. Does not wait for it.
    pub async fn add_learner(&mut self) -> Result<usize, ClusterError> {
        let number = self.servers.len();
        let place = Place::new(&name(number))?;
        let request = MemberAddRequest {
            peer_urls: vec![place.peer_url()],
            is_learner: true,
        };
        let (leader, _) = self.leader().await?;
        let asked = self.servers[leader].address();
        let added = client::ask(&asked, Method::MemberAdd, &request).await;
        added.ok_or_else(|| ClusterError::MemberRefused {
            label: self.program.label.clone(),
        })?;
        self.wait_until_all_count(number + 1).await?;
        let present = self.servers.iter().map(|server| server.place());
        let introductions: Vec<String> = present.chain([&place]).map(Place::introduction).collect();
        let founding = Founding {
            initial_cluster: introductions.join(","),
            is_joining: true,
            flags: self.flags,
        };
        let server = Server::launch(&self.program, place, founding)?;
        self.servers.push(server);
        Ok(number)
    }

    /// A new member asks any of the others who belongs to the cluster, and ends at once if that
    /// one has not heard of it yet.
    async fn wait_until_all_count(&self, members: usize) -> Result<(), ClusterError> {
        let deadline = Instant::now() + AGREEMENT_TIME_MAX;
        for server in &self.servers {
            while client::member_count(&server.address()).await != Some(members) {
                if Instant::now() >= deadline {
                    return Err(ClusterError::MemberUnknown {
                        label: self.program.label.clone(),
                        seconds: AGREEMENT_TIME_MAX.as_secs(),
                    });
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
        Ok(())
    }

    /// Ends all members. A single one is asked, as it was always measured; of several, each
    /// would try to hand its leadership to others that are about to go, too.
    pub async fn stop(mut self) -> Result<(), ClusterError> {
        let ending = match self.servers.len() {
            1 => Ending::Asked,
            _ => Ending::Killed,
        };
        for server in &mut self.servers {
            server.end(ending).await?;
        }
        Ok(())
    }
}

fn name(number: usize) -> String {
    format!("m{number}")
}

/// The place of the leader and its term, if all members answer and name the same one.
fn agreed_leader(statuses: &[Option<StatusResponse>]) -> Option<(usize, u64)> {
    let first = statuses.first()?.as_ref()?;
    let view = (first.leader, first.raft_term);
    let is_agreed = statuses.iter().all(|status| {
        let status = status.as_ref();
        status.is_some_and(|status| (status.leader, status.raft_term) == view)
    });
    let place = statuses.iter().flatten().position(|status| {
        let own_id = status.header.as_ref().map(|header| header.member_id);
        own_id == Some(first.leader)
    })?;
    (is_agreed && first.leader != 0).then_some((place, first.raft_term))
}

#[cfg(test)]
mod tests {
    use portunus_proto::etcdserverpb::ResponseHeader;

    use super::*;

    fn status(member_id: u64, leader: u64, raft_term: u64) -> Option<StatusResponse> {
        Some(StatusResponse {
            header: Some(ResponseHeader {
                member_id,
                ..ResponseHeader::default()
            }),
            leader,
            raft_term,
            ..StatusResponse::default()
        })
    }

    #[test]
    fn the_leader_is_the_one_that_all_name() {
        let all = [status(7, 9, 2), status(8, 9, 2), status(9, 9, 2)];
        assert_eq!(agreed_leader(&all), Some((2, 2)));
    }

    #[test]
    fn there_is_no_leader_while_one_is_silent_or_of_another_opinion() {
        assert_eq!(agreed_leader(&[]), None);
        assert_eq!(agreed_leader(&[status(7, 7, 2), None]), None);
        assert_eq!(agreed_leader(&[status(7, 7, 2), status(8, 7, 1)]), None);
        assert_eq!(agreed_leader(&[status(7, 7, 2), status(8, 8, 2)]), None);
        assert_eq!(agreed_leader(&[status(7, 0, 2), status(0, 0, 2)]), None);
        assert_eq!(agreed_leader(&[status(7, 5, 2), status(8, 5, 2)]), None);
    }
}

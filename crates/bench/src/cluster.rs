//! A cluster of one or several servers.
//!
//! Each group of workloads gets a new cluster. The leader is determined over the API, in the
//! same way for both servers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use portunus_proto::etcdserverpb::{MemberAddRequest, StatusResponse};
use portunus_testkit::member::{self, InitialState};
use thiserror::Error;

use crate::access::Access;
use crate::client;
use crate::endpoint::Endpoint;
use crate::server::{Program, Server, ServerError, StopMode};
use crate::users::{self, UsersError};
use crate::wire::Method;

/// The time limit for members to agree on a leader or a member list.
const AGREEMENT_TIME_MAX: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A cluster whose members all run.
#[derive(Debug)]
pub struct Cluster {
    program: Program,
    flags: &'static [&'static str],
    access: Access,
    /// The members, in the order of their start.
    pub servers: Vec<Server>,
}

/// Why a cluster cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum ClusterError {
    /// A member failed.
    #[error("a member failed")]
    Server(#[from] ServerError),
    /// The members did not agree on a leader.
    #[error("the members of {label} did not agree on a leader within {seconds} s")]
    NoLeader { label: String, seconds: u64 },
    /// Authentication was not enabled.
    #[error("authentication could not be enabled on {label}")]
    Users { label: String, source: UsersError },
    /// The cluster refused a new member.
    #[error("{label} refused a new member: is the cluster healthy?")]
    MemberRefused { label: String },
    /// Some members have not applied the addition of the new member.
    #[error("not all members of {label} listed the new member within {seconds} s")]
    MemberUnknown { label: String, seconds: u64 },
}

impl Cluster {
    /// Starts members without data and waits until each of them answers; with authentication,
    /// until each of them answers the user of the load.
    pub async fn start(
        program: &Program,
        members: usize,
        flags: &'static [&'static str],
        access: &Access,
    ) -> Result<Cluster, ClusterError> {
        let servers = (0..members).map(|number| Server::new(program, &name(number), flags, access));
        let mut cluster = Cluster {
            program: program.clone(),
            flags,
            access: access.clone(),
            servers: servers.collect::<Result<Vec<Server>, ServerError>>()?,
        };
        let initial_cluster = cluster.initial_cluster();
        for server in &mut cluster.servers {
            server.launch(&initial_cluster, InitialState::New)?;
        }
        for server in &mut cluster.servers {
            server.wait_until_answering().await?;
        }
        if access.mode().auth {
            cluster.enable_auth().await?;
        }
        Ok(cluster)
    }

    /// Enables authentication, and waits until every member answers the user of the load.
    async fn enable_auth(&mut self) -> Result<(), ClusterError> {
        let enabled = users::enable(&self.first().endpoint()).await;
        let token: Arc<str> = match enabled {
            Ok(token) => token.into(),
            Err(source) => {
                let label = self.program.label.clone();
                return Err(ClusterError::Users { label, source });
            }
        };
        for server in &mut self.servers {
            server.set_token(Arc::clone(&token));
            server.wait_until_answering().await?;
        }
        Ok(())
    }

    fn initial_cluster(&self) -> String {
        member::initial_cluster(self.servers.iter().map(Server::member))
    }

    /// Returns the first member.
    pub fn first(&mut self) -> &mut Server {
        // A cluster has at least one member, and none is removed.
        &mut self.servers[0]
    }

    /// Returns where and as whom clients connect, for all members.
    #[must_use]
    pub fn endpoints(&self) -> Vec<Endpoint> {
        self.servers.iter().map(Server::endpoint).collect()
    }

    /// Returns the process ids of all members.
    #[must_use]
    pub fn process_ids(&self) -> Vec<u32> {
        self.servers.iter().map(Server::process_id).collect()
    }

    /// Returns the position of the leader in [`Cluster::servers`] and its term, once all agree.
    pub async fn leader(&self) -> Result<(usize, u64), ClusterError> {
        let deadline = Instant::now() + AGREEMENT_TIME_MAX;
        while Instant::now() < deadline {
            let mut statuses = Vec::with_capacity(self.servers.len());
            for server in &self.servers {
                statuses.push(client::status(&server.endpoint()).await);
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

    /// Adds a learner and starts its process; returns its position in [`Cluster::servers`].
    /// Does not wait until it answers.
    pub async fn add_learner(&mut self) -> Result<usize, ClusterError> {
        let number = self.servers.len();
        let server = Server::new(&self.program, &name(number), self.flags, &self.access)?;
        let request = MemberAddRequest {
            peer_urls: vec![server.member().peer_url()],
            is_learner: true,
        };
        let (leader, _) = self.leader().await?;
        let endpoint = self.servers[leader].endpoint();
        let added = client::call(&endpoint, Method::MemberAdd, &request).await;
        added.ok_or_else(|| ClusterError::MemberRefused {
            label: self.program.label.clone(),
        })?;
        self.wait_until_all_count(number + 1).await?;
        self.servers.push(server);
        let initial_cluster = self.initial_cluster();
        self.servers[number].launch(&initial_cluster, InitialState::Existing)?;
        Ok(number)
    }

    /// Waits until all members list this many members. A new member reads the member list of
    /// any other one and exits if it is not in that list.
    async fn wait_until_all_count(&self, members: usize) -> Result<(), ClusterError> {
        let deadline = Instant::now() + AGREEMENT_TIME_MAX;
        for server in &self.servers {
            while client::member_count(&server.endpoint()).await != Some(members) {
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

    /// Stops all members: a single one with SIGTERM, several with SIGKILL, because each would
    /// try to transfer its leadership to members that are stopping, too.
    pub async fn stop(mut self) -> Result<(), ClusterError> {
        let stop_mode = match self.servers.len() {
            1 => StopMode::Graceful,
            _ => StopMode::Killed,
        };
        for server in &mut self.servers {
            server.end(stop_mode).await;
        }
        Ok(())
    }
}

fn name(number: usize) -> String {
    format!("m{number}")
}

/// Returns the position of the leader and its term, if all members report the same.
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
    fn leader_is_agreed_when_all_members_report_it() {
        let all = [status(7, 9, 2), status(8, 9, 2), status(9, 9, 2)];
        assert_eq!(agreed_leader(&all), Some((2, 2)));
    }

    #[test]
    fn no_leader_is_agreed_while_a_member_is_silent_or_differs() {
        assert_eq!(agreed_leader(&[]), None);
        assert_eq!(agreed_leader(&[status(7, 7, 2), None]), None);
        assert_eq!(agreed_leader(&[status(7, 7, 2), status(8, 7, 1)]), None);
        assert_eq!(agreed_leader(&[status(7, 7, 2), status(8, 8, 2)]), None);
        assert_eq!(agreed_leader(&[status(7, 0, 2), status(0, 0, 2)]), None);
        assert_eq!(agreed_leader(&[status(7, 5, 2), status(8, 5, 2)]), None);
    }
}

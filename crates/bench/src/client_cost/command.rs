//! The command line of `compare-client`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use portunus_client::{Client, ConnectError, Options};
use portunus_proto::etcdserverpb::kv_client::KvClient;
use portunus_testkit::go_program;
use portunus_testkit::program::Kind;
use thiserror::Error;
use tonic::transport::{Channel, Endpoint};

use super::measure::MeasureError;
use super::report::Report;
use super::work::{Library, Work, fill};
use super::{go_client, rust_clients};
use crate::access::{Access, AccessError};
use crate::cluster::{Cluster, ClusterError};
use crate::machine::Machine;
use crate::mode::Mode;
use crate::server::{Program, ServerError};
use crate::window::WindowDurations;

/// Objects of a list.
const OBJECTS: u64 = 10_000;
/// Events of a watch.
const EVENTS: u64 = 1_000_000;
/// Events of a watch with `--smoke`.
const SMOKE_EVENTS: u64 = 10_000;
const WARM_UP: Duration = Duration::from_millis(500);

/// Makes the same calls with tonic's stubs, portunus-client and etcd's Go client, and prints the
/// CPU time of each client per call.
#[derive(Debug, Parser)]
#[command(name = "compare-client", version)]
pub struct Command {
    /// The Portunus binary; without it, the one beside this program
    #[arg(long, value_name = "PATH")]
    portunus: Option<PathBuf>,
    /// Number of rounds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Measured seconds of each kind of calls with each client
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Run everything once and very shortly, only to check that it works
    #[arg(long)]
    smoke: bool,
}

/// Why the comparison failed.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum CommandError {
    /// The Portunus binary does not run.
    #[error(
        "there is no Portunus binary at {path}: build it with `cargo build --release -p portunus-server`, or give --portunus"
    )]
    NoPortunus { path: String, source: ServerError },
    /// The server did not start.
    #[error("the server could not be started")]
    Cluster(#[from] ClusterError),
    /// The settings of connections are wrong.
    #[error("the connections could not be prepared")]
    Access(#[from] AccessError),
    /// The stubs could not connect.
    #[error("tonic's stubs could not connect")]
    Connect(#[from] tonic::transport::Error),
    /// The client refused its options.
    #[error("portunus-client could not be created")]
    Client(#[from] ConnectError),
    /// The server has no member.
    #[error("the server has no member")]
    NoMember,
    /// Filling the store failed.
    #[error("the store could not be filled")]
    Fill(#[source] Box<tonic::Status>),
    /// A measurement failed.
    #[error("{library} failed at {work}", work = work.name())]
    Measure {
        work: Work,
        library: Library,
        source: MeasureError,
    },
}

/// The server and the clients.
struct Clients {
    endpoint: String,
    channel: Channel,
    portunus: Client,
    clientv3: Option<PathBuf>,
    events: u64,
    durations: WindowDurations,
}

impl Command {
    /// Runs the comparison and prints the figures to stdout.
    ///
    /// # Errors
    /// If the server, a client or a measurement fails.
    pub async fn run(self) -> Result<(), CommandError> {
        let path = self.portunus.clone();
        let path = path.unwrap_or_else(crate::command::beside_this_program);
        let program = Program::at(&path, Kind::Portunus).map_err(|source| {
            let path = path.display().to_string();
            CommandError::NoPortunus { path, source }
        })?;
        println!("{}\n", Machine::here());
        let access = Access::new(Mode::default())?;
        let cluster = Cluster::start(&program, 1, &[], &access).await?;
        let server = cluster.servers.first().ok_or(CommandError::NoMember)?;
        let address = server.endpoint().address;
        let clients = self.connect(&address).await?;
        let rounds = if self.smoke { 1 } else { self.rounds };
        let mut report = Report::default();
        for round in 1..=rounds {
            for work in Work::ALL {
                eprintln!("round {round} of {rounds}: {}", work.name());
                clients.run_all(work, &mut report).await?;
            }
        }
        if self.smoke {
            println!("A smoke run: everything ran, the figures mean nothing.\n");
        }
        println!("{report}");
        Ok(())
    }

    async fn connect(&self, address: &str) -> Result<Clients, CommandError> {
        let endpoint = format!("http://{address}");
        let channel = Endpoint::from_shared(endpoint.clone())?.connect().await?;
        let portunus = Client::connect(Options {
            endpoints: vec![endpoint.clone()],
            ..Options::default()
        })?;
        let clientv3 = go_program::build(go_client::NAME);
        if let Err(why) = &clientv3 {
            eprintln!("!!\n!! NO GO CLIENT TO COMPARE WITH: {why}\n!!");
        }
        let events = if self.smoke { SMOKE_EVENTS } else { EVENTS };
        let mut kv = KvClient::new(channel.clone());
        for (work, count) in [(Work::Get, 1), (Work::List, OBJECTS), (Work::Watch, events)] {
            eprintln!("writing {count} keys for {}", work.name());
            let filled = fill(&mut kv, work, count).await;
            filled.map_err(|status| CommandError::Fill(Box::new(status)))?;
        }
        let measured = match self.smoke {
            true => Duration::from_millis(100),
            false => Duration::from_secs(self.seconds),
        };
        Ok(Clients {
            endpoint,
            channel,
            portunus,
            clientv3: clientv3.ok(),
            events,
            durations: WindowDurations {
                warm_up: WARM_UP,
                measured,
            },
        })
    }
}

impl Clients {
    async fn run_all(&self, work: Work, report: &mut Report) -> Result<(), CommandError> {
        for library in Library::ALL {
            let cost = match (library, &self.clientv3) {
                (Library::Tonic, _) => {
                    rust_clients::run_tonic(&self.channel, work, self.events, self.durations).await
                }
                (Library::Portunus, _) => {
                    rust_clients::run_portunus(&self.portunus, work, self.events, self.durations)
                        .await
                }
                (Library::Clientv3, Some(program)) => {
                    go_client::run(program, &self.endpoint, work, self.events, self.durations).await
                }
                (Library::Clientv3, None) => continue,
            };
            let cost = cost.map_err(|source| CommandError::Measure {
                work,
                library,
                source,
            })?;
            report.add(work, library, cost);
        }
        Ok(())
    }
}

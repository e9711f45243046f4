//! A server and a client of it.
#![allow(dead_code)] // each test program uses a part

use std::path::PathBuf;
use std::time::Duration;

use portunus_client::concurrency::{Session, SessionOptions};
use portunus_client::{Client, Options, Range};
use portunus_testkit::go::{self, Tool};
use portunus_testkit::member::Member;
use portunus_testkit::process::Process;
use portunus_testkit::program::Program;
use portunus_testkit::wait::until;
use tempfile::TempDir;

/// A member that is a cluster of its own.
pub struct Store {
    pub member: Member,
    pub client: Client,
    _directory: TempDir,
}

pub fn connect(endpoints: Vec<String>) -> Client {
    Client::connect(Options {
        endpoints,
        command_timeout: Some(Duration::from_secs(10)),
        ..Options::default()
    })
    .unwrap()
}

impl Store {
    pub async fn start(program: Program) -> Store {
        Store::start_with(program, &[]).await
    }

    pub async fn start_with(program: Program, flags: &[&str]) -> Store {
        let directory = tempfile::tempdir().unwrap();
        let mut member = Member::new("m1", program, directory.path()).unwrap();
        member.flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        member.launch(&[]);
        let store = Store {
            client: connect(vec![member.endpoint()]),
            member,
            _directory: directory,
        };
        store.wait_until_serving().await;
        store
    }

    pub async fn portunus() -> Store {
        Store::start(Program::portunus()).await
    }

    /// Starts Portunus, and etcd if there is one.
    pub async fn both(test: &str) -> Vec<Store> {
        let mut stores = vec![Store::portunus().await];
        if let Some(etcd) = Program::etcd(test) {
            stores.push(Store::start(etcd).await);
        }
        stores
    }

    pub async fn wait_until_serving(&self) {
        until("serving member", async || {
            self.client.range(Range::key("x")).await
        })
        .await;
    }

    /// Returns a session with a client of its own, as another process would have it.
    pub async fn session(&self) -> Session {
        let client = connect(vec![self.member.endpoint()]);
        Session::start(&client, SessionOptions::with_ttl(30))
            .await
            .unwrap()
    }

    /// Starts etcdctl with these arguments; `None` if there is none.
    pub fn etcdctl(&self, test: &str, arguments: &[&str]) -> Option<Process> {
        let program: PathBuf = go::find_for_test(Tool::Etcdctl, test)?;
        let mut command = std::process::Command::new(program);
        command.arg(format!("--endpoints={}", self.member.endpoint()));
        Some(Process::spawn(command.args(arguments)))
    }
}

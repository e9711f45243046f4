//! Several members on loopback.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::{Ran, START_WITHIN, clean, free_port, portctl, run, server_program};

/// The initial cluster state of a new member.
#[derive(Clone, Copy)]
enum State {
    New,
    Existing,
}

/// One process.
pub struct Node {
    pub name: String,
    pub client_port: u16,
    pub peer_url: String,
    process: Child,
}

impl Node {
    pub fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.client_port)
    }

    pub fn client_url(&self) -> String {
        format!("http://{}", self.endpoint())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Three members `m1`, `m2`, `m3`, and those added later; stopped when dropped.
pub struct Cluster {
    program: PathBuf,
    directory: TempDir,
    pub nodes: Vec<Node>,
}

impl Cluster {
    /// Starts three members and waits until the cluster accepts changes of membership: it refuses
    /// them until its members have been connected for some seconds.
    pub fn start(test: &str) -> Option<Self> {
        let program = server_program(test)?;
        let directory = tempfile::tempdir().unwrap();
        let members: Vec<(String, String)> = (1..=3)
            .map(|number| (format!("m{number}"), free_peer_url()))
            .collect();
        let initial: Vec<String> = members
            .iter()
            .map(|(name, url)| format!("{name}={url}"))
            .collect();
        let nodes = members
            .iter()
            .map(|(name, url)| {
                let initial = initial.join(",");
                spawn(&program, directory.path(), name, url, &initial, State::New)
            })
            .collect();
        let cluster = Self {
            program,
            directory,
            nodes,
        };
        let unstarted = free_peer_url();
        let peer_urls = format!("--peer-urls={unstarted}");
        cluster.eventually(&["member", "add", "probe", &peer_urls, "--learner"]);
        let id = cluster.id_of(&unstarted);
        cluster.portctl(["member", "remove", &id]).ok();
        Some(cluster)
    }

    /// Starts a member that `member add` announced, with the settings it printed.
    pub fn start_added(&mut self, added: &str, peer_url: &str) {
        let setting = |name: &str| {
            let line = added.lines().find(|line| line.starts_with(name)).unwrap();
            let (_, value) = line.split_once('=').unwrap();
            value.trim_matches('"').to_owned()
        };
        let (name, initial) = (setting("ETCD_NAME="), setting("ETCD_INITIAL_CLUSTER="));
        let directory = self.directory.path();
        let state = State::Existing;
        let node = spawn(&self.program, directory, &name, peer_url, &initial, state);
        self.nodes.push(node);
    }

    /// Every member's endpoint.
    pub fn endpoints(&self) -> String {
        let endpoints: Vec<String> = self.nodes.iter().map(Node::endpoint).collect();
        endpoints.join(",")
    }

    /// Runs `portctl` with every endpoint.
    pub fn portctl<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Ran {
        let mut command = portctl();
        command.env("PORTCTL_ENDPOINTS", self.endpoints());
        run(command.args(arguments), b"")
    }

    /// Runs any program that takes etcdctl's environment, with these endpoints.
    pub fn run(&self, program: &OsStr, endpoints: &str, arguments: &[&str]) -> Ran {
        let mut command = clean(Command::new(program));
        command.env("ETCDCTL_ENDPOINTS", endpoints);
        run(command.args(arguments), b"")
    }

    /// Repeats a command until it succeeds.
    #[track_caller]
    pub fn eventually(&self, arguments: &[&str]) -> String {
        let deadline = Instant::now() + START_WITHIN;
        loop {
            let ran = self.portctl(arguments);
            if ran.success {
                return ran.out;
            }
            assert!(Instant::now() < deadline, "{arguments:?}: {ran:?}");
            sleep(Duration::from_millis(200));
        }
    }

    /// The members, as rows of `member list`.
    pub fn members(&self) -> Vec<Vec<String>> {
        let list = self.portctl(["member", "list"]).ok();
        let cells = |line: &str| line.split(", ").map(str::to_owned).collect();
        list.lines().map(cells).collect()
    }

    /// The id of the member with this name or peer URL.
    #[track_caller]
    pub fn id_of(&self, name_or_url: &str) -> String {
        let members = self.members();
        let member = members
            .iter()
            .find(|cells| cells[2] == name_or_url || cells[3] == name_or_url);
        member.unwrap_or_else(|| panic!("{members:?}"))[0].clone()
    }

    /// The cluster's version, and the one it can go back to.
    pub fn versions(&self) -> (String, String) {
        let status = self.portctl(["endpoint", "status"]).ok();
        let version = status.split(", ").nth(2).unwrap();
        let mut parts = version.split('.').map(|part| part.parse::<u8>().unwrap());
        let (major, minor) = (parts.next().unwrap(), parts.next().unwrap());
        let target = format!("{major}.{}", minor - 1);
        // It is decided a moment after the first member leads.
        self.eventually(&["downgrade", "validate", &target]);
        (format!("{major}.{minor}"), target)
    }

    /// The position in `nodes` of the member that leads.
    pub fn leader(&self) -> usize {
        let deadline = Instant::now() + START_WITHIN;
        loop {
            let status = self.portctl(["endpoint", "status"]).ok();
            let leads = |line: &str| line.split(", ").nth(8) == Some("true");
            if let Some(leader) = status.lines().position(leads) {
                return leader;
            }
            assert!(Instant::now() < deadline, "{status}");
            sleep(Duration::from_millis(50));
        }
    }
}

/// A peer URL with an unused port.
pub fn free_peer_url() -> String {
    format!("http://127.0.0.1:{}", free_port())
}

fn spawn(
    program: &Path,
    directory: &Path,
    name: &str,
    peer_url: &str,
    initial_cluster: &str,
    state: State,
) -> Node {
    let client_port = free_port();
    let client_url = format!("http://127.0.0.1:{client_port}");
    let state = match state {
        State::New => "new",
        State::Existing => "existing",
    };
    let process = Command::new(program)
        .arg("--data-dir")
        .arg(directory.join(name))
        .args(["--name", name])
        .args(["--listen-client-urls", &client_url])
        .args(["--advertise-client-urls", &client_url])
        .args(["--listen-peer-urls", peer_url])
        .args(["--initial-advertise-peer-urls", peer_url])
        .args(["--initial-cluster", initial_cluster])
        .args(["--initial-cluster-state", state])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    Node {
        name: name.to_owned(),
        client_port,
        peer_url: peer_url.to_owned(),
        process,
    }
}

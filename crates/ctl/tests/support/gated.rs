//! Members of Portunus with flags of their own, restarted with others.
//!
//! The server is the one built beside `portctl`. A run of all the workspace's tests builds it
//! first; where it is missing it is built now. A run of this crate's tests alone takes the last
//! build, so build the server after changing it.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::cluster::free_peer_url;
use super::{Ran, START_WITHIN, free_port, portctl, run};

/// Without it a member takes no part in deciding the cluster's features.
pub const MECHANISM: &str = "--feature-gates=ClusterFeatureGate=true";
/// Proposes the feature that these tests switch.
pub const WANTS_IT: &str = "--cluster-feature-gates=LeaseCheckpoint=true";

/// The log lines of each member that are shown when a wait fails.
const LOG_LINES_SHOWN: usize = 40;

/// One member, running or not.
pub struct Node {
    pub name: String,
    pub client_port: u16,
    pub peer_url: String,
    process: Option<Child>,
}

impl Node {
    pub fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.client_port)
    }

    /// Kills the process.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Stops the process gracefully.
    pub fn stop(&mut self) {
        use nix::sys::signal::{Signal, kill};
        if let Some(mut process) = self.process.take() {
            let id = nix::unistd::Pid::from_raw(i32::try_from(process.id()).unwrap());
            kill(id, Signal::SIGTERM).unwrap();
            assert!(process.wait().unwrap().success(), "{}", self.name);
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Members `m1` and so on; stopped when dropped.
pub struct Gated {
    directory: TempDir,
    initial_cluster: String,
    pub nodes: Vec<Node>,
}

impl Gated {
    /// The value of `--initial-cluster`.
    pub fn initial_cluster(&self) -> &str {
        &self.initial_cluster
    }

    /// Starts as many members as there are lists of flags.
    pub fn start(flags: &[&[&str]]) -> Self {
        let mut cluster = Self::places(flags.len());
        cluster.start_all(flags);
        cluster
    }

    /// Prepares members that do not run yet.
    pub fn places(count: usize) -> Self {
        let nodes: Vec<Node> = (1..=count)
            .map(|number| new_node(format!("m{number}")))
            .collect();
        let initial = nodes
            .iter()
            .map(|node| format!("{}={}", node.name, node.peer_url));
        Self {
            directory: tempfile::tempdir().unwrap(),
            initial_cluster: initial.collect::<Vec<_>>().join(","),
            nodes,
        }
    }

    /// Stops a member and starts it on its data with other flags.
    pub fn restart(&mut self, at: usize, flags: &[&str]) {
        self.nodes[at].kill();
        self.start_node(at, flags, "new");
        self.until(&["endpoint", "health"], |ran| ran.success);
    }

    /// Adds a learner with `member add` and starts it.
    pub fn add_learner(&mut self, name: &str, flags: &[&str]) {
        let node = new_node(name.to_owned());
        let peer_urls = format!("--peer-urls={}", node.peer_url);
        // A cluster accepts changes of membership only some seconds after its start.
        self.until(&["member", "add", name, &peer_urls, "--learner"], |ran| {
            ran.success
        });
        self.initial_cluster += &format!(",{name}={}", node.peer_url);
        self.nodes.push(node);
        self.start_node(self.nodes.len() - 1, flags, "existing");
        self.until(&["endpoint", "status"], |ran| ran.success);
    }

    fn start_node(&mut self, at: usize, flags: &[&str], state: &str) {
        let mut command = self.server(at, flags, state);
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log(at))
            .unwrap();
        let process = command.stdout(Stdio::null()).stderr(log).spawn();
        self.nodes[at].process = Some(process.unwrap());
    }

    /// The log file of a member.
    fn log(&self, at: usize) -> PathBuf {
        self.path(&format!("{}.log", self.nodes[at].name))
    }

    /// The last log lines of every member.
    fn last_words(&self) -> String {
        let mut text = String::new();
        for at in 0..self.nodes.len() {
            let log = std::fs::read_to_string(self.log(at)).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let last = &lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..];
            text += &format!("\n-- {}:\n{}", self.nodes[at].name, last.join("\n"));
        }
        text
    }

    fn server(&self, at: usize, flags: &[&str], state: &str) -> Command {
        let node = &self.nodes[at];
        let client_url = format!("http://{}", node.endpoint());
        let mut command = Command::new(server_program());
        command
            .arg("--data-dir")
            .arg(self.data_dir(at))
            .args(["--name", &node.name])
            .args(["--listen-client-urls", &client_url])
            .args(["--advertise-client-urls", &client_url])
            .args(["--listen-peer-urls", &node.peer_url])
            .args(["--initial-advertise-peer-urls", &node.peer_url])
            .args(["--initial-cluster", &self.initial_cluster])
            .args(["--initial-cluster-state", state])
            .args(flags);
        command
    }

    /// The data directory of a member.
    pub fn data_dir(&self, at: usize) -> PathBuf {
        self.path(&self.nodes[at].name)
    }

    /// A path for files of the test, beside the members' data.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Stops every running member gracefully.
    pub fn stop_all(&mut self) {
        for node in &mut self.nodes {
            node.stop();
        }
    }

    /// Starts every member on its data.
    pub fn start_all(&mut self, flags: &[&[&str]]) {
        for (at, flags) in flags.iter().enumerate() {
            self.start_node(at, flags, "new");
        }
        self.until(&["endpoint", "health"], |ran| ran.success);
    }

    /// Runs a member that does not come up, and returns why.
    #[track_caller]
    pub fn refusal(&self, at: usize, flags: &[&str]) -> Ran {
        let mut server = self.server(at, flags, "new");
        server
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = server.spawn().unwrap();
        let deadline = Instant::now() + START_WITHIN;
        let has_ended = loop {
            let has_ended = child.try_wait().unwrap().is_some();
            if has_ended || Instant::now() >= deadline {
                break has_ended;
            }
            sleep(Duration::from_millis(10));
        };
        // A member that has ended already cannot be killed.
        let _ = child.kill();
        let ran = Ran::from(child.wait_with_output().unwrap());
        assert!(has_ended, "the member was not refused: {ran:?}");
        ran
    }

    /// The endpoints of running members.
    pub fn endpoints(&self) -> String {
        let running = self.nodes.iter().filter(|node| node.process.is_some());
        let endpoints: Vec<String> = running.map(Node::endpoint).collect();
        endpoints.join(",")
    }

    /// A `portctl` with the endpoints of all running members.
    pub fn command(&self) -> Command {
        let mut command = portctl();
        command.env("PORTCTL_ENDPOINTS", self.endpoints());
        command
    }

    /// Runs `portctl` with every running member's endpoint.
    pub fn portctl<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Ran {
        run(self.command().args(arguments), b"")
    }

    /// Runs a command line as a user would type it.
    pub fn typed(&self, line: &str) -> Ran {
        let arguments = line.strip_prefix("portctl ").unwrap();
        self.portctl(arguments.split(' '))
    }

    /// Repeats a command until its outcome is as wanted.
    #[track_caller]
    pub fn until(&self, arguments: &[&str], wanted: impl Fn(&Ran) -> bool) -> Ran {
        let deadline = Instant::now() + START_WITHIN;
        loop {
            let ran = self.portctl(arguments);
            if wanted(&ran) {
                return ran;
            }
            assert!(
                Instant::now() < deadline,
                "{arguments:?}: {ran:?}{}",
                self.last_words()
            );
            sleep(Duration::from_millis(100));
        }
    }
}

fn new_node(name: String) -> Node {
    Node {
        name,
        client_port: free_port(),
        peer_url: free_peer_url(),
        process: None,
    }
}

fn server_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = Path::new(env!("CARGO_BIN_EXE_portctl")).with_file_name("portunus");
        // A plain `cargo build` makes one without test features.
        let has_test_features = || {
            let listed = Command::new(&program).args(["gates", "list"]).output();
            listed.is_ok_and(|it| String::from_utf8_lossy(&it.stdout).contains("ApplyTag"))
        };
        if !has_test_features() {
            let built = Command::new(env!("CARGO"))
                .args(["build", "--package", "portunus-server"])
                .args(["--features", "test-features"])
                .status();
            assert!(built.unwrap().success(), "the server does not build");
        }
        assert!(has_test_features(), "the server was built elsewhere");
        program
    })
}

//! Several members on loopback, driven by `portctl`.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

use portunus_testkit::member::{self, InitialState, Member};
use portunus_testkit::process::Process;
use portunus_testkit::program::Program;
use portunus_testkit::wait::{WAIT_MAX, try_until_blocking};
use tempfile::TempDir;

use super::{Ran, clean, free_peer_url, portctl, run};

/// Without it a member takes no part in deciding the cluster's features.
pub const MECHANISM: &str = "--feature-gates=ClusterFeatureGate=true";
/// Proposes the feature that these tests switch.
pub const WANTS_IT: &str = "--cluster-feature-gates=LeaseCheckpoint=true";

/// The log lines of each member that are shown when a wait fails.
const LOG_LINES_SHOWN: usize = 40;

/// Members `m1` and so on; killed when dropped.
pub struct Cluster {
    program: Program,
    directory: TempDir,
    pub members: Vec<Member>,
}

impl Cluster {
    /// Prepares members that do not run yet.
    pub fn prepare(program: &Program, count: usize) -> Self {
        let mut cluster = Self {
            program: program.clone(),
            directory: tempfile::tempdir().unwrap(),
            members: Vec::new(),
        };
        for number in 1..=count {
            cluster.prepare_member(&format!("m{number}"));
        }
        member::found(&mut cluster.members);
        cluster
    }

    fn prepare_member(&mut self, name: &str) -> &mut Member {
        let member = Member::new(name, self.program.clone(), self.directory.path());
        self.members.push(member.unwrap());
        self.members.last_mut().unwrap()
    }

    /// Starts as many members of Portunus as there are lists of flags.
    pub fn start(flags: &[&[&str]]) -> Self {
        let mut cluster = Self::prepare(&Program::portunus(), flags.len());
        cluster.start_all(flags);
        cluster
    }

    /// Starts three members and waits until the cluster accepts changes of membership: it refuses
    /// them until its members have been connected for some seconds.
    pub fn start_three(program: &Program) -> Self {
        let mut cluster = Self::prepare(program, 3);
        cluster.start_all(&[&[], &[], &[]]);
        let unstarted = free_peer_url();
        let peer_urls = format!("--peer-urls={unstarted}");
        cluster.eventually(&["member", "add", "probe", &peer_urls, "--learner"]);
        let id = cluster.id_of(&unstarted);
        cluster.portctl(["member", "remove", &id]).ok();
        cluster
    }

    /// Starts every member on its data.
    pub fn start_all(&mut self, flags: &[&[&str]]) {
        for (member, flags) in self.members.iter_mut().zip(flags) {
            launch(member, flags);
        }
        self.eventually(&["endpoint", "health"]);
    }

    /// Kills a member and starts it on its data with other flags.
    pub fn restart(&mut self, at: usize, flags: &[&str]) {
        self.members[at].kill();
        launch(&mut self.members[at], flags);
        self.eventually(&["endpoint", "health"]);
    }

    /// Adds a learner with `member add` and starts it.
    pub fn add_learner(&mut self, name: &str, flags: &[&str]) {
        let peer_url = self.prepare_member(name).peer_url();
        let peer_urls = format!("--peer-urls={peer_url}");
        // A cluster accepts changes of membership only some seconds after its start.
        self.eventually(&["member", "add", name, &peer_urls, "--learner"]);
        let initial_cluster = self.initial_cluster();
        let member = self.members.last_mut().unwrap();
        member.initial_cluster = initial_cluster;
        member.initial_state = InitialState::Existing;
        launch(member, flags);
        self.eventually(&["endpoint", "status"]);
    }

    /// Starts a member that `member add` announced, with the settings it printed.
    pub fn start_added(&mut self, added: &str) {
        let setting = |name: &str| {
            let line = added.lines().find(|line| line.starts_with(name)).unwrap();
            let (_, value) = line.split_once('=').unwrap();
            value.trim_matches('"').to_owned()
        };
        let peer_url = setting("ETCD_INITIAL_ADVERTISE_PEER_URLS=");
        let member = self.prepare_member(&setting("ETCD_NAME="));
        member.peer = peer_url.strip_prefix("http://").unwrap().parse().unwrap();
        member.advertised_peer = member.peer;
        member.initial_cluster = setting("ETCD_INITIAL_CLUSTER=");
        member.initial_state = InitialState::Existing;
        member.launch(&[]);
    }

    /// Stops every running member gracefully.
    pub fn stop_all(&mut self) {
        for member in &mut self.members {
            if let Some((status, log)) = member.terminate() {
                assert!(status.success(), "{}: {status}:\n{log}", member.name);
            }
        }
    }

    /// Runs a member that does not come up, and returns why.
    #[track_caller]
    pub fn refusal(&self, at: usize, flags: &[&str]) -> Ran {
        let (status, err) = Process::spawn(&mut self.members[at].command(flags)).ended();
        Ran {
            success: status.success(),
            code: status.code(),
            out: String::new(),
            err,
        }
    }

    /// The value of `--initial-cluster`.
    pub fn initial_cluster(&self) -> String {
        member::initial_cluster(&self.members)
    }

    /// The data directory of a member.
    pub fn data_dir(&self, at: usize) -> PathBuf {
        self.members[at].dir.clone()
    }

    /// A path for files of the test, beside the members' data.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The endpoints of running members.
    pub fn endpoints(&self) -> String {
        let running = self.members.iter().filter(|member| member.is_running());
        let endpoints: Vec<String> = running.map(Member::endpoint).collect();
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

    /// Runs any program that takes etcdctl's environment, with these endpoints.
    pub fn run(&self, program: &OsStr, endpoints: &str, arguments: &[&str]) -> Ran {
        let mut command = clean(Command::new(program));
        command.env("ETCDCTL_ENDPOINTS", endpoints);
        run(command.args(arguments), b"")
    }

    /// Repeats a command until its outcome is as wanted.
    #[track_caller]
    pub fn until(&self, arguments: &[&str], wanted: impl Fn(&Ran) -> bool) -> Ran {
        let outcome = try_until_blocking(WAIT_MAX, || {
            let ran = self.portctl(arguments);
            if wanted(&ran) { Ok(ran) } else { Err(ran) }
        });
        match outcome {
            Ok(ran) => ran,
            Err(ran) => {
                let logs = member::log_tails(&self.members, LOG_LINES_SHOWN);
                panic!("{arguments:?}: {ran:?}{logs}");
            }
        }
    }

    /// Repeats a command until it succeeds; returns its output.
    #[track_caller]
    pub fn eventually(&self, arguments: &[&str]) -> String {
        self.until(arguments, |ran| ran.success).out
    }

    /// The rows of `member list`.
    pub fn member_rows(&self) -> Vec<Vec<String>> {
        let list = self.portctl(["member", "list"]).ok();
        let cells = |line: &str| line.split(", ").map(str::to_owned).collect();
        list.lines().map(cells).collect()
    }

    /// The id of the member with this name or peer URL.
    #[track_caller]
    pub fn id_of(&self, name_or_url: &str) -> String {
        let rows = self.member_rows();
        let row = rows
            .iter()
            .find(|cells| cells[2] == name_or_url || cells[3] == name_or_url);
        row.unwrap_or_else(|| panic!("{rows:?}"))[0].clone()
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

    /// The position in `members` of the member that leads.
    #[track_caller]
    pub fn leader(&self) -> usize {
        let leads = |line: &str| line.split(", ").nth(8) == Some("true");
        let status = self.until(&["endpoint", "status"], |ran| ran.out.lines().any(leads));
        let leader = status.out.lines().position(leads);
        leader.unwrap()
    }
}

fn launch(member: &mut Member, flags: &[&str]) {
    member.flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
    member.launch(&[]);
}

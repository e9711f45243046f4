//! One member of a cluster, of Portunus or of Go's etcd, at fixed addresses.
//!
//! A member keeps its addresses, data directory and flags while its process is stopped, so that
//! it can be started again, with other flags or with another program.

use std::ffi::OsStr;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use crate::ports::free_address;
use crate::process::Process;
use crate::program::Program;

/// The value of `--initial-cluster-state`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitialState {
    /// The member founds a cluster.
    New,
    /// The member joins a cluster that runs.
    Existing,
}

impl InitialState {
    fn flag(self) -> &'static str {
        match self {
            InitialState::New => "--initial-cluster-state=new",
            InitialState::Existing => "--initial-cluster-state=existing",
        }
    }
}

/// A member, running or not.
#[derive(Debug)]
pub struct Member {
    /// The value of `--name`.
    pub name: String,
    /// The program of the next start.
    pub program: Program,
    /// The address for clients.
    pub client: SocketAddr,
    /// The address at which it listens for peers.
    pub peer: SocketAddr,
    /// The address that it advertises to peers: its own or that of a proxy.
    pub advertised_peer: SocketAddr,
    /// Whether its client URL is `https`.
    pub client_is_tls: bool,
    /// Whether its peer URL is `https`.
    pub peer_is_tls: bool,
    /// The data directory.
    pub dir: PathBuf,
    /// Further flags of the next start.
    pub flags: Vec<String>,
    /// The value of `--initial-cluster`.
    pub initial_cluster: String,
    /// The value of `--initial-cluster-state`.
    pub initial_state: InitialState,
    /// The process, if it runs.
    pub process: Option<Process>,
    /// The member id, once it is known.
    pub id: u64,
}

impl Member {
    /// Creates a member with its data below `parent`, at free addresses. Alone, it would found a
    /// cluster of one member.
    ///
    /// # Errors
    /// If no address is free.
    pub fn new(name: &str, program: Program, parent: &Path) -> io::Result<Member> {
        let peer = free_address()?;
        let mut member = Member {
            name: name.to_owned(),
            program,
            client: free_address()?,
            peer,
            advertised_peer: peer,
            client_is_tls: false,
            peer_is_tls: false,
            dir: parent.join(name),
            flags: Vec::new(),
            initial_cluster: String::new(),
            initial_state: InitialState::New,
            process: None,
            id: 0,
        };
        member.initial_cluster = member.initial_cluster_entry();
        Ok(member)
    }

    /// Returns the client address as `host:port`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        self.client.to_string()
    }

    /// Returns the client URL.
    #[must_use]
    pub fn client_url(&self) -> String {
        url(self.client_is_tls, self.client)
    }

    /// Returns the peer URL that other members use.
    #[must_use]
    pub fn peer_url(&self) -> String {
        url(self.peer_is_tls, self.advertised_peer)
    }

    /// Returns its entry in `--initial-cluster`.
    #[must_use]
    pub fn initial_cluster_entry(&self) -> String {
        format!("{}={}", self.name, self.peer_url())
    }

    /// Returns the command that starts it with these flags, not its own.
    pub fn command<S: AsRef<OsStr>>(&self, flags: impl IntoIterator<Item = S>) -> Command {
        let mut command = self.program.command();
        command
            .arg(format!("--name={}", self.name))
            .arg(format!("--data-dir={}", self.dir.display()))
            .arg(format!("--listen-client-urls={}", self.client_url()))
            .arg(format!("--advertise-client-urls={}", self.client_url()))
            .arg(format!(
                "--listen-peer-urls={}",
                url(self.peer_is_tls, self.peer)
            ))
            .arg(format!("--initial-advertise-peer-urls={}", self.peer_url()))
            .arg(format!("--initial-cluster={}", self.initial_cluster))
            .arg(self.initial_state.flag())
            .args(flags);
        command
    }

    /// Starts it and returns at once; `shared_flags` come before its own.
    ///
    /// # Errors
    /// If the program cannot be started.
    ///
    /// # Panics
    /// If it runs already.
    #[track_caller]
    pub fn try_launch(&mut self, shared_flags: &[String]) -> io::Result<()> {
        assert!(!self.is_running(), "{} runs already", self.name);
        let mut command = self.command(shared_flags.iter().chain(&self.flags));
        self.process = Some(Process::try_spawn(&mut command, None)?);
        Ok(())
    }

    /// Starts it and returns at once; `shared_flags` come before its own.
    ///
    /// # Panics
    /// If it runs already or cannot be started.
    #[track_caller]
    pub fn launch(&mut self, shared_flags: &[String]) {
        if let Err(error) = self.try_launch(shared_flags) {
            panic!("{:?} cannot be started: {error}", self.program.path);
        }
    }

    /// Returns whether it was started and not stopped; its process may have ended by itself.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Kills it with SIGKILL, as a power failure would.
    pub fn kill(&mut self) {
        // Dropping a process kills it.
        self.process = None;
    }

    /// Stops it with SIGTERM, if it runs; returns its exit status and its log.
    #[track_caller]
    pub fn terminate(&mut self) -> Option<(ExitStatus, String)> {
        Some(self.process.take()?.terminate())
    }

    /// Returns its log since it was last started.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.as_ref().map(Process::log).unwrap_or_default()
    }
}

fn url(is_tls: bool, address: SocketAddr) -> String {
    match is_tls {
        true => format!("https://{address}"),
        false => format!("http://{address}"),
    }
}

/// Returns the value of `--initial-cluster` for these members.
#[must_use]
pub fn initial_cluster<'m>(members: impl IntoIterator<Item = &'m Member>) -> String {
    let entries = members.into_iter().map(Member::initial_cluster_entry);
    entries.collect::<Vec<_>>().join(",")
}

/// Makes members found one cluster when they are started.
pub fn found(members: &mut [Member]) {
    let all = initial_cluster(&*members);
    for member in members {
        member.initial_cluster.clone_from(&all);
        member.initial_state = InitialState::New;
    }
}

/// Returns the last lines of the log of every member, for a failing test.
#[must_use]
pub fn log_tails<'m>(members: impl IntoIterator<Item = &'m Member>, lines_max: usize) -> String {
    let mut text = String::new();
    for member in members {
        let tail = member.process.as_ref().map(|it| it.log_tail(lines_max));
        let tail = tail.unwrap_or_else(|| "not running".to_owned());
        text.push_str(&format!("\n--- {}\n{tail}", member.name));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Kind;

    fn member(name: &str, program: &str) -> Member {
        let program = Program {
            kind: Kind::Etcd,
            path: program.into(),
        };
        Member::new(name, program, Path::new("/data")).unwrap()
    }

    #[test]
    fn members_have_distinct_addresses_and_directories() {
        let (one, other) = (member("m1", "etcd"), member("m2", "etcd"));
        let addresses = [one.client, one.peer, other.client, other.peer];
        let unique: std::collections::BTreeSet<SocketAddr> = addresses.into_iter().collect();
        assert_eq!(unique.len(), addresses.len());
        assert_ne!(one.dir, other.dir);
    }

    #[test]
    fn founders_list_each_other() {
        let mut members = [member("m1", "etcd"), member("m2", "etcd")];
        found(&mut members);
        let [one, other] = &members;
        let expected = format!("m1={},m2={}", one.peer_url(), other.peer_url());
        assert_eq!(one.initial_cluster, expected);
        assert_eq!(other.initial_cluster, expected);
    }

    #[test]
    fn own_flags_come_after_shared_ones() {
        let mut member = member("m1", "");
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("server");
        std::fs::write(&script, "#!/bin/sh\necho \"$@\" >&2\n").unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&script, executable).unwrap();
        member.program.path = script;
        member.flags = vec!["--log-level=debug".to_owned()];
        member.launch(&["--log-level=error".to_owned()]);
        let (_, log) = member.process.take().unwrap().ended();
        assert!(log.starts_with("--name=m1 --data-dir=/data/m1 "), "{log}");
        assert!(
            log.ends_with(" --log-level=error --log-level=debug"),
            "{log}"
        );
    }

    #[test]
    fn member_that_ends_at_once_is_reported_with_its_status() {
        let mut member = member("m1", "/bin/false");
        member.launch(&[]);
        let process = member.process.take().unwrap();
        assert_eq!(process.ended().0.code(), Some(1));
        assert!(!member.is_running());
    }
}

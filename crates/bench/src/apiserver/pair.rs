//! An API server with a store of its own.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use portunus_testkit::certificates::Authority;
use portunus_testkit::ports;
use portunus_testkit::process::Process;
use portunus_tls::{ALPN_HTTP, ClientOptions, ClientTls, LoadError};
use tempfile::TempDir;
use thiserror::Error;
use tokio::time::sleep;

use super::client::{Connection, RequestError};
use crate::usage::{self, Memory, UsageError};

/// The time limit of a start.
const START_TIME_MAX: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// An API server program.
#[derive(Debug, Clone)]
pub struct Program {
    /// The name in the report.
    pub label: &'static str,
    /// The path of the binary.
    pub path: PathBuf,
}

/// A server that failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PairError {
    /// The program or its files cannot be used.
    #[error("{0} cannot be started")]
    Start(String, #[source] io::Error),
    /// The certificate cannot be used.
    #[error("the certificates could not be prepared")]
    Tls(#[from] LoadError),
    /// It never became ready.
    #[error("{label} was not ready within {} s:\n{log}", START_TIME_MAX.as_secs())]
    NotReady {
        /// The name of the server.
        label: &'static str,
        /// Its last lines.
        log: String,
    },
    /// A request failed.
    #[error("a request failed")]
    Request(#[from] RequestError),
    /// The usage could not be read.
    #[error("the usage of the server is not known")]
    Usage(#[from] UsageError),
}

/// A running API server. Dropping the value kills both processes and deletes their data.
pub struct Pair {
    /// The address of the API server.
    pub address: SocketAddr,
    /// The time from the start of the API server to its first answer to `/readyz`.
    pub start_time: Duration,
    tls: ClientTls,
    server: Process,
    _store: Process,
    _files: TempDir,
}

impl Pair {
    /// Starts a store, waits for it, and starts an API server on it.
    ///
    /// # Errors
    /// If one of them does not start.
    pub async fn start(program: &Program, store: &Path) -> Result<Pair, PairError> {
        let failed = |what: &Path| {
            let what = what.display().to_string();
            move |error| PairError::Start(what, error)
        };
        let files = tempfile::tempdir().map_err(failed(store))?;
        let authority = Authority::new("benchmark");
        let trusted = authority.write_to(files.path(), "ca.crt");
        let issued = authority
            .server("apiserver")
            .write_to(files.path(), "server");
        let free = || ports::free_port().map_err(failed(store));
        let (client_port, peer_port, port) = (free()?, free()?, free()?);
        let url = format!("http://127.0.0.1:{client_port}");
        let peer_url = format!("http://127.0.0.1:{peer_port}");
        let mut command = Command::new(store);
        command
            .arg("--data-dir")
            .arg(files.path().join("member"))
            .arg(format!("--listen-client-urls={url}"))
            .arg(format!("--advertise-client-urls={url}"))
            .arg(format!("--listen-peer-urls={peer_url}"))
            .arg(format!("--initial-advertise-peer-urls={peer_url}"))
            .arg(format!("--initial-cluster=default={peer_url}"));
        let store_process = Process::try_spawn(&mut command, None).map_err(failed(store))?;
        if store_process
            .find_line("ready to serve client requests")
            .is_none()
        {
            return Err(PairError::NotReady {
                label: "the store",
                log: store_process.log_tail(5),
            });
        }
        let tls = ClientTls::new(ClientOptions {
            trusted_ca_file: Some(trusted),
            alpn: ALPN_HTTP,
            ..ClientOptions::default()
        })?;
        let mut command = Command::new(&program.path);
        command
            .arg(format!("--etcd-servers={url}"))
            .arg("--bind-address=127.0.0.1")
            .arg(format!("--secure-port={port}"))
            .arg("--tls-cert-file")
            .arg(&issued.certificate)
            .arg("--tls-private-key-file")
            .arg(&issued.key);
        let begun = Instant::now();
        let server = Process::try_spawn(&mut command, None).map_err(failed(&program.path))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut pair = Pair {
            address,
            start_time: Duration::ZERO,
            tls,
            server,
            _store: store_process,
            _files: files,
        };
        while !pair.is_ready().await {
            if begun.elapsed() > START_TIME_MAX || pair.server.has_ended() {
                return Err(PairError::NotReady {
                    label: program.label,
                    log: pair.server.log_tail(5),
                });
            }
            sleep(POLL_INTERVAL).await;
        }
        pair.start_time = begun.elapsed();
        Ok(pair)
    }

    async fn is_ready(&self) -> bool {
        let Ok(mut connection) = self.connect().await else {
            return false;
        };
        let answer = connection.send("GET", "/readyz", String::new()).await;
        answer.is_ok()
    }

    /// Opens a connection to the API server.
    ///
    /// # Errors
    /// If the server does not accept it.
    pub async fn connect(&self) -> Result<Connection, RequestError> {
        Connection::open(self.address, &self.tls).await
    }

    /// Returns the CPU time of the API server so far.
    ///
    /// # Errors
    /// If it has ended.
    pub fn cpu_time(&self) -> Result<Duration, UsageError> {
        usage::cpu_time(self.server.id())
    }

    /// Returns the memory of the API server.
    ///
    /// # Errors
    /// If it has ended.
    pub fn memory(&self) -> Result<Memory, UsageError> {
        usage::memory(self.server.id())
    }
}

//! `copied-csvs`: a controller whose feature OLMConfig switches at run time.
//!
//! It copies each cluster-scoped operator into every namespace, unless the gate `disableCopiedCSVs`
//! is on. `docs/olm.md` shows it with kubectl.
//!
//! ```text
//! cargo run -p portunus-apiserver -- dev
//! cargo run -p portunus-apiserver --example copied-csvs -- --kubeconfig portunus-dev/kubeconfig
//! ```

mod controller;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use controller::{Client, Controller};
use portunus_server::config::{LogConfig, LogLevel};
use tokio::signal::unix::{SignalKind, signal};

/// Copies cluster-scoped operators into every namespace, unless OLMConfig disables it.
#[derive(Debug, Parser)]
#[command(name = "copied-csvs")]
struct Flags {
    /// The kubeconfig of the API server. It is read again at each connection.
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// The namespaces that keep their copies while copies are disabled.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = controller::PROTECTED_DEFAULT)]
    protected_copied_csv_namespaces: Vec<String>,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    portunus_server::logging::init(&LogConfig {
        level: LogLevel::Info,
        json: None,
        stdout: false,
    });
    match run(flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("copied-csvs: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the controller until SIGTERM or SIGINT.
fn run(flags: Flags) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let client = Client::new(&flags.kubeconfig);
        let controller = Controller::new(client, flags.protected_copied_csv_namespaces)?;
        tokio::select! {
            () = controller.run() => {}
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        Ok(())
    })
}

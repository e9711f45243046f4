//! `portunus-apiserver dev`: a store and an API server in one process, for development.
//!
//! ```text
//!  directory ──▶ certificates ──▶ store member ──▶ API server ──▶ kubeconfig ──▶ until a signal
//! ```
//!
//! The certificates are new at every start, and the kubeconfig with them; the objects stay in the
//! store. The store and the API server listen on loopback only, and the store accepts only the
//! certificate of this API server.

mod certificates;
mod directory;
mod kubeconfig;
mod member;

use std::error::Error;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use portunus_apiserver::resources::EVENT_TTL;
use tokio::runtime::Runtime;

use crate::flags::{AuthenticationFlags, DevFlags, ListenFlags, ServerFlags, StoreFlags};
use crate::serve::Server;
use crate::settings::check_apis;
use crate::signals::Signals;
use crate::{logging, open_files};
use certificates::Certificates;
use directory::Directory;
use member::Member;

/// How much history of the store is kept at least.
const COMPACTION_INTERVAL: Duration = Duration::from_secs(300);

/// Runs both until a signal ends them.
pub fn run(flags: &DevFlags) -> Result<(), Box<dyn Error>> {
    let started = Instant::now();
    logging::init(&flags.log, true);
    open_files::raise();
    let runtime = Runtime::new()?;
    let mut signals = {
        let _context = runtime.enter();
        Signals::listen()?
    };
    // Wrong flags are found before anything is created.
    check_apis(&flags.versions)?;
    let directory = Directory::open(flags)?;
    let certificates = Certificates::create(directory.path())?;
    let arguments = Member::arguments(directory.path(), &certificates, &flags.versions);
    let starting = runtime.spawn_blocking(move || Member::start(&arguments));
    let started_or_signal = runtime.block_on(async {
        tokio::select! {
            started = starting => Some(started),
            _ = signals.next() => None,
        }
    });
    let Some(member) = started_or_signal else {
        // A start holds nothing that is not durable, and may take long.
        drop(directory);
        std::process::exit(0);
    };
    let member = member??;
    let ended = runtime.block_on(async {
        let server_flags = server_flags(flags, &certificates, &member);
        let server = Server::start(&server_flags).await?;
        let kubeconfig = match &flags.kubeconfig {
            Some(path) => path.clone(),
            None => directory.path().join("kubeconfig"),
        };
        kubeconfig::write_to(&kubeconfig, server.address, &certificates)?;
        announce(started, &server, &member, &kubeconfig);
        server.run(&mut signals, member.failed()).await;
        Ok(())
    });
    member.stop();
    ended
}

/// Returns the flags with which the API server could be started by hand.
fn server_flags(flags: &DevFlags, certificates: &Certificates, member: &Member) -> ServerFlags {
    ServerFlags {
        listen: ListenFlags {
            secure_port: flags.secure_port,
            bind_address: IpAddr::from([127, 0, 0, 1]),
            tls_cert_file: Some(certificates.server.certificate.clone()),
            tls_private_key_file: Some(certificates.server.key.clone()),
            ..ListenFlags::default()
        },
        authentication: AuthenticationFlags {
            client_ca_file: Some(certificates.ca.clone()),
            anonymous_auth: true,
            ..AuthenticationFlags::default()
        },
        store: StoreFlags {
            etcd_servers: vec![member.url()],
            etcd_cafile: Some(certificates.store_ca.clone()),
            etcd_certfile: Some(certificates.store_client.certificate.clone()),
            etcd_keyfile: Some(certificates.store_client.key.clone()),
            etcd_prefix: "/registry".to_owned(),
            etcd_compaction_interval: COMPACTION_INTERVAL,
            event_ttl: EVENT_TTL,
        },
        versions: flags.versions.clone(),
        log: flags.log.clone(),
        ..ServerFlags::default()
    }
}

fn announce(started: Instant, server: &Server, member: &Member, kubeconfig: &Path) {
    let took_ms = started.elapsed().as_millis();
    let kubeconfig = kubeconfig.display();
    println!("ready after {took_ms} ms");
    println!("  API server  https://{}", server.address);
    println!("  store       {}", member.url());
    println!("  kubeconfig  {kubeconfig}");
    println!();
    println!("Try: kubectl --kubeconfig {kubeconfig} get featuregates,olmconfigs");
    println!("Stop with Ctrl-C.");
}

//! A kubeconfig: the fields that `portunus-apiserver dev` writes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use portunus_tls::{ALPN_GRPC, ClientOptions, ClientTls, KeyPairFiles, LoadError};
use serde::Deserialize;
use thiserror::Error;

/// Why a kubeconfig cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KubeconfigError {
    /// The file, or a temporary file, cannot be read or written.
    #[error("{} cannot be used: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    /// The file is no kubeconfig.
    #[error("{} is no kubeconfig: {source}", path.display())]
    Yaml {
        path: PathBuf,
        source: serde_yaml_ng::Error,
    },
    /// The entry that the current context names is missing.
    #[error("the kubeconfig has no {entry} named {name:?}")]
    Missing { entry: &'static str, name: String },
    /// The server is not reached with TLS.
    #[error("the server {server:?} of the kubeconfig must be https://HOST:PORT")]
    Server { server: String },
    /// A certificate or key is not base64.
    #[error("{field} of the kubeconfig is not base64")]
    Base64 { field: &'static str },
    /// A certificate or key cannot be used.
    #[error(transparent)]
    Tls(#[from] LoadError),
}

/// How to reach a server.
#[derive(Debug)]
pub struct Endpoint {
    /// Host and port.
    pub authority: String,
    /// The certificates.
    pub tls: ClientTls,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Kubeconfig {
    current_context: String,
    clusters: Vec<NamedCluster>,
    users: Vec<NamedUser>,
    contexts: Vec<NamedContext>,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority_data: String,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    user: User,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct User {
    client_certificate_data: String,
    client_key_data: String,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    context: Context,
}

#[derive(Deserialize)]
struct Context {
    cluster: String,
    user: String,
}

/// Reads the server of the current context.
pub fn read(path: &Path) -> Result<Endpoint, KubeconfigError> {
    let file_error = |source| KubeconfigError::File {
        path: path.to_owned(),
        source,
    };
    let text = fs::read_to_string(path).map_err(file_error)?;
    let config: Kubeconfig =
        serde_yaml_ng::from_str(&text).map_err(|source| KubeconfigError::Yaml {
            path: path.to_owned(),
            source,
        })?;
    let name = &config.current_context;
    let context = config.contexts.iter().find(|entry| entry.name == *name);
    let context = &context.ok_or_else(|| missing("context", name))?.context;
    let name = &context.cluster;
    let cluster = config.clusters.iter().find(|entry| entry.name == *name);
    let cluster = &cluster.ok_or_else(|| missing("cluster", name))?.cluster;
    let name = &context.user;
    let user = config.users.iter().find(|entry| entry.name == *name);
    let user = &user.ok_or_else(|| missing("user", name))?.user;
    let authority = cluster.server.strip_prefix("https://");
    let authority = authority.ok_or_else(|| KubeconfigError::Server {
        server: cluster.server.clone(),
    })?;
    Ok(Endpoint {
        authority: authority.trim_end_matches('/').to_owned(),
        tls: tls(cluster, user)?,
    })
}

fn missing(entry: &'static str, name: &str) -> KubeconfigError {
    let name = name.to_owned();
    KubeconfigError::Missing { entry, name }
}

/// Loads the certificates through files in a directory of this user, which is removed again.
fn tls(cluster: &Cluster, user: &User) -> Result<ClientTls, KubeconfigError> {
    let directory = tempfile::tempdir().map_err(|source| KubeconfigError::File {
        path: std::env::temp_dir(),
        source,
    })?;
    let write = |field: &'static str, data: &str| {
        let decoded = STANDARD.decode(data);
        let bytes = decoded.map_err(|_| KubeconfigError::Base64 { field })?;
        let path = directory.path().join(field);
        let written = fs::write(&path, bytes).map_err(|source| KubeconfigError::File {
            path: path.clone(),
            source,
        });
        written.map(|()| path)
    };
    let ca = write(
        "certificate-authority-data",
        &cluster.certificate_authority_data,
    )?;
    let options = ClientOptions {
        trusted_ca_file: Some(ca),
        identity: Some(KeyPairFiles {
            certificate: write("client-certificate-data", &user.client_certificate_data)?,
            key: write("client-key-data", &user.client_key_data)?,
        }),
        alpn: ALPN_GRPC,
        ..ClientOptions::default()
    };
    Ok(ClientTls::new(options)?)
}

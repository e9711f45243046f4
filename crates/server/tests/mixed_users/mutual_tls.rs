//! Mutual TLS at the client and peer ports of a cluster of both kinds.

use std::error::Error;
use std::net::SocketAddr;

use portunus_proto::etcdserverpb::kv_client::KvClient;
use portunus_testkit::certificates::Authority;
use portunus_testkit::client::connect_with_tls;
use portunus_testkit::member::Member;
use portunus_testkit::users::signed;
use portunus_tls::{ALPN_GRPC, ClientOptions, ClientTls, KeyPairFiles};
use tempfile::TempDir;
use tonic::transport::Endpoint;

use super::super::common::requests::get;
use super::super::common::{Clients, eventually};

/// The common name of the clients' certificate: no user has this name, so only tokens permit.
const CLIENT: &str = "no-user";

/// The certificates of a cluster, which members and clients share.
pub struct MutualTls {
    /// The flags of each member.
    pub flags: Vec<String>,
    dialler: ClientTls,
    /// Dials without a certificate.
    anonymous: ClientTls,
    _directory: TempDir,
}

impl MutualTls {
    pub fn new() -> MutualTls {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::new("test ca");
        let ca = authority.write_to(directory.path(), "ca.crt");
        let server = authority.server("member");
        let server = server.write_to(directory.path(), "server");
        let client = authority.client(CLIENT);
        let client = client.write_to(directory.path(), "client");
        let mut flags = Vec::new();
        for kind in ["", "peer-"] {
            flags.extend([
                format!("--{kind}cert-file={}", server.certificate.display()),
                format!("--{kind}key-file={}", server.key.display()),
                format!("--{kind}trusted-ca-file={}", ca.display()),
                format!("--{kind}client-cert-auth"),
            ]);
        }
        let options = ClientOptions {
            trusted_ca_file: Some(ca),
            identity: Some(KeyPairFiles {
                certificate: client.certificate,
                key: client.key,
            }),
            alpn: ALPN_GRPC,
            ..ClientOptions::default()
        };
        let anonymous = ClientOptions {
            identity: None,
            ..options.clone()
        };
        MutualTls {
            flags,
            dialler: ClientTls::new(options).unwrap(),
            anonymous: ClientTls::new(anonymous).unwrap(),
            _directory: directory,
        }
    }

    /// Makes a member use `https` URLs at both ports.
    pub fn require(&self, member: &mut Member) {
        member.client_is_tls = true;
        member.peer_is_tls = true;
    }

    /// Connects with the certificate of the clients, once the member listens.
    pub async fn connect(&self, address: SocketAddr) -> Clients {
        eventually("a TLS connection", async || {
            connect_with_tls(address, &self.dialler).await.ok()
        })
        .await
    }

    /// Checks that a member serves no client without a certificate, even with a token.
    pub async fn assert_required(&self, address: SocketAddr, token: &str) {
        // With TLS 1.3 a client learns of the refusal after its own handshake.
        if let Ok(mut clients) = connect_with_tls(address, &self.anonymous).await {
            let read = clients.kv.range(signed(token, get("z/1"))).await;
            let refused = read.unwrap_err();
            // The connection has ended; the member gave no answer.
            let cause = refused.source().unwrap_or_else(|| panic!("{refused}"));
            assert!(cause.is::<tonic::transport::Error>(), "{refused}");
        }
        let plain = Endpoint::from_shared(format!("http://{address}")).unwrap();
        if let Ok(channel) = plain.connect().await {
            let mut plain = KvClient::new(channel);
            plain.range(signed(token, get("z/1"))).await.unwrap_err();
        }
    }
}

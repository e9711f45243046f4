//! Users by the common names of their certificates.

use portunus_proto::authpb::permission::Type;
use portunus_testkit::certificates::{Authority, IssuedFiles};
use portunus_testkit::client::connect_with_tls;
use portunus_tls::{ALPN_GRPC, ClientOptions, ClientTls, KeyPairFiles};
use tonic::Request;

use super::common::{data_dir, launch};
use super::{CHEAP_HASHES, enable, get, log_in, put, text};

const DENIED: &str = "etcdserver: permission denied";
const EMPTY: &str = "etcdserver: user name is empty";

#[tokio::test(flavor = "multi_thread")]
async fn common_name_is_the_user_of_a_request_without_a_token() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new("test ca");
    let ca = authority.write_to(directory.path(), "ca.crt");
    let server = authority
        .server("member")
        .write_to(directory.path(), "server");
    let files = |name: &str| authority.client(name).write_to(directory.path(), name);
    let (_guard, dir) = data_dir();
    let flags = [
        CHEAP_HASHES.to_owned(),
        "--listen-client-urls=https://127.0.0.1:0".to_owned(),
        "--advertise-client-urls=https://127.0.0.1:2379".to_owned(),
        format!("--cert-file={}", server.certificate.display()),
        format!("--key-file={}", server.key.display()),
        "--client-cert-auth".to_owned(),
        format!("--trusted-ca-file={}", ca.display()),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let member = launch(&dir, &flags).ready();
    let dial = |files: &IssuedFiles| {
        let options = ClientOptions {
            trusted_ca_file: Some(ca.clone()),
            identity: Some(KeyPairFiles {
                certificate: files.certificate.clone(),
                key: files.key.clone(),
            }),
            alpn: ALPN_GRPC,
            ..ClientOptions::default()
        };
        ClientTls::new(options).unwrap()
    };
    let connect = async |name: &str| {
        let tls = dial(&files(name));
        connect_with_tls(member.address, &tls).await.unwrap()
    };
    let mut alice = connect("alice").await;
    let accounts = [
        ("alice", Type::Readwrite, &b"a"[..], &b"b"[..]),
        ("bob", Type::Readwrite, &b"b"[..], &b"c"[..]),
    ];
    enable(&mut alice, &accounts).await;
    put(&mut alice, "a", None).await.unwrap();
    assert_eq!(text(put(&mut alice, "b", None).await), DENIED);
    assert_eq!(
        text(get(&mut connect("stranger").await, "a", None).await),
        DENIED
    );
    assert_eq!(text(get(&mut connect("").await, "a", None).await), EMPTY);
    // A token comes first.
    let bob = log_in(&mut alice, "bob").await;
    put(&mut alice, "b", Some(&bob)).await.unwrap();
    assert_eq!(text(put(&mut alice, "a", Some(&bob)).await), DENIED);
    // Requests that a gateway forwards are not those of its certificate.
    let mut forwarded = Request::new(portunus_proto::etcdserverpb::RangeRequest {
        key: "a".into(),
        ..Default::default()
    });
    let accept = "grpcgateway-accept";
    forwarded
        .metadata_mut()
        .insert(accept, "*/*".parse().unwrap());
    assert_eq!(text(alice.kv.range(forwarded).await), EMPTY);
    let root = connect("root").await;
    get(&mut root.clone(), "z", None).await.unwrap();
}

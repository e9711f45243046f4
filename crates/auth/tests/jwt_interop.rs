//! Tokens of Go's etcd are verified, and it accepts ours, with every algorithm.

// A failing test panics.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use portunus_auth::jwt::{Algorithm, Claims, JwtOptions, JwtTokens};
use portunus_testkit::http::{HttpAnswer, http_at};
use portunus_testkit::member::Member;
use portunus_testkit::program::Program;
use portunus_testkit::wait::until_blocking;
use serde_json::{Value, json};

const TTL: Duration = Duration::from_secs(300);

fn key_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata/keys")
        .join(name)
}

/// Returns the names of the files with a public and a private key.
fn key_files(algorithm: Algorithm) -> (Option<&'static str>, &'static str) {
    match algorithm {
        Algorithm::Es256 => (Some("p256.pub"), "p256-sec1.key"),
        Algorithm::Es384 => (Some("p384.pub"), "p384.key"),
        Algorithm::EdDsa => (Some("ed25519.pub"), "ed25519.key"),
        Algorithm::Hs256 | Algorithm::Hs384 | Algorithm::Hs512 => (None, "hmac.key"),
        Algorithm::Rs256 => (Some("rsa.pub"), "rsa-pkcs1.key"),
        Algorithm::Rs384 => (Some("rsa.crt"), "rsa.key"),
        _ => (Some("rsa-pkcs1.pub"), "rsa.key"),
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

/// Sends a request to the JSON gateway.
fn post(etcd: &Member, path: &str, token: Option<&str>, body: &Value) -> HttpAnswer {
    let token = token.map(|token| ("Authorization".to_owned(), token.to_owned()));
    let headers: Vec<_> = token.into_iter().collect();
    http_at(
        etcd.client,
        "POST",
        path,
        &headers,
        body.to_string().as_bytes(),
    )
}

fn post_ok(etcd: &Member, path: &str, body: &Value) -> Value {
    let answer = post(etcd, path, None, body);
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    // The gateway may send the body in chunks.
    let json = answer.body.find('{').zip(answer.body.rfind('}'));
    let (start, end) = json.unwrap_or_else(|| panic!("{}", answer.body));
    serde_json::from_str(&answer.body[start..=end]).unwrap()
}

/// Starts etcd and turns its authentication on.
fn start_etcd(program: Program, directory: &Path, token_flag: &str) -> Member {
    let mut etcd = Member::new("etcd", program, directory).unwrap();
    etcd.flags = vec![
        "--log-level=error".into(),
        "--unsafe-no-fsync".into(),
        "--bcrypt-cost=4".into(),
        format!("--auth-token={token_flag}"),
    ];
    etcd.launch(&[]);
    until_blocking("healthy etcd", || {
        let log = || etcd.process.as_ref().map(|process| process.log());
        let connected = std::net::TcpStream::connect(etcd.client);
        connected.map_err(|error| (error, log()))?;
        let health = http_at(etcd.client, "GET", "/health", &[], &[]);
        if health.status == 200 {
            return Ok(());
        }
        Err((std::io::Error::other(health.body), log()))
    });
    let root = json!({"name": "root", "password": "secret"});
    post_ok(&etcd, "/v3/auth/user/add", &root);
    post_ok(&etcd, "/v3/auth/role/add", &json!({"name": "root"}));
    post_ok(
        &etcd,
        "/v3/auth/user/grant",
        &json!({"user": "root", "role": "root"}),
    );
    post_ok(&etcd, "/v3/auth/enable", &json!({}));
    etcd
}

#[test]
fn tokens_are_exchanged_with_etcd_for_every_algorithm() {
    const TEST: &str = "tokens_are_exchanged_with_etcd_for_every_algorithm";
    let Some(program) = Program::etcd(TEST) else {
        return;
    };
    for algorithm in Algorithm::ALL {
        let (public, private) = key_files(algorithm);
        let (public, private) = (public.map(key_path), key_path(private));
        let mut text = format!(
            "priv-key={},sign-method={algorithm},ttl=5m",
            private.display()
        );
        if let Some(public) = &public {
            text += &format!(",pub-key={}", public.display());
        }
        let options = JwtOptions::parse(&text, TTL).unwrap();
        let public = public.map(|public| std::fs::read(public).unwrap());
        let private = std::fs::read(private).unwrap();
        let tokens = JwtTokens::new(&options, public.as_deref(), Some(&private)).unwrap();

        let directory = tempfile::tempdir().unwrap();
        let etcd = start_etcd(program.clone(), directory.path(), &format!("jwt,{text}"));
        let login = json!({"name": "root", "password": "secret"});
        let theirs = post_ok(&etcd, "/v3/auth/authenticate", &login);
        let theirs = theirs["token"].as_str().unwrap();
        let claims = tokens.verify(theirs, now()).unwrap();
        assert_eq!(claims.username, "root", "{algorithm}");

        // The header and the names and order of the claims are etcd's as well.
        let ours = tokens.sign("root", claims.revision, now()).unwrap();
        let shape = |token: &str| token.split('.').next().map(str::to_owned);
        assert_eq!(shape(&ours), shape(theirs), "{algorithm}");
        assert_eq!(tokens.verify(&ours, now()), Ok(claims.clone()));

        let put = json!({"key": STANDARD.encode("k"), "value": STANDARD.encode("v")});
        let accepted = post(&etcd, "/v3/kv/put", Some(&ours), &put);
        assert_eq!(accepted.status, 200, "{algorithm}: {}", accepted.body);
        let refused = post(&etcd, "/v3/kv/put", None, &put);
        assert_eq!(refused.status, 400, "{algorithm}: {}", refused.body);
        // Both refuse a token that has expired.
        let expired = tokens
            .sign("root", claims.revision, Duration::from_secs(1))
            .unwrap();
        assert!(tokens.verify(&expired, now()).is_err());
        let refused = post(&etcd, "/v3/kv/put", Some(&expired), &put);
        assert_eq!(refused.status, 401, "{algorithm}: {}", refused.body);
        // And one of an older revision is recognised by its number.
        let old = tokens.sign("root", claims.revision - 1, now()).unwrap();
        let old_claims = Claims {
            revision: claims.revision - 1,
            ..claims
        };
        assert_eq!(tokens.verify(&old, now()), Ok(old_claims));
        let refused = post(&etcd, "/v3/kv/put", Some(&old), &put);
        assert!(
            refused.body.contains("revision of auth store is old"),
            "{}",
            refused.body
        );
    }
}

//! Tests of options, keys and tokens with the keys in `testdata/keys`, which nothing else uses.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use proptest::prelude::*;
use ring::hmac;

use super::*;

macro_rules! key {
    ($name:literal) => {
        Some(include_bytes!(concat!("../../testdata/keys/", $name)) as &[u8])
    };
}

const TTL: Duration = Duration::from_secs(300);
const NOW: Duration = Duration::from_millis(1_700_000_000_900);

fn options(algorithm: Algorithm) -> JwtOptions {
    JwtOptions::parse(&format!("sign-method={algorithm}"), TTL).unwrap()
}

/// Returns a public and a private key for the algorithm.
fn key_files(algorithm: Algorithm) -> (Option<&'static [u8]>, Option<&'static [u8]>) {
    match algorithm {
        Algorithm::Es256 => (key!("p256.pub"), key!("p256.key")),
        Algorithm::Es384 => (key!("p384.pub"), key!("p384.key")),
        Algorithm::EdDsa => (key!("ed25519.pub"), key!("ed25519.key")),
        Algorithm::Hs256 | Algorithm::Hs384 | Algorithm::Hs512 => (None, key!("hmac.key")),
        _ => (key!("rsa.pub"), key!("rsa.key")),
    }
}

fn tokens(algorithm: Algorithm) -> JwtTokens {
    let (public, private) = key_files(algorithm);
    JwtTokens::new(&options(algorithm), public, private).unwrap()
}

/// Signs any header and claims with the shared secret.
fn forged(header: &str, claims: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key!("hmac.key").unwrap());
    let encode = |part: &str| URL_SAFE_NO_PAD.encode(part);
    let signed = format!("{}.{}", encode(header), encode(claims));
    let signature = URL_SAFE_NO_PAD.encode(hmac::sign(&key, signed.as_bytes()));
    format!("{signed}.{signature}")
}

fn verified_claims(claims: &str) -> Result<Claims, VerifyError> {
    tokens(Algorithm::Hs256).verify(&forged(r#"{"alg":"HS256"}"#, claims), NOW)
}

#[test]
fn options_are_parsed_with_etcds_rules() {
    let parsed = JwtOptions::parse(
        ",pub-key=a.pub,priv-key=a.key,sign-method=PS384,ttl=1h30m,colour=red",
        TTL,
    );
    assert_eq!(
        parsed,
        Ok(JwtOptions {
            algorithm: Algorithm::Ps384,
            public_key_file: Some("a.pub".into()),
            private_key_file: Some("a.key".into()),
            ttl: Duration::from_secs(5400),
            unknown: vec!["colour".into()],
        })
    );
    let parsed = JwtOptions::parse("priv-key=,sign-method=HS256,ttl=", TTL).unwrap();
    assert_eq!((parsed.private_key_file, parsed.ttl), (None, TTL));
}

#[test]
fn invalid_options_are_refused() {
    let supported = "supported are RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA, HS256, HS384, HS512";
    for (text, message) in [
        (
            "",
            format!("auth: invalid auth options: sign-method is missing; {supported}"),
        ),
        (
            "ttl=5m",
            format!("auth: invalid auth options: sign-method is missing; {supported}"),
        ),
        (
            "sign-method",
            "auth: invalid auth options: \"sign-method\" is not name=value".into(),
        ),
        (
            "sign-method=a=b",
            "auth: invalid auth options: \"sign-method=a=b\" is not name=value".into(),
        ),
        (
            "sign-method=RS256,",
            "auth: invalid auth options: \"\" is not name=value".into(),
        ),
        (
            "ttl=1s,ttl=1s",
            "auth: invalid auth options: ttl is given twice".into(),
        ),
        (
            "ttl=-1s,sign-method=RS256",
            "auth: invalid auth options: ttl \"-1s\" is not a duration such as 5m or 1h30m".into(),
        ),
        (
            "ttl=5,sign-method=RS256",
            "auth: invalid auth options: ttl \"5\" is not a duration such as 5m or 1h30m".into(),
        ),
    ] {
        let error = JwtOptions::parse(text, TTL).unwrap_err();
        assert_eq!(error.to_string(), message, "{text}");
    }
    // `none` and the wrong case are no algorithms; ES512 is etcd's alone.
    for name in ["none", "rs256", "ES512", "HS1"] {
        let error = JwtOptions::parse(&format!("sign-method={name}"), TTL).unwrap_err();
        let OptionsError::SignMethod(cause) = error else {
            panic!("{error:?}");
        };
        let message = format!("signing method {name:?} is not supported; {supported}");
        assert_eq!(cause.to_string(), message);
    }
}

#[test]
fn signed_token_is_verified_until_it_expires() {
    for algorithm in Algorithm::ALL {
        let tokens = tokens(algorithm);
        let token = tokens.sign("root", 7, NOW).unwrap();
        let claims = Claims {
            username: "root".into(),
            revision: 7,
        };
        // The lifetime is counted in whole seconds, as in etcd.
        let last = Duration::from_millis(1_700_000_299_999);
        for time in [Duration::ZERO, NOW, last] {
            assert_eq!(
                tokens.verify(&token, time).as_ref(),
                Ok(&claims),
                "{algorithm}"
            );
        }
        for time in [Duration::from_secs(1_700_000_300), Duration::MAX] {
            let refused = tokens.verify(&token, time);
            assert_eq!(refused, Err(VerifyError::Expired), "{algorithm}");
        }
    }
}

#[test]
fn public_key_alone_verifies_and_does_not_sign() {
    for algorithm in Algorithm::ALL {
        let (Some(public), private) = key_files(algorithm) else {
            continue;
        };
        let token = JwtTokens::new(&options(algorithm), None, private);
        let token = token.unwrap().sign("alice", 3, NOW).unwrap();
        let verifier = JwtTokens::new(&options(algorithm), Some(public), None).unwrap();
        assert!(verifier.is_verify_only());
        assert_eq!(verifier.verify(&token, NOW).unwrap().username, "alice");
        let refused = verifier.sign("alice", 3, NOW);
        assert_eq!(refused, Err(SignError::VerifyOnly), "{algorithm}");
    }
}

#[test]
fn key_files_are_read_in_every_format_of_etcd() {
    for (algorithm, public, private) in [
        (Algorithm::Rs256, key!("rsa.pub"), key!("rsa-pkcs1.key")),
        (Algorithm::Rs256, key!("rsa-pkcs1.pub"), key!("rsa.key")),
        (Algorithm::Ps256, key!("rsa.crt"), key!("rsa.key")),
        (Algorithm::Es256, key!("p256.pub"), key!("p256-sec1.key")),
        (Algorithm::Es256, key!("p256.crt"), key!("p256.key")),
        (Algorithm::Es384, key!("p384.pub"), key!("p384-sec1.key")),
    ] {
        let tokens = JwtTokens::new(&options(algorithm), public, private).unwrap();
        let token = tokens.sign("root", 1, NOW).unwrap();
        assert!(tokens.verify(&token, NOW).is_ok(), "{algorithm}");
    }
}

#[test]
fn keys_that_do_not_fit_are_refused() {
    let wrong = |which, algorithm| KeyError::WrongKind { which, algorithm };
    for (algorithm, public, private, error) in [
        (Algorithm::Rs256, None, None, KeyError::Missing),
        (
            Algorithm::Rs256,
            Some(&b""[..]),
            Some(&b""[..]),
            KeyError::Missing,
        ),
        // A public key is no shared secret.
        (Algorithm::Hs256, key!("rsa.pub"), None, KeyError::Missing),
        (
            Algorithm::Rs256,
            key!("other-rsa.pub"),
            key!("rsa.key"),
            KeyError::Mismatch,
        ),
        (
            Algorithm::EdDsa,
            key!("other-ed25519.pub"),
            key!("ed25519.key"),
            KeyError::Mismatch,
        ),
        (
            Algorithm::Rs256,
            key!("hmac.key"),
            None,
            KeyError::NotPem { which: "public" },
        ),
        (
            Algorithm::Rs256,
            None,
            key!("hmac.key"),
            KeyError::NotPem { which: "private" },
        ),
        (
            Algorithm::Rs256,
            key!("p256.pub"),
            None,
            wrong("public", Algorithm::Rs256),
        ),
        (
            Algorithm::Es256,
            key!("rsa.pub"),
            None,
            wrong("public", Algorithm::Es256),
        ),
        (
            Algorithm::Es256,
            key!("p384.pub"),
            None,
            wrong("public", Algorithm::Es256),
        ),
        (
            Algorithm::Es384,
            key!("p521.pub"),
            None,
            wrong("public", Algorithm::Es384),
        ),
        (
            Algorithm::EdDsa,
            key!("p256.pub"),
            None,
            wrong("public", Algorithm::EdDsa),
        ),
        (
            Algorithm::Es256,
            None,
            key!("p384-sec1.key"),
            wrong("private", Algorithm::Es256),
        ),
    ] {
        let refused = JwtTokens::new(&options(algorithm), public, private);
        assert_eq!(refused.unwrap_err(), error);
    }
    for (algorithm, private) in [
        (Algorithm::Rs256, key!("small-rsa.key")),
        (Algorithm::Rs256, key!("p256.key")),
        (Algorithm::Es256, key!("rsa.key")),
        (Algorithm::Es256, key!("p384.key")),
        (Algorithm::EdDsa, key!("p256.key")),
    ] {
        let refused = JwtTokens::new(&options(algorithm), None, private).unwrap_err();
        let is_rejected = matches!(refused, KeyError::Rejected { .. });
        assert!(is_rejected, "{algorithm}: {refused}");
    }
}

#[test]
fn token_of_another_key_is_refused() {
    let other = JwtTokens::new(&options(Algorithm::Rs256), None, key!("other-rsa.key")).unwrap();
    let token = other.sign("root", 1, NOW).unwrap();
    let refused = tokens(Algorithm::Rs256).verify(&token, NOW);
    assert_eq!(refused, Err(VerifyError::Signature));
}

#[test]
fn token_of_another_algorithm_is_refused() {
    for signer in Algorithm::ALL {
        let token = tokens(signer).sign("root", 1, NOW).unwrap();
        for verifier in Algorithm::ALL {
            let result = tokens(verifier).verify(&token, NOW);
            if signer == verifier {
                assert!(result.is_ok(), "{signer}");
            } else {
                assert_eq!(result, Err(VerifyError::Algorithm { expected: verifier }));
            }
        }
    }
    // Neither a token without a signature nor one that takes the public key for a shared secret.
    let unsigned = format!(
        "{}.{}.",
        URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#),
        URL_SAFE_NO_PAD.encode(r#"{"username":"root","revision":1}"#)
    );
    let verifier = tokens(Algorithm::Rs256);
    let expected = Err(VerifyError::Algorithm {
        expected: Algorithm::Rs256,
    });
    assert_eq!(verifier.verify(&unsigned, NOW), expected);
    let public_as_secret = JwtTokens::new(&options(Algorithm::Hs256), None, key!("rsa.pub"));
    let confused = public_as_secret.unwrap().sign("root", 1, NOW).unwrap();
    assert_eq!(verifier.verify(&confused, NOW), expected);
}

#[test]
fn claims_are_read_like_etcd_reads_them() {
    for (claims, revision) in [
        (r#"{"username":"root","revision":7.9}"#, 7),
        (r#"{"username":"root","revision":1e3}"#, 1000),
        (
            r#"{"username":"root","revision":9007199254740993}"#,
            9_007_199_254_740_992,
        ),
        // Without an end, or with 0 for it, the token does not expire.
        (r#"{"username":"root","revision":0,"exp":0}"#, 0),
        (
            r#"{"username":"root","revision":2,"exp":1700000001.9,"nbf":1.7e9}"#,
            2,
        ),
        (
            r#"{"revision":1,"revision":2,"username":"root","x":{"y":[null]}}"#,
            2,
        ),
    ] {
        assert_eq!(
            verified_claims(claims).map(|claims| claims.revision),
            Ok(revision),
            "{claims}"
        );
    }
    for (claims, error) in [
        (r#"{"revision":7}"#, VerifyError::Claim { name: "username" }),
        (
            r#"{"username":7,"revision":7}"#,
            VerifyError::Claim { name: "username" },
        ),
        (
            r#"{"username":"root"}"#,
            VerifyError::Claim { name: "revision" },
        ),
        (
            r#"{"username":"root","revision":"7"}"#,
            VerifyError::Claim { name: "revision" },
        ),
        (
            r#"{"username":"root","revision":-1}"#,
            VerifyError::Claim { name: "revision" },
        ),
        (
            r#"{"username":"root","revision":1e20}"#,
            VerifyError::Claim { name: "revision" },
        ),
        (
            r#"{"username":"root","revision":1,"exp":"never"}"#,
            VerifyError::Claim { name: "exp" },
        ),
        (
            r#"{"username":"root","revision":1,"exp":null}"#,
            VerifyError::Claim { name: "exp" },
        ),
        (
            r#"{"username":"root","revision":1,"exp":1700000000}"#,
            VerifyError::Expired,
        ),
        (
            r#"{"username":"root","revision":1,"exp":1700000000.95}"#,
            VerifyError::Expired,
        ),
        (
            r#"{"username":"root","revision":1,"exp":-5}"#,
            VerifyError::Expired,
        ),
        (
            r#"{"username":"root","revision":1,"nbf":1700000001}"#,
            VerifyError::NotYetValid,
        ),
        (
            r#"{"username":"root","revision":1e999}"#,
            VerifyError::Malformed { part: "claims" },
        ),
        ("[]", VerifyError::Malformed { part: "claims" }),
        ("", VerifyError::Malformed { part: "claims" }),
    ] {
        assert_eq!(verified_claims(claims), Err(error), "{claims}");
    }
}

#[test]
fn malformed_token_is_refused() {
    let tokens = tokens(Algorithm::Hs256);
    let good = tokens.sign("root", 1, NOW).unwrap();
    let signature = good.rsplit_once('.').unwrap().1;
    for (token, part) in [
        (String::new(), "parts"),
        ("one.two".into(), "parts"),
        (format!("{good}."), "parts"),
        (format!("{good}.four"), "parts"),
        (format!("!.e30.{signature}"), "header"),
        (format!("e30=.e30.{signature}"), "header"),
        (format!("bnVsbA.e30.{signature}"), "header"),
        (format!("{good}!"), "signature"),
    ] {
        let refused = tokens.verify(&token, NOW);
        assert_eq!(refused, Err(VerifyError::Malformed { part }), "{token}");
    }
    assert_eq!(
        tokens.verify(&forged(r#"{"typ":"JWT"}"#, "{}"), NOW),
        Err(VerifyError::Algorithm {
            expected: Algorithm::Hs256
        })
    );
}

#[test]
fn too_long_token_is_neither_signed_nor_verified() {
    let tokens = tokens(Algorithm::Hs256);
    let name = "n".repeat(TOKEN_BYTES_MAX);
    let refused = tokens.sign(&name, 1, NOW);
    assert!(
        matches!(refused, Err(SignError::TooLong { .. })),
        "{refused:?}"
    );
    let token = forged(
        r#"{"alg":"HS256"}"#,
        &format!(r#"{{"username":"{name}","revision":1}}"#),
    );
    let bytes = token.len();
    assert_eq!(
        tokens.verify(&token, NOW),
        Err(VerifyError::TooLong { bytes })
    );
    // The longest allowed one is.
    let name = "n".repeat(5_000);
    let token = tokens.sign(&name, 1, NOW).unwrap();
    assert_eq!(tokens.verify(&token, NOW).unwrap().username, name);
}

#[test]
fn debug_output_has_no_key() {
    let tokens = tokens(Algorithm::Hs256);
    assert_eq!(
        format!("{tokens:?}"),
        "JwtTokens { algorithm: Hs256, ttl: 300s, .. }"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_user_and_revision_round_trip(username in ".{0,40}", revision in 0u64..1 << 53) {
        let tokens = tokens(Algorithm::EdDsa);
        let token = tokens.sign(&username, revision, NOW).unwrap();
        prop_assert_eq!(tokens.verify(&token, NOW), Ok(Claims { username, revision }));
    }

    #[test]
    fn mangled_token_is_never_accepted_with_other_claims(
        at in any::<prop::sample::Index>(),
        replacement in "[a-zA-Z0-9_.{}\" -]{0,3}",
    ) {
        let tokens = tokens(Algorithm::Es256);
        let good = tokens.sign("alice", 5, NOW).unwrap();
        let at = at.index(good.len());
        let mangled = format!("{}{replacement}{}", &good[..at], &good[at + 1..]);
        // Bits behind the last byte of the signature are ignored, as in etcd.
        if let Ok(claims) = tokens.verify(&mangled, NOW) {
            prop_assert_eq!(claims, Claims { username: "alice".into(), revision: 5 });
        }
    }

    #[test]
    fn arbitrary_text_is_refused(text in any::<String>(), parts in "[A-Za-z0-9_-]{0,40}(\\.[A-Za-z0-9_-]{0,40}){0,4}") {
        for algorithm in [Algorithm::Rs256, Algorithm::Es384, Algorithm::EdDsa, Algorithm::Hs512] {
            let tokens = tokens(algorithm);
            prop_assert!(tokens.verify(&text, NOW).is_err());
            prop_assert!(tokens.verify(&parts, NOW).is_err());
        }
    }

    #[test]
    fn arbitrary_claims_with_a_valid_signature_never_panic(header in any::<String>(), claims in any::<String>(), number in any::<f64>()) {
        let tokens = tokens(Algorithm::Hs256);
        let _ = tokens.verify(&forged(&header, &claims), NOW);
        let _ = verified_claims(&claims);
        let _ = verified_claims(&format!(r#"{{"username":"a","revision":{number:?},"exp":{number:e},"nbf":{number}}}"#));
    }

    #[test]
    fn arbitrary_options_and_keys_never_panic(options in "[a-z=,-]{0,30}", ttl in "[-+0-9.µnumsh]{0,9}", key in any::<Vec<u8>>(), at in any::<prop::sample::Index>(), byte: u8) {
        let _ = JwtOptions::parse(&options, TTL);
        let _ = JwtOptions::parse(&format!("ttl={ttl},sign-method=RS256"), TTL);
        for algorithm in Algorithm::ALL {
            let pem = |content: &[u8]| {
                let content = base64::engine::general_purpose::STANDARD.encode(content);
                format!("-----BEGIN KEY-----\n{content}\n-----END KEY-----\n").into_bytes()
            };
            let _ = JwtTokens::new(&super::tests::options(algorithm), Some(&key), Some(&key));
            let _ = JwtTokens::new(&super::tests::options(algorithm), Some(&pem(&key)), Some(&pem(&key)));
            // One changed byte of a good file.
            let (public, private) = key_files(algorithm);
            for file in [public, private].into_iter().flatten() {
                let mut file = file.to_vec();
                let at = at.index(file.len());
                file[at] = byte;
                let _ = JwtTokens::new(&super::tests::options(algorithm), Some(&file), None);
                let _ = JwtTokens::new(&super::tests::options(algorithm), None, Some(&file));
            }
        }
    }
}

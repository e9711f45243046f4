//! The certificate of the server, and who may do what, from the flags.

use std::path::Path;
use std::sync::Arc;

use http::HeaderName;
use portunus_apiserver::Metrics;
use portunus_apiserver::authn::{
    AnyOf, Certificates, FrontProxy, FrontProxyHeaders, FrontProxyTrust, TokenFileError, Tokens,
};
use portunus_apiserver::authz::{
    AlwaysAllow, FirstAllowed, Masters, PolicyFile, PolicyFileError, PublicPaths,
};
use portunus_tls::{
    ALPN_GRPC_AND_HTTP, AllowedNames, CipherSuiteError, CipherSuites, ClientCa, KeyPairFiles,
    LoadError, ServerOptions, ServerTls, VersionRange,
};
use thiserror::Error;

use crate::flags::{AuthenticationFlags, AuthorizationFlags, AuthorizationMode, ListenFlags};

/// Why the flags about security cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SecurityError {
    #[error(
        "--tls-cert-file and --tls-private-key-file are required: give the certificate of this \
         server, or run `portunus-apiserver dev`, which creates one"
    )]
    NoCertificate,
    #[error("--tls-min-version={0} is not supported: use VersionTLS12 or VersionTLS13")]
    TlsVersion(String),
    #[error("--tls-cipher-suites cannot be used")]
    CipherSuites(#[from] CipherSuiteError),
    #[error("--{flag} cannot be used")]
    File {
        flag: &'static str,
        source: Box<LoadError>,
    },
    #[error("--token-auth-file cannot be used")]
    Tokens(#[from] TokenFileError),
    #[error("--authorization-policy-file cannot be used")]
    Policy(#[from] PolicyFileError),
    #[error("--{flag}={value} is no name of a header")]
    Header { flag: &'static str, value: String },
    #[error(
        "--requestheader-allowed-names needs --requestheader-client-ca-file: without it no front \
         proxy is trusted"
    )]
    AllowedNamesWithoutCa,
    #[error(
        "authorization-mode ABAC's authorization policy file not passed: give \
         --authorization-policy-file"
    )]
    AbacWithoutFile,
    #[error(
        "cannot specify --authorization-policy-file without mode ABAC: add ABAC to \
         --authorization-mode"
    )]
    FileWithoutAbac,
}

/// Reads the certificate of the server.
pub fn tls(flags: &ListenFlags) -> Result<ServerTls, SecurityError> {
    let (Some(certificate), Some(key)) = (&flags.tls_cert_file, &flags.tls_private_key_file) else {
        return Err(SecurityError::NoCertificate);
    };
    let versions = match &*flags.tls_min_version {
        "" | "VersionTLS12" => VersionRange::default(),
        "VersionTLS13" => VersionRange::parse("TLS1.3", "")
            .map_err(|_| SecurityError::TlsVersion(flags.tls_min_version.clone()))?,
        other => return Err(SecurityError::TlsVersion(other.to_owned())),
    };
    let cipher_suites = CipherSuites::parse(flags.tls_cipher_suites.iter().map(String::as_str))?;
    let options = ServerOptions {
        identity: KeyPairFiles {
            certificate: certificate.clone(),
            key: key.clone(),
        },
        trusted_ca_file: None,
        crl_file: None,
        allowed: AllowedNames::Any,
        versions,
        cipher_suites,
        alpn: ALPN_GRPC_AND_HTTP,
    };
    ServerTls::requesting_certificates(options).map_err(|source| SecurityError::File {
        flag: "tls-cert-file",
        source: Box::new(source),
    })
}

/// Creates the authenticators, the front proxy first: it removes the headers of everybody else.
pub fn authenticator(
    flags: &AuthenticationFlags,
    metrics: &Metrics,
) -> Result<AnyOf, SecurityError> {
    let trust = match &flags.requestheader_client_ca_file {
        Some(file) => Some(FrontProxyTrust {
            ca: client_ca("requestheader-client-ca-file", file)?,
            allowed_names: flags.requestheader_allowed_names.clone(),
        }),
        None if !flags.requestheader_allowed_names.is_empty() => {
            return Err(SecurityError::AllowedNamesWithoutCa);
        }
        None => None,
    };
    let untrusted = metrics.untrusted_front_proxy_headers.clone();
    let front_proxy = FrontProxy::new(trust, front_proxy_headers(flags)?, untrusted);
    let mut authenticators = AnyOf::new().or(front_proxy);
    if let Some(file) = &flags.client_ca_file {
        let ca = client_ca("client-ca-file", file)?;
        authenticators = authenticators.or(Certificates::new(ca));
    }
    if let Some(file) = &flags.token_auth_file {
        authenticators = authenticators.or(Tokens::from_file(file)?);
    }
    Ok(authenticators)
}

fn client_ca(flag: &'static str, file: &Path) -> Result<Arc<ClientCa>, SecurityError> {
    let ca = ClientCa::from_file(file.to_owned());
    ca.map(Arc::new).map_err(|source| SecurityError::File {
        flag,
        source: Box::new(source),
    })
}

fn front_proxy_headers(flags: &AuthenticationFlags) -> Result<FrontProxyHeaders, SecurityError> {
    let default = FrontProxyHeaders::default();
    let names = |flag, values: &[String], default: Vec<HeaderName>| {
        if values.is_empty() {
            return Ok(default);
        }
        let names = values.iter().map(|value| {
            value.parse().map_err(|_| SecurityError::Header {
                flag,
                value: value.clone(),
            })
        });
        names.collect::<Result<Vec<HeaderName>, _>>()
    };
    let prefixes = &flags.requestheader_extra_headers_prefix;
    let prefixes: Vec<String> = prefixes.iter().map(|text| text.to_lowercase()).collect();
    Ok(FrontProxyHeaders {
        user: names(
            "requestheader-username-headers",
            &flags.requestheader_username_headers,
            default.user,
        )?,
        uid: names(
            "requestheader-uid-headers",
            &flags.requestheader_uid_headers,
            default.uid,
        )?,
        group: names(
            "requestheader-group-headers",
            &flags.requestheader_group_headers,
            default.group,
        )?,
        extra_prefixes: match prefixes.iter().any(|prefix| !prefix.is_empty()) {
            true => prefixes,
            false => default.extra_prefixes,
        },
    })
}

/// Creates the authorizers. What none of them allows is denied.
pub fn authorizer(flags: &AuthorizationFlags) -> Result<FirstAllowed, SecurityError> {
    let modes = &flags.authorization_mode;
    let has = |mode| modes.contains(&mode);
    let file = flags.authorization_policy_file.as_ref();
    let mut authorizers = FirstAllowed::new().or(Masters).or(PublicPaths);
    match (file, has(AuthorizationMode::Abac)) {
        (None, true) => return Err(SecurityError::AbacWithoutFile),
        (Some(_), false) if !modes.is_empty() => return Err(SecurityError::FileWithoutAbac),
        (Some(file), _) => authorizers = authorizers.or(PolicyFile::from_file(file)?),
        (None, false) => {}
    }
    if has(AuthorizationMode::AlwaysAllow) {
        tracing::warn!(
            "--authorization-mode=AlwaysAllow: everybody who connects may do everything"
        );
        authorizers = authorizers.or(AlwaysAllow);
    }
    Ok(authorizers)
}

//! `--cacert`, `--cert`, `--key`, `--insecure-transport` and `--insecure-skip-tls-verify`: whether
//! and how connections use TLS.
//!
//! The rules are etcdctl's: an endpoint without a scheme uses TLS if any of these settings asks for
//! it, `https` endpoints always do, `http` endpoints never. The files are read when a command
//! connects, so that a command without a server needs none of them. `make-mirror` has a second set of
//! them for its destination.

use std::sync::OnceLock;

use portunus_client::{EndpointParts, KeyPairFiles, Scheme, Tls, TlsOptions};
use portunus_tls::{ALPN_HTTP, ClientOptions, ClientTls};

use crate::go::boolean;
use crate::outcome::{ExitWith, Failure, with_causes};
use crate::settings::Environment;

/// The flags as written.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct TransportArgs {
    /// CA bundle that verifies the certificates of servers [default: the CAs of the system]
    #[arg(long, global = true, value_name = "FILE")]
    cacert: Option<String>,
    /// Certificate that identifies this client
    #[arg(long, global = true, value_name = "FILE")]
    cert: Option<String>,
    /// Key of the certificate
    #[arg(long, global = true, value_name = "FILE")]
    key: Option<String>,
    /// No TLS for endpoints without a scheme, unless another flag asks for it [default: true]
    #[arg(
        long,
        global = true,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_name = "BOOL"
    )]
    insecure_transport: Option<String>,
    /// Accept every certificate of a server; for tests only
    #[arg(
        long,
        global = true,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_name = "BOOL"
    )]
    insecure_skip_tls_verify: Option<String>,
}

/// The flags of the destination of `make-mirror`, as written.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Destination {
    /// CA bundle that verifies the certificate of the destination
    #[arg(long, value_name = "FILE")]
    dest_cacert: Option<String>,
    /// Certificate that identifies this client at the destination
    #[arg(long, value_name = "FILE")]
    dest_cert: Option<String>,
    /// Key of the certificate
    #[arg(long, value_name = "FILE")]
    dest_key: Option<String>,
    /// No TLS for a destination without a scheme, unless another flag asks for it [default: true]
    #[arg(
        long,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_name = "BOOL",
        value_parser = boolean::parse
    )]
    dest_insecure_transport: Option<bool>,
}

impl Destination {
    /// Reads the files and returns the TLS settings; `None` if no flag asks for TLS.
    pub fn tls(&self) -> Result<Option<Tls>, Failure> {
        let file = |flag: &Option<String>| flag.clone().unwrap_or_default();
        let transport = Transport {
            cacert: file(&self.dest_cacert),
            cert: file(&self.dest_cert),
            key: file(&self.dest_key),
            insecure_transport: self.dest_insecure_transport.unwrap_or(true),
            insecure_skip_tls_verify: false,
            empty_flag: None,
            loaded: OnceLock::new(),
        };
        transport.tls()
    }
}

/// The settings in force; an absent file is empty.
#[derive(Debug, Clone)]
pub struct Transport {
    cacert: String,
    cert: String,
    key: String,
    insecure_transport: bool,
    insecure_skip_tls_verify: bool,
    /// The flag of a file that was given as an empty text.
    empty_flag: Option<&'static str>,
    loaded: OnceLock<Option<Tls>>,
}

impl Transport {
    /// Resolves the settings from flags and environment.
    pub fn resolve(args: &TransportArgs, environment: &Environment<'_>) -> Result<Self, Failure> {
        let file = |flag: &Option<String>, name: &str| {
            let setting = environment.setting(flag.as_deref(), name);
            setting.map(|setting| setting.text).unwrap_or_default()
        };
        let switch = |flag: &Option<String>, name: &str, default: bool| {
            let value = environment.parsed(flag.as_deref(), name, boolean::parse)?;
            Ok::<_, Failure>(value.unwrap_or(default))
        };
        let files = [
            ("cert", &args.cert),
            ("key", &args.key),
            ("cacert", &args.cacert),
        ];
        let empty = files
            .into_iter()
            .find(|(_, flag)| flag.as_deref() == Some(""));
        Ok(Self {
            cacert: file(&args.cacert, "cacert"),
            cert: file(&args.cert, "cert"),
            key: file(&args.key, "key"),
            insecure_transport: switch(&args.insecure_transport, "insecure-transport", true)?,
            insecure_skip_tls_verify: switch(
                &args.insecure_skip_tls_verify,
                "insecure-skip-tls-verify",
                false,
            )?,
            empty_flag: empty.map(|(name, _)| name),
            loaded: OnceLock::new(),
        })
    }

    /// Refuses files without a name.
    pub fn check(&self) -> Result<(), Failure> {
        let Some(name) = self.empty_flag else {
            return Ok(());
        };
        let message = format!("empty string is passed to --{name} option");
        Err(Failure::new(ExitWith::BadArgs, message))
    }

    /// Returns the TLS settings; reads the files the first time. `None` if no setting asks for TLS.
    pub fn tls(&self) -> Result<Option<Tls>, Failure> {
        if let Some(loaded) = self.loaded.get() {
            return Ok(loaded.clone());
        }
        let loaded = self.load()?;
        Ok(self.loaded.get_or_init(|| loaded).clone())
    }

    fn load(&self) -> Result<Option<Tls>, Failure> {
        let Some(options) = self.tls_options()? else {
            return Ok(None);
        };
        let tls = Tls::new(options).map_err(|error| bad(with_causes(&error)))?;
        Ok(Some(tls))
    }

    /// Returns the connector of an HTTP request to an endpoint; `None` without TLS.
    pub fn http_tls(&self, endpoint: &EndpointParts) -> Result<Option<ClientTls>, Failure> {
        let given = self.tls_options()?;
        let options = match (endpoint.scheme, given) {
            (Some(Scheme::Http), _) | (None, None) => return Ok(None),
            (_, given) => given.unwrap_or_default(),
        };
        let connector = ClientTls::new(ClientOptions {
            trusted_ca_file: options.trusted_ca_file,
            identity: options.identity,
            skip_verification: options.skip_verification,
            alpn: ALPN_HTTP,
            ..ClientOptions::default()
        });
        connector
            .map(Some)
            .map_err(|error| bad(with_causes(&error)))
    }

    /// Returns the TLS options; `None` if no setting asks for TLS.
    fn tls_options(&self) -> Result<Option<TlsOptions>, Failure> {
        let (cert, key) = (&self.cert, &self.key);
        if cert.is_empty() != key.is_empty() {
            return Err(bad(format!(
                "KeyFile and CertFile must both be present[key: {key}, cert: {cert}]"
            )));
        }
        let has_files = !cert.is_empty() || !self.cacert.is_empty();
        if !has_files && self.insecure_transport && !self.insecure_skip_tls_verify {
            return Ok(None);
        }
        Ok(Some(TlsOptions {
            trusted_ca_file: (!self.cacert.is_empty()).then(|| self.cacert.clone().into()),
            identity: (!cert.is_empty()).then(|| KeyPairFiles {
                certificate: cert.into(),
                key: key.into(),
            }),
            skip_verification: self.insecure_skip_tls_verify,
        }))
    }

    /// The settings for `--debug`.
    pub fn debug_text(&self) -> String {
        format!(
            "PORTCTL_CACERT={:?}\nPORTCTL_CERT={:?}\nPORTCTL_KEY={:?}\nPORTCTL_INSECURE_TRANSPORT={}\n\
             PORTCTL_INSECURE_SKIP_TLS_VERIFY={}\n",
            self.cacert,
            self.cert,
            self.key,
            self.insecure_transport,
            self.insecure_skip_tls_verify
        )
    }
}

fn bad(message: String) -> Failure {
    Failure::new(ExitWith::BadArgs, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(args: &TransportArgs, variables: &[(&str, &str)]) -> Result<Transport, Failure> {
        let lookup = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Transport::resolve(args, &Environment { lookup: &lookup })
    }

    fn has_tls(variables: &[(&str, &str)]) -> Result<bool, String> {
        let transport = resolve(&TransportArgs::default(), variables).unwrap();
        let loaded = transport.tls().map(|tls| tls.is_some());
        loaded.map_err(|failure| failure.message.unwrap())
    }

    #[test]
    fn settings_that_ask_for_tls_are_those_of_etcdctl() {
        assert_eq!(has_tls(&[]), Ok(false));
        assert_eq!(
            has_tls(&[("ETCDCTL_INSECURE_TRANSPORT", "true")]),
            Ok(false)
        );
        assert_eq!(
            has_tls(&[("ETCDCTL_INSECURE_SKIP_TLS_VERIFY", "true")]),
            Ok(true)
        );
        let without_key = has_tls(&[("PORTCTL_CERT", "c.pem")]).unwrap_err();
        assert_eq!(
            without_key,
            "KeyFile and CertFile must both be present[key: , cert: c.pem]"
        );
        let missing = has_tls(&[("ETCDCTL_CACERT", "/nowhere/ca.pem")]).unwrap_err();
        assert!(missing.contains("/nowhere/ca.pem"), "{missing}");
    }

    #[test]
    fn empty_file_is_refused_as_a_flag_and_ignored_as_a_variable() {
        let args = TransportArgs {
            key: Some(String::new()),
            ..TransportArgs::default()
        };
        let refused = resolve(&args, &[]).unwrap().check().unwrap_err();
        assert_eq!(
            refused.message.unwrap(),
            "empty string is passed to --key option"
        );
        let empty = [("ETCDCTL_KEY", "")];
        let transport = resolve(&TransportArgs::default(), &empty).unwrap();
        assert!(transport.check().is_ok());
    }
}

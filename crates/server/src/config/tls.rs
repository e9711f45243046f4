//! The settings about TLS of the client and of the peer listeners, and of dials to peers.
//!
//! etcd accepts some settings without effect, such as `--client-cert-auth` where no listener uses
//! TLS. Here a setting that protects nothing is refused, and a setting that has an effect at some
//! of the URLs only is logged.

use std::path::PathBuf;

use portunus_tls::{
    AllowedNames, CipherSuiteError, CipherSuites, KeyPairFiles, VersionError, VersionRange,
};
use thiserror::Error;

use super::checks::Checks;
use super::{Config, ConfigError, ListenUrl, Values, boolean, number};

/// The settings of all TLS connections.
#[derive(Debug, Clone)]
pub struct TlsConfig {
    /// The listeners for clients and metrics.
    pub client: EndpointTls,
    /// The listeners for peers, and the dials to them.
    pub peer: EndpointTls,
    /// The allowed versions of TLS.
    pub versions: VersionRange,
    /// The allowed cipher suites.
    pub cipher_suites: CipherSuites,
    /// How long self-signed certificates are valid.
    pub self_signed_validity_years: u32,
}

/// The settings of the listeners for clients or of those for peers.
#[derive(Debug, Clone)]
pub struct EndpointTls {
    /// The certificate.
    pub certificate: Certificate,
    /// The certificate of this member's own dials, if it is not that of the listener.
    pub dial_identity: Option<KeyPairFiles>,
    /// The trusted CAs. With them a listener requires client certificates.
    pub trusted_ca_file: Option<PathBuf>,
    /// Require client certificates. At the client listeners: the common name of a certificate is
    /// the user of its requests.
    pub client_cert_auth: bool,
    /// The revoked client certificates.
    pub crl_file: Option<PathBuf>,
    /// The names that a certificate must have one of.
    pub allowed: AllowedNames,
    /// Do not compare the names in certificates with the addresses they are used from.
    pub skip_address_check: bool,
    /// Self-signed certificates were asked for although a certificate is given.
    pub auto_tls_is_ignored: bool,
}

/// The certificate of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Certificate {
    /// There is none: every URL must be `http`.
    None,
    /// The certificate in these files.
    Files(KeyPairFiles),
    /// A self-signed certificate that this member creates.
    SelfSigned,
}

/// Why the settings about TLS cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum TlsConfigError {
    /// A certificate without its key, or a key without its certificate.
    #[error("--{certificate} and --{key} must both be present: give both or none")]
    HalfPair {
        certificate: &'static str,
        key: &'static str,
    },
    /// A setting that needs the trusted CAs.
    #[error("--{flag} needs --{ca}, the CAs that issue the certificates")]
    NeedsCa {
        flag: &'static str,
        ca: &'static str,
    },
    /// A setting that self-signed certificates do not go together with.
    #[error(
        "--{flag} cannot be used with --{auto}, which verifies no certificate: give certificates of a CA instead"
    )]
    WithSelfSigned {
        flag: &'static str,
        auto: &'static str,
    },
    /// Common names and host names are both restricted.
    #[error("--{names} and --{hosts} are mutually exclusive: give one of them")]
    BothNames {
        names: &'static str,
        hosts: &'static str,
    },
    /// No listener uses TLS.
    #[error(
        "--{flag} has no effect, because no URL in --{urls} is https: change the URLs, or leave it out"
    )]
    NoTlsUrl {
        flag: &'static str,
        urls: &'static str,
    },
    /// A URL needs a certificate.
    #[error(
        "TLS key/cert (--{certificate}, --{key}) must be provided for {url} in --{flag} with HTTPS scheme"
    )]
    NoCertificate {
        flag: &'static str,
        url: String,
        certificate: &'static str,
        key: &'static str,
    },
    /// A peer can be dialled with TLS only, for which there are no settings.
    #[error(
        "{url} in --initial-cluster is https: give --peer-cert-file, --peer-key-file and --peer-trusted-ca-file, or --peer-auto-tls"
    )]
    NoPeerTls { url: String },
    /// The two lists of URLs have one address.
    #[error(
        "cannot bind both --listen-client-urls and --listen-client-http-urls on the same url {url}"
    )]
    SharedHttpUrl { url: String },
    /// The validity of self-signed certificates.
    #[error("--self-signed-cert-validity=0 cannot be used: it takes a number of years above 0")]
    Validity,
    /// A version is unknown, or the range is empty.
    #[error("--tls-min-version and --tls-max-version cannot be used: {0}")]
    Versions(VersionError),
    /// A cipher suite is unknown or not supported.
    #[error("--cipher-suites cannot be used: {0}")]
    CipherSuites(CipherSuiteError),
    /// Cipher suites are restricted for TLS 1.2, which is not allowed.
    #[error(
        "cipher suites cannot be configured when only TLS1.3 is enabled: leave --cipher-suites out"
    )]
    SuitesOfTls13,
}

/// The flags of the settings of one kind of listener.
struct Names {
    certificate: &'static str,
    key: &'static str,
    dial_certificate: &'static str,
    dial_key: &'static str,
    auth: &'static str,
    ca: &'static str,
    crl: &'static str,
    allowed_cn: &'static str,
    allowed_hostname: &'static str,
    skip_address_check: &'static str,
    auto: &'static str,
}

const CLIENT: Names = Names {
    certificate: "cert-file",
    key: "key-file",
    dial_certificate: "client-cert-file",
    dial_key: "client-key-file",
    auth: "client-cert-auth",
    ca: "trusted-ca-file",
    crl: "client-crl-file",
    allowed_cn: "client-cert-allowed-cn",
    allowed_hostname: "client-cert-allowed-hostname",
    skip_address_check: "skip-client-san-verification",
    auto: "auto-tls",
};

const PEER: Names = Names {
    certificate: "peer-cert-file",
    key: "peer-key-file",
    dial_certificate: "peer-client-cert-file",
    dial_key: "peer-client-key-file",
    auth: "peer-client-cert-auth",
    ca: "peer-trusted-ca-file",
    crl: "peer-crl-file",
    allowed_cn: "peer-cert-allowed-cn",
    allowed_hostname: "peer-cert-allowed-hostname",
    skip_address_check: "peer-skip-client-san-verification",
    auto: "peer-auto-tls",
};

impl TlsConfig {
    pub(super) fn from_values(values: &Values, checks: &mut Checks) -> Option<TlsConfig> {
        let client = EndpointTls::from_values(values, &CLIENT, checks);
        let peer = EndpointTls::from_values(values, &PEER, checks);
        let versions =
            VersionRange::parse(values.get("tls-min-version"), values.get("tls-max-version"));
        let versions = checks.ok(versions.map_err(TlsConfigError::Versions));
        let cipher_suites = CipherSuites::parse(list(values, "cipher-suites"));
        let cipher_suites = checks.ok(cipher_suites.map_err(TlsConfigError::CipherSuites));
        let validity = checks.ok(validity(values));
        let (versions, cipher_suites) = (versions?, cipher_suites?);
        if versions.is_only_tls13() && cipher_suites.is_restricted() {
            checks.errors.push(TlsConfigError::SuitesOfTls13.into());
        }
        Some(TlsConfig {
            client: client?,
            peer: peer?,
            versions,
            cipher_suites,
            self_signed_validity_years: validity?,
        })
    }
}

fn validity(values: &Values) -> Result<u32, ConfigError> {
    match number(values, "self-signed-cert-validity")? {
        0 => Err(TlsConfigError::Validity.into()),
        years => Ok(years),
    }
}

fn list<'v>(values: &'v Values, flag: &'static str) -> impl Iterator<Item = &'v str> {
    let items = values.get(flag).split(',').map(str::trim);
    items.filter(|item| !item.is_empty())
}

fn file(values: &Values, flag: &'static str) -> Option<PathBuf> {
    match values.get(flag) {
        "" => None,
        path => Some(PathBuf::from(path)),
    }
}

fn pair(
    values: &Values,
    certificate: &'static str,
    key: &'static str,
) -> Result<Option<KeyPairFiles>, TlsConfigError> {
    match (file(values, certificate), file(values, key)) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some(KeyPairFiles { certificate, key })),
        _ => Err(TlsConfigError::HalfPair { certificate, key }),
    }
}

fn allowed(values: &Values, names: &Names) -> Result<AllowedNames, TlsConfigError> {
    let texts = |flag| list(values, flag).map(str::to_owned).collect::<Vec<_>>();
    let (cns, hosts) = (texts(names.allowed_cn), texts(names.allowed_hostname));
    match (cns.is_empty(), hosts.is_empty()) {
        (true, true) => Ok(AllowedNames::Any),
        (false, true) => Ok(AllowedNames::CommonNames(cns)),
        (true, false) => Ok(AllowedNames::Hostnames(hosts)),
        (false, false) => Err(TlsConfigError::BothNames {
            names: names.allowed_cn,
            hosts: names.allowed_hostname,
        }),
    }
}

impl EndpointTls {
    fn from_values(values: &Values, names: &Names, checks: &mut Checks) -> Option<EndpointTls> {
        let files = checks.ok(pair(values, names.certificate, names.key));
        let dial_identity = checks.ok(pair(values, names.dial_certificate, names.dial_key));
        let client_cert_auth = checks.ok(boolean(values, names.auth));
        let allowed = checks.ok(allowed(values, names));
        let skip_address_check = checks.ok(boolean(values, names.skip_address_check));
        let auto_tls = checks.ok(boolean(values, names.auto));
        let (files, auto_tls) = (files?, auto_tls?);
        let endpoint = EndpointTls {
            auto_tls_is_ignored: auto_tls && files.is_some(),
            certificate: match files {
                Some(files) => Certificate::Files(files),
                None if auto_tls => Certificate::SelfSigned,
                None => Certificate::None,
            },
            dial_identity: dial_identity?,
            trusted_ca_file: file(values, names.ca),
            client_cert_auth: client_cert_auth?,
            crl_file: file(values, names.crl),
            allowed: allowed?,
            skip_address_check: skip_address_check?,
        };
        checks
            .errors
            .extend(endpoint.contradictions(names).map(ConfigError::from));
        Some(endpoint)
    }

    /// Settings about the certificates of others that would not be enforced.
    fn contradictions(&self, names: &Names) -> impl Iterator<Item = TlsConfigError> {
        let allowed_flag = match self.allowed {
            AllowedNames::Hostnames(_) => names.allowed_hostname,
            _ => names.allowed_cn,
        };
        let set = [
            (self.client_cert_auth, names.auth),
            (self.crl_file.is_some(), names.crl),
            (self.allowed != AllowedNames::Any, allowed_flag),
        ];
        let is_self_signed = self.certificate == Certificate::SelfSigned;
        let has_ca = self.trusted_ca_file.is_some();
        let (ca, auto) = (names.ca, names.auto);
        let set = set.into_iter().chain([(is_self_signed && has_ca, ca)]);
        let set = set.filter_map(|(is_set, flag)| is_set.then_some(flag));
        set.filter_map(move |flag| match (is_self_signed, has_ca) {
            (true, _) => Some(TlsConfigError::WithSelfSigned { flag, auto }),
            (false, false) => Some(TlsConfigError::NeedsCa { flag, ca }),
            (false, true) => None,
        })
    }
}

/// Checks the URLs of a configuration against its settings about TLS.
pub(super) fn check_urls(config: &Config) -> Vec<ConfigError> {
    let mut errors = Vec::new();
    let (tls, cluster) = (&config.tls, &config.cluster);
    let client_urls = [
        ("listen-client-urls", &config.listen_client_urls),
        ("listen-client-http-urls", &config.listen_client_http_urls),
        ("listen-metrics-urls", &config.listen_metrics_urls),
    ];
    for (flag, urls) in client_urls {
        errors.extend(without_certificate(flag, urls, &tls.client, &CLIENT));
    }
    let (flag, urls) = ("listen-peer-urls", &cluster.listen_peer_urls);
    errors.extend(without_certificate(flag, urls, &tls.peer, &PEER));

    let any_tls = |urls: &[ListenUrl]| urls.iter().any(|url| url.is_tls);
    if tls.client.client_cert_auth && !client_urls.iter().any(|(_, urls)| any_tls(urls)) {
        errors.push(TlsConfigError::NoTlsUrl {
            flag: CLIENT.auth,
            urls: "listen-client-urls",
        });
    }
    if tls.peer.client_cert_auth && !any_tls(urls) {
        errors.push(TlsConfigError::NoTlsUrl {
            flag: PEER.auth,
            urls: "listen-peer-urls",
        });
    }
    let mut founders = cluster.initial_members.iter();
    let https = founders.find_map(|member| {
        let mut urls = member.peer_urls.iter();
        urls.find(|url| url.starts_with("https://"))
    });
    if let Some(url) = https
        && !tls.peer.can_dial()
    {
        errors.push(TlsConfigError::NoPeerTls { url: url.clone() });
    }
    let grpc = &config.listen_client_urls;
    let shared = config
        .listen_client_http_urls
        .iter()
        // The system chooses different ports for `:0`.
        .filter(|http| !http.authority.ends_with(":0"))
        .find(|http| grpc.iter().any(|grpc| grpc.authority == http.authority));
    if let Some(url) = shared {
        errors.push(TlsConfigError::SharedHttpUrl {
            url: url.url.clone(),
        });
    }
    errors.into_iter().map(ConfigError::from).collect()
}

impl EndpointTls {
    /// Returns whether peers with `https` addresses can be dialled.
    pub fn can_dial(&self) -> bool {
        self.certificate != Certificate::None || self.trusted_ca_file.is_some()
    }
}

fn without_certificate(
    flag: &'static str,
    urls: &[ListenUrl],
    tls: &EndpointTls,
    names: &Names,
) -> Option<TlsConfigError> {
    let url = urls.iter().find(|url| url.is_tls)?;
    (tls.certificate == Certificate::None).then(|| TlsConfigError::NoCertificate {
        flag,
        url: url.url.clone(),
        certificate: names.certificate,
        key: names.key,
    })
}

#[cfg(test)]
mod tests {
    use super::super::ConfigErrors;
    use super::*;

    fn config(words: &[&str]) -> Result<Config, ConfigErrors> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Config::from_values(&Values::from_arguments(&words))
    }

    /// The flags of a static pod that kubeadm writes, besides those without TLS.
    const KUBEADM: [&str; 12] = [
        "--advertise-client-urls=https://127.0.0.1:2379",
        "--cert-file=/etc/kubernetes/pki/etcd/server.crt",
        "--client-cert-auth=true",
        "--initial-advertise-peer-urls=https://127.0.0.1:2380",
        "--initial-cluster=default=https://127.0.0.1:2380",
        "--key-file=/etc/kubernetes/pki/etcd/server.key",
        "--listen-client-urls=https://127.0.0.1:2379",
        "--listen-metrics-urls=http://127.0.0.1:2381",
        "--listen-peer-urls=https://127.0.0.1:2380",
        "--peer-cert-file=/etc/kubernetes/pki/etcd/peer.crt",
        "--peer-key-file=/etc/kubernetes/pki/etcd/peer.key",
        "--trusted-ca-file=/etc/kubernetes/pki/etcd/ca.crt",
    ];

    #[test]
    fn flags_of_a_static_pod_are_accepted() {
        let mut words = KUBEADM.to_vec();
        words.extend([
            "--peer-client-cert-auth=true",
            "--peer-trusted-ca-file=/etc/kubernetes/pki/etcd/ca.crt",
            "--tls-min-version=TLS1.3",
        ]);
        let config = config(&words).unwrap();
        assert!(config.tls.client.client_cert_auth);
        assert!(config.listen_client_urls[0].is_tls);
        assert!(!config.listen_metrics_urls[0].is_tls);
        assert!(config.tls.peer.trusted_ca_file.is_some());
    }

    #[test]
    fn settings_that_would_not_be_enforced_are_refused() {
        for (words, expected) in [
            (&["--cert-file=a"][..], "--key-file must both be present"),
            (&["--peer-client-key-file=a"], "must both be present"),
            (
                &["--client-crl-file=a"],
                "--client-crl-file needs --trusted-ca-file",
            ),
            (
                &["--client-cert-auth"],
                "--client-cert-auth needs --trusted-ca-file",
            ),
            (
                &["--client-cert-auth", "--trusted-ca-file=a"],
                "no URL in --listen-client-urls is https",
            ),
            (
                &["--peer-client-cert-auth", "--peer-trusted-ca-file=a"],
                "no URL in --listen-peer-urls is https",
            ),
            (
                &["--auto-tls", "--trusted-ca-file=a"],
                "--trusted-ca-file cannot be used with --auto-tls",
            ),
            (
                &["--peer-auto-tls", "--peer-cert-allowed-cn=a"],
                "--peer-cert-allowed-cn cannot be used with --peer-auto-tls",
            ),
            (
                &["--peer-cert-allowed-cn=a", "--peer-cert-allowed-hostname=b"],
                "mutually exclusive",
            ),
            (&["--self-signed-cert-validity=0"], "above 0"),
            (&["--tls-min-version=TLS1.1"], "TLS1.2, TLS1.3"),
            (
                &["--tls-min-version=TLS1.3", "--tls-max-version=TLS1.2"],
                "greater than max",
            ),
            (
                &["--cipher-suites=TLS_RSA_WITH_RC4_128_SHA"],
                "supported are TLS_AES_128_GCM_SHA256",
            ),
            (
                &[
                    "--tls-min-version=TLS1.3",
                    "--cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
                ],
                "only TLS1.3",
            ),
            (
                &["--listen-peer-urls=https://127.0.0.1:1"],
                "--peer-cert-file",
            ),
            (
                &[
                    "--initial-advertise-peer-urls=https://127.0.0.1:1",
                    "--initial-cluster=default=https://127.0.0.1:1",
                ],
                "in --initial-cluster is https",
            ),
            (
                &["--listen-client-http-urls=http://localhost:2379"],
                "cannot bind both",
            ),
        ] {
            let error = config(words).unwrap_err().to_string();
            assert!(error.contains(expected), "{words:?}: {error}");
        }
    }

    #[test]
    fn groups_of_the_config_file_are_the_flags() {
        let text = "
listen-client-urls: https://127.0.0.1:1
advertise-client-urls: https://127.0.0.1:1
client-transport-security:
  cert-file: s.crt
  key-file: s.key
  client-cert-auth: true
  trusted-ca-file: ca.crt
  allowed-cn: [a, b]
  auto-tls: false
peer-transport-security:
  cert-file: p.crt
  key-file: p.key
  trusted-ca-file: ca.crt
  allowed-hostname: [h]
  skip-client-san-verification: true
cipher-suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]
tls-max-version: TLS1.2
";
        let config = Config::from_values(&Values::from_config_file(text)).unwrap();
        let (client, peer) = (&config.tls.client, &config.tls.peer);
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(
            client.allowed,
            AllowedNames::CommonNames(names(&["a", "b"]))
        );
        assert_eq!(peer.allowed, AllowedNames::Hostnames(names(&["h"])));
        assert!(client.client_cert_auth && peer.skip_address_check);
        assert!(config.tls.cipher_suites.is_restricted());

        let unknown = "client-transport-security: {cert-fiel: a}";
        let error = Config::from_values(&Values::from_config_file(unknown)).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("client-transport-security.cert-fiel"),
            "{error}"
        );
        assert!(error.contains("cert-file, key-file"), "{error}");
    }
}

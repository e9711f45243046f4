//! Flags every command has, and the environment variables that stand in for them.
//!
//! A flag takes precedence over `PORTCTL_<FLAG>`, that over `ETCDCTL_<FLAG>`, and that over the
//! default. DNS discovery is missing here and refused as flag and as variable, because a connection
//! that silently lacks it is worse than none.

use std::env;
use std::time::Duration;

use clap::Args;
use portunus_client::{Client, EndpointParts, Options};
use portunus_features::version::ETCD_VERSION;
use portunus_tls::ClientTls;

use crate::go::{boolean, duration};
use crate::identity::Identity;
use crate::outcome::{ExitWith, Failure, write_err};
use crate::print::{Format, Printer};
use crate::required;
use crate::settings::Environment;
use crate::transport::{Transport, TransportArgs};

/// The flags as written.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Global options")]
pub struct GlobalArgs {
    /// gRPC endpoints, comma separated [default: 127.0.0.1:2379]
    #[arg(long, global = true, value_name = "LIST")]
    endpoints: Vec<String>,
    /// Output format: fields, json, protobuf, simple or table [default: simple]
    #[arg(short = 'w', long, global = true, value_name = "FORMAT")]
    write_out: Option<String>,
    /// Print byte strings as hex encoded strings
    #[arg(long, global = true)]
    hex: bool,
    /// Print the settings in force to standard error
    #[arg(long, global = true)]
    debug: bool,
    /// Longest wait for a connection [default: 2s]
    #[arg(long, global = true, value_name = "DURATION")]
    dial_timeout: Option<String>,
    /// Longest wait for the response to a command [default: 5s]
    #[arg(long, global = true, value_name = "DURATION")]
    command_timeout: Option<String>,
    /// Time without data after which a keepalive ping is sent; at least 10s [default: 2s]
    #[arg(long, global = true, value_name = "DURATION")]
    keepalive_time: Option<String>,
    /// Longest wait for the response to a keepalive ping [default: 6s]
    #[arg(long, global = true, value_name = "DURATION")]
    keepalive_timeout: Option<String>,
    /// Largest request in bytes; 0 is 2 MiB [default: 0]
    #[arg(long, global = true, value_name = "BYTES")]
    max_request_bytes: Option<String>,
    /// Largest response in bytes; 0 is 2 GiB [default: 0]
    #[arg(long, global = true, value_name = "BYTES")]
    max_recv_bytes: Option<String>,
    /// Longest wait for the lock of a file of a stopped member; 0 is no limit [default: 10s]
    #[arg(long, global = true, value_name = "DURATION")]
    timeout: Option<String>,
    /// USER[:PASSWORD] for authentication; a missing password is asked for
    #[arg(long, global = true, value_name = "USER[:PASSWORD]")]
    user: Option<String>,
    /// Password for authentication; --user then has none
    #[arg(long, global = true, value_name = "PASSWORD")]
    password: Option<String>,
    /// JWT for authentication instead of --user
    #[arg(long, global = true, value_name = "TOKEN")]
    auth_jwt_token: Option<String>,
    #[command(flatten)]
    transport: TransportArgs,
    /// Values of `--require-feature`, which is no global flag of clap's.
    #[arg(skip)]
    pub require_feature: Vec<String>,

    #[arg(short = 'd', long, global = true, hide = true)]
    discovery_srv: Option<String>,
    #[arg(long, global = true, hide = true)]
    discovery_srv_name: Option<String>,
    #[arg(long, global = true, hide = true)]
    insecure_discovery: Option<String>,
}

/// The settings in force.
#[derive(Debug, Clone)]
pub struct Globals {
    /// The endpoints and options of the client, without TLS and credentials; see
    /// [`Self::options`].
    pub client: Options,
    /// The identity of the user.
    identity: Identity,
    /// The TLS settings.
    transport: Transport,
    /// The printer of answers.
    pub printer: Printer,
    /// Longest wait for an answer.
    pub command_timeout: Duration,
    /// Whether the user set the timeout.
    pub command_timeout_given: bool,
    /// Longest wait for the lock of a file; zero is no limit.
    pub lock_timeout: Duration,
    /// Cluster features that must be on for a data command.
    pub required: Vec<String>,
}

impl Globals {
    /// Resolves the settings from flags and environment.
    pub fn resolve(args: &GlobalArgs) -> Result<Self, Failure> {
        Self::resolve_with(args, &|name| env::var(name).ok())
    }

    fn resolve_with(
        args: &GlobalArgs,
        lookup: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Failure> {
        let environment = Environment { lookup };
        refuse_unsupported(&environment, args)?;

        let endpoints = match args.endpoints.is_empty() {
            false => args.endpoints.join(","),
            true => environment
                .setting(None, "endpoints")
                .map_or("127.0.0.1:2379".to_owned(), |setting| setting.text),
        };
        let endpoints: Vec<String> = endpoints
            .split(',')
            .map(|endpoint| endpoint.trim().to_owned())
            .filter(|endpoint| !endpoint.is_empty())
            .collect();
        let format = environment.setting(args.write_out.as_deref(), "write-out");
        let format = Format::named(format.as_ref().map_or("simple", |setting| &setting.text))?;
        let command_timeout =
            environment.duration(args.command_timeout.as_deref(), "command-timeout")?;
        let required = (!args.require_feature.is_empty()).then(|| args.require_feature.join(","));
        let required = environment.parsed(
            required.as_deref(),
            "require-feature",
            required::parse_names,
        )?;
        let text = |flag: &Option<String>, name: &str| {
            let setting = environment.setting(flag.as_deref(), name);
            setting.map(|setting| setting.text).unwrap_or_default()
        };
        let identity = Identity::new(
            text(&args.user, "user"),
            text(&args.password, "password"),
            text(&args.auth_jwt_token, "auth-jwt-token"),
        );
        let defaults = Options::default();
        let client = Options {
            endpoints,
            dial_timeout: environment
                .duration(args.dial_timeout.as_deref(), "dial-timeout")?
                .unwrap_or(defaults.dial_timeout),
            command_timeout: Some(command_timeout.unwrap_or(COMMAND_TIMEOUT_DEFAULT)),
            keepalive_time: environment
                .duration(args.keepalive_time.as_deref(), "keepalive-time")?
                .unwrap_or(defaults.keepalive_time),
            keepalive_timeout: environment
                .duration(args.keepalive_timeout.as_deref(), "keepalive-timeout")?
                .unwrap_or(defaults.keepalive_timeout),
            request_bytes_max: environment
                .bytes(args.max_request_bytes.as_deref(), "max-request-bytes")?
                .unwrap_or(defaults.request_bytes_max),
            response_bytes_max: environment
                .bytes(args.max_recv_bytes.as_deref(), "max-recv-bytes")?
                .unwrap_or(defaults.response_bytes_max),
            tls: None,
            credentials: None,
            user_agent: format!("portctl/v{ETCD_VERSION}.0"),
        };
        let globals = Self {
            client,
            identity,
            transport: Transport::resolve(&args.transport, &environment)?,
            printer: Printer {
                format,
                hex: args.hex || environment.boolean("hex")?,
                value_only: false,
            },
            command_timeout: command_timeout.unwrap_or(COMMAND_TIMEOUT_DEFAULT),
            command_timeout_given: command_timeout.is_some(),
            lock_timeout: environment
                .duration(args.timeout.as_deref(), "timeout")?
                .unwrap_or(LOCK_TIMEOUT_DEFAULT),
            required: required.unwrap_or_default(),
        };
        if args.debug || environment.boolean("debug")? {
            write_err(globals.debug_text().as_bytes());
        }
        Ok(globals)
    }

    /// The options of the client with TLS and credentials; asks for the password if it is needed.
    pub fn options(&self) -> Result<Options, Failure> {
        self.transport.check()?;
        Ok(Options {
            credentials: self.identity.credentials()?,
            tls: self.transport.tls()?,
            ..self.client.clone()
        })
    }

    /// A client of the whole cluster.
    pub async fn connect(&self) -> Result<Client, Failure> {
        open(self.options()?).await
    }

    /// A client for a data command: its calls need the features of `--require-feature`.
    pub async fn connect_for_data(&self) -> Result<Client, Failure> {
        required::connect(self, self.options()?).await
    }

    /// A client of one endpoint only.
    pub async fn connect_to(&self, endpoint: &str) -> Result<Client, Failure> {
        self.connect_to_any(vec![endpoint.to_owned()]).await
    }

    /// A client of these endpoints.
    pub async fn connect_to_any(&self, endpoints: Vec<String>) -> Result<Client, Failure> {
        let options = Options {
            endpoints,
            ..self.options()?
        };
        open(options).await
    }

    /// A client of one endpoint whose first call connects and logs in, for commands that ask
    /// several endpoints at once.
    pub fn client_of(&self, endpoint: &str) -> Result<Client, Failure> {
        let options = Options {
            endpoints: vec![endpoint.to_owned()],
            ..self.options()?
        };
        Ok(Client::connect(options)?)
    }

    /// The TLS connector of an HTTP request to an endpoint; `None` without TLS.
    pub fn http_tls(&self, endpoint: &EndpointParts) -> Result<Option<ClientTls>, Failure> {
        self.transport.http_tls(endpoint)
    }

    fn debug_text(&self) -> String {
        let text = |duration: Duration| duration::format(duration);
        let settings = format!(
            "PORTCTL_ENDPOINTS={:?}\nPORTCTL_WRITE_OUT={:?}\nPORTCTL_HEX={}\nPORTCTL_DIAL_TIMEOUT={}\n\
             PORTCTL_COMMAND_TIMEOUT={}\nPORTCTL_KEEPALIVE_TIME={}\nPORTCTL_KEEPALIVE_TIMEOUT={}\n\
             PORTCTL_MAX_REQUEST_BYTES={}\nPORTCTL_MAX_RECV_BYTES={}\nPORTCTL_USER={:?}\n\
             PORTCTL_REQUIRE_FEATURE={:?}\n",
            self.client.endpoints,
            self.printer.format,
            self.printer.hex,
            text(self.client.dial_timeout),
            text(self.command_timeout),
            text(self.client.keepalive_time),
            text(self.client.keepalive_timeout),
            self.client.request_bytes_max,
            self.client.response_bytes_max,
            self.identity.user_name(),
            self.required,
        );
        settings + &self.transport.debug_text()
    }
}

/// A client that has logged in. etcdctl logs in before every command, too, and ends with this exit
/// code if the server refuses it.
pub async fn open(options: Options) -> Result<Client, Failure> {
    let client = Client::connect(options)?;
    match client.log_in().await {
        Ok(()) => Ok(client),
        Err(error) => Err(Failure::from(error).exiting_with(ExitWith::BadConnection)),
    }
}

const COMMAND_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
const LOCK_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// Refuses settings of etcdctl that portctl does not have, unless they ask for what it does anyway.
fn refuse_unsupported(environment: &Environment<'_>, args: &GlobalArgs) -> Result<(), Failure> {
    const DISCOVERY: &str = "portctl has no DNS discovery; list the --endpoints";
    let refuse = |source: &str, what: &str| {
        let message = format!("{source} is not supported yet: {what}");
        Err(Failure::new(ExitWith::BadFeature, message))
    };
    for (flag, name) in [
        (&args.discovery_srv, "discovery-srv"),
        (&args.discovery_srv_name, "discovery-srv-name"),
    ] {
        if let Some(setting) = environment.setting(flag.as_deref(), name) {
            return refuse(&setting.source, DISCOVERY);
        }
    }
    // The default does not matter without discovery.
    let insecure = environment.parsed(
        args.insecure_discovery.as_deref(),
        "insecure-discovery",
        boolean::parse,
    )?;
    if insecure == Some(false) {
        return refuse("--insecure-discovery=false", DISCOVERY);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(args: &GlobalArgs, environment: &[(&str, &str)]) -> Result<Globals, Failure> {
        Globals::resolve_with(args, &|name| {
            let found = environment.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn flag_overrides_portctl_variable_which_overrides_etcdctl_variable() {
        let etcdctl = ("ETCDCTL_DIAL_TIMEOUT", "1s");
        let ours = ("PORTCTL_DIAL_TIMEOUT", "2m");
        let flag = GlobalArgs {
            dial_timeout: Some("3h".to_owned()),
            ..GlobalArgs::default()
        };
        let none = GlobalArgs::default();
        let dial = |args, environment: &[(&str, &str)]| {
            let globals = resolve(args, environment).unwrap();
            globals.client.dial_timeout.as_secs()
        };
        assert_eq!(dial(&flag, &[etcdctl, ours]), 3 * 3600);
        assert_eq!(dial(&none, &[etcdctl, ours]), 120);
        assert_eq!(dial(&none, &[etcdctl]), 1);
        assert_eq!(dial(&none, &[("PORTCTL_DIAL_TIMEOUT", ""), etcdctl]), 1);
        assert_eq!(dial(&none, &[]), 2);
    }

    #[test]
    fn endpoint_list_may_contain_blanks() {
        let environment = [("ETCDCTL_ENDPOINTS", "a:1, b:2")];
        let globals = resolve(&GlobalArgs::default(), &environment).unwrap();
        assert_eq!(globals.client.endpoints, ["a:1", "b:2"]);
    }

    #[test]
    fn required_features_come_from_the_flag_or_the_variable() {
        let variable = ("PORTCTL_REQUIRE_FEATURE", "C");
        let flag = GlobalArgs {
            require_feature: vec!["A".to_owned(), "B,D".to_owned()],
            ..GlobalArgs::default()
        };
        assert_eq!(
            resolve(&flag, &[variable]).unwrap().required,
            ["A", "B", "D"]
        );
        let none = GlobalArgs::default();
        assert_eq!(resolve(&none, &[variable]).unwrap().required, ["C"]);
        let empty = GlobalArgs {
            require_feature: vec![String::new()],
            ..GlobalArgs::default()
        };
        let message = resolve(&empty, &[variable]).unwrap_err().message.unwrap();
        assert!(message.contains("a feature name is empty"), "{message}");
    }

    #[test]
    fn unsupported_setting_in_the_environment_is_refused() {
        let variable = "ETCDCTL_DISCOVERY_SRV";
        let failure = resolve(&GlobalArgs::default(), &[(variable, "x")]).unwrap_err();
        let message = failure.message.unwrap();
        let what = "no DNS discovery";
        assert!(
            message.contains(variable) && message.contains(what),
            "{message}"
        );
    }

    #[test]
    fn invalid_value_is_refused_with_its_flag_or_variable() {
        let environment = [("ETCDCTL_KEEPALIVE_TIME", "1x")];
        let failure = resolve(&GlobalArgs::default(), &environment).unwrap_err();
        assert_eq!(
            failure.message.unwrap(),
            "invalid argument \"1x\" for \"ETCDCTL_KEEPALIVE_TIME\": \
             time: unknown unit \"x\" in duration \"1x\""
        );
    }
}

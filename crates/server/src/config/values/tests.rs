use super::*;

fn arguments(words: &[&str]) -> Result<Values, ValuesError> {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    first_error(Values::from_arguments(&words))
}

fn first_error(values: Values) -> Result<Values, ValuesError> {
    match values.errors.first() {
        None => Ok(values),
        Some(error) => Err(error.clone()),
    }
}

#[test]
fn both_names_of_a_version_flag_need_the_same_value() {
    for (one, other) in [("emulation", "emulated"), ("emulated", "emulation")] {
        let words = [
            &format!("--{one}-version=3.6"),
            &format!("--{other}-version=3.7"),
        ];
        let refused = arguments(&words.map(String::as_str))
            .unwrap_err()
            .to_string();
        let expected = format!("--{one}-version=3.6 and --{other}-version=3.7 contradict");
        assert!(refused.starts_with(&expected), "{refused}");
    }
    let mut values = Values::default();
    values.add_environment([
        ("ETCD_EMULATED_VERSION", "3.6"),
        ("ETCD_EMULATION_VERSION", "3.7"),
    ]);
    assert!(first_error(values).is_err());
    let file = "emulation-version: '3.6'\nemulated-version: '3.7'";
    assert!(first_error(Values::from_config_file(file)).is_err());
    let same = ["--emulated-version=3.6", "--emulation-version=3.6"];
    assert_eq!(arguments(&same).unwrap().get("emulated-version"), "3.6");
    // A flag beats the environment, by whichever name.
    let mut values = arguments(&["--emulation-version=3.6"]).unwrap();
    values.add_environment([("ETCD_EMULATED_VERSION", "3.7")]);
    assert_eq!(first_error(values).unwrap().get("emulated-version"), "3.6");
}

#[test]
fn unknown_variable_is_reported_with_a_suggestion() {
    let mut values = Values::default();
    values.add_environment([
        ("ETCD_QUOTA_BACKEND_BYTE", "1"),
        ("ETCD_SERVICE_HOST", "10.0.0.1"),
        ("ETCDCTL_API", "3"),
        ("ETCD_EXPERIMENTAL_WATCH_PROGRESS_NOTIFY_INTERVAL", "1s"),
        ("ETCD_NAME", "m1"),
    ]);
    let noted = values.unrecognized.iter();
    let noted: Vec<_> = noted
        .map(|v| (v.name.as_str(), v.similar.as_deref()))
        .collect();
    assert_eq!(
        noted,
        [
            ("ETCD_QUOTA_BACKEND_BYTE", Some("ETCD_QUOTA_BACKEND_BYTES")),
            ("ETCD_SERVICE_HOST", None),
            (
                "ETCD_EXPERIMENTAL_WATCH_PROGRESS_NOTIFY_INTERVAL",
                Some("ETCD_WATCH_PROGRESS_NOTIFY_INTERVAL")
            ),
        ]
    );
    assert_eq!(values.get("name"), "m1");
}

#[test]
fn flag_is_suggested_only_if_it_was_renamed_or_is_similar() {
    let hint = |flag: &str| arguments(&[flag]).unwrap_err().to_string();
    for (flag, expected) in [
        (
            "--experimental-watch-progress-notify-interval=1s",
            "it is called --watch-progress-notify-interval now",
        ),
        ("--data-dri=x", "did you mean --data-dir?"),
        ("--election-timout=1000", "did you mean --election-timeout?"),
        (
            "--experimental-warning-something-else=1",
            "see portunus --help",
        ),
        ("--listen-me=1", "see portunus --help"),
    ] {
        assert!(hint(flag).ends_with(expected), "{}", hint(flag));
    }
}

#[test]
fn every_error_is_collected() {
    let words = ["--nmae", "m1", "stray", "--force-new-clutser", "--data-dir"];
    let values = Values::from_arguments(&words.map(str::to_owned));
    let texts: Vec<String> = values.errors.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), 4, "{texts:?}");
    let file = Values::from_config_file("no-flag: 1\nother: 2\nname: [[1]]");
    assert_eq!(file.errors.len(), 3, "{:?}", file.errors);
}

#[test]
fn flags_parse_in_every_form() {
    for words in [
        &["--name", "m1"][..],
        &["--name=m1"],
        &["-name", "m1"],
        &["-name=m1"],
    ] {
        assert_eq!(arguments(words).unwrap().get("name"), "m1", "{words:?}");
    }
    let values = arguments(&[
        "--strict-emulation",
        "--feature-gates=A=true",
        "--feature-gates",
        "B=false",
    ])
    .unwrap();
    assert_eq!(values.get("strict-emulation"), "true");
    assert_eq!(values.get("feature-gates"), "A=true,B=false");
    assert_eq!(values.get("election-timeout"), "1000");
    assert_eq!(
        arguments(&["--emulation-version=3.7"])
            .unwrap()
            .get("emulated-version"),
        "3.7"
    );
}

#[test]
fn unsupported_flag_is_refused_unless_it_has_its_default() {
    let refused = |words: &[&str]| arguments(words).unwrap_err().to_string();
    assert!(refused(&["--discovery-srv=a"]).contains("not supported yet (discovery)"));
    assert!(arguments(&["--auth-token=simple", "--pre-vote=true"]).is_ok());
    assert!(refused(&["--nmae=x"]).contains("did you mean --name?"));
    assert!(refused(&["--zzz"]).contains("--help"));
    assert!(refused(&["--name"]).contains("needs a value"));
    assert!(refused(&["serve"]).contains("neither a flag nor a command"));
    assert!(refused(&["--unsafe-no-fsync"]).contains("gone"));
    assert_eq!(arguments(&["--vv=1"]).unwrap().ignored, ["vv"]);
}

#[test]
fn flag_overrides_the_environment() {
    let mut values = arguments(&["--name=flag"]).unwrap();
    let environment = [
        ("ETCD_NAME", "env"),
        ("ETCD_ELECTION_TIMEOUT", "2000"),
        ("ETCD_UNKNOWN_THING", "x"),
        ("ETCD_DATA_DIR", ""),
        ("PATH", "/bin"),
    ];
    values.add_environment(environment);
    assert_eq!(values.get("name"), "flag");
    assert_eq!(values.get("election-timeout"), "2000");
    assert!(!values.is_set("data-dir"));
    values.add_environment([("ETCD_CERT_FILE", "x.pem"), ("ETCD_DISCOVERY_SRV", "a")]);
    assert_eq!(values.get("cert-file"), "x.pem");
    assert!(values.errors[0].to_string().contains("discovery"));
}

/// Proves: X14
#[test]
fn gates_of_the_flag_override_the_file_per_name() {
    let file = "name: m1\nfeature-gates: {A: true, B: true}\nemulated-version: 3.7\n";
    let mut values = Values::from_config_file(file);
    let flags = [
        "--name=other",
        "--feature-gates=A=false",
        "--cluster-feature-gates=C=true",
        "--min-compatibility-version=3.6",
    ];
    let said = Values::from_arguments(&flags.map(str::to_owned));
    values.add_beside_file(&said);
    let gates = values.gates("feature-gates").unwrap();
    assert_eq!(gates.get("A"), Some((false, Origin::Flag)));
    assert_eq!(
        gates.all("A"),
        [(Origin::Flag, false), (Origin::Config, true)]
    );
    assert_eq!(gates.get("B"), Some((true, Origin::Config)));
    let cluster = values.gates("cluster-feature-gates").unwrap();
    assert_eq!(cluster.get("C"), Some((true, Origin::Flag)));
    assert_eq!(values.get("emulated-version"), "3.7");
    assert_eq!(values.get("min-compatibility-version"), "3.6");
    // Everything else comes from the file alone.
    assert_eq!(values.get("name"), "m1");
    let alone = said.gates("feature-gates").unwrap();
    assert_eq!(alone.get("A"), Some((false, Origin::Flag)));
}

#[test]
fn config_file_is_parsed_and_its_errors_name_the_key() {
    let values = Values::from_config_file(
        "name: m1\nelection-timeout: 500\nbackend-batch-interval: 5000000\n\
         feature-gates:\n  A: true\n  B: false\nstrict-emulation: true\n\
         client-transport-security:\n  cert-file: a.pem\n  client-cert-auth: true\n\
         socket-options: {}\n",
    );
    assert_eq!(values.errors, []);
    assert_eq!(values.get("name"), "m1");
    assert_eq!(values.get("backend-batch-interval"), "5000000ns");
    assert_eq!(values.get("feature-gates"), "A=true,B=false");
    assert_eq!(values.get("cert-file"), "a.pem");
    assert_eq!(values.get("client-cert-auth"), "true");
    let file = |text: &str| first_error(Values::from_config_file(text));
    let refused = |text: &str| file(text).unwrap_err().to_string();
    assert!(refused("socket-options:\n  reuse-port: true").contains("socket options"));
    assert!(refused("client-transport-security: a.pem").contains("cannot be used"));
    assert!(refused("nmae: x").contains("did you mean"));
    assert!(refused("- a").contains("map"));
    assert!(refused("name: {a: b}").contains("cannot be used"));
    assert!(file("").is_ok());
}

#[test]
fn no_flag_is_listed_twice() {
    let mut names: Vec<&str> = FLAGS.iter().map(|flag| flag.name).collect();
    names.sort_unstable();
    let before = names.len();
    names.dedup();
    assert_eq!(names.len(), before);
}

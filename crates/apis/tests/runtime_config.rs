//! Runtime-config: keys, values, precedence and forward compatibility.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::*;
use portunus_apis::*;

/// Two resources in GA, beta and alpha of `example.io`, and one in the core group.
fn declarations() -> Declarations {
    let version = |name: &str| {
        things(name, Lifecycle::always()).with_resource(Resource::new(
            "others",
            "Other",
            Lifecycle::always(),
        ))
    };
    let group = Group::new(GROUP)
        .with_version(version("v1"))
        .with_version(version("v1beta1"))
        .with_version(version("v1alpha1"));
    let core = Group::new("").with_version(Version::new("v1").with_resource(Resource::new(
        "pods",
        "Pod",
        Lifecycle::always(),
    )));
    Declarations::new([group, core]).unwrap()
}

fn served_with(runtime_config: &str) -> Vec<String> {
    let options = with_config(binary("1.36.0"), runtime_config);
    let apis = resolve(&declarations(), &options).unwrap_or_else(|error| panic!("{error}"));
    let mut names = served(&apis);
    names.sort();
    names
}

fn refused_with(runtime_config: &str) -> (Vec<&'static str>, String) {
    refusal(
        &declarations(),
        &with_config(binary("1.36.0"), runtime_config),
    )
}

/// Proves: G103
#[test]
fn flag_is_a_map_with_empty_values_and_the_last_repetition() {
    let mut config = RuntimeConfig::parse(" a/v1 = true ,,b/v1,c/v1=1=2,a/v1=false");
    config.add("d/v1=");
    config.add("b/v1=false");
    assert_eq!(config.to_string(), "a/v1=false,b/v1=false,c/v1=1=2,d/v1=");
    assert!(RuntimeConfig::parse("").is_empty());
}

/// Proves: G104
#[test]
fn version_of_the_core_group_has_three_spellings() {
    for spelling in ["v1", "/v1", "api/v1"] {
        let names = served_with(&format!("{spelling}=false"));
        assert!(!names.contains(&"v1/pods".to_owned()), "{spelling}");
    }
    // The last one of three spellings counts, because they are one key.
    assert!(served_with("v1=false,api/v1=true").contains(&"v1/pods".to_owned()));
    assert!(!served_with("api/v1/pods=false").contains(&"v1/pods".to_owned()));
}

/// Proves: G104, G109
#[test]
fn only_ga_is_on_by_default_and_each_key_class_switches_what_it_names() {
    let ga = ["example.io/v1/others", "example.io/v1/things", "v1/pods"];
    assert_eq!(served_with(""), ga);
    assert_eq!(served_with("api/ga=false"), [""; 0]);
    let beta = served_with("api/beta=true");
    assert!(beta.contains(&"example.io/v1beta1/things".to_owned()));
    assert_eq!(beta.len(), 5);
    assert_eq!(served_with("api/alpha=true").len(), 5);
    assert_eq!(served_with("api/all=true").len(), 7);
    assert_eq!(served_with("example.io/v1beta1").len(), 5);
    assert_eq!(served_with("example.io/v1beta1/things=T").len(), 4);
    assert_eq!(served_with("example.io/v1/things=0").len(), 2);
}

/// Proves: G105
#[test]
fn class_keys_apply_in_a_fixed_order_and_take_only_two_values() {
    let expected = served_with("api/all=false,api/ga=true");
    assert_eq!(served_with("api/ga=true,api/all=false"), expected);
    assert_eq!(expected.len(), 3);
    for value in ["", "1", "TRUE", "yes"] {
        let (ids, text) = refused_with(&format!("api/beta={value}"));
        assert_eq!(ids, ["E-RC-VALUE"]);
        assert_eq!(text, format!("invalid value api/beta={value}"));
    }
    assert_eq!(refused_with("api/beta").0, ["E-RC-VALUE"]);
}

/// Proves: G106
#[test]
fn unusable_keys_and_values_have_their_own_errors() {
    for (runtime_config, id, text) in [
        (
            "example.io/v1=yes",
            "E-RC-BOOL",
            "invalid value of example.io/v1: yes, err: strconv.ParseBool: parsing \"yes\": \
             invalid syntax",
        ),
        (
            "example.io/v1/Things=true",
            "E-RC-CASE",
            "invalid key example.io/v1/Things: group/version/resource and resource is always \
             lowercase plural, not \"Things\"",
        ),
        (
            "example.io/v2=true",
            "E-RC-VERSION",
            "group version example.io/v2 that has not been registered",
        ),
        (
            "b.io/v1=true,a.io/v1/x=true,a.io/v1=false",
            "E-RC-GROUP",
            "unknown api groups a.io/v1,b.io/v1",
        ),
        (
            "example.io=true",
            "E-RC-KEY",
            "runtime-config invalid key example.io",
        ),
        ("a/b/c/d", "E-RC-KEY", "runtime-config invalid key a/b/c/d"),
        (
            "api/legacy=false",
            "E-RC-GROUP",
            "unknown api groups api/legacy",
        ),
    ] {
        assert_eq!(
            refused_with(runtime_config),
            (vec![id], text.to_owned()),
            "{runtime_config}"
        );
    }
    // All of them at once, groups first.
    let (ids, _) = refused_with("x/v1,example.io/v2,a,api/ga=1");
    assert_eq!(
        ids,
        ["E-RC-GROUP", "E-RC-KEY", "E-RC-VALUE", "E-RC-VERSION"]
    );
}

/// Proves: G107
#[test]
fn everything_off_and_nothing_on_is_refused() {
    let (ids, text) = refused_with("api/all=false");
    assert_eq!(ids, ["E-RC-NOTHING"]);
    assert_eq!(text, "invalid runtime-config with only api/all=false");
    assert_eq!(served_with("api/all=false,v1=true"), ["v1/pods"]);
}

/// Proves: G108, C14
#[test]
fn narrower_key_wins_whatever_the_order_of_the_text() {
    let texts = [
        "api/all=false,example.io/v1=true,example.io/v1/things=false",
        "example.io/v1/things=false,example.io/v1=true,api/all=false",
    ];
    for text in texts {
        assert_eq!(served_with(text), ["example.io/v1/others"]);
    }
    // A class or a version also overrides the declared default of a resource.
    let version = things("v1", Lifecycle::always());
    let off = Resource::new("others", "Other", Lifecycle::always()).served_by_default(false);
    let declarations = group([version.with_resource(off)]);
    for (runtime_config, expected) in [
        ("", 1),
        ("api/ga=true", 2),
        ("example.io/v1=true", 2),
        ("example.io/v1/others=true", 2),
        ("example.io/v1=true,example.io/v1/others=false", 1),
    ] {
        let options = with_config(binary("1.36.0"), runtime_config);
        let apis = resolve(&declarations, &options).unwrap();
        assert_eq!(served(&apis).len(), expected, "{runtime_config}");
    }
}

/// Proves: C14
#[test]
fn key_without_effect_is_reported() {
    let options = with_config(binary("1.36.0"), "example.io/v1/nothings=true");
    let apis = resolve(&declarations(), &options).unwrap();
    let warnings: Vec<String> = apis.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "runtime-config names nothings.v1.example.io, which this binary does not know; \
             the key has no effect"
        ]
    );
}

/// beta 1.30, GA 1.36, v2 1.37, and an alpha 1.29.
fn growing() -> Declarations {
    group([
        things("v1alpha1", Lifecycle::since("1.29").kept()),
        things("v1beta1", Lifecycle::since("1.30").kept()).served_by_default(true),
        things("v1", Lifecycle::since("1.36")),
        things("v2", Lifecycle::since("1.37")),
    ])
}

fn forward(runtime_config: &str) -> Options {
    let mut options = with_config(emulating("1.37.0", "1.35"), runtime_config);
    options.forward.emulation = true;
    options
}

/// Proves: G83, G99, S2-A10
#[test]
fn forward_compatible_switch_serves_newer_versions_of_what_is_served() {
    let without = emulating("1.37.0", "1.35");
    assert_eq!(versions_served(&growing(), &without), ["v1beta1"]);
    assert_eq!(
        versions_served(&growing(), &forward("")),
        ["v2", "v1", "v1beta1"]
    );
    let mut not_emulating = binary("1.37.0");
    not_emulating.forward.emulation = true;
    let (ids, _) = refusal(&growing(), &not_emulating);
    assert_eq!(ids, ["E-FORWARD-WITHOUT-EMULATION"]);
}

/// Proves: G101
#[test]
fn kept_alpha_does_not_make_newer_versions_forward_compatible() {
    let options = forward("example.io/v1beta1=false,example.io/v1alpha1=true");
    assert_eq!(versions_served(&growing(), &options), ["v1alpha1"]);
}

/// Proves: G102, G110
#[test]
fn forward_compatibility_needs_the_switch_of_the_version_and_keeps_explicit_choices() {
    // v1beta2 is off by default; forward compatibility switches it on above v1beta1.
    let declarations = group([
        things("v1beta1", Lifecycle::since("1.30").kept()).served_by_default(true),
        things("v1beta2", Lifecycle::since("1.31").kept()),
        things("v1beta3", Lifecycle::since("1.37").kept()),
    ]);
    let all = ["v1beta3", "v1beta2", "v1beta1"];
    assert_eq!(versions_served(&declarations, &forward("")), all);
    // Without the switches of the map the filter alone would serve nothing newer.
    let enablement = Enablement::merge(&declarations, &forward("")).unwrap();
    let newest = GroupVersionResource::new(GROUP, "v1beta3", "things");
    assert_eq!(enablement.resource(&newest).by, SetBy::ForwardCompatible);
    // Explicit choices stay, and so do the ones of a resource.
    for key in ["example.io/v1beta2", "example.io/v1beta2/things"] {
        let options = forward(&format!("{key}=false"));
        assert_eq!(
            versions_served(&declarations, &options),
            ["v1beta3", "v1beta1"]
        );
    }
    // A resource that is on by itself brings its higher versions too.
    let options = forward("example.io/v1beta1=false,example.io/v1beta1/things=true");
    assert_eq!(versions_served(&declarations, &options), all);
}

/// Proves: G84, G99
#[test]
fn runtime_config_switch_serves_newer_apis_that_are_named() {
    for key in ["example.io/v1=true", "example.io/v1/things=true"] {
        let mut options = with_config(emulating("1.37.0", "1.35"), key);
        options.forward.runtime_config = true;
        assert_eq!(
            versions_served(&growing(), &options),
            ["v1", "v1beta1"],
            "{key}"
        );
    }
    let mut by_class = with_config(emulating("1.37.0", "1.35"), "api/ga=true");
    by_class.forward.runtime_config = true;
    assert_eq!(versions_served(&growing(), &by_class), ["v1beta1"]);
    let mut not_emulating = binary("1.37.0");
    not_emulating.forward.runtime_config = true;
    let (ids, _) = refusal(&growing(), &not_emulating);
    assert_eq!(ids, ["E-FORWARD-WITHOUT-EMULATION"]);
}

/// Proves: G99, G100, G84
#[test]
fn named_api_that_is_too_new_stops_the_start() {
    let advice = "Consider setting --runtime-config-emulation-forward-compatible=true";
    let options = with_config(emulating("1.37.0", "1.35"), "example.io/v1=true");
    assert_eq!(
        refusal(&growing(), &options),
        (
            vec!["E-API-FUTURE-VERSION"],
            format!(
                "cannot enable version example.io/v1 in runtime-config because all the resources \
                 have been introduced after the current version 1.35. {advice}"
            )
        )
    );
    let options = with_config(emulating("1.37.0", "1.35"), "example.io/v1/things=true");
    assert_eq!(
        refusal(&growing(), &options),
        (
            vec!["E-API-FUTURE-RESOURCE"],
            format!(
                "cannot enable resource example.io/v1, Resource=things in runtime-config because \
                 it is introduced at 1.36 after the current version 1.35. {advice}"
            )
        )
    );
    // A version that has one resource already is served without the newer one.
    let half = group([
        things("v1", Lifecycle::since("1.36")).with_resource(Resource::new(
            "others",
            "Other",
            Lifecycle::since("1.30"),
        )),
    ]);
    assert_eq!(
        versions_served(
            &half,
            &options.after([
                &Change::RemoveKey("example.io/v1/things".to_owned(),),
                &Change::set_key("example.io/v1", true)
            ])
        ),
        ["v1"]
    );
}

/// Proves: G100
#[test]
fn named_api_that_is_already_removed_is_reported() {
    let declarations = group([
        things("v1beta1", Lifecycle::since("1.30").removed("1.35")),
        things("v1", Lifecycle::since("1.33")),
    ]);
    for key in ["example.io/v1beta1", "example.io/v1beta1/things"] {
        let apis = resolve(&declarations, &with_config(binary("1.36.0"), key)).unwrap();
        let warnings: Vec<String> = apis.warnings().iter().map(ToString::to_string).collect();
        assert_eq!(
            warnings,
            [
                "runtime-config enables things.v1beta1.example.io, which is not served: it was \
                 removed in 1.35, and this server emulates 1.36"
            ],
            "{key}"
        );
    }
}

/// Proves: G111, S2-A3
#[test]
fn alpha_enabled_under_emulation_warns_and_is_refused_when_strict() {
    let warning = "alpha api enabled with emulated version 1.35 instead of the binary's version \
                   1.37.0, this is unsupported, proceed at your own risk: api=example.io/v1alpha1";
    for key in [
        "example.io/v1alpha1=true",
        "example.io/v1alpha1/things=true",
        "api/alpha=true",
    ] {
        let mut options = with_config(emulating("1.37.0", "1.35"), key);
        let apis = resolve(&growing(), &options).unwrap();
        let warnings: Vec<String> = apis.warnings().iter().map(ToString::to_string).collect();
        assert_eq!(warnings, [warning], "{key}");
        assert!(apis.version(GROUP, "v1alpha1").is_some());
        options.strict_emulation = true;
        let (ids, text) = refusal(&growing(), &options);
        assert_eq!(ids, ["E-API-ALPHA-EMULATION"]);
        assert!(text.contains("remove it from runtime-config"), "{text}");
        // Without emulation there is nothing to warn about.
        let mut newest = with_config(binary("1.37.0"), key);
        newest.strict_emulation = true;
        assert!(resolve(&growing(), &newest).unwrap().warnings().is_empty());
    }
}

/// Any text parses, and is either used or refused with a short error per key.
#[test]
fn arbitrary_runtime_config_never_panics() {
    use common::generated::Random;
    const PARTS: [&str; 14] = [
        "api/",
        "all",
        "beta",
        "=",
        "=",
        ",",
        "/",
        "v1",
        "example.io",
        "things",
        "true",
        "\u{fc}",
        "\u{0}",
        " ",
    ];
    let declarations = declarations();
    for case in 0..20_000 {
        let random = &mut Random::of_case(case);
        let parts = random.below(12);
        let text: String = (0..parts).map(|_| *random.pick(&PARTS)).collect();
        let options = with_config(binary("1.36.0"), &text);
        if let Err(errors) = resolve(&declarations, &options) {
            let keys = options.runtime_config.iter().count();
            assert!(errors.0.len() <= keys, "{text:?}: {errors}");
        }
    }
}

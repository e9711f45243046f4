//! The project's own gates obey its own rules, and the documents made from them are current.
//!
//! After a change of declarations, `REWRITE=1 cargo test -p portunus-server --test own_gates`
//! writes the documents anew, unless the change breaks the life cycle.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::PathBuf;
use std::process::Command;

use portunus_features::version::{EMULATION_FLOOR, ETCD_VERSION};
use portunus_features::{CompatibilityVersions, OwnFeatures, ReleasedClusterFeatures};
use portunus_gates::{
    Classified, Features, Level, Registry, Stage, Version, Versions, known_features, lint, to_json,
    to_markdown,
};

fn docs(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(name)
}

fn rewriting() -> bool {
    std::env::var_os("REWRITE").is_some()
}

fn own() -> OwnFeatures {
    OwnFeatures::declared().expect("the declarations are legal")
}

fn registries(own: &OwnFeatures) -> [&Registry; 2] {
    [own.server.registry(), own.cluster.registry()]
}

/// The features of a released program, without test features.
fn released() -> (OwnFeatures, Features<ReleasedClusterFeatures>) {
    let cluster = Features::declared().expect("the declarations are legal");
    (own(), cluster)
}

fn released_registries(
    released: &(OwnFeatures, Features<ReleasedClusterFeatures>),
) -> [&Registry; 2] {
    [released.0.server.registry(), released.1.registry()]
}

/// No dependency of the program but those of its tests enables test features.
#[test]
fn program_is_built_without_test_features() {
    let tree = |edges: &str| {
        let output = Command::new(env!("CARGO"))
            .args(["tree", "--offline", "--locked", "--package"])
            .args(["portunus-server", "--edges", edges])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let tests = tree("features,dev,normal");
    assert!(tests.contains("test-features"), "{tests}");
    let program = tree("features,normal,build");
    assert!(program.contains("portunus-features"), "{program}");
    assert!(!program.contains("test-features"), "{program}");
    for name in ["gates.json", "gates.md", "operations.md"] {
        let text = std::fs::read_to_string(docs(name)).unwrap();
        assert!(!text.contains("ApplyTag"), "{name}");
    }
}

/// Proves: G87, S2-44, S2-45, S2-46
#[test]
fn registry_passes_lint_and_gates_json_is_current() {
    let released_features = released();
    let committed = std::fs::read_to_string(docs("gates.json"))
        .unwrap_or_else(|_| r#"{"features":[]}"#.to_owned());
    if let Err(errors) = lint(
        released_registries(&released_features),
        &committed,
        ETCD_VERSION,
    ) {
        let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
        panic!("{}", lines.join("\n"));
    }
    let current = to_json(released_registries(&released_features));
    if rewriting() {
        std::fs::write(docs("gates.json"), &current).unwrap();
    } else {
        assert_eq!(
            committed, current,
            "docs/gates.json is old: run this test with REWRITE=1"
        );
    }
}

/// A patch release can be made of the current list; not if a feature had changed.
/// Proves: S1-7
#[test]
fn patch_release_with_unchanged_features_passes_lint() {
    let released_features = released();
    let patch = Version::parse(&format!("{ETCD_VERSION}.1")).unwrap();
    let released = to_json(released_registries(&released_features));
    assert_eq!(
        lint(
            released_registries(&released_features),
            &released,
            patch.clone()
        ),
        Ok(())
    );
    for (from, to) in [
        (r#""default": true"#, r#""default": false"#),
        (r#""stage": "Alpha""#, r#""stage": "Beta""#),
        (
            r#""name": "CompactHashCheck""#,
            r#""name": "CompactHashChecks""#,
        ),
    ] {
        let other = released.replacen(from, to, 1);
        assert_ne!(other, released, "{from}");
        let errors = lint(
            released_registries(&released_features),
            &other,
            patch.clone(),
        )
        .unwrap_err();
        assert!(
            errors.iter().all(|it| it.id() == "E-LINT-PATCH"),
            "{errors:?}"
        );
    }
}

/// Proves: G89
#[test]
fn table_of_features_is_current() {
    const BEGIN: &str = "<!-- gates: begin -->\n";
    const END: &str = "<!-- gates: end -->";
    let released_features = released();
    let text = std::fs::read_to_string(docs("gates.md")).unwrap();
    let (head, rest) = text.split_once(BEGIN).expect("the begin mark");
    let (_, tail) = rest.split_once(END).expect("the end mark");
    let current = format!(
        "{head}{BEGIN}{}{END}{tail}",
        to_markdown(released_registries(&released_features))
    );
    if rewriting() {
        std::fs::write(docs("gates.md"), &current).unwrap();
    } else {
        assert_eq!(
            text, current,
            "docs/gates.md is old: run this test with REWRITE=1"
        );
    }
}

/// Proves: S2-A4
#[test]
fn compatibility_versions_gate_is_known_and_locked_on() {
    let own = own();
    for minor in EMULATION_FLOOR.minor()..=ETCD_VERSION.minor() {
        let versions = Versions::emulating(portunus_gates::MajorMinor::new(3, minor));
        let said = |text: &str| {
            portunus_gates::Assignments::parse(portunus_gates::Origin::Flag, text).unwrap()
        };
        let gates = own
            .server
            .gates(versions, &said("CompatibilityVersions=true"))
            .unwrap();
        assert!(gates.enabled(CompatibilityVersions));
        assert!(
            own.server
                .gates(versions, &said("CompatibilityVersions=false"))
                .is_err()
        );
    }
}

/// Proves: S1-14, S0-A24
#[test]
fn alpha_features_are_off_and_every_gate_has_summary_and_owner() {
    let own = own();
    for registry in registries(&own) {
        for feature in registry.features() {
            assert!(!feature.owner.is_empty(), "{}", feature.name);
            assert!(feature.summary().ends_with('.'), "{}", feature.name);
            for spec in &feature.specs {
                assert!(
                    spec.stage != Stage::Alpha || !spec.default,
                    "{}",
                    feature.name
                );
            }
            // A stage lasts for a minor at least.
            for pair in feature.specs.windows(2) {
                let is_later = pair[1].version > pair[0].version;
                assert!(
                    pair[0].stage == pair[1].stage || is_later,
                    "{}",
                    feature.name
                );
            }
        }
        // A server's gate ends on; one of the cluster may stay a switch.
        if registry.level() == Level::Server {
            let specs = registry.features().iter().flat_map(|it| &it.specs);
            let mut done = specs.filter(|spec| spec.stage == Stage::Ga);
            assert!(done.all(|spec| spec.default));
        }
        let help = known_features(registry, Versions::emulating(ETCD_VERSION));
        assert!(help.len() > 2, "{help:?}");
    }
}

//! Rule: crates depend in one direction, and take everything shared from the workspace.
//!
//! A crate may depend on the crates before it in [`ORDER`] and on none after it, so a reader
//! can read them in this order. Tests may depend on any crate. This crate is not in the
//! order: it depends on none of them, and none depends on it.

use crate::finding::Finding;
use crate::manifest::{DependencyKind, Manifest};
use crate::workspace::crate_folder;

const RULE: &str = "layering";
const ORDER_HINT: &str = "ORDER in crates/tidy/src/layering.rs";

/// Crates in design order; each may depend only on earlier ones.
pub const ORDER: &[&str] = &[
    "gates",
    "features",
    "proto",
    "bolt",
    "wal",
    "mvcc",
    "auth",
    "consensus",
    "statemachine",
    "tls",
    "rafthttp",
    "datadir",
    "server",
    "client",
    "apis",
    "objects",
    "olm",
    "apiserver",
    "ctl",
    "testkit",
    "bench",
    "sim",
    "model",
    "fuzz",
];

/// The crate that holds these rules.
pub const TIDY: &str = "tidy";

const PACKAGE_PREFIX: &str = "portunus-";

/// Checks that each folder in `crates/` has a place in the order.
#[must_use]
pub fn check_folders(folders: &[String]) -> Vec<Finding> {
    folders
        .iter()
        .filter(|folder| *folder != TIDY && place(folder).is_none())
        .map(|folder| {
            let message =
                format!("crate `{folder}` has no place in the order: add it to {ORDER_HINT}, in design order");
            Finding::new(&format!("crates/{folder}"), 1, RULE, message)
        })
        .collect()
}

/// Checks one crate's manifest; `root` is the manifest of the workspace.
#[must_use]
pub fn check_manifest(manifest: &Manifest<'_>, root: &Manifest<'_>) -> Vec<Finding> {
    let Some(folder) = crate_folder(manifest.path()) else {
        return Vec::new();
    };
    let mut findings = check_package(manifest, folder);
    for dependency in manifest.dependencies() {
        let name = &dependency.name;
        let mut report = |message: String| {
            findings.push(Finding::new(
                manifest.path(),
                dependency.line,
                RULE,
                message,
            ));
        };
        if !dependency.from_workspace {
            report(format!(
                "`{name}` has its own version: put the version in the root's [workspace.dependencies] and write `{name}.workspace = true`"
            ));
        }
        let Some(target) = folder_of_dependency(name, root) else {
            continue;
        };
        if target == TIDY {
            report("nothing may depend on the tidy crate: it only holds tests".into());
        } else if folder == TIDY {
            report(format!(
                "the tidy crate may not depend on `{name}`: it must build alone"
            ));
        } else if dependency.kind != DependencyKind::Dev && place(&target) >= place(folder) {
            report(format!(
                "`{folder}` may not depend on `{name}`, which is not above it: move the shared part up, or see {ORDER_HINT}"
            ));
        }
    }
    findings
}

fn check_package(manifest: &Manifest<'_>, folder: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let expected = format!("{PACKAGE_PREFIX}{folder}");
    let name = manifest.string(&["package", "name"]);
    if name.is_none_or(|(name, _)| name != expected) {
        let line = name.map_or(1, |(_, line)| line);
        let message = format!("the package in crates/{folder} must be named `{expected}`");
        findings.push(Finding::new(manifest.path(), line, RULE, message));
    }
    for key in ["edition", "license"] {
        if !manifest.is_inherited(&["package", key]) {
            let line = manifest.line_of(&["package", key]);
            let message = format!("write `{key}.workspace = true`: one value for all crates");
            findings.push(Finding::new(manifest.path(), line, RULE, message));
        }
    }
    findings
}

/// Returns the folder of a dependency on a crate of this workspace, even if renamed.
fn folder_of_dependency(name: &str, root: &Manifest<'_>) -> Option<String> {
    let path = root.string(&["workspace", "dependencies", name, "path"]);
    let package = root.string(&["workspace", "dependencies", name, "package"]);
    let by_path = path.and_then(|(path, _)| path.strip_prefix("crates/"));
    let by_package = package
        .map_or(name, |(package, _)| package)
        .strip_prefix(PACKAGE_PREFIX);
    by_path.or(by_package).map(str::to_owned)
}

fn place(folder: &str) -> Option<usize> {
    ORDER.iter().position(|name| *name == folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "\
[workspace.dependencies]
portunus-gates = { path = \"crates/gates\" }
portunus-server = { path = \"crates/server\" }
portunus-tidy = { path = \"crates/tidy\" }
engine = { path = \"crates/mvcc\", package = \"portunus-mvcc\" }
";

    fn messages(folder: &str, dependencies: &str) -> Vec<String> {
        let text = format!(
            "[package]\nname = \"portunus-{folder}\"\nedition.workspace = true\nlicense.workspace = true\n{dependencies}"
        );
        check(folder, &text)
    }

    fn check(folder: &str, text: &str) -> Vec<String> {
        let path = format!("crates/{folder}/Cargo.toml");
        let manifest = Manifest::parse(&path, text).unwrap();
        let root = Manifest::parse("Cargo.toml", ROOT).unwrap();
        let findings = check_manifest(&manifest, &root);
        findings.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn dependency_on_an_earlier_crate_passes() {
        let found = messages(
            "server",
            "[dependencies]\nportunus-gates.workspace = true\n",
        );
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn dependency_on_a_later_crate_or_on_itself_is_reported() {
        for (folder, dependency) in [
            ("gates", "portunus-server"),
            ("client", "portunus-sim"),
            ("wal", "engine"),
            ("server", "portunus-server"),
        ] {
            let found = messages(
                folder,
                &format!("[dependencies]\n{dependency}.workspace = true\n"),
            );
            assert_eq!(found.len(), 1, "{folder} -> {dependency}: {found:?}");
            assert!(found[0].starts_with(&format!("crates/{folder}/Cargo.toml:6: [layering]")));
        }
    }

    #[test]
    fn build_and_platform_dependencies_on_a_later_crate_are_reported() {
        for table in ["build-dependencies", "target.'cfg(unix)'.dependencies"] {
            let found = messages(
                "gates",
                &format!("[{table}]\nportunus-server.workspace = true\n"),
            );
            assert_eq!(found.len(), 1, "{table}: {found:?}");
        }
    }

    #[test]
    fn dev_dependency_on_a_later_crate_passes_and_on_tidy_is_reported() {
        let found = messages(
            "gates",
            "[dev-dependencies]\nportunus-server.workspace = true\n",
        );
        assert!(found.is_empty(), "{found:?}");
        let found = messages(
            "gates",
            "[dev-dependencies]\nportunus-tidy.workspace = true\n",
        );
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn dependency_of_tidy_on_a_workspace_crate_is_reported() {
        let found = messages("tidy", "[dependencies]\nportunus-gates.workspace = true\n");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(messages("tidy", "[dependencies]\nsyn.workspace = true\n").is_empty());
    }

    #[test]
    fn dependency_with_its_own_version_is_reported() {
        let found = messages(
            "gates",
            "[dependencies]\nserde = \"1\"\n[dev-dependencies]\nx = { path = \"../x\" }\n",
        );
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn wrong_name_edition_or_license_is_reported() {
        let found = check("gates", "[package]\nname = \"gates\"\nedition = \"2024\"\n");
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(
            found[0].starts_with("crates/gates/Cargo.toml:2:"),
            "{found:?}"
        );
    }

    #[test]
    fn folder_without_a_place_in_the_order_is_reported() {
        let folders = ["gates", "tidy", "misc"].map(str::to_owned);
        let found = check_folders(&folders);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].message.contains("`misc`"));
    }
}

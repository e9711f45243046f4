//! Rule: pure code has no clock, no randomness, no files, no sockets and no runtime.
//!
//! Pure code takes time and randomness as arguments. So the simulator, the fuzzers and the
//! models can run it, and a log replays to the same bytes. The rule checks the syntax tree
//! of shipped code, and the manifest of wholly pure crates. Test code is exempt. A clock
//! that is reached through another crate is not detected.

use std::collections::BTreeMap;

use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{ItemExternCrate, ItemUse, Macro, Path, UseTree};

use crate::finding::Finding;
use crate::manifest::{DependencyKind, Manifest};
use crate::rust_file::RustFile;

const RULE: &str = "purity";

/// The pure places: `crate` for a whole crate, `crate/src/path` for the files below a path.
pub const PURE: &[&str] = &[
    "apis",
    "auth",
    "client/src/kubernetes/memory/state",
    "client/src/watch_streams/multiplexer",
    "client/src/watch_streams/position",
    "consensus/src/core",
    "consensus/src/engine",
    "consensus/src/raft_rs",
    "features",
    "gates",
    "model/src/agreement",
    "model/src/features",
    "model/src/initial_states",
    "model/src/limits",
    "model/src/planted",
    "model/src/properties",
    "model/src/replica",
    "model/src/rules",
    "model/src/state",
    "model/src/symmetry",
    "objects",
    "sim/src/cluster",
    "sim/src/linearizability",
    "sim/src/watch_events",
    "statemachine",
];

const BANNED_PATHS: &[&[&str]] = &[
    &["std", "fs"],
    &["std", "net"],
    &["std", "thread"],
    &["std", "process"],
    &["std", "env"],
    &["std", "time", "Instant"],
    &["std", "time", "SystemTime"],
    &["std", "time", "UNIX_EPOCH"],
];

/// Banned crates with their families: `tokio` also bans `tokio-util` and so on.
const BANNED_CRATES: &[&str] = &["tokio", "rand", "getrandom", "fastrand"];

/// Returns whether the list of pure places covers this file of a crate.
#[must_use]
pub fn is_pure(path: &str, pure: &[&str]) -> bool {
    pure.iter().any(|place| {
        let place = if place.contains('/') {
            format!("crates/{place}")
        } else {
            format!("crates/{place}/src")
        };
        let rest = path.strip_prefix(&place);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '.']))
    })
}

/// Checks the dependencies of a crate that is pure as a whole.
#[must_use]
pub fn check_manifest(manifest: &Manifest<'_>, pure: &[&str]) -> Vec<Finding> {
    let is_whole = |place: &&str| manifest.path() == format!("crates/{place}/Cargo.toml");
    if !pure.iter().any(is_whole) {
        return Vec::new();
    }
    manifest
        .dependencies()
        .into_iter()
        .filter(|found| found.kind == DependencyKind::Normal && is_banned_crate(&found.name))
        .map(|found| {
            let message = format!(
                "a pure crate may not depend on `{}`: take time and randomness as arguments, keep the runtime at the rim",
                found.name
            );
            Finding::new(manifest.path(), found.line, RULE, message)
        })
        .collect()
}

/// Checks the shipped code of a pure file.
#[must_use]
pub fn check_source(file: &RustFile) -> Vec<Finding> {
    let mut imports = Imports::default();
    imports.visit_file(&file.shipped);
    let mut walk = Walk {
        path: &file.path,
        names: imports.names,
        findings: Vec::new(),
    };
    for import in &imports.all {
        walk.check_import(import);
    }
    walk.visit_file(&file.shipped);
    walk.findings
}

struct Import {
    segments: Vec<String>,
    is_glob: bool,
    line: usize,
}

#[derive(Default)]
struct Imports {
    all: Vec<Import>,
    /// The full path of each name that `use` imports.
    names: BTreeMap<String, Vec<String>>,
}

impl Imports {
    fn collect(&mut self, prefix: &[String], tree: &UseTree) {
        let join = |last: &dyn ToString| {
            let mut segments = prefix.to_vec();
            if last.to_string() != "self" || segments.is_empty() {
                segments.push(last.to_string());
            }
            segments
        };
        let line = tree.span().start().line;
        match tree {
            UseTree::Path(path) => self.collect(&join(&path.ident), &path.tree),
            UseTree::Name(name) => self.add(join(&name.ident), None, line),
            UseTree::Rename(rename) => {
                self.add(join(&rename.ident), Some(rename.rename.to_string()), line);
            }
            UseTree::Glob(_) => self.all.push(Import {
                segments: prefix.to_vec(),
                is_glob: true,
                line,
            }),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.collect(prefix, tree);
                }
            }
        }
    }

    fn add(&mut self, segments: Vec<String>, rename: Option<String>, line: usize) {
        if let Some(name) = rename.or_else(|| segments.last().cloned()) {
            self.names.insert(name, segments.clone());
        }
        self.all.push(Import {
            segments,
            is_glob: false,
            line,
        });
    }
}

impl<'ast> Visit<'ast> for Imports {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.collect(&[], &item.tree);
    }

    fn visit_item_extern_crate(&mut self, item: &'ast ItemExternCrate) {
        let rename = item.rename.as_ref().map(|(_, name)| name.to_string());
        let line = item.span().start().line;
        self.add(vec![item.ident.to_string()], rename, line);
    }
}

struct Walk<'file> {
    path: &'file str,
    names: BTreeMap<String, Vec<String>>,
    findings: Vec<Finding>,
}

impl Walk<'_> {
    fn report(&mut self, line: usize, what: &str, hint: &str) {
        let message = format!("pure code may not use `{what}`: {hint}");
        self.findings
            .push(Finding::new(self.path, line, RULE, message));
    }

    fn check_import(&mut self, import: &Import) {
        let written = import.segments.join("::");
        let hides = |banned: &&[&str]| starts_with(banned, &import.segments);
        if is_banned(&import.segments) {
            self.report(
                import.line,
                &written,
                "take the value as an argument from the rim",
            );
        } else if import.is_glob && BANNED_PATHS.iter().any(hides) {
            self.report(
                import.line,
                &format!("{written}::*"),
                "it brings in impure names; import by name",
            );
        }
    }

    /// Checks a path as written in code. A single segment is a local name, not a crate.
    fn check_path(&mut self, written: &[String], line: usize) {
        let Some((first, rest)) = written.split_first() else {
            return;
        };
        if rest.is_empty() {
            return;
        }
        let mut segments = written.to_vec();
        if let Some(imported) = self.names.get(first) {
            if is_banned(imported) {
                return; // The import itself is already reported.
            }
            segments = [imported.as_slice(), rest].concat();
        }
        if is_banned(&segments) {
            let what = segments.join("::");
            self.report(line, &what, "take the value as an argument from the rim");
        }
    }

    /// Searches the tokens inside a macro, which are not parsed, for paths.
    fn check_tokens(&mut self, tokens: TokenStream) {
        let mut segments: Vec<String> = Vec::new();
        let mut line = 0;
        let mut colons = 0;
        for token in tokens {
            match &token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.check_path(&std::mem::take(&mut segments), line);
                        line = name.span().start().line;
                    }
                    segments.push(name.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                other => {
                    self.check_path(&std::mem::take(&mut segments), line);
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.check_tokens(group.stream());
                    }
                }
            }
        }
        self.check_path(&segments, line);
    }
}

impl<'ast> Visit<'ast> for Walk<'_> {
    fn visit_item_use(&mut self, _: &'ast ItemUse) {}

    fn visit_path(&mut self, path: &'ast Path) {
        let segments: Vec<_> = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string())
            .collect();
        self.check_path(&segments, path.span().start().line);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invocation: &'ast Macro) {
        // `std::env!` is the macro that reads a variable at build time, not the module `env`.
        let segments: Vec<_> = invocation
            .path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string())
            .collect();
        if segments.first().is_some_and(|first| is_banned_crate(first)) {
            self.check_path(&segments, invocation.path.span().start().line);
        }
        self.check_tokens(invocation.tokens.clone());
    }
}

fn is_banned(segments: &[String]) -> bool {
    segments.first().is_some_and(|first| is_banned_crate(first))
        || BANNED_PATHS.iter().any(|banned| {
            segments.len() >= banned.len() && banned.iter().zip(segments).all(|(a, b)| a == b)
        })
}

fn starts_with(longer: &[&str], start: &[String]) -> bool {
    longer.len() > start.len() && start.iter().zip(longer).all(|(a, b)| a == b)
}

fn is_banned_crate(name: &str) -> bool {
    BANNED_CRATES.iter().any(|banned| {
        let rest = name.strip_prefix(banned);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '_']))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        let file = RustFile::parse("crates/gates/src/lib.rs", text).unwrap();
        let mut lines: Vec<_> = check_source(&file).iter().map(|found| found.line).collect();
        lines.sort_unstable();
        lines
    }

    #[test]
    fn banned_name_is_reported_by_path_and_by_import() {
        for name in [
            "std::fs::read",
            "std::net::TcpStream",
            "std::thread::sleep",
            "std::process::exit",
            "std::env::var",
            "std::time::Instant",
            "std::time::SystemTime",
            "tokio::spawn",
            "tokio_util::sync::CancellationToken",
            "rand::random",
            "getrandom::fill",
            "fastrand::u64",
        ] {
            assert_eq!(
                lines(&format!("fn f() {{ let _ = {name}; }}")),
                [1],
                "{name}"
            );
            assert_eq!(
                lines(&format!("fn f() {{ let _ = ::{name}; }}")),
                [1],
                "{name}"
            );
            assert_eq!(lines(&format!("\nuse {name};")), [2], "{name}");
        }
    }

    #[test]
    fn banned_name_is_reported_in_import_trees_renames_and_globs() {
        assert_eq!(
            lines("use std::{collections::BTreeMap,\n fs,\n time::{Duration,\n Instant}};"),
            [2, 4]
        );
        assert_eq!(lines("use std::fs::{self};"), [1]);
        assert_eq!(lines("use std::fs as files;"), [1]);
        assert_eq!(lines("use std::time::*;"), [1]);
        assert_eq!(lines("use std::*;"), [1]);
        assert_eq!(lines("extern crate rand;"), [1]);
        assert_eq!(
            lines("use std::time;\nfn f() { time::Instant::now(); }"),
            [2]
        );
        assert_eq!(lines("use std as s;\nfn f() { s::fs::read(\"x\"); }"), [2]);
    }

    #[test]
    fn banned_name_is_reported_in_macros_and_attributes() {
        assert_eq!(
            lines("fn f() { println!(\"{:?}\", std::time::SystemTime::now()); }"),
            [1]
        );
        assert_eq!(
            lines("macro_rules! m { () => {\n { std::fs::read(\"x\") } } }"),
            [2]
        );
        assert_eq!(lines("#[tokio::main]\nasync fn main() {}"), [1]);
        assert_eq!(lines("fn f() { tokio::select! {} }"), [1]);
    }

    #[test]
    fn pure_code_and_test_code_pass() {
        assert!(lines("use std::time::Duration; use std::collections::*; const V: &str = std::env!(\"X\");").is_empty());
        assert!(lines("fn f(rand: u64, tokio: u64) -> u64 { rand + tokio }").is_empty());
        assert!(
            lines("#[cfg(test)] mod tests { use std::fs; #[tokio::test] async fn t() {} }")
                .is_empty()
        );
        assert!(lines("fn f() { let random: u8 = randomness::x(); }").is_empty());
    }

    #[test]
    fn pure_place_is_a_crate_or_a_path_inside_one() {
        let pure = ["gates", "mvcc/src/rules"];
        assert!(is_pure("crates/gates/src/lib.rs", &pure));
        assert!(is_pure("crates/mvcc/src/rules/compare.rs", &pure));
        assert!(is_pure("crates/mvcc/src/rules.rs", &pure));
        assert!(!is_pure("crates/gates/tests/resolve.rs", &pure));
        assert!(!is_pure("crates/mvcc/src/rules_of_disk.rs", &pure));
        assert!(!is_pure("crates/mvcc/src/lib.rs", &pure));
    }

    #[test]
    fn runtime_dependency_of_a_pure_crate_is_reported_except_for_tests() {
        let check = |text: &str, pure: &[&str]| {
            let manifest = Manifest::parse("crates/gates/Cargo.toml", text).unwrap();
            check_manifest(&manifest, pure).len()
        };
        let text = "[dependencies]\ntokio-util.workspace = true\nrand.workspace = true\nserde.workspace = true\n";
        assert_eq!(check(text, &["gates"]), 2);
        assert_eq!(check(text, &["gates/src/core"]), 0);
        assert_eq!(
            check("[dev-dependencies]\ntokio.workspace = true\n", &["gates"]),
            0
        );
    }
}

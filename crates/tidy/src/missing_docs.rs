//! Rule: every public item is documented, and nobody opts out.
//!
//! The compiler does the checking through the workspace's lint table. What it cannot see is
//! that a crate left the table, or switched the lint off; that is what is checked here.
//! Generated code may switch it off: a module that holds nothing but includes.

use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, Macro};

use crate::finding::Finding;
use crate::manifest::Manifest;
use crate::rust_file::RustFile;
use crate::workspace::{Area, area};

const RULE: &str = "missing-docs";
const LINT: &str = "missing_docs";
const INCLUDES: &[&str] = &["include", "include_proto"];

/// Checks that the workspace denies undocumented items.
#[must_use]
pub fn check_root(root: &Manifest<'_>) -> Vec<Finding> {
    match root.workspace_lint("rust", LINT) {
        Some("deny" | "forbid") => Vec::new(),
        _ => vec![Finding::new(
            root.path(),
            root.line_of(&["workspace", "lints", "rust", LINT]),
            RULE,
            format!("[workspace.lints.rust] must say `{LINT} = \"deny\"`"),
        )],
    }
}

/// Checks that a crate uses the workspace's lint table.
#[must_use]
pub fn check_manifest(manifest: &Manifest<'_>) -> Vec<Finding> {
    if manifest.is_inherited(&["lints"]) {
        return Vec::new();
    }
    let message =
        "the crate does not use the workspace's lints: add `[lints]` with `workspace = true`";
    let line = manifest.line_of(&["lints"]);
    vec![Finding::new(manifest.path(), line, RULE, message)]
}

/// Checks that no code that ships switches the lint off.
#[must_use]
pub fn check_source(file: &RustFile) -> Vec<Finding> {
    if matches!(area(&file.path), Area::Tests | Area::Benches) {
        return Vec::new();
    }
    let mut walk = Walk {
        path: &file.path,
        findings: Vec::new(),
    };
    if holds_only_includes(&file.shipped.items) {
        return Vec::new();
    }
    walk.visit_file(&file.shipped);
    walk.findings
}

struct Walk<'file> {
    path: &'file str,
    findings: Vec<Finding>,
}

impl Walk<'_> {
    fn report(&mut self, line: usize) {
        let message = format!(
            "`{LINT}` is switched off: document the items; only generated code in a module of its own may do this"
        );
        self.findings
            .push(Finding::new(self.path, line, RULE, message));
    }
}

impl<'ast> Visit<'ast> for Walk<'_> {
    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        let syn::Meta::List(list) = &attribute.meta else {
            return;
        };
        let name = list.path.segments.last().map(|last| last.ident.to_string());
        let lowers = name.as_deref().is_some_and(is_level) && mentions(&list.tokens);
        if lowers || lowers_lint(list.tokens.clone()) {
            self.report(attribute.span().start().line);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        let is_generated = module
            .content
            .as_ref()
            .is_some_and(|(_, items)| holds_only_includes(items));
        if !is_generated {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_macro(&mut self, invocation: &'ast Macro) {
        if lowers_lint(invocation.tokens.clone()) {
            self.report(invocation.span().start().line);
        }
    }
}

/// True if `allow(missing_docs)` or a relative stands somewhere in the tokens, as it does
/// in a `cfg_attr` or in the body of a macro.
fn lowers_lint(tokens: TokenStream) -> bool {
    let mut after_level = false;
    for token in tokens {
        match token {
            TokenTree::Ident(name) => after_level = is_level(&name.to_string()),
            TokenTree::Group(group) => {
                if after_level && mentions(&group.stream()) || lowers_lint(group.stream()) {
                    return true;
                }
                after_level = false;
            }
            _ => after_level = false,
        }
    }
    false
}

fn is_level(name: &str) -> bool {
    matches!(name, "allow" | "expect" | "warn")
}

fn mentions(tokens: &TokenStream) -> bool {
    let is_lint = |token| matches!(token, TokenTree::Ident(name) if name == LINT);
    tokens.clone().into_iter().any(is_lint)
}

fn holds_only_includes(items: &[Item]) -> bool {
    !items.is_empty()
        && items.iter().all(|item| match item {
            Item::Macro(item) => {
                let name = item.mac.path.segments.last();
                name.is_some_and(|name| INCLUDES.iter().any(|include| name.ident == include))
            }
            Item::Mod(module) => {
                let items = module.content.as_ref().map(|(_, items)| items.as_slice());
                items.is_some_and(holds_only_includes)
            }
            _ => false,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let file = RustFile::parse(path, text).unwrap();
        check_source(&file).iter().map(|found| found.line).collect()
    }

    #[test]
    fn every_way_to_switch_the_lint_off_is_found() {
        for text in [
            "#![allow(missing_docs)]\nfn f() {}",
            "#[allow(dead_code, missing_docs)]\npub fn f() {}",
            "#[warn(missing_docs)]\npub fn f() {}",
            "#[expect(missing_docs, reason = \"x\")]\npub fn f() {}",
            "#[cfg_attr(feature = \"x\", allow(missing_docs))]\npub fn f() {}",
            "macro_rules! m { () => { #[allow(missing_docs)] pub fn f() {} } }",
            "#[allow(missing_docs)] pub mod a { include!(\"x\"); pub fn f() {} }",
            "#[allow(missing_docs)] pub mod a {}",
        ] {
            assert_eq!(lines("crates/wal/src/lib.rs", text), [1], "{text}");
        }
        assert_eq!(
            lines(
                "crates/wal/src/lib.rs",
                "pub struct S {\n#[allow(missing_docs)]\npub a: u8 }"
            ),
            [2]
        );
    }

    #[test]
    fn generated_modules_and_tests_may_switch_it_off() {
        let file = "crates/proto/src/lib.rs";
        assert!(
            lines(
                file,
                "#[allow(missing_docs)] pub mod a { tonic::include_proto!(\"a\"); }"
            )
            .is_empty()
        );
        assert!(
            lines(
                file,
                "#[allow(missing_docs)] pub mod a { pub mod b { include!(\"b\"); } }"
            )
            .is_empty()
        );
        assert!(lines(file, "#![allow(missing_docs)]\ninclude!(\"b\");").is_empty());
        assert!(lines(file, "#[cfg(test)] mod tests { #![allow(missing_docs)] }").is_empty());
        assert!(
            lines(
                "crates/proto/tests/a.rs",
                "#![allow(missing_docs)]\nfn f() {}"
            )
            .is_empty()
        );
        assert!(
            lines(
                "crates/proto/benches/a.rs",
                "#![allow(missing_docs)]\nfn f() {}"
            )
            .is_empty()
        );
        assert!(
            lines(
                file,
                "#![deny(missing_docs)]\n#[allow(dead_code)] fn f() {}"
            )
            .is_empty()
        );
    }

    #[test]
    fn a_crate_must_use_the_lint_table() {
        let check = |text: &str| {
            check_manifest(&Manifest::parse("crates/a/Cargo.toml", text).unwrap()).len()
        };
        assert_eq!(check("[lints]\nworkspace = true\n"), 0);
        assert_eq!(check("[lints]\nworkspace = false\n"), 1);
        assert_eq!(check("[lints.rust]\nmissing_docs = \"deny\"\n"), 1);
        assert_eq!(check("[package]\n"), 1);
    }

    #[test]
    fn the_workspace_must_deny() {
        let check = |text: &str| check_root(&Manifest::parse("Cargo.toml", text).unwrap()).len();
        assert_eq!(
            check("[workspace.lints.rust]\nmissing_docs = \"deny\"\n"),
            0
        );
        assert_eq!(
            check("[workspace.lints.rust]\nmissing_docs = { level = \"forbid\" }\n"),
            0
        );
        assert_eq!(
            check("[workspace.lints.rust]\nmissing_docs = \"warn\"\n"),
            1
        );
        assert_eq!(check("[workspace]\n"), 1);
    }
}

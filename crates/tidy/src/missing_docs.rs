//! Rule: every public item is documented, and no crate switches the lint off.
//!
//! The compiler checks the items through the workspace's lint table. This rule checks that
//! each crate uses the table and does not switch the lint off. Two exceptions: generated
//! code, in a module that holds only includes; and an enum of errors or warnings whose
//! variants are all documented, because its messages print the fields.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, File, Item, ItemEnum, ItemMod, Macro};

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
            format!("[workspace.lints.rust] must have `{LINT} = \"deny\"`"),
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

/// Checks that no shipped code switches the lint off.
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
            "`{LINT}` is switched off: document the items; only generated code and documented error enums may do this"
        );
        self.findings
            .push(Finding::new(self.path, line, RULE, message));
    }
}

impl Walk<'_> {
    /// Checks the tokens inside a macro, where attributes are not parsed.
    fn walk_tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<_> = tokens.into_iter().collect();
        for (at, token) in tokens.iter().enumerate() {
            let TokenTree::Group(group) = token else {
                continue;
            };
            let is_attribute = group.delimiter() == Delimiter::Bracket
                && is_punct(at.checked_sub(1).and_then(|before| tokens.get(before)), '#');
            if !is_attribute {
                self.walk_tokens(group.stream());
            } else if lowers_lint(group.stream())
                && !is_generated_module(tokens.get(at + 1..).unwrap_or_default())
            {
                self.report(group.span_open().start().line);
            }
        }
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

    fn visit_item_enum(&mut self, item: &'ast ItemEnum) {
        if !prints_its_fields(item) {
            visit::visit_item_enum(self, item);
        }
    }

    fn visit_macro(&mut self, invocation: &'ast Macro) {
        self.walk_tokens(invocation.tokens.clone());
    }
}

/// Returns whether an enum is named `…Error` or `Warning` and documents itself and every
/// variant.
fn prints_its_fields(item: &ItemEnum) -> bool {
    let name = item.ident.to_string();
    let documented = |attributes: &[Attribute]| {
        attributes
            .iter()
            .any(|attribute| attribute.path().is_ident("doc"))
    };
    (name.ends_with("Error") || name == "Warning")
        && documented(&item.attrs)
        && item
            .variants
            .iter()
            .all(|variant| documented(&variant.attrs))
}

/// Returns whether the tokens of an attribute contain `allow(missing_docs)`, `expect` or
/// `warn` of it, also inside a `cfg_attr`.
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

/// Returns whether the tokens continue, after more attributes, with a module that holds only
/// includes.
fn is_generated_module(tokens: &[TokenTree]) -> bool {
    let mut rest = tokens;
    while let [TokenTree::Punct(punct), TokenTree::Group(_), after @ ..] = rest
        && punct.as_char() == '#'
    {
        rest = after;
    }
    let is_end = |token: &TokenTree| {
        let is_body =
            matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
        is_body || is_punct(Some(token), ';')
    };
    let Some(end) = rest.iter().position(is_end) else {
        return false;
    };
    let (head, rest) = rest.split_at(end);
    let is_module = head
        .iter()
        .any(|token| matches!(token, TokenTree::Ident(name) if name == "mod"));
    let Some(TokenTree::Group(body)) = rest.first() else {
        return false;
    };
    let items = syn::parse2::<File>(body.stream());
    is_module && items.is_ok_and(|file| holds_only_includes(&file.items))
}

fn is_punct(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
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
    fn attribute_that_switches_the_lint_off_is_reported_in_every_form() {
        for text in [
            "#![allow(missing_docs)]\nfn f() {}",
            "#[allow(dead_code, missing_docs)]\npub fn f() {}",
            "#[warn(missing_docs)]\npub fn f() {}",
            "#[expect(missing_docs, reason = \"x\")]\npub fn f() {}",
            "#[cfg_attr(feature = \"x\", allow(missing_docs))]\npub fn f() {}",
            "macro_rules! m { () => { #[allow(missing_docs)] pub fn f() {} } }",
            "#[allow(missing_docs)] pub mod a { include!(\"x\"); pub fn f() {} }",
            "#[allow(missing_docs)] pub mod a {}",
            "macro_rules! m { ($n:ident) => { #[allow(missing_docs)] pub mod $n { pub fn f() {} } } }",
            "macro_rules! m { () => { #[allow(missing_docs)] pub mod a; pub fn f() { include!(\"x\"); } } }",
            "macro_rules! m { () => { #[allow(missing_docs)] pub fn f() { include!(\"x\"); } } }",
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
    fn error_enum_may_switch_the_lint_off_only_with_documented_variants() {
        let file = "crates/gates/src/a.rs";
        let fine =
            "/// Why.\n#[allow(missing_docs)]\npub enum AError {\n/// One.\nOne { at: u8 } }";
        assert!(lines(file, fine).is_empty());
        let undocumented = "/// Why.\n#[allow(missing_docs)]\npub enum AError { One { at: u8 } }";
        assert_eq!(lines(file, undocumented), [2]);
        let no_error =
            "/// What.\n#[allow(missing_docs)]\npub enum A {\n/// One.\nOne { at: u8 } }";
        assert_eq!(lines(file, no_error), [2]);
    }

    #[test]
    fn generated_modules_and_tests_may_switch_the_lint_off() {
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
        assert!(lines(file, "macro_rules! m { ($(#[$d:meta])* $n:ident) => { $(#[$d])* #[allow(missing_docs, clippy::all)] #[rustfmt::skip] pub mod $n { include!(concat!(\"x\", stringify!($n))); } } }").is_empty());
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
    fn crate_without_the_workspace_lint_table_is_reported() {
        let check = |text: &str| {
            check_manifest(&Manifest::parse("crates/a/Cargo.toml", text).unwrap()).len()
        };
        assert_eq!(check("[lints]\nworkspace = true\n"), 0);
        assert_eq!(check("[lints]\nworkspace = false\n"), 1);
        assert_eq!(check("[lints.rust]\nmissing_docs = \"deny\"\n"), 1);
        assert_eq!(check("[package]\n"), 1);
    }

    #[test]
    fn workspace_that_does_not_deny_the_lint_is_reported() {
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

//! One parsed Rust file, with the test code removed from its syntax tree.
//!
//! The rules about panics, purity and documentation apply to shipped code. Because test code
//! is removed here, each of those rules is a plain walk over a syntax tree.

use proc_macro2::TokenStream;
use syn::visit_mut::{self, VisitMut};
use syn::{Block, Expr, File, ImplItem, Item, ItemImpl, ItemMod, Stmt, TraitItem};

use crate::attributes;
use crate::comments::PlainComments;
use crate::finding::Finding;

/// A Rust file in the forms the rules read it.
pub struct RustFile {
    /// Path from the root of the repository.
    pub path: String,
    /// Every token, test code included.
    pub tokens: TokenStream,
    /// The syntax tree without the code of test builds; empty for a file that exists only in
    /// test builds.
    pub shipped: File,
    /// The plain comments by line.
    pub comments: PlainComments,
    /// Whether the file is compiled only for tests.
    pub test_only: bool,
    test_only_modules: Vec<String>,
}

impl RustFile {
    /// Parses `text`. The error is the finding to report.
    pub fn parse(path: &str, text: &str) -> Result<Self, Finding> {
        let unreadable = |line: usize, error: &dyn std::fmt::Display| {
            Finding::new(path, line, "syntax", format!("does not parse: {error}"))
        };
        let tokens: TokenStream = text.parse().map_err(|error: proc_macro2::LexError| {
            unreadable(error.span().start().line, &error)
        })?;
        let syntax =
            syn::parse_file(text).map_err(|error| unreadable(error.span().start().line, &error))?;
        let comments = PlainComments::find(text, &tokens);
        let mut test_only_modules = Vec::new();
        collect_test_only_modules(&module_folder(path), &syntax.items, &mut test_only_modules);
        let test_only = attributes::are_test_only(&syntax.attrs);
        let mut file = Self {
            path: path.to_owned(),
            tokens,
            shipped: syntax,
            comments,
            test_only: false,
            test_only_modules,
        };
        RemoveTestCode.visit_file_mut(&mut file.shipped);
        if test_only {
            file.become_test_only();
        }
        Ok(file)
    }

    fn become_test_only(&mut self) {
        self.test_only = true;
        self.shipped.items.clear();
        self.shipped.attrs.clear();
    }
}

/// Marks the files that another file includes as `#[cfg(test)] mod name;`, and the files
/// below them.
pub fn mark_test_only(files: &mut [RustFile]) {
    let modules: Vec<String> = files
        .iter()
        .flat_map(|file| file.test_only_modules.iter().cloned())
        .collect();
    for file in files {
        let belongs = |module: &String| {
            file.path == format!("{module}.rs") || file.path.starts_with(&format!("{module}/"))
        };
        if modules.iter().any(belongs) {
            file.become_test_only();
        }
    }
}

/// Returns the folder of the out-of-line modules of the file at `path`.
fn module_folder(path: &str) -> String {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let is_root = matches!(name, "lib.rs" | "main.rs" | "mod.rs") || folder.ends_with("/src/bin");
    match name.strip_suffix(".rs") {
        Some(stem) if !is_root => format!("{folder}/{stem}"),
        _ => folder.to_owned(),
    }
}

fn collect_test_only_modules(folder: &str, items: &[Item], found: &mut Vec<String>) {
    for item in items {
        let Item::Mod(module) = item else { continue };
        let path = format!("{folder}/{}", module.ident);
        match &module.content {
            None if attributes::are_test_only(&module.attrs) => found.push(path),
            None => {}
            Some((_, items)) => collect_test_only_modules(&path, items, found),
        }
    }
}

struct RemoveTestCode;

impl VisitMut for RemoveTestCode {
    fn visit_file_mut(&mut self, file: &mut File) {
        remove_items(&mut file.items);
        visit_mut::visit_file_mut(self, file);
    }

    fn visit_item_mod_mut(&mut self, module: &mut ItemMod) {
        if let Some((_, items)) = &mut module.content {
            remove_items(items);
        }
        visit_mut::visit_item_mod_mut(self, module);
    }

    fn visit_item_impl_mut(&mut self, block: &mut ItemImpl) {
        block.items.retain(|item| {
            !attributes::are_test_only(match item {
                ImplItem::Const(item) => &item.attrs,
                ImplItem::Fn(item) => &item.attrs,
                ImplItem::Macro(item) => &item.attrs,
                _ => &[],
            })
        });
        visit_mut::visit_item_impl_mut(self, block);
    }

    fn visit_item_trait_mut(&mut self, item: &mut syn::ItemTrait) {
        item.items.retain(|item| match item {
            TraitItem::Fn(item) => !attributes::are_test_only(&item.attrs),
            _ => true,
        });
        visit_mut::visit_item_trait_mut(self, item);
    }

    fn visit_block_mut(&mut self, block: &mut Block) {
        block.stmts.retain(|statement| {
            !attributes::are_test_only(match statement {
                Stmt::Local(local) => &local.attrs,
                Stmt::Item(item) => attributes::of_item(item),
                Stmt::Macro(invocation) => &invocation.attrs,
                Stmt::Expr(Expr::Block(block), _) => &block.attrs,
                Stmt::Expr(Expr::MethodCall(call), _) => &call.attrs,
                Stmt::Expr(Expr::Call(call), _) => &call.attrs,
                Stmt::Expr(..) => &[],
            })
        });
        visit_mut::visit_block_mut(self, block);
    }
}

fn remove_items(items: &mut Vec<Item>) {
    items.retain(|item| !attributes::are_test_only(attributes::of_item(item)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shipped_items(text: &str) -> usize {
        let file = RustFile::parse("crates/a/src/lib.rs", text).unwrap();
        file.shipped.items.len()
    }

    #[test]
    fn test_code_is_removed_from_shipped_code() {
        assert_eq!(
            shipped_items("fn a() {} #[cfg(test)] mod tests {} #[test] fn b() {}"),
            1
        );
        assert_eq!(shipped_items("#![cfg(test)] fn a() {}"), 0);
    }

    #[test]
    fn file_that_does_not_parse_is_reported_at_the_line_of_the_error() {
        let finding = RustFile::parse("crates/a/src/lib.rs", "fn a() {}\nfn {}\n")
            .err()
            .unwrap();
        assert_eq!((finding.line, finding.rule), (2, "syntax"));
    }

    #[test]
    fn files_of_test_only_modules_are_marked() {
        let parse = |path, text| RustFile::parse(path, text).unwrap();
        let mut files = [
            parse(
                "crates/a/src/lib.rs",
                "mod b; #[cfg(test)] mod checks; mod c { #[cfg(test)] mod d; }",
            ),
            parse("crates/a/src/b.rs", "#[cfg(test)] mod tests;"),
            parse("crates/a/src/b/tests.rs", "fn f() {}"),
            parse("crates/a/src/checks/mod.rs", "fn f() {}"),
            parse("crates/a/src/c/d.rs", "fn f() {}"),
            parse("crates/a/src/tests.rs", "fn f() {}"),
        ];
        mark_test_only(&mut files);
        let marked: Vec<_> = files.iter().map(|file| file.test_only).collect();
        assert_eq!(marked, [false, false, true, true, true, false]);
        assert!(files[2].shipped.items.is_empty());
    }
}

//! Rule: shipped code does not panic, or a comment beside the call gives the reason.
//!
//! Clippy denies these calls too, but accepts a bare `#[allow]`. This rule requires the
//! reason: a `//` comment directly above the statement or the call, among its attributes,
//! or at the end of its line, that contains "cannot", "never" or "always". Assertions are
//! allowed. The inside of macros is searched as tokens.

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    Arm, ExprMethodCall, ExprPath, FieldValue, ImplItemConst, ItemConst, ItemStatic, Macro, Stmt,
};

use crate::comments::PlainComments;
use crate::finding::Finding;
use crate::rust_file::RustFile;
use crate::workspace::{Area, area, crate_folder};

const RULE: &str = "panics";
const METHODS: &[&str] = &["unwrap", "expect", "unwrap_err", "expect_err"];
const MACROS: &[&str] = &["panic", "unreachable", "todo", "unimplemented"];
const REASON_WORDS: &[&str] = &["cannot", "never", "always"];

/// The crates that only tests use: a failing test panics.
const TEST_CRATES: &[&str] = &["fuzz", "testkit"];

/// Checks one file; tests, the test crates, benches, examples and build scripts may panic.
#[must_use]
pub fn check(file: &RustFile) -> Vec<Finding> {
    let is_of_tests = |folder| TEST_CRATES.contains(&folder);
    if area(&file.path) != Area::Src || crate_folder(&file.path).is_some_and(is_of_tests) {
        return Vec::new();
    }
    let mut walk = Walk {
        path: &file.path,
        comments: &file.comments,
        starts: Vec::new(),
        findings: Vec::new(),
    };
    walk.visit_file(&file.shipped);
    walk.findings
}

struct Walk<'file> {
    path: &'file str,
    comments: &'file PlainComments,
    /// The first lines of the enclosing statements, the innermost last.
    starts: Vec<usize>,
    findings: Vec<Finding>,
}

impl Walk<'_> {
    fn inside(&mut self, start: usize, walk: impl FnOnce(&mut Self)) {
        self.starts.push(start);
        walk(self);
        self.starts.pop();
    }

    fn check(&mut self, what: &str, first_line: usize, last_line: usize) {
        let start = self.starts.last().copied().unwrap_or(first_line);
        let comments = self.comments;
        let mut reasons = comments.above(start);
        reasons.extend(comments.among_attributes(start));
        reasons.extend(comments.above(first_line));
        reasons.extend(comments.on(first_line));
        reasons.extend(comments.on(last_line));
        if !reasons.into_iter().any(is_reason) {
            let message = format!(
                "`{what}` in shipped code: return an error, or give the reason why it cannot happen in a `//` comment above"
            );
            self.findings
                .push(Finding::new(self.path, first_line, RULE, message));
        }
    }

    fn check_tokens(&mut self, tokens: TokenStream, is_block: bool) {
        let tokens: Vec<_> = tokens.into_iter().collect();
        let outer = self.starts.len();
        let mut statement_begins = is_block;
        for (index, token) in tokens.iter().enumerate() {
            if statement_begins {
                self.starts.truncate(outer);
                self.starts.push(token.span().start().line);
            }
            statement_begins = ends_statement(&tokens, index, is_block);
            match token {
                TokenTree::Group(group) => {
                    let is_block = group.delimiter() == Delimiter::Brace;
                    self.check_tokens(group.stream(), is_block);
                }
                TokenTree::Ident(name) => {
                    let before = index.checked_sub(1).and_then(|before| tokens.get(before));
                    self.check_ident(name, before, tokens.get(index + 1), tokens.get(index + 2));
                }
                _ => {}
            }
        }
        self.starts.truncate(outer);
    }

    fn check_ident(
        &mut self,
        name: &Ident,
        before: Option<&TokenTree>,
        after: Option<&TokenTree>,
        second: Option<&TokenTree>,
    ) {
        let line = name.span().start().line;
        let text = name.to_string();
        if METHODS.contains(&text.as_str())
            && is_punct(before, '.')
            && let Some(TokenTree::Group(arguments)) = after
        {
            self.check(
                &format!(".{text}()"),
                line,
                arguments.span_close().start().line,
            );
        }
        if MACROS.contains(&text.as_str())
            && is_punct(after, '!')
            && let Some(TokenTree::Group(arguments)) = second
        {
            self.check(
                &format!("{text}!"),
                line,
                arguments.span_close().start().line,
            );
        }
    }
}

impl<'ast> Visit<'ast> for Walk<'_> {
    fn visit_stmt(&mut self, node: &'ast Stmt) {
        self.inside(first_line(node), |walk| visit::visit_stmt(walk, node));
    }

    fn visit_arm(&mut self, node: &'ast Arm) {
        self.inside(first_line(node), |walk| visit::visit_arm(walk, node));
    }

    fn visit_field_value(&mut self, node: &'ast FieldValue) {
        self.inside(first_line(node), |walk| {
            visit::visit_field_value(walk, node)
        });
    }

    fn visit_item_const(&mut self, node: &'ast ItemConst) {
        self.inside(first_line(node), |walk| visit::visit_item_const(walk, node));
    }

    fn visit_item_static(&mut self, node: &'ast ItemStatic) {
        self.inside(first_line(node), |walk| {
            visit::visit_item_static(walk, node)
        });
    }

    fn visit_impl_item_const(&mut self, node: &'ast ImplItemConst) {
        self.inside(first_line(node), |walk| {
            visit::visit_impl_item_const(walk, node)
        });
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        let name = call.method.to_string();
        if METHODS.contains(&name.as_str()) {
            let last_line = call.paren_token.span.close().start().line;
            self.check(
                &format!(".{name}()"),
                call.method.span().start().line,
                last_line,
            );
        }
        visit::visit_expr_method_call(self, call);
    }

    /// Checks `Option::unwrap` passed as a function.
    fn visit_expr_path(&mut self, path: &'ast ExprPath) {
        let names: Vec<_> = path
            .path
            .segments
            .iter()
            .map(|part| part.ident.to_string())
            .collect();
        if let [.., owner, method] = names.as_slice()
            && ["Option", "Result"].contains(&owner.as_str())
            && METHODS.contains(&method.as_str())
        {
            let line = path.span().start().line;
            self.check(&format!("{owner}::{method}"), line, line);
        }
        visit::visit_expr_path(self, path);
    }

    fn visit_macro(&mut self, invocation: &'ast Macro) {
        if let Some(name) = invocation.path.segments.last()
            && MACROS.iter().any(|banned| name.ident == banned)
        {
            let last_line = invocation.delimiter.span().close().start().line;
            let line = name.ident.span().start().line;
            self.check(&format!("{}!", name.ident), line, last_line);
        }
        let is_block = matches!(invocation.delimiter, syn::MacroDelimiter::Brace(_));
        self.check_tokens(invocation.tokens.clone(), is_block);
    }
}

fn first_line(node: &impl Spanned) -> usize {
    node.span().start().line
}

/// Returns whether a new statement begins after the token at `index` of a braced token
/// stream.
fn ends_statement(tokens: &[TokenTree], index: usize, is_block: bool) -> bool {
    match tokens.get(index) {
        Some(TokenTree::Punct(punct)) => match punct.as_char() {
            ';' => true,
            '>' => is_punct(
                index.checked_sub(1).and_then(|before| tokens.get(before)),
                '=',
            ),
            _ => false,
        },
        Some(TokenTree::Group(group)) => is_block && group.delimiter() == Delimiter::Brace,
        _ => false,
    }
}

fn is_punct(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

fn is_reason(comment: &str) -> bool {
    let mut words = comment.split(|letter: char| !letter.is_alphanumeric());
    words.any(|word| {
        REASON_WORDS
            .iter()
            .any(|reason| word.eq_ignore_ascii_case(reason))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        lines_in("crates/wal/src/lib.rs", text)
    }

    fn lines_in(path: &str, text: &str) -> Vec<usize> {
        let file = RustFile::parse(path, text).unwrap();
        check(&file).iter().map(|found| found.line).collect()
    }

    #[test]
    fn panic_is_reported_in_every_form() {
        for code in [
            "x.unwrap()",
            "x.expect(\"y\")",
            "x.unwrap_err()",
            "x.map(Option::unwrap)",
            "panic!(\"y\")",
            "std::panic!(\"y\")",
            "unreachable!()",
            "todo!()",
            "unimplemented!()",
            "vec![x.unwrap()]",
            "format!(\"{}\", y.get(&x.expect(\"z\")))",
            "select! { a => { panic!(\"x\") } }",
        ] {
            assert_eq!(lines(&format!("fn f() {{\n    {code};\n}}")), [2], "{code}");
        }
    }

    #[test]
    fn panic_in_a_macro_definition_is_reported() {
        assert_eq!(
            lines("macro_rules! m {\n    ($x:expr) => {\n        $x.unwrap()\n    };\n}"),
            [3]
        );
    }

    #[test]
    fn panic_in_a_constant_is_reported() {
        assert_eq!(lines("const A: u8 = B.unwrap();"), [1]);
        assert!(
            lines("// B is Some, so this cannot fail to build.\nconst A: u8 = B.unwrap();")
                .is_empty()
        );
    }

    #[test]
    fn call_with_a_reason_beside_it_passes() {
        for code in [
            "    // The map always holds the root.\n    x.unwrap();",
            "    // The map holds the root:\n    // it cannot be removed.\n    x.unwrap();",
            "    x.unwrap(); // never empty",
            "    // Never empty.\n    #[allow(clippy::unwrap_used)]\n    let y = x.unwrap();",
            "    #[allow(clippy::unwrap_used)]\n    // Never empty.\n    let y = x.unwrap();",
            "    // Never empty.\n    let y = x\n        .get(1)\n        .unwrap();",
            "    let y = x\n        .get(1)\n        // Never empty.\n        .unwrap();",
            "    let y = x.expect(\n        \"y\",\n    ); // never empty",
            "    match x {\n        // This cannot be.\n        None => unreachable!(),\n        _ => {}\n    }",
            "    let y = vec![\n        // This cannot be.\n        x.unwrap(),\n    ];",
            "    lazy! {\n        a();\n        // This cannot be.\n        let y = x\n            .unwrap();\n    }",
        ] {
            assert!(
                lines(&format!("fn f() {{\n{code}\n}}")).is_empty(),
                "{code}"
            );
        }
    }

    #[test]
    fn call_with_a_comment_that_is_no_reason_is_reported() {
        for code in [
            "    // Take the first.\n    x.unwrap();",
            "    // whenever\n    x.unwrap();",
            "    y(); // never\n    x.unwrap();",
            "    // never\n\n    x.unwrap();",
            "    // never\n    y();\n    x.unwrap();",
            "    y(\"// never\", x.unwrap());",
            "    /// never\n    let y = x.unwrap();",
            "    // never\n    if a {\n        x.unwrap();\n    }",
            "    lazy! {\n        // never\n        a();\n        x.unwrap();\n    }",
        ] {
            assert_eq!(lines(&format!("fn f() {{\n{code}\n}}")).len(), 1, "{code}");
        }
    }

    #[test]
    fn tests_benches_examples_and_build_scripts_may_panic() {
        let text = "fn f() { x.unwrap(); }";
        for path in ["tests/a.rs", "benches/a.rs", "examples/a.rs", "build.rs"] {
            assert!(
                lines_in(&format!("crates/wal/{path}"), text).is_empty(),
                "{path}"
            );
        }
        assert!(lines_in("crates/testkit/src/lib.rs", text).is_empty());
        assert!(lines("#[cfg(test)] mod tests { fn f() { x.unwrap(); } }").is_empty());
        assert!(lines("#[tokio::test] async fn f() { x.unwrap(); }").is_empty());
        assert!(lines("impl A { #[cfg(test)] fn f() { x.unwrap(); } }").is_empty());
        assert_eq!(lines("#[cfg(not(test))] fn f() { x.unwrap(); }"), [1]);
    }

    #[test]
    fn similar_names_and_assertions_pass() {
        assert!(
            lines("fn f() { x.unwrap_or(1); x.expecting(2); let todo = 1; a(todo != 2); }")
                .is_empty()
        );
        assert!(lines("fn f() { assert!(x); std::panic::catch_unwind(y); }").is_empty());
    }
}

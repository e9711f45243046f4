//! Rule: the modules of the server use one another in one direction.
//!
//! A module may use the modules before it in [`ORDER`] and none after it, so there is no cycle,
//! and what is low in the server (its handles, the transport, the apply thread) cannot know what
//! is composed of it. Tests are held to the same.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::finding::Finding;
use crate::rust_file::RustFile;

const RULE: &str = "module-order";
const SOURCE: &str = "crates/server/src/";

/// The modules of the server; each may use only earlier ones.
pub const ORDER: &[&str] = &[
    "error_chain",
    "coarse_timeout",
    "log_throttle",
    "config",
    "logging",
    "command",
    "listen",
    "metrics",
    "handles",
    "peers",
    "proposals",
    "apply",
    "member",
    "scrape",
    "grpc",
    "http",
    "serve",
    "start",
    "limits",
];

/// Checks one file; files of other crates and the roots of the server pass.
#[must_use]
pub fn check(file: &RustFile) -> Vec<Finding> {
    let Some(module) = file.path.strip_prefix(SOURCE).map(module_of) else {
        return Vec::new();
    };
    if matches!(module, "lib" | "main") {
        return Vec::new();
    }
    let Some(own) = place(module) else {
        let message = format!(
            "module `{module}` has no place: add it to ORDER in crates/tidy/src/module_order.rs"
        );
        return vec![Finding::new(&file.path, 1, RULE, message)];
    };
    let mut used = Vec::new();
    collect(file.tokens.clone(), &mut used);
    let above = used
        .into_iter()
        .filter(|(name, _)| place(name).is_some_and(|place| place > own));
    above
        .map(|(name, line)| {
            let message = format!(
                "`{module}` may not use `{name}`, which is after it in ORDER of crates/tidy/src/module_order.rs: take a handle as an argument, or move the shared part"
            );
            Finding::new(&file.path, line, RULE, message)
        })
        .collect()
}

/// The module of a path below the source folder.
fn module_of(path: &str) -> &str {
    let first = path.split('/').next().unwrap_or(path);
    first.trim_end_matches(".rs")
}

fn place(module: &str) -> Option<usize> {
    ORDER.iter().position(|it| *it == module)
}

/// Collects the modules that follow `crate::`, with their lines.
fn collect(tokens: TokenStream, used: &mut Vec<(String, usize)>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        if let TokenTree::Group(group) = token {
            collect(group.stream(), used);
        }
        let is_crate = matches!(token, TokenTree::Ident(name) if name == "crate");
        let is_path = [at + 1, at + 2]
            .iter()
            .all(|at| matches!(tokens.get(*at), Some(TokenTree::Punct(it)) if it.as_char() == ':'));
        if is_crate && is_path {
            match tokens.get(at + 3) {
                Some(TokenTree::Ident(name)) => {
                    used.push((name.to_string(), name.span().start().line));
                }
                Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                    collect_list(group.stream(), used);
                }
                _ => {}
            }
        }
    }
}

/// Collects the first names of a list such as `{grpc, http::unknown}`.
fn collect_list(tokens: TokenStream, used: &mut Vec<(String, usize)>) {
    let mut is_first = true;
    for token in tokens {
        match token {
            TokenTree::Ident(name) if is_first => {
                used.push((name.to_string(), name.span().start().line));
                is_first = false;
            }
            TokenTree::Punct(punct) => is_first = punct.as_char() == ',',
            _ => is_first = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let file = RustFile::parse(path, text).unwrap_or_else(|finding| panic!("{finding}"));
        check(&file).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn use_of_a_later_module_is_reported_in_each_form() {
        let text = "use crate::handles::Process;\nuse crate::member::Member;\nuse crate::{config, start::start};\nfn f() { crate::grpc::g(); }\n";
        assert_eq!(lines("crates/server/src/apply/mod.rs", text), [2, 3, 4]);
        assert_eq!(lines("crates/server/src/start/mod.rs", text), []);
        assert_eq!(lines("crates/server/src/lib.rs", text), []);
        assert_eq!(lines("crates/ctl/src/apply.rs", text), []);
    }

    #[test]
    fn module_without_a_place_is_reported() {
        assert_eq!(lines("crates/server/src/novelty.rs", "fn f() {}"), [1]);
    }
}

//! The tests of the workspace, and the requirements that each claims to prove.
//!
//! A test names its requirements in its documentation, as a list of single identifiers:
//!
//! ```text
//! /// Proves: G11, G12,
//! /// S0-A7
//! #[test]
//! fn the_newest_entry_that_applies_wins() { … }
//! ```
//!
//! The search works on tokens and not on the syntax tree, because tests inside `proptest!`
//! and other macros are not parsed. `requirements` checks whether the identifiers exist.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use crate::finding::Finding;
use crate::rust_file::RustFile;
use crate::workspace::{Area, area};

const RULE: &str = "requirements";
const KEY: &str = "Proves:";

/// A test function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Test {
    /// The name, without modules.
    pub name: String,
    /// Whether `cargo test` skips it by default.
    pub ignored: bool,
    /// The requirements it claims to prove.
    pub claims: Vec<Claim>,
}

/// A requirement that a test claims to prove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The identifier as written.
    pub id: String,
    /// The file of the claim.
    pub path: String,
    /// The line of the claim.
    pub line: usize,
}

/// Finds the tests of one file, and the claims that are not directly above a test.
#[must_use]
pub fn find(file: &RustFile) -> (Vec<Test>, Vec<Finding>) {
    let mut search = Search {
        path: &file.path,
        tests: Vec::new(),
        findings: Vec::new(),
    };
    search.walk(file.tokens.clone());
    for (line, text) in file.comments.iter() {
        if text.starts_with(KEY) {
            search.report(
                line,
                format!(
                    "`{KEY}` in a plain comment is not read: write it with `///` above the test"
                ),
            );
        }
    }
    if !matches!(area(&file.path), Area::Src | Area::Tests) {
        for test in std::mem::take(&mut search.tests) {
            for claim in test.claims {
                search.report(
                    claim.line,
                    format!("`{KEY}` counts only in src/ and tests/: move the test there"),
                );
            }
        }
    }
    (search.tests, search.findings)
}

struct Search<'file> {
    path: &'file str,
    tests: Vec<Test>,
    findings: Vec<Finding>,
}

/// The documentation and test attributes in front of an item.
#[derive(Default)]
struct Gathered {
    docs: Vec<(usize, String)>,
    is_test: bool,
    ignored: bool,
}

impl Search<'_> {
    fn report(&mut self, line: usize, message: String) {
        self.findings
            .push(Finding::new(self.path, line, RULE, message));
    }

    fn walk(&mut self, tokens: TokenStream) {
        let tokens: Vec<_> = tokens.into_iter().collect();
        let mut gathered = Gathered::default();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            if let Some((attribute, length)) = attribute_at(&tokens, at) {
                gather(attribute, &mut gathered);
                at += length;
                continue;
            }
            let claims = self.claims(&gathered.docs);
            let function = function_at(&tokens, at);
            match &function {
                Some((name, _)) if gathered.is_test => self.tests.push(Test {
                    name: name.clone(),
                    ignored: gathered.ignored,
                    claims,
                }),
                _ => self.report_misplaced(&claims),
            }
            if let TokenTree::Group(group) = token {
                self.walk(group.stream());
            }
            at += function.map_or(1, |(_, length)| length);
            gathered = Gathered::default();
        }
        // Documentation without an item behind it, such as `//!` at the end of a file.
        let claims = self.claims(&gathered.docs);
        self.report_misplaced(&claims);
    }

    fn report_misplaced(&mut self, claims: &[Claim]) {
        if let Some(claim) = claims.first() {
            let message = format!("`{KEY}` must be directly above a test function");
            self.report(claim.line, message);
        }
    }

    fn claims(&mut self, docs: &[(usize, String)]) -> Vec<Claim> {
        let mut claims = Vec::new();
        let mut continues = false;
        let mut last_line = 0;
        for (line, text) in docs {
            let text = text.trim();
            let list = match text.strip_prefix(KEY) {
                Some(list) => list.trim(),
                None if continues => text,
                None => continue,
            };
            let ids = list.split(',').map(str::trim).filter(|id| !id.is_empty());
            let before = claims.len();
            claims.extend(ids.map(|id| Claim {
                id: id.to_owned(),
                path: self.path.to_owned(),
                line: *line,
            }));
            if claims.len() == before {
                self.report(*line, format!("`{KEY}` names no requirement"));
            }
            continues = list.ends_with(',');
            last_line = *line;
        }
        if continues {
            self.report(
                last_line,
                format!("`{KEY}` ends with a comma: name the next requirement or drop the comma"),
            );
        }
        claims
    }
}

/// Returns the attribute at this position, and its number of tokens.
fn attribute_at(tokens: &[TokenTree], at: usize) -> Option<(&Group, usize)> {
    let is = |offset: usize, wanted: char| matches!(tokens.get(at + offset), Some(TokenTree::Punct(punct)) if punct.as_char() == wanted);
    if !is(0, '#') {
        return None;
    }
    let length = if is(1, '!') { 3 } else { 2 };
    match tokens.get(at + length - 1) {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Bracket => {
            Some((group, length))
        }
        _ => None,
    }
}

fn gather(attribute: &Group, gathered: &mut Gathered) {
    let mut name = String::new();
    for token in attribute.stream() {
        match token {
            TokenTree::Ident(ident) => name = ident.to_string(),
            TokenTree::Punct(punct) if punct.as_char() == ':' => {}
            TokenTree::Literal(literal) if name == "doc" => {
                let first_line = literal.span().start().line;
                if let Ok(text) = syn::parse_str::<syn::LitStr>(&literal.to_string()) {
                    let lines = text.value();
                    let numbered = lines.lines().enumerate();
                    gathered.docs.extend(
                        numbered.map(|(index, line)| (first_line + index, line.to_owned())),
                    );
                }
                return;
            }
            TokenTree::Punct(punct) if punct.as_char() == '=' => {
                if name != "doc" {
                    break;
                }
            }
            _ => break,
        }
    }
    gathered.is_test |= name == "test";
    gathered.ignored |= name == "ignore";
}

/// Returns the name of the function whose declaration starts here, and the number of tokens
/// up to and including the name.
fn function_at(tokens: &[TokenTree], at: usize) -> Option<(String, usize)> {
    let mut length = 0;
    loop {
        match tokens.get(at + length)? {
            TokenTree::Ident(keyword) if keyword == "fn" => {
                let name = match tokens.get(at + length + 1)? {
                    TokenTree::Ident(name) => name.to_string(),
                    // In the body of a macro the name may be a variable.
                    _ => String::from("$name"),
                };
                return Some((name, length + 2));
            }
            TokenTree::Ident(keyword)
                if ["pub", "async", "const", "unsafe", "extern", "default"]
                    .iter()
                    .any(|modifier| keyword == modifier) => {}
            TokenTree::Group(group)
                if length > 0 && group.delimiter() == Delimiter::Parenthesis => {}
            TokenTree::Literal(_) if length > 0 => {}
            _ => return None,
        }
        length += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(text: &str) -> (Vec<Test>, Vec<Finding>) {
        find(&RustFile::parse("crates/gates/src/lib.rs", text).unwrap())
    }

    fn claims(text: &str) -> Vec<(String, usize)> {
        let (tests, findings) = search(text);
        assert!(findings.is_empty(), "{findings:?}");
        let claims = tests.into_iter().flat_map(|test| test.claims);
        claims.map(|claim| (claim.id, claim.line)).collect()
    }

    fn ids(expected: &[(&str, usize)]) -> Vec<(String, usize)> {
        expected
            .iter()
            .map(|(id, line)| ((*id).to_owned(), *line))
            .collect()
    }

    #[test]
    fn claim_above_every_kind_of_test_is_found() {
        for text in [
            "/// Proves: G1\n#[test]\nfn t() {}",
            "/// Proves: G1\n#[tokio::test(flavor = \"x\")]\nasync fn t() {}",
            "/// Proves: G1\n#[test]\n#[should_panic(expected = \"x\")]\npub(crate) fn t() {}",
            "/// Proves: G1\n#[cfg(test)] #[test] fn t() -> Result<(), ()> { Ok(()) }",
        ] {
            assert_eq!(claims(text), ids(&[("G1", 1)]), "{text}");
        }
        let nested = "#[cfg(test)]\nmod tests {\n    /// Proves: G1\n    #[test]\n    fn t() {}\n}";
        assert_eq!(claims(nested), ids(&[("G1", 3)]));
        let property = "proptest! {\n    #![proptest_config(x())]\n    /// Proves: G1\n    #[test]\n    fn t(a in 0..9) { assert!(a < 9); }\n}";
        assert_eq!(claims(property), ids(&[("G1", 3)]));
        let table = "macro_rules! m { ($n:ident) => {\n    /// Proves: G1\n    #[test]\n    fn $n() {}\n} }";
        assert_eq!(claims(table), ids(&[("G1", 2)]));
    }

    #[test]
    fn claim_list_continues_after_a_comma_and_may_follow_prose() {
        let text = "/// The newest wins.\n///\n/// Proves: G1, S0-A2,\n/// X3\n/// and this is prose\n#[test]\nfn t() {}";
        assert_eq!(claims(text), ids(&[("G1", 3), ("S0-A2", 3), ("X3", 4)]));
    }

    #[test]
    fn claim_that_is_not_on_a_test_is_reported() {
        for text in [
            "/// Proves: G1\nfn helper() {}",
            "/// Proves: G1\nstruct S;",
            "//! Proves: G1\n",
            "mod a {\n    //! Proves: G1\n}",
            "/// Proves: G1\n#[cfg(test)]\nmod tests {}",
            "proptest! {\n    /// Proves: G1\n    fn t(a in 0..9) {}\n}",
            "struct S {\n    /// Proves: G1\n    a: u8,\n}",
            "// Proves: G1\n#[test]\nfn t() {}",
        ] {
            let (_, findings) = search(text);
            assert_eq!(findings.len(), 1, "{text}: {findings:?}");
        }
    }

    #[test]
    fn empty_or_unfinished_claim_list_is_reported() {
        for text in [
            "/// Proves:\n#[test]\nfn t() {}",
            "/// Proves: G1,\n#[test]\nfn t() {}",
        ] {
            let (_, findings) = search(text);
            assert_eq!(findings.len(), 1, "{text}: {findings:?}");
        }
    }

    #[test]
    fn tests_are_found_with_their_name_and_ignore_attribute() {
        let (tests, _) =
            search("#[test]\n#[ignore = \"slow\"]\nfn a() {}\n#[test] fn b() {} fn c() {}");
        let found: Vec<_> = tests
            .iter()
            .map(|test| (test.name.as_str(), test.ignored))
            .collect();
        assert_eq!(found, [("a", true), ("b", false)]);
    }

    #[test]
    fn claim_outside_src_and_tests_is_reported() {
        let text = "/// Proves: G1\n#[test]\nfn t() {}";
        let (tests, findings) = find(&RustFile::parse("crates/a/benches/b.rs", text).unwrap());
        assert!(tests.is_empty());
        assert_eq!(findings.len(), 1);
    }
}

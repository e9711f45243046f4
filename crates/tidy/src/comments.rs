//! The plain `//` comments of a Rust file, by line.
//!
//! The parser drops plain comments, and a search for `//` in the text would also find it
//! inside strings. So the text of all tokens is blanked first (documentation comments are
//! tokens too); the rest is white space and plain comments.

use std::collections::BTreeMap;

use proc_macro2::{TokenStream, TokenTree};

/// The plain comments of one file, by line counted from 1.
#[derive(Debug, Default)]
pub struct PlainComments {
    by_line: BTreeMap<usize, PlainComment>,
    attribute_lines: Vec<usize>,
}

#[derive(Debug)]
struct PlainComment {
    text: String,
    stands_alone: bool,
}

impl PlainComments {
    /// Finds the comments of `text`, whose tokens are `tokens`.
    #[must_use]
    pub fn find(text: &str, tokens: &TokenStream) -> Self {
        let mut blanked = text.as_bytes().to_vec();
        blank(tokens, &mut blanked);
        let blanked = String::from_utf8_lossy(&blanked);
        let mut found = Self::default();
        for (index, (line, rest)) in text.lines().zip(blanked.lines()).enumerate() {
            let number = index + 1;
            if line.trim_start().starts_with("#[") {
                found.attribute_lines.push(number);
            }
            if let Some((_, comment)) = rest.split_once("//") {
                found.by_line.insert(
                    number,
                    PlainComment {
                        text: comment.trim().to_owned(),
                        stands_alone: line.trim_start().starts_with("//"),
                    },
                );
            }
        }
        found
    }

    /// Iterates over all comments with their lines, without the slashes.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &str)> {
        self.by_line
            .iter()
            .map(|(line, comment)| (*line, comment.text.as_str()))
    }

    /// Returns the comment on exactly this line.
    #[must_use]
    pub fn on(&self, line: usize) -> Option<&str> {
        Some(&self.by_line.get(&line)?.text)
    }

    /// Returns the comment lines directly above `line`. Attributes in between are skipped, so
    /// a reason may be above or below an `#[allow]`.
    #[must_use]
    pub fn above(&self, line: usize) -> Vec<&str> {
        let mut texts = Vec::new();
        for above in (1..line).rev() {
            match self.by_line.get(&above) {
                Some(comment) if comment.stands_alone => texts.push(comment.text.as_str()),
                _ if self.attribute_lines.contains(&above) => {}
                _ => break,
            }
        }
        texts
    }

    /// Returns the comments among the attributes that start at `line`.
    #[must_use]
    pub fn among_attributes(&self, line: usize) -> Vec<&str> {
        let mut texts = Vec::new();
        let mut here = line;
        loop {
            match self.by_line.get(&here) {
                Some(comment) if comment.stands_alone => texts.push(comment.text.as_str()),
                _ if self.attribute_lines.contains(&here) => {}
                _ => return texts,
            }
            here += 1;
        }
    }
}

fn blank(tokens: &TokenStream, bytes: &mut [u8]) {
    for token in tokens.clone() {
        match token {
            TokenTree::Group(group) => {
                blank_range(group.span_open().byte_range(), bytes);
                blank_range(group.span_close().byte_range(), bytes);
                blank(&group.stream(), bytes);
            }
            other => blank_range(other.span().byte_range(), bytes),
        }
    }
}

fn blank_range(range: std::ops::Range<usize>, bytes: &mut [u8]) {
    for byte in bytes.get_mut(range).into_iter().flatten() {
        if *byte != b'\n' {
            *byte = b' ';
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comments(text: &str) -> PlainComments {
        PlainComments::find(text, &text.parse().unwrap())
    }

    #[test]
    fn strings_and_documentation_are_not_plain_comments() {
        let found = comments(
            "//! doc\n/// doc\nfn a() { b(\"http://x\", 'y'); } // plain\nconst C: &str = \"\n// text\n\";\n",
        );
        assert_eq!(found.iter().collect::<Vec<_>>(), [(3, "plain")]);
    }

    #[test]
    fn text_outside_ascii_does_not_shift_lines() {
        let found = comments("const A: &str = \"größe → ∞\"; // réason\n");
        assert_eq!(found.on(1), Some("réason"));
    }

    #[test]
    fn comments_above_reach_over_attributes_but_not_over_code() {
        let found = comments(
            "fn a() {\n    b(); // trailing\n    // one\n    #[allow(x)]\n    // two\n    c();\n}\n",
        );
        assert_eq!(found.above(6), ["two", "one"]);
        assert_eq!(found.among_attributes(4), ["two"]);
    }
}

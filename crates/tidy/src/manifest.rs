//! A Cargo manifest with the line of every entry.
//!
//! Shared by the rules that read manifests; it finds dependencies in every table, and holds
//! no rule itself.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::finding::{Finding, line_at};

/// A parsed manifest that borrows its text.
pub struct Manifest<'text> {
    path: &'text str,
    text: &'text str,
    root: DeTable<'text>,
}

/// When a dependency is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DependencyKind {
    /// Linked into the crate.
    Normal,
    /// Needed by the build script.
    Build,
    /// Needed by tests, benches and examples only.
    Dev,
}

/// One entry of a dependency table.
#[derive(Debug)]
pub struct Dependency {
    /// The name as written, which is the package name unless renamed.
    pub name: String,
    /// The kind of its table.
    pub kind: DependencyKind,
    /// The line in the manifest.
    pub line: usize,
    /// Whether its version comes from the workspace.
    pub from_workspace: bool,
}

impl<'text> Manifest<'text> {
    /// Parses a manifest. The error is the finding to report.
    pub fn parse(path: &'text str, text: &'text str) -> Result<Self, Finding> {
        match DeTable::parse(text) {
            Ok(root) => Ok(Self {
                path,
                text,
                root: root.into_inner(),
            }),
            Err(error) => {
                let line = error.span().map_or(1, |span| line_at(text, span.start));
                let message = format!("does not parse: {}", error.message());
                Err(Finding::new(path, line, "syntax", message))
            }
        }
    }

    /// Returns the path from the root of the repository.
    #[must_use]
    pub fn path(&self) -> &'text str {
        self.path
    }

    /// Returns the string at a chain of keys, with its line.
    #[must_use]
    pub fn string(&self, keys: &[&str]) -> Option<(&str, usize)> {
        let value = self.value(keys)?;
        Some((value.get_ref().as_str()?, self.line(value)))
    }

    /// Returns whether the table at a chain of keys has `workspace = true`.
    #[must_use]
    pub fn is_inherited(&self, keys: &[&str]) -> bool {
        self.value(keys).is_some_and(inherits_workspace)
    }

    /// Returns the line of the value at a chain of keys, or 1 if there is none.
    #[must_use]
    pub fn line_of(&self, keys: &[&str]) -> usize {
        self.value(keys).map_or(1, |value| self.line(value))
    }

    /// Returns the level of one lint of the workspace's lint tables.
    #[must_use]
    pub fn workspace_lint(&self, tool: &str, lint: &str) -> Option<&str> {
        let keys = ["workspace", "lints", tool, lint];
        let level = self
            .string(&keys)
            .or_else(|| self.string(&[keys.as_slice(), &["level"]].concat()))?;
        Some(level.0)
    }

    /// Returns every dependency of every kind, platform-specific ones included.
    #[must_use]
    pub fn dependencies(&self) -> Vec<Dependency> {
        let mut found = Vec::new();
        self.collect_dependencies(&self.root, &mut found);
        let targets = entry(&self.root, "target").and_then(|targets| targets.get_ref().as_table());
        for (_, target) in targets.into_iter().flatten() {
            if let Some(table) = target.get_ref().as_table() {
                self.collect_dependencies(table, &mut found);
            }
        }
        found
    }

    fn collect_dependencies(&self, table: &DeTable<'text>, found: &mut Vec<Dependency>) {
        for (section, kind) in [
            ("dependencies", DependencyKind::Normal),
            ("build-dependencies", DependencyKind::Build),
            ("dev-dependencies", DependencyKind::Dev),
        ] {
            let entries = entry(table, section).and_then(|section| section.get_ref().as_table());
            for (name, value) in entries.into_iter().flatten() {
                found.push(Dependency {
                    name: name.get_ref().to_string(),
                    kind,
                    line: line_at(self.text, name.span().start),
                    from_workspace: inherits_workspace(value),
                });
            }
        }
    }

    fn value(&self, keys: &[&str]) -> Option<&Spanned<DeValue<'text>>> {
        let (first, rest) = keys.split_first()?;
        let mut value = entry(&self.root, first)?;
        for key in rest {
            value = entry(value.get_ref().as_table()?, key)?;
        }
        Some(value)
    }

    fn line(&self, value: &Spanned<DeValue<'text>>) -> usize {
        line_at(self.text, value.span().start)
    }
}

fn entry<'table, 'text>(
    table: &'table DeTable<'text>,
    key: &str,
) -> Option<&'table Spanned<DeValue<'text>>> {
    table
        .iter()
        .find_map(|(name, value)| (name.get_ref() == key).then_some(value))
}

fn inherits_workspace(value: &Spanned<DeValue<'_>>) -> bool {
    let table = value.get_ref().as_table();
    let workspace = table.and_then(|table| entry(table, "workspace"));
    workspace.and_then(|value| value.get_ref().as_bool()) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_found_in_every_table_with_their_lines() {
        let text = "\
[dependencies]
a.workspace = true
b = \"1\"
[target.'cfg(unix)'.dependencies]
c = { workspace = true, features = [\"x\"] }
[dev-dependencies]
d = { version = \"1\" }
[build-dependencies]
e.workspace = true
";
        let manifest = Manifest::parse("Cargo.toml", text).unwrap();
        let mut found: Vec<_> = manifest
            .dependencies()
            .into_iter()
            .map(|found| (found.line, found.name, found.kind, found.from_workspace))
            .collect();
        found.sort_by_key(|found| found.0);
        let expected = [
            (2, "a", DependencyKind::Normal, true),
            (3, "b", DependencyKind::Normal, false),
            (5, "c", DependencyKind::Normal, true),
            (7, "d", DependencyKind::Dev, false),
            (9, "e", DependencyKind::Build, true),
        ];
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(line, name, kind, inherited)| (line, name.to_owned(), kind, inherited))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn malformed_manifest_is_reported_at_the_line_of_the_error() {
        let finding = Manifest::parse("Cargo.toml", "[package]\nname = \n")
            .err()
            .unwrap();
        assert_eq!((finding.line, finding.rule), (2, "syntax"));
    }
}

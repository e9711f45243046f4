//! The rules of this repository, run over its own files.
//!
//! A failure lists `file:line: [rule] what to do`. The rules, and tests that they fail when
//! they should, are in `src/`.

// Clippy's exception for tests does not apply to the helpers of an integration test.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use portunus_tidy::manifest::Manifest;
use portunus_tidy::{
    Finding, RustFile, Workspace, architecture, layering, leaks, links, log_fields, markers,
    missing_docs, module_docs, module_order, panics, proofs, purity, register, requirements,
    threats,
};

fn workspace() -> Workspace {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let workspace = Workspace::load(&root).unwrap();
    // Every rule passes on an empty list, so require one known file.
    assert!(
        workspace.text("crates/tidy/src/lib.rs").is_some(),
        "the files of this repository were not found: is this crate tracked by git?"
    );
    workspace
}

fn rust_files(workspace: &Workspace) -> Vec<RustFile> {
    let (files, findings) = workspace.rust_files();
    assert_none(findings);
    files
}

fn manifests(workspace: &Workspace) -> (Manifest<'_>, Vec<Manifest<'_>>) {
    let root = workspace.text("Cargo.toml").unwrap();
    let root = Manifest::parse("Cargo.toml", root).unwrap_or_else(|finding| panic!("{finding}"));
    let crates = workspace
        .crate_manifests()
        .into_iter()
        .map(|file| {
            Manifest::parse(&file.path, &file.text).unwrap_or_else(|finding| panic!("{finding}"))
        })
        .collect();
    (root, crates)
}

fn all_tests(workspace: &Workspace) -> (Vec<proofs::Test>, Vec<Finding>) {
    let mut tests = Vec::new();
    let mut findings = Vec::new();
    for file in &rust_files(workspace) {
        let (found, problems) = proofs::find(file);
        tests.extend(found);
        findings.extend(problems);
    }
    (tests, findings)
}

#[track_caller]
fn assert_none(mut findings: Vec<Finding>) {
    findings.sort();
    let mut list = String::new();
    for finding in &findings {
        writeln!(list, "{finding}").unwrap();
    }
    assert!(findings.is_empty(), "{} findings\n{list}", findings.len());
}

#[test]
fn crates_depend_in_one_direction_and_share_one_set_of_versions() {
    let workspace = workspace();
    let (root, crates) = manifests(&workspace);
    let mut findings = layering::check_folders(&workspace.crate_folders());
    for manifest in &crates {
        findings.extend(layering::check_manifest(manifest, &root));
    }
    assert_none(findings);
}

#[test]
fn modules_of_the_server_use_one_another_in_one_direction() {
    let files = rust_files(&workspace());
    for module in module_order::ORDER {
        let path = format!("crates/server/src/{module}");
        assert!(
            files.iter().any(|file| file.path.starts_with(&path)),
            "ORDER in crates/tidy/src/module_order.rs names `{module}`, which does not exist"
        );
    }
    assert_none(files.iter().flat_map(module_order::check).collect());
}

#[test]
fn pure_code_stays_pure() {
    let workspace = workspace();
    let (_, crates) = manifests(&workspace);
    let mut findings = Vec::new();
    for manifest in &crates {
        findings.extend(purity::check_manifest(manifest, purity::PURE));
    }
    for file in &rust_files(&workspace) {
        if purity::is_pure(&file.path, purity::PURE) {
            findings.extend(purity::check_source(file));
        }
    }
    assert_none(findings);
}

#[test]
fn every_pure_place_exists() {
    let workspace = workspace();
    for place in purity::PURE {
        let covers = |path: &String| purity::is_pure(path, &[*place]);
        assert!(
            workspace.paths.iter().any(covers),
            "PURE in crates/tidy/src/purity.rs names `{place}`, which covers no file: correct or remove it"
        );
    }
}

#[test]
fn shipped_code_does_not_panic_without_a_reason() {
    let files = rust_files(&workspace());
    assert_none(files.iter().flat_map(panics::check).collect());
}

#[test]
fn notes_about_unfinished_work_name_an_issue() {
    let workspace = workspace();
    assert_none(workspace.files.iter().flat_map(markers::check).collect());
}

#[test]
fn fields_of_log_lines_hold_values() {
    let workspace = workspace();
    assert_none(workspace.files.iter().flat_map(log_fields::check).collect());
}

#[test]
fn no_crate_switches_the_documentation_lint_off() {
    let workspace = workspace();
    let (root, crates) = manifests(&workspace);
    let mut findings = missing_docs::check_root(&root);
    findings.extend(crates.iter().flat_map(missing_docs::check_manifest));
    findings.extend(
        rust_files(&workspace)
            .iter()
            .flat_map(missing_docs::check_source),
    );
    assert_none(findings);
}

#[test]
fn every_shipped_file_starts_with_a_module_comment() {
    let workspace = workspace();
    let mut findings = Vec::new();
    for file in &rust_files(&workspace) {
        let text = workspace.text(&file.path).unwrap();
        findings.extend(module_docs::check(&file.path, text, file.test_only));
    }
    assert_none(findings);
}

#[test]
fn register_of_requirements_is_complete() {
    let workspace = workspace();
    let text = workspace.text(register::PATH).unwrap();
    let (rows, mut findings) = register::read(&portunus_tidy::TextFile::new(register::PATH, text));
    findings.extend(register::check_complete(&rows, register::FAMILIES));
    assert_none(findings);
}

#[test]
fn register_of_requirements_agrees_with_the_tests() {
    let workspace = workspace();
    let text = workspace.text(register::PATH).unwrap();
    let (rows, _) = register::read(&portunus_tidy::TextFile::new(register::PATH, text));
    let (tests, mut findings) = all_tests(&workspace);
    findings.extend(requirements::check(&rows, &tests));
    assert_none(findings);
}

#[test]
fn invariants_name_tests_that_exist() {
    let workspace = workspace();
    let (tests, _) = all_tests(&workspace);
    let names: BTreeSet<_> = tests.into_iter().map(|test| test.name).collect();
    let documents = workspace
        .files
        .iter()
        .filter(|file| file.path == architecture::PATH);
    assert_none(
        documents
            .flat_map(|file| architecture::check(file, &names))
            .collect(),
    );
}

#[test]
fn threat_model_names_tests_that_exist() {
    let workspace = workspace();
    let (tests, _) = all_tests(&workspace);
    let names: BTreeSet<_> = tests.into_iter().map(|test| test.name).collect();
    let document = workspace
        .files
        .iter()
        .find(|file| file.path == threats::PATH);
    assert_none(threats::check(document.unwrap(), &names));
}

#[test]
fn no_file_names_a_developers_machine_or_a_registry_host() {
    let workspace = workspace();
    assert_none(workspace.files.iter().flat_map(leaks::check).collect());
}

#[test]
fn links_between_files_resolve() {
    let workspace = workspace();
    let check = |file| links::check(file, &workspace.paths);
    assert_none(workspace.files.iter().flat_map(check).collect());
}

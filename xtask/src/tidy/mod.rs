//! What a compiler does not check: docs at the top of files, sizes, leftovers, manifests, claims and case lists.

mod manifests;
mod rules;
mod suites;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::claims::{self, Claims, NumberedTest, case_of};
use crate::source::{Outline, Source};
use crate::workspace::Workspace;

/// Where Rust sources are looked for.
const ROOTS: &[&str] = &["crates", "hosts", "xtask", "examples"];

/// Where scripts are looked for, by these endings; files without an ending count as scripts in `.ci`.
const SCRIPT_ROOTS: &[&str] = &[".ci", "tools", "examples"];
const SCRIPT_ENDINGS: &[&str] = &["sh", "py", "js", "mjs", "ts"];

/// Folders that hold what others made or what a test reads.
const NOT_OURS: &[&str] = &["target", "node_modules", "fixtures", "testdata", "__pycache__"];

/// What is wrong, in the order in which it was found.
#[derive(Debug, Default)]
struct Findings {
    errors: Vec<String>,
    warnings: Vec<String>,
}

/// One Rust file, read and taken apart once for every rule.
#[derive(Debug)]
struct File {
    /// Relative to the root.
    path: PathBuf,
    text: String,
    source: Source,
    outline: Outline,
}

impl File {
    fn new(path: PathBuf, text: String) -> Self {
        let source = Source::new(&text);
        let outline = source.outline();
        Self { path, text, source, outline }
    }

    fn lies_in(&self, folder: &str) -> bool {
        self.path.starts_with(folder)
    }
}

/// Runs every rule and prints what it found.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let mut findings = Findings::default();
    let files = rust_files(&workspace.root)?;
    for file in &files {
        rules::check(file, &mut findings);
    }
    rules::check_exceptions(&files, &mut findings);
    for (path, text) in script_files(&workspace.root)? {
        rules::check_script(&path, &text, &mut findings);
    }
    rules::check_crate_docs(workspace, &files, &mut findings);
    manifests::check(workspace, &mut findings)?;
    manifests::check_changelog(&workspace.root, &mut findings)?;
    findings.errors.extend(suites::check(&files));

    let claims = Claims::load(&workspace.root.join(claims::FILE))?;
    findings.errors.extend(claims::check_source(&claims, &numbered_tests(&files)));

    for warning in &findings.warnings {
        println!("warning: {warning}");
    }
    for error in &findings.errors {
        println!("error: {error}");
    }
    if !findings.errors.is_empty() {
        bail!("tidy: {} to put right", findings.errors.len());
    }
    println!(
        "tidy: {} Rust files and {} claimed cases are in order",
        files.len(),
        claims.cases.len()
    );
    Ok(())
}

/// Tests named after a case, and the cases that the conformance crate offers to others.
fn numbered_tests(files: &[File]) -> Vec<NumberedTest> {
    let mut tests = Vec::new();
    for file in files.iter().filter(|file| !file.lies_in("xtask")) {
        let offers = file.lies_in(suites::FOLDER);
        for function in &file.outline.functions {
            if case_of(&function.name).is_some() && (offers || function.is_test()) {
                let (name, line) = (function.name.clone(), function.line);
                tests.push(NumberedTest { name, file: file.path.clone(), line });
            }
        }
    }
    tests
}

fn rust_files(root: &Path) -> Result<Vec<File>> {
    let mut files = Vec::new();
    for start in ROOTS {
        walk(&root.join(start), &mut |path| {
            if path.extension().is_some_and(|ending| ending == "rs") {
                files.push(File::new(relative(root, path), read(path)?));
            }
            Ok(())
        })?;
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn script_files(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut files = Vec::new();
    for start in SCRIPT_ROOTS {
        walk(&root.join(start), &mut |path| {
            let script = match path.extension().and_then(|ending| ending.to_str()) {
                Some(ending) => SCRIPT_ENDINGS.contains(&ending),
                None => *start == ".ci",
            };
            if script {
                files.push((relative(root, path), read(path)?));
            }
            Ok(())
        })?;
    }
    Ok(files)
}

fn relative(root: &Path, path: &Path) -> PathBuf {
    path.strip_prefix(root).unwrap_or(path).to_path_buf()
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Calls `visit` for every file below `folder`, which may be absent. Links are not followed.
fn walk(folder: &Path, visit: &mut dyn FnMut(&Path) -> Result<()>) -> Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    let mut entries = std::fs::read_dir(folder)
        .and_then(|entries| entries.collect::<std::io::Result<Vec<_>>>())
        .with_context(|| format!("cannot list {}", folder.display()))?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let kind = entry.file_type()?;
        let name = entry.file_name();
        let ours = !NOT_OURS.iter().any(|other| name == *other)
            && !name.to_string_lossy().starts_with('.');
        if kind.is_dir() && ours {
            walk(&entry.path(), visit)?;
        } else if kind.is_file() {
            visit(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbered_tests_are_tests_or_cases_of_the_suites() {
        let file = |path: &str, text: &str| File::new(PathBuf::from(path), text.to_owned());
        let files = [
            file(
                "crates/controller/tests/it/main.rs",
                "#[tokio::test]\nasync fn a01_x() {}\nfn b02_helper() {}",
            ),
            file("crates/conformance/src/controller/cases.rs", "pub async fn c01_y() {}"),
            file("xtask/src/claims.rs", "#[test] fn d01_z() {}"),
        ];
        let names: Vec<String> = numbered_tests(&files).into_iter().map(|test| test.name).collect();
        assert_eq!(["a01_x", "c01_y"], *names);
    }
}

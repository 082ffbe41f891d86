//! The rules that look at one file.

use std::path::Path;

use super::{File, Findings};
use crate::source::{attribute_path, words};
use crate::workspace::Workspace;

/// A file above this many lines is worth a look for its second subject.
const LINES_WARN: usize = 400;
/// A file above this many lines is refused.
const LINES_MAX: usize = 800;
/// Files that may be longer, each with its reason.
const LINES_EXCEPTIONS: &[(&str, &str)] = &[];

/// Macros that mark unfinished work.
const LEFTOVERS: &[&str] = &["todo", "unimplemented", "dbg"];

/// Runs every rule over a Rust file.
pub(super) fn check(file: &File, findings: &mut Findings) {
    let at = |line: usize| format!("{}:{line}", file.path.display());
    if !begins_with_docs(&file.text) {
        findings
            .errors
            .push(format!("{}: a file begins with a `//!` line that says what it is", at(1)));
    }
    size(file, LINES_EXCEPTIONS, findings);
    for (name, line) in leftovers(&file.source.code) {
        findings.errors.push(format!("{}: `{name}!` is unfinished work", at(line)));
    }
    for (attribute, line) in &file.outline.attributes {
        if let Some(reason) = refused_attribute(attribute) {
            findings.errors.push(format!("{}: {reason}", at(*line)));
        }
    }
    for line in loose_ends(&file.source.comments) {
        findings.errors.push(format!("{}: {LOOSE_END}", at(line)));
    }
    for line in ignored_examples(&file.source.comments) {
        findings
            .errors
            .push(format!("{}: an example compiles; use `no_run` rather than `ignore`", at(line)));
    }
}

/// Only the rule that makes sense in any language.
pub(super) fn check_script(path: &Path, text: &str, findings: &mut Findings) {
    for line in loose_ends(text) {
        findings.errors.push(format!("{}:{line}: {LOOSE_END}", path.display()));
    }
}

/// An exception that is no longer needed goes.
pub(super) fn check_exceptions(files: &[File], findings: &mut Findings) {
    for (path, _) in LINES_EXCEPTIONS {
        let needed = files
            .iter()
            .any(|file| file.path == Path::new(path) && file.text.lines().count() > LINES_MAX);
        if !needed {
            findings.errors.push(format!("xtask: {path} needs no exception from the size limit"));
        }
    }
}

/// Every library and binary says what it is. That is the first line of its root file, which `check` looks at;
/// this is for roots that lie where `check` does not look.
pub(super) fn check_crate_docs(workspace: &Workspace, files: &[File], findings: &mut Findings) {
    for package in &workspace.packages {
        for target in package.targets.iter().filter(|target| target.is("lib") || target.is("bin")) {
            let root = workspace.relative(&target.src_path);
            if !files.iter().any(|file| file.path == root) {
                let (name, root) = (&target.name, root.display());
                findings.errors.push(format!(
                    "{}: the root of {name}, {root}, is not where sources lie",
                    package.name
                ));
            }
        }
    }
}

fn begins_with_docs(text: &str) -> bool {
    let first = text.lines().next().unwrap_or_default();
    let sentence = first.strip_prefix("//!").is_some_and(|rest| !rest.trim().is_empty());
    sentence || first.starts_with("#![doc = include_str!(")
}

fn size(file: &File, exceptions: &[(&str, &str)], findings: &mut Findings) {
    let lines = file.text.lines().count();
    let path = file.path.display();
    if lines > LINES_MAX && !exceptions.iter().any(|(path, _)| file.path == Path::new(path)) {
        findings.errors.push(format!(
            "{path}: {lines} lines, above {LINES_MAX}: split off its second subject"
        ));
    } else if lines > LINES_WARN {
        findings.warnings.push(format!("{path}: {lines} lines, above {LINES_WARN}"));
    }
}

/// Calls of the macros that mark unfinished work, with their lines.
fn leftovers(code: &str) -> Vec<(&str, usize)> {
    let mut found = Vec::new();
    for (index, line) in code.lines().enumerate() {
        for (at, _) in line.match_indices('!') {
            // `a != b` is no call, and a longer word that ends like one of ours is another macro.
            let word = words(&line[..at]).last().map(|(word, _)| word);
            let calls = line[at + 1..].trim_start().starts_with(['(', '[', '{']);
            if let Some(word) =
                word.filter(|word| calls && LEFTOVERS.contains(word) && line[..at].ends_with(word))
            {
                found.push((word, index + 1));
            }
        }
    }
    found
}

fn refused_attribute(attribute: &str) -> Option<&'static str> {
    let names = |name: &str| match attribute_path(attribute) {
        "cfg_attr" => words(attribute).any(|(word, _)| word == name),
        path => path == name,
    };
    if names("ignore") {
        Some("an ignored test does not run; say by which condition it is skipped, in the test")
    } else if names("should_panic") {
        Some("`should_panic` does not say which line panics; assert the error")
    } else {
        None
    }
}

const LOOSE_END: &str = "a TODO names its issue, as in `TODO(#12): ..`";

/// Lines with a note of work to do that names no issue. The markers are put together here so that this file is
/// not one of its own findings.
fn loose_ends(text: &str) -> Vec<usize> {
    let markers = ["TO\u{44}O", "FIX\u{4d}E"];
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let marked = words(line).any(|(word, _)| markers.contains(&word));
        if marked && !names_an_issue(line) {
            found.push(index + 1);
        }
    }
    found
}

fn names_an_issue(line: &str) -> bool {
    line.match_indices('#').any(|(at, _)| line[at + 1..].starts_with(|c: char| c.is_ascii_digit()))
}

/// Lines that open an example which rustdoc would skip.
fn ignored_examples(comments: &str) -> Vec<usize> {
    let mut found = Vec::new();
    for (index, line) in comments.lines().enumerate() {
        let line = line.trim_start();
        let Some(text) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
            continue;
        };
        if let Some(info) = text.trim_start().strip_prefix("```")
            && info.split([',', ' ']).any(|word| word == "ignore" || word.starts_with("ignore-"))
        {
            found.push(index + 1);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn findings(text: &str) -> Findings {
        let mut findings = Findings::default();
        check(&File::new(PathBuf::from("crates/a/src/m.rs"), text.to_owned()), &mut findings);
        findings
    }

    #[track_caller]
    fn refused(text: &str, expected: &[&str]) {
        let errors = findings(&format!("//! Docs.\n{text}")).errors;
        assert_eq!(expected.len(), errors.len(), "{errors:?}");
        for (expected, error) in expected.iter().zip(&errors) {
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_file_begins_with_docs() {
        assert!(begins_with_docs("//! What it is.\nuse a;"));
        assert!(begins_with_docs("#![doc = include_str!(\"../README.md\")]"));
        for text in ["", "//!\nuse a;", "\n//! Late.", "// Not docs.", "/// Not inner.", "use a;"] {
            assert!(!begins_with_docs(text), "{text:?}");
        }
    }

    #[test]
    fn sizes_warn_and_refuse() {
        let of = |lines: usize| findings(&"//! x\n".repeat(lines));
        assert!(of(LINES_WARN).warnings.is_empty());
        assert_eq!(1, of(LINES_WARN + 1).warnings.len());
        assert!(of(LINES_MAX).errors.is_empty());
        assert_eq!(1, of(LINES_MAX + 1).errors.len());
        let long = File::new(PathBuf::from("a.rs"), "//! x\n".repeat(LINES_MAX + 1));
        let mut findings = Findings::default();
        size(&long, &[("a.rs", "generated")], &mut findings);
        assert!(findings.errors.is_empty());
        assert_eq!(1, findings.warnings.len());
    }

    #[test]
    fn unfinished_work_is_refused_in_code_only() {
        refused("fn f() { todo!() }", &["m.rs:2: `todo!`"]);
        refused(
            "let x =\n dbg! (y); std::unimplemented!{}",
            &["m.rs:3: `dbg!`", "m.rs:3: `unimplemented!`"],
        );
        refused("fn f() { my_todo!(); let dbg = todo != dbg; s(\"todo!()\") } // dbg!(x)", &[]);
    }

    #[test]
    fn tests_that_do_not_run_are_refused() {
        refused("#[test]\n#[ignore]\nfn f() {}", &["m.rs:3: an ignored test"]);
        refused("#[ignore = \"slow\"]\nfn f() {}", &["m.rs:2: an ignored test"]);
        refused("#[cfg_attr(miri, ignore)]\nfn f() {}", &["an ignored test"]);
        refused("#[should_panic(expected = \"x\")]\nfn f() {}", &["should_panic"]);
        refused("#[serde(ignore)]\nstruct S; // #[ignore]", &[]);
    }

    #[test]
    fn loose_ends_name_an_issue() {
        let [first, second] = ["TO\u{44}O", "FIX\u{4d}E"];
        refused(&format!("// {first}: later"), &["m.rs:2: a TODO names"]);
        refused(&format!("/* {second} */"), &["m.rs:2: a TODO names"]);
        refused(&format!("// {first}(#12): later\nlet {first} = 1; // AUTO{first}S"), &[]);
        let mut findings = Findings::default();
        check_script(Path::new("tools/x.py"), &format!("a\n# {first} it"), &mut findings);
        assert!(findings.errors[0].starts_with("tools/x.py:2:"), "{:?}", findings.errors);
    }

    #[test]
    fn examples_compile() {
        refused("/// ```ignore\n/// x\n/// ```\nfn f() {}", &["m.rs:2: an example compiles"]);
        refused("//! ```rust,ignore", &["m.rs:2: an example compiles"]);
        refused("/// ```no_run\n/// ```text\nfn f() {}", &[]);
    }
}

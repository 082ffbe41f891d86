//! Every case of a conformance suite is in the list from which adapters get their tests.
//!
//! A suite is a folder of `crates/conformance/src` with its cases in `cases*.rs` or `cases/`, and its list in a
//! macro in `mod.rs`. A case that is missing there would compile and run nowhere.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::File;
use crate::source::{Function, macro_bodies, words};

/// Where the suites are.
pub(super) const FOLDER: &str = "crates/conformance/src";

/// The cases that no list names.
pub(super) fn check(files: &[File]) -> Vec<String> {
    let mut cases: BTreeMap<PathBuf, Vec<(&File, &Function)>> = BTreeMap::new();
    for file in files {
        if let Some(suite) = suite_of(&file.path) {
            let public = file
                .outline
                .functions
                .iter()
                .filter(|function| function.public && function.is_async);
            cases.entry(suite).or_default().extend(public.map(|function| (file, function)));
        }
    }
    let mut problems = Vec::new();
    for (suite, cases) in cases {
        let list = suite.join("mod.rs");
        let Some(list_file) = files.iter().find(|file| file.path == list) else {
            problems.push(format!(
                "{}: the list of its cases must be a macro in {}",
                suite.display(),
                list.display()
            ));
            continue;
        };
        let listed = listed(list_file);
        for (file, case) in cases {
            if !listed.contains(case.name.as_str()) {
                let place = format!("{}:{}", file.path.display(), case.line);
                problems.push(format!(
                    "{place}: the case {} is missing from the list in {}",
                    case.name,
                    list.display()
                ));
            }
        }
    }
    problems
}

/// The suite whose cases a file holds.
fn suite_of(path: &Path) -> Option<PathBuf> {
    let inside = path.strip_prefix(FOLDER).ok()?;
    let parts: Vec<&str> = inside.iter().map(|part| part.to_str().unwrap_or_default()).collect();
    let [suite, second, rest @ ..] = parts.as_slice() else {
        return None;
    };
    let cases = match rest {
        [] => second.starts_with("cases") && second.ends_with(".rs"),
        _ => *second == "cases",
    };
    cases.then(|| Path::new(FOLDER).join(suite))
}

/// Every word inside a macro of the file.
fn listed(file: &File) -> BTreeSet<&str> {
    macro_bodies(&file.source.code).into_iter().flat_map(words).map(|(word, _)| word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File::new(PathBuf::from(path), text.to_owned())
    }

    #[test]
    fn files_belong_to_suites() {
        let suite = |path: &str| {
            suite_of(Path::new(path)).map(|suite| suite.to_string_lossy().into_owned())
        };
        let log_store = Some("crates/conformance/src/log_store".to_owned());
        assert_eq!(log_store, suite("crates/conformance/src/log_store/cases.rs"));
        assert_eq!(log_store, suite("crates/conformance/src/log_store/cases_fork.rs"));
        assert_eq!(log_store, suite("crates/conformance/src/log_store/cases/append.rs"));
        assert_eq!(None, suite("crates/conformance/src/log_store/mod.rs"));
        assert_eq!(None, suite("crates/conformance/src/cases.rs"));
        assert_eq!(None, suite("crates/eventlog/src/log_store/cases.rs"));
    }

    #[test]
    fn a_case_outside_the_list_is_told() {
        let cases = "pub async fn listed<S>(s: S) {}\npub async fn forgotten<S>(s: S) {}\n\
                     pub async fn imported<S>(s: S) {}\nasync fn helper() {}\npub fn plain() {}";
        let list = "use cases::imported; // forgotten\n\
                    macro_rules! log_store_conformance { ($open:expr) => { $crate::__cases! { $open => listed, } } }";
        let files = [
            file("crates/conformance/src/log_store/cases.rs", cases),
            file("crates/conformance/src/log_store/mod.rs", list),
        ];
        let problems = check(&files);
        assert_eq!(2, problems.len(), "{problems:?}");
        assert!(
            problems[0].contains("cases.rs:2: the case forgotten is missing"),
            "{}",
            problems[0]
        );
        assert!(
            problems[1].contains("cases.rs:3: the case imported is missing"),
            "{}",
            problems[1]
        );
    }

    #[test]
    fn a_suite_without_a_list_is_told() {
        let problems = check(&[file(
            "crates/conformance/src/runtime/cases.rs",
            "pub async fn starts_empty() {}",
        )]);
        assert_eq!(1, problems.len(), "{problems:?}");
        assert!(problems[0].contains("must be a macro in"), "{}", problems[0]);
    }
}

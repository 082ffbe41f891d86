//! Members inherit what the workspace decides, and changes are told in files of one form.

use std::path::Path;

use anyhow::{Context, Result};
use toml::{Table, Value};

use super::{Findings, read};
use crate::workspace::Workspace;

/// What a member takes from the root manifest.
const INHERITED: &[&str] = &["version", "edition", "rust-version", "license"];

/// The kinds of change that a reader of the changelog looks for.
const CHANGES: &[&str] = &["added", "changed", "fixed", "breaking", "security"];

/// Looks at the manifest of every member.
pub(super) fn check(workspace: &Workspace, findings: &mut Findings) -> Result<()> {
    for package in &workspace.packages {
        let path = workspace.relative(&package.manifest_path).display();
        let manifest: Table =
            read(&package.manifest_path)?.parse().with_context(|| format!("{path} is not TOML"))?;
        findings
            .errors
            .extend(problems(&manifest).into_iter().map(|problem| format!("{path}: {problem}")));
    }
    Ok(())
}

fn problems(manifest: &Table) -> Vec<String> {
    let from_workspace = |value: Option<&Value>| {
        value.and_then(|value| value.get("workspace")).and_then(Value::as_bool).unwrap_or(false)
    };
    let mut problems = Vec::new();
    let package = manifest.get("package");
    for key in INHERITED {
        if !from_workspace(package.and_then(|package| package.get(key))) {
            problems.push(format!("`{key}.workspace = true` is missing from [package]"));
        }
    }
    let described = package.and_then(|package| package.get("description")).and_then(Value::as_str);
    if described.is_none_or(str::is_empty) {
        problems.push("a description is missing from [package]".to_owned());
    }
    if !from_workspace(manifest.get("lints")) {
        problems.push("`[lints] workspace = true` is missing".to_owned());
    }
    problems
}

/// Looks at the names in `changelog.d`, which may be absent.
pub(super) fn check_changelog(root: &Path, findings: &mut Findings) -> Result<()> {
    super::walk(&root.join("changelog.d"), &mut |path| {
        let name =
            path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name != "README.md" && !is_change(&name) {
            let kinds = CHANGES.join("|");
            findings
                .errors
                .push(format!("changelog.d/{name}: the name must be <slug>.<{kinds}>.md"));
        } else if read(path)?.trim().is_empty() {
            findings.errors.push(format!("changelog.d/{name}: it says nothing"));
        }
        Ok(())
    })
}

fn is_change(name: &str) -> bool {
    let slug = name.strip_suffix(".md").and_then(|rest| rest.rsplit_once('.'));
    slug.is_some_and(|(slug, kind)| {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !slug.is_empty() && slug.chars().all(plain) && CHANGES.contains(&kind)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn manifest(text: &str, expected: &[&str]) {
        assert_eq!(expected, problems(&text.parse().unwrap()));
    }

    #[test]
    fn members_inherit() {
        let package = "[package]\ndescription = \"d\"\nversion.workspace = true\nedition.workspace = true\n\
                       rust-version.workspace = true\nlicense.workspace = true\n";
        manifest(&format!("{package}[lints]\nworkspace = true"), &[]);
        manifest(package, &["`[lints] workspace = true` is missing"]);
        let own = package.replace("version.workspace = true\nedition", "version = \"1\"\nedition");
        manifest(
            &format!("{own}[lints]\nworkspace = false"),
            &[
                "`version.workspace = true` is missing from [package]",
                "`[lints] workspace = true` is missing",
            ],
        );
        let silent = package.replace("description = \"d\"\n", "");
        manifest(
            &format!("{silent}[lints]\nworkspace = true"),
            &["a description is missing from [package]"],
        );
    }

    #[test]
    fn changes_have_names_of_one_form() {
        for name in ["first-turn.added.md", "x2.breaking.md"] {
            assert!(is_change(name), "{name}");
        }
        for name in
            ["added.md", ".added.md", "a b.added.md", "a.new.md", "a.added.txt", "A.added.md"]
        {
            assert!(!is_change(name), "{name}");
        }
    }
}

//! What `cargo metadata` says about the workspace.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// The workspace as cargo sees it, without the packages outside it.
#[derive(Debug, Deserialize)]
pub(crate) struct Workspace {
    /// The members, sorted by name.
    pub(crate) packages: Vec<Package>,
    /// The folder of the root manifest.
    #[serde(rename = "workspace_root")]
    pub(crate) root: PathBuf,
    /// Where cargo builds.
    #[serde(rename = "target_directory")]
    pub(crate) target: PathBuf,
}

/// One member.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) manifest_path: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
    pub(crate) features: BTreeMap<String, Vec<String>>,
}

/// One line of a dependency table.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// Absent for `[dependencies]`.
    #[serde(default)]
    pub(crate) kind: Option<String>,
    /// Present for a dependency inside the workspace.
    #[serde(default)]
    pub(crate) path: Option<PathBuf>,
}

/// One thing that a package builds.
#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
    pub(crate) src_path: PathBuf,
    /// Features of the package without which it is not built.
    #[serde(default, rename = "required-features")]
    pub(crate) required_features: Vec<String>,
}

impl Workspace {
    /// Asks cargo about the workspace around the current folder.
    pub(crate) fn load() -> Result<Self> {
        let mut command = Command::new(cargo());
        command.args(["metadata", "--no-deps", "--format-version", "1"]);
        Self::parse(&capture(&mut command)?)
    }

    fn parse(json: &str) -> Result<Self> {
        let mut workspace: Self =
            serde_json::from_str(json).context("cargo metadata has an unknown form")?;
        workspace.packages.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(workspace)
    }

    /// `path` as a person writes it: relative to the root.
    pub(crate) fn relative<'a>(&self, path: &'a Path) -> &'a Path {
        path.strip_prefix(&self.root).unwrap_or(path)
    }
}

impl Package {
    /// The package's folder.
    pub(crate) fn folder(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(&self.manifest_path)
    }

    /// The package's place in the workspace, such as `crates/api`.
    pub(crate) fn place<'a>(&'a self, workspace: &Workspace) -> &'a Path {
        workspace.relative(self.folder())
    }
}

impl Target {
    pub(crate) fn is(&self, kind: &str) -> bool {
        self.kind.iter().any(|k| k == kind)
    }
}

/// The cargo that runs this program, so that a chosen toolchain stays chosen.
pub(crate) fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Runs `command` and returns what it printed; its standard error stays visible.
pub(crate) fn capture(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let output = command
        .stdin(std::process::Stdio::null())
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start `{shown}`"))?;
    if !output.status.success() {
        bail!("`{shown}` ended with {}", output.status);
    }
    String::from_utf8(output.stdout)
        .with_context(|| format!("`{shown}` printed bytes that are not UTF-8"))
}

/// A command line for people: `cargo` stands for the path of the cargo in use.
pub(crate) fn show(command: &Command) -> String {
    let program = if command.get_program() == cargo() {
        "cargo".into()
    } else {
        command.get_program().to_string_lossy()
    };
    let mut shown = program.into_owned();
    for argument in command.get_args() {
        shown.push(' ');
        shown.push_str(&argument.to_string_lossy());
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_read_and_sorted() {
        let json = r#"{
            "packages": [
                {"name": "b", "manifest_path": "/w/crates/b/Cargo.toml", "features": {"x": []}, "targets": [],
                 "dependencies": [{"name": "a", "kind": "dev", "path": "/w/crates/a"}, {"name": "serde", "kind": null}]},
                {"name": "a", "manifest_path": "/w/crates/a/Cargo.toml", "features": {}, "dependencies": [],
                 "targets": [{"name": "a", "kind": ["lib"], "src_path": "/w/crates/a/src/lib.rs"}]}
            ],
            "workspace_root": "/w", "target_directory": "/t"
        }"#;
        let workspace = Workspace::parse(json).unwrap();
        assert_eq!(["a", "b"], [&*workspace.packages[0].name, &*workspace.packages[1].name]);
        assert_eq!(Path::new("crates/a"), workspace.packages[0].place(&workspace));
        assert!(workspace.packages[0].targets[0].is("lib"));
        let dependencies = &workspace.packages[1].dependencies;
        assert_eq!(Some("dev"), dependencies[0].kind.as_deref());
        assert_eq!(None, dependencies[1].kind);
        assert_eq!(None, dependencies[1].path);
    }

    #[test]
    fn the_cargo_in_use_is_shown_by_its_name() {
        let mut command = Command::new(cargo());
        command.args(["test", "--doc"]);
        assert_eq!("cargo test --doc", show(&command));
    }
}

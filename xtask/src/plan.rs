//! What continuous integration does, as data: the steps, made from what the workspace and the machine have.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::workspace::{Package, Workspace, cargo};
use crate::{claims, layers, tidy};

/// The longest that one cargo command may take. Cold, on two cores, the slowest takes a third of it.
const CARGO_MAX: Duration = Duration::from_secs(30 * 60);
/// The longest that one script may take.
const SCRIPT_MAX: Duration = Duration::from_secs(10 * 60);

/// One thing that passes or fails.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) tasks: Vec<Task>,
    /// What undoes the tasks. All of it is run, however they ended.
    pub(crate) undo: Vec<Task>,
}

/// A part of a step.
pub(crate) enum Task {
    /// A command that must end with 0 within the limit.
    Command(Command, Duration),
    /// A check of this program.
    Check(fn(&Workspace) -> Result<()>),
    /// Something that the machine lacks: the step fails with this text.
    Missing(String),
    /// Something that the workspace does not have: the step is skipped with this text.
    Absent(String),
}

/// What the machine and the workspace have.
struct Facts<'a> {
    workspace: &'a Workspace,
    nextest: bool,
    deny: bool,
    /// Scripts that exist, relative to the root.
    scripts: Vec<PathBuf>,
    brokers: Brokers,
}

/// What the tests of the Kafka store can run on.
enum Brokers {
    /// No broker can be started here, for this reason.
    None(String),
    /// The clusters that they know, and whether each one is there already.
    Clusters(Vec<(&'static Cluster, bool)>),
}

/// A cluster that tests look for.
struct Cluster {
    name: &'static str,
    options: &'static str,
    /// Programs without which there is no such cluster.
    needs: &'static [&'static str],
}

const CLUSTERS: &[Cluster] = &[
    Cluster { name: "one", options: "", needs: &["java", "mvn"] },
    Cluster { name: "three", options: " --brokers 3", needs: &["java", "mvn"] },
    Cluster { name: "secure", options: " --tls", needs: &["java", "mvn", "openssl"] },
];

/// Every check.
pub(crate) fn ci(workspace: &Workspace) -> Result<Vec<Step>> {
    Ok(Facts::find(workspace)?.ci())
}

/// The tests alone.
pub(crate) fn test(workspace: &Workspace) -> Result<Vec<Step>> {
    Ok(Facts::find(workspace)?.test())
}

/// What is tested beside each package's default features.
pub(crate) const FEATURES: &str = "mainspring-host/kafka";

/// The scripts that run against the release binary, in order; `*` at both ends of a name means "contains".
const SCRIPTS: &[(&str, &str)] = &[
    ("journal verifier in Python", "tools/test_verify_chain.py"),
    ("Python client and harness", "examples/python/run.sh"),
    ("chat against a mock model", "examples/aimock/check.sh"),
    ("smoke tests", "tools/*smoke*"),
];

impl<'a> Facts<'a> {
    fn find(workspace: &'a Workspace) -> Result<Self> {
        let mut scripts = Vec::new();
        for (_, pattern) in SCRIPTS {
            let folder = Path::new(pattern).parent().unwrap_or(Path::new(""));
            let mut found = files_of(&workspace.root.join(folder))?;
            found.retain(|name| matches(pattern, &folder.join(name)));
            scripts.extend(found.iter().map(|name| folder.join(name)));
        }
        Ok(Self {
            workspace,
            nextest: has_subcommand("nextest"),
            deny: has_subcommand("deny"),
            scripts,
            brokers: Brokers::find(&workspace.target),
        })
    }

    fn ci(&self) -> Vec<Step> {
        let mut steps = vec![
            step("format", [self.cargo("fmt --all --check")]),
            step("clippy", [self.tested("clippy", "--all-targets -- -D warnings")]),
            step("layers", [Task::Check(layers::run)]),
            step("tidy", [Task::Check(tidy::run)]),
            step("dependencies", [self.deny()]),
            step("features", self.features()),
            step("crates alone", self.alone()),
            step("docs", [self.docs()]),
        ];
        steps.extend(self.test());
        steps.push(step("release binary", [self.cargo("build --release --bin mainspring")]));
        steps.extend(SCRIPTS.iter().map(|(name, pattern)| step(name, self.scripts(pattern))));
        steps
    }

    fn test(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut tests = step("tests", []);
        match &self.brokers {
            Brokers::None(why) => steps.push(step("brokers", [Task::Absent(why.clone())])),
            Brokers::Clusters(clusters) => {
                for (Cluster { name, options, .. }, is_there) in clusters {
                    tests.tasks.push(self.cargo(&format!("xtask kafka up --name {name}{options}")));
                    // One that somebody else started stays.
                    if !is_there {
                        let down = format!("xtask kafka down --purge --name {name}");
                        tests.undo.push(self.cargo(&down));
                    }
                }
            }
        }
        tests.tasks.push(if self.nextest {
            self.tested("nextest run", "--config-file xtask/nextest.toml")
        } else {
            self.tested("test", &format!("--lib --bins --tests --no-fail-fast {RUNNER}"))
        });
        steps.extend([
            tests,
            step("claims", [Task::Check(claims::run)]),
            step("doctests", [self.tested("test", "--doc")]),
        ]);
        steps
    }

    /// A cargo command on all packages, with the features that are tested.
    fn tested(&self, command: &str, arguments: &str) -> Task {
        self.cargo(&format!("{command} --workspace --features {FEATURES} {arguments}"))
    }

    /// A cargo command; `arguments` are parted by blanks.
    fn cargo(&self, arguments: &str) -> Task {
        let mut command = Command::new(cargo());
        command.current_dir(&self.workspace.root).args(arguments.split_whitespace());
        Task::Command(command, CARGO_MAX)
    }

    fn deny(&self) -> Task {
        if self.deny {
            // Without the advisories: they are a repository of their own, and this needs no network but registries.
            return self.cargo("deny check --hide-inclusion-graph bans licenses sources");
        }
        Task::Missing("cargo-deny is not installed: `cargo install --locked cargo-deny`, or run `bash .ci/run`".into())
    }

    /// The crates with features: without any, and with each one alone.
    fn features(&self) -> Vec<Task> {
        let mut tasks = Vec::new();
        for package in
            self.workspace.packages.iter().filter(|package| self.offers_features(package))
        {
            let bare = format!("check --package {} --no-default-features", package.name);
            tasks.push(self.cargo(&bare));
            let features = package
                .features
                .keys()
                .filter(|name| *name != "default" && !self.by_a_host(package, name));
            tasks.extend(features.map(|feature| {
                // A bench is built with its features alone, and by nothing else here.
                let benches = if needed_by_a_bench(package, feature) { " --benches" } else { "" };
                self.cargo(&format!("{bare} --features {feature}{benches}"))
            }));
        }
        tasks
    }

    /// The facade and the hosts are made of features, and must also work before they have any.
    fn offers_features(&self, package: &Package) -> bool {
        self.is_facade(package) || self.is_host(package) || !package.features.is_empty()
    }

    /// Whether a host's check covers it: a host's feature switches on the
    /// facade's of the same name, and that alone.
    fn by_a_host(&self, package: &Package, feature: &str) -> bool {
        let mut hosts = self.workspace.packages.iter().filter(|other| self.is_host(other));
        self.is_facade(package) && hosts.any(|host| host.features.contains_key(feature))
    }

    fn is_facade(&self, package: &Package) -> bool {
        package.place(self.workspace) == Path::new("crates/facade")
    }

    fn is_host(&self, package: &Package) -> bool {
        package.place(self.workspace).starts_with("hosts")
    }

    /// Each other crate by itself, so that none lives on features that its neighbours switch on.
    fn alone(&self) -> Vec<Task> {
        let others =
            self.workspace.packages.iter().filter(|package| !self.offers_features(package));
        others.map(|package| self.cargo(&format!("check --package {}", package.name))).collect()
    }

    /// Docs of libraries only: the binary and the facade share the name `mainspring`, and so a folder.
    fn docs(&self) -> Task {
        let mut task = self.cargo("doc --workspace --no-deps --lib");
        if let Task::Command(command, _) = &mut task {
            command.env("RUSTDOCFLAGS", "-D warnings");
        }
        task
    }

    /// The scripts of one pattern, each with the release binary as its argument.
    fn scripts(&self, pattern: &str) -> Vec<Task> {
        let binary = self.workspace.target.join("release/mainspring");
        let found: Vec<Task> = self
            .scripts
            .iter()
            .filter(|path| matches(pattern, path))
            .map(|path| {
                let mut command = match path.extension().and_then(|ending| ending.to_str()) {
                    Some("py") => interpreted("python3", path),
                    Some("sh") => interpreted("bash", path),
                    _ => Command::new(self.workspace.root.join(path)),
                };
                command.current_dir(&self.workspace.root).arg(&binary);
                Task::Command(command, SCRIPT_MAX)
            })
            .collect();
        if found.is_empty() { vec![Task::Absent(format!("there is no {pattern}"))] } else { found }
    }
}

/// Gives each package's tests as many threads as they can use.
const RUNNER: &str = r#"--config target."cfg(unix)".runner="xtask/test-runner""#;

impl Brokers {
    fn find(target: &Path) -> Self {
        let lacks =
            |cluster: &Cluster| cluster.needs.iter().copied().find(|program| !has_program(program));
        let able = CLUSTERS.iter().filter(|cluster| lacks(cluster).is_none());
        let is_there = |cluster: &Cluster| {
            target.join("kafka").join(cluster.name).join("cluster.json").exists()
        };
        let able: Vec<_> = able.map(|cluster| (cluster, is_there(cluster))).collect();
        match CLUSTERS.first().and_then(lacks) {
            Some(program) if able.is_empty() => Self::None(format!(
                "{program} is missing, so there is no Kafka here and its tests skip themselves"
            )),
            _ => Self::Clusters(able),
        }
    }
}

fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

fn needed_by_a_bench(package: &Package, feature: &str) -> bool {
    let mut benches = package.targets.iter().filter(|target| target.is("bench"));
    benches.any(|bench| bench.required_features.iter().any(|needed| needed == feature))
}

fn step(name: &'static str, tasks: impl IntoIterator<Item = Task>) -> Step {
    Step { name, tasks: tasks.into_iter().collect(), undo: Vec::new() }
}

fn interpreted(interpreter: &str, path: &Path) -> Command {
    let mut command = Command::new(interpreter);
    command.arg(path);
    command
}

/// Is `path` the pattern, or in its folder with the word between the stars in its name?
fn matches(pattern: &str, path: &Path) -> bool {
    let pattern = Path::new(pattern);
    let name = |path: &Path| {
        path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let wanted = name(pattern);
    match wanted.strip_prefix('*').and_then(|rest| rest.strip_suffix('*')) {
        Some(word) => path.parent() == pattern.parent() && name(path).contains(word),
        None => path == pattern,
    }
}

/// The names of the files in a folder, sorted; none if it is absent.
fn files_of(folder: &Path) -> Result<Vec<String>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut names = Vec::new();
    for entry in
        std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?
    {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn has_subcommand(name: &str) -> bool {
    let mut command = Command::new(cargo());
    command
        .args([name, "--version"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests;

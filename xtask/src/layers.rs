//! The layers of the workspace: who may depend on whom.
//!
//! Arrows point down. The table below is the whole architecture as far as a dependency table can say it; a new
//! edge sideways is a change of it, and belongs in a commit that says why.

use std::fmt::Write as _;
use std::process::Command;

use anyhow::{Result, bail};

use crate::workspace::{Package, Workspace, capture, cargo};

/// Where a crate stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layer {
    /// A numbered layer: it may use every lower one.
    Level(u8),
    /// Beside the layers: it may use exactly the crates that are listed.
    Side(&'static [&'static str]),
}

/// Crates by folder name. A name that ends in `-*` stands for a family.
const TABLE: &[(&str, Layer)] = &[
    ("api", Layer::Level(0)),
    ("support-*", Layer::Level(0)),
    ("wire", Layer::Level(1)),
    ("eventlog", Layer::Level(1)),
    ("controller", Layer::Level(2)),
    ("placement", Layer::Level(2)),
    ("live", Layer::Level(2)),
    ("turns", Layer::Level(2)),
    ("authz", Layer::Level(2)),
    ("authn", Layer::Level(2)),
    ("harness", Layer::Level(2)),
    ("store-*", Layer::Level(2)),
    ("runtime-*", Layer::Level(2)),
    ("model-http", Layer::Level(2)),
    ("tools-*", Layer::Level(2)),
    ("transport-*", Layer::Level(2)),
    ("driver-process", Layer::Level(2)),
    ("backend-http", Layer::Level(2)),
    ("layers", Layer::Level(2)),
    ("sessions", Layer::Level(3)),
    ("live-sessions", Layer::Level(3)),
    ("turns-sessions", Layer::Level(3)),
    ("facade", Layer::Level(4)),
    ("conformance", Layer::Side(&["api", "eventlog", "wire", "live", "turns", "testkit"])),
    ("testkit", Layer::Side(&["api", "eventlog"])),
    ("sim", Layer::Side(&[])),
    (
        "bench",
        Layer::Side(&[
            "api",
            "controller",
            "eventlog",
            "facade",
            "store-fjall",
            "store-kafka",
            "store-redb",
            "transport-grpc",
        ]),
    ),
];

/// The layer of everything under `hosts/`.
const HOSTS: Layer = Layer::Level(5);

/// The only edges inside a layer.
const SIDEWAYS: &[(&str, &str)] = &[
    ("placement", "controller"),
    ("transport-grpc", "live"),
    ("driver-process", "live"),
    ("transport-http", "turns"),
    ("backend-http", "turns"),
];

/// What `api` must not pull in, not even through others: executors, TLS, databases, wire forms. A name covers the
/// crates that start with it and a dash or an underscore.
const API_NEVER: &[&str] = &[
    "async-executor",
    "async-std",
    "aws-lc-rs",
    "axum",
    "blocking",
    "fjall",
    "futures-executor",
    "h2",
    "hyper",
    "mio",
    "native-tls",
    "openssl",
    "pbjson",
    "prost",
    "protobuf",
    "protox",
    "rdkafka",
    "redb",
    "reqwest",
    "ring",
    "rusqlite",
    "rustls",
    "serde",
    "smol",
    "tokio",
    "tonic",
];

/// One crate as the check sees it.
#[derive(Debug)]
struct Crate {
    /// `crates`, `hosts`, or empty for a folder at the root.
    group: String,
    /// The folder's own name.
    folder: String,
    package: String,
    /// Folder names of the workspace crates in `[dependencies]` and `[build-dependencies]`, sorted.
    uses: Vec<String>,
}

/// Prints the table that was checked, and fails with every edge that it forbids.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let crates = crates(workspace);
    print!("{}", table(&crates));
    let mut problems = check(&crates);

    let mut tree = Command::new(cargo());
    tree.current_dir(&workspace.root);
    tree.args([
        "tree",
        "-p",
        "mainspring-api",
        "-e",
        "normal",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ]);
    let pulled = packages_of_tree(&capture(&mut tree)?);
    println!("\napi pulls {} crates: {}", pulled.len(), pulled.join(" "));
    problems.extend(check_api(&pulled));

    if problems.is_empty() {
        println!("layers: {} crates, every edge is allowed", crates.len());
        return Ok(());
    }
    for problem in &problems {
        println!("error: {problem}");
    }
    bail!("layers: {} forbidden", problems.len())
}

fn crates(workspace: &Workspace) -> Vec<Crate> {
    let folder = |package: &Package| last_part(package.place(workspace));
    workspace
        .packages
        .iter()
        .map(|package| {
            let mut uses: Vec<String> = package
                .dependencies
                .iter()
                .filter(|dependency| {
                    dependency.path.is_some() && dependency.kind.as_deref() != Some("dev")
                })
                .filter_map(|dependency| {
                    workspace.packages.iter().find(|other| other.name == dependency.name)
                })
                .map(folder)
                .collect();
            uses.sort();
            uses.dedup();
            let group = package
                .place(workspace)
                .parent()
                .map(|parent| parent.to_string_lossy().into_owned());
            Crate {
                group: group.unwrap_or_default(),
                folder: folder(package),
                package: package.name.clone(),
                uses,
            }
        })
        .collect()
}

fn last_part(path: &std::path::Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

impl Crate {
    fn layer(&self) -> Option<Layer> {
        match self.group.as_str() {
            "hosts" => Some(HOSTS),
            "" if self.folder == "xtask" => Some(Layer::Side(&[])),
            "crates" => layer_of(&self.folder),
            _ => None,
        }
    }
}

fn layer_of(folder: &str) -> Option<Layer> {
    let matches = |pattern: &str| match pattern.strip_suffix('*') {
        Some(family) => folder.len() > family.len() && folder.starts_with(family),
        None => folder == pattern,
    };
    TABLE.iter().find(|(pattern, _)| matches(pattern)).map(|(_, layer)| *layer)
}

fn name_of(layer: Option<Layer>) -> String {
    match layer {
        Some(Layer::Level(level)) => format!("L{level}"),
        Some(Layer::Side(_)) => "side".to_owned(),
        None => "?".to_owned(),
    }
}

/// Every edge that the table forbids, every crate that it does not know, and every wrong name.
fn check(crates: &[Crate]) -> Vec<String> {
    let mut problems = Vec::new();
    for from in crates {
        let Some(layer) = from.layer() else {
            problems.push(format!(
                "{} is in no layer: add it to the table in xtask/src/layers.rs",
                from.folder
            ));
            continue;
        };
        if let Some(expected) = expected_package(from)
            && expected != from.package
        {
            problems.push(format!(
                "crates/{} must be the package {expected}, not {}",
                from.folder, from.package
            ));
        }
        for name in &from.uses {
            let to = crates.iter().find(|other| other.folder == *name).and_then(Crate::layer);
            if !allowed(layer, &from.folder, to, name) {
                let from_layer = name_of(from.layer());
                problems.push(format!(
                    "{} ({from_layer}) must not depend on {name} ({})",
                    from.folder,
                    name_of(to)
                ));
            }
        }
    }
    problems
}

fn allowed(from: Layer, from_name: &str, to: Option<Layer>, to_name: &str) -> bool {
    match (from, to) {
        (Layer::Side(list), _) => list.contains(&to_name),
        (Layer::Level(high), Some(Layer::Level(low))) => {
            low < high || SIDEWAYS.contains(&(from_name, to_name))
        }
        (Layer::Level(_), Some(Layer::Side(_)) | None) => false,
    }
}

/// Package = `mainspring-` + folder; the facade is the one exception, and hosts name themselves.
fn expected_package(of: &Crate) -> Option<String> {
    match (of.group.as_str(), of.folder.as_str()) {
        ("crates", "facade") => Some("mainspring".to_owned()),
        ("crates", folder) => Some(format!("mainspring-{folder}")),
        _ => None,
    }
}

fn table(crates: &[Crate]) -> String {
    let mut rows: Vec<[String; 3]> = crates
        .iter()
        .map(|of| {
            let prefix = if of.group == "hosts" { "hosts/" } else { "" };
            let uses = if of.uses.is_empty() { "-".to_owned() } else { of.uses.join(" ") };
            [name_of(of.layer()), format!("{prefix}{}", of.folder), uses]
        })
        .collect();
    rows.sort();
    rows.insert(0, ["layer", "crate", "depends on"].map(str::to_owned));
    let mut text = String::new();
    for [layer, name, uses] in rows {
        let _ = writeln!(text, "{layer:<5}  {name:<18}  {uses}");
    }
    text
}

/// Package names in the output of `cargo tree --prefix none --format {p}`, without the first, which is the root.
fn packages_of_tree(output: &str) -> Vec<String> {
    let mut lines = output.lines().filter_map(|line| line.split_whitespace().next());
    lines.next();
    let mut names: Vec<String> = lines.map(str::to_owned).collect();
    names.sort();
    names.dedup();
    names
}

fn check_api(pulled: &[String]) -> Vec<String> {
    let covers = |banned: &str, name: &str| {
        name.strip_prefix(banned)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '_']))
    };
    pulled
        .iter()
        .filter(|name| API_NEVER.iter().any(|banned| covers(banned, name)))
        .map(|name| format!("api must not pull {name}: it holds values and contracts, no IO, executor or wire form"))
        .collect()
}

#[cfg(test)]
mod tests;

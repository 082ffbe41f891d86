//! Benches: the ones that the workspace has, by name.

use std::process::Command;

use anyhow::{Result, bail};

use crate::workspace::{Workspace, cargo};

/// A bench target and its package.
#[derive(Debug, PartialEq, Eq)]
struct Bench<'a> {
    package: &'a str,
    name: &'a str,
}

/// Runs the named benches; without a name it lists those that exist.
pub(crate) fn run(workspace: &Workspace, names: &[String]) -> Result<()> {
    let benches = find(workspace);
    let chosen = choose(&benches, names)?;
    if names.is_empty() {
        for bench in &benches {
            println!("{} ({})", bench.name, bench.package);
        }
    }
    for bench in chosen {
        let mut command = Command::new(cargo());
        command.current_dir(&workspace.root);
        command.args(["bench", "--package", bench.package, "--bench", bench.name]);
        let status = command.status()?;
        if !status.success() {
            bail!("the bench {} ended with {status}", bench.name);
        }
    }
    Ok(())
}

fn find(workspace: &Workspace) -> Vec<Bench<'_>> {
    let mut benches = Vec::new();
    for package in &workspace.packages {
        let targets = package.targets.iter().filter(|target| target.is("bench"));
        benches.extend(targets.map(|target| Bench { package: &package.name, name: &target.name }));
    }
    benches
}

/// The benches with these names, or the reason why there is none.
fn choose<'a, 'b>(benches: &'b [Bench<'a>], names: &[String]) -> Result<Vec<&'b Bench<'a>>> {
    if benches.is_empty() {
        bail!("this workspace has no benches yet; a bench is a `[[bench]]` target of a crate");
    }
    let mut chosen = Vec::new();
    for name in names {
        let Some(bench) = benches.iter().find(|bench| bench.name == name) else {
            let known: Vec<&str> = benches.iter().map(|bench| bench.name).collect();
            bail!("there is no bench `{name}`; there are: {}", known.join(", "));
        };
        chosen.push(bench);
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn benches_are_chosen_by_name() {
        let benches =
            [Bench { package: "p", name: "append" }, Bench { package: "q", name: "verify" }];
        assert_eq!([&benches[1]], *choose(&benches, &["verify".to_owned()]).unwrap());
        assert!(choose(&benches, &[]).unwrap().is_empty());
        let error = choose(&benches, &["fork".to_owned()]).unwrap_err().to_string();
        assert_eq!("there is no bench `fork`; there are: append, verify", error);
    }

    #[test]
    fn without_benches_the_command_refuses() {
        let error = choose(&[], &[]).unwrap_err().to_string();
        assert!(error.contains("has no benches yet"), "{error}");
    }
}

//! Benches: the ones that the workspace has, by name.

use std::process::Command;

use anyhow::{Result, bail};

use crate::workspace::{Workspace, cargo};

/// A bench target and its package.
#[derive(Debug, PartialEq, Eq)]
struct Bench<'a> {
    package: &'a str,
    name: &'a str,
    /// Without them cargo does not build it.
    features: &'a [String],
}

impl Bench<'_> {
    /// What cargo is told; `options` are the bench's own.
    fn arguments(&self, options: &[String]) -> Vec<String> {
        let mut arguments =
            ["bench", "--package", self.package, "--bench", self.name].map(str::to_owned).to_vec();
        if !self.features.is_empty() {
            arguments.extend(["--features".to_owned(), self.features.join(",")]);
        }
        if !options.is_empty() {
            arguments.push("--".to_owned());
            arguments.extend_from_slice(options);
        }
        arguments
    }
}

/// Runs the named benches; without a name it lists those that exist. What
/// follows from the first dash on is for the benches themselves.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    let (names, options) = split(arguments);
    let benches = find(workspace);
    let chosen = choose(&benches, names)?;
    if names.is_empty() {
        for bench in &benches {
            println!("{} ({})", bench.name, bench.package);
        }
    }
    for bench in chosen {
        let mut command = Command::new(cargo());
        command.current_dir(&workspace.root).args(bench.arguments(options));
        let status = command.status()?;
        if !status.success() {
            bail!("the bench {} ended with {status}", bench.name);
        }
    }
    Ok(())
}

/// Names first, then options.
fn split(arguments: &[String]) -> (&[String], &[String]) {
    let at = arguments.iter().position(|argument| argument.starts_with('-'));
    arguments.split_at(at.unwrap_or(arguments.len()))
}

fn find(workspace: &Workspace) -> Vec<Bench<'_>> {
    let mut benches = Vec::new();
    for package in &workspace.packages {
        let targets = package.targets.iter().filter(|target| target.is("bench"));
        benches.extend(targets.map(|target| Bench {
            package: &package.name,
            name: &target.name,
            features: &target.required_features,
        }));
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

    const fn bench<'a>(name: &'a str, features: &'a [String]) -> Bench<'a> {
        Bench { package: "p", name, features }
    }

    fn strings(words: &str) -> Vec<String> {
        words.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn cargo_gets_the_features_and_the_bench_its_options() {
        let plain = bench("append", &[]).arguments(&[]);
        assert_eq!(strings("bench --package p --bench append"), plain);
        let features = strings("run peers");
        let arguments = bench("log", &features).arguments(&strings("--row fork"));
        let expected = "bench --package p --bench log --features run,peers -- --row fork";
        assert_eq!(strings(expected), arguments);
    }

    #[test]
    fn names_end_at_the_first_option() {
        let of = |words: &str| {
            let words = strings(words);
            let (names, options) = split(&words);
            (names.join(" "), options.join(" "))
        };
        assert_eq!(("log".to_owned(), String::new()), of("log"));
        assert_eq!(("log x".to_owned(), "--row fork".to_owned()), of("log x --row fork"));
        assert_eq!((String::new(), "--quick".to_owned()), of("--quick"));
    }

    #[test]
    fn benches_are_chosen_by_name() {
        let benches = [bench("append", &[]), bench("verify", &[])];
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

//! More simulated seeds than the tests run, or one of them.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workspace::{Workspace, cargo};

/// Runs the simulation: `--seeds N` of them from the first, or `--seed K` alone.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    let (variable, number) = choose(arguments)?;
    let mut command = Command::new(cargo());
    command
        .current_dir(&workspace.root)
        .args(["test", "--release", "--package", "mainspring-sim", "--test", "sim", "--"])
        .args(["hosts_at_one_session", "--nocapture"])
        .env_remove("MAINSPRING_SIM_SEED")
        .env(variable, number.to_string());
    let status = command.status()?;
    if !status.success() {
        bail!("the simulation ended with {status}");
    }
    Ok(())
}

fn choose(arguments: &[String]) -> Result<(&'static str, u64)> {
    let [option, number] = arguments else {
        bail!("usage: cargo xtask sim --seeds N | --seed K");
    };
    let variable = match option.as_str() {
        "--seeds" => "MAINSPRING_SIM_SEEDS",
        "--seed" => "MAINSPRING_SIM_SEED",
        other => bail!("there is no option `{other}`: --seeds N or --seed K"),
    };
    let number = number.parse().with_context(|| format!("`{number}` is not a number"))?;
    Ok((variable, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_or_refused() {
        let given =
            |words: &[&str]| choose(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>());
        assert_eq!(given(&["--seeds", "5"]).unwrap(), ("MAINSPRING_SIM_SEEDS", 5));
        assert_eq!(given(&["--seed", "7"]).unwrap(), ("MAINSPRING_SIM_SEED", 7));
        for bad in [&[][..], &["--seeds"], &["--seeds", "x"], &["--other", "1"], &["--seed", "-1"]]
        {
            assert!(given(bad).is_err(), "{bad:?}");
        }
    }
}

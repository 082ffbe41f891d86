//! What a reader must know of the machine to judge a run.

use anyhow::{Context as _, Result};

/// Processes that ran or waited for a processor, over the last minute.
pub fn load() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").context("/proc/loadavg")?;
    Ok(text.split_whitespace().next().context("no load average")?.parse()?)
}

/// A sentence on processors and load; `before` is the load when the run began.
pub fn described(before: f64) -> Result<String> {
    let processors = std::thread::available_parallelism()?;
    let info = std::fs::read_to_string("/proc/cpuinfo").context("/proc/cpuinfo")?;
    let sha = info.split_whitespace().any(|word| matches!(word, "sha_ni" | "sha2"));
    let (with, after) = (if sha { "with" } else { "without" }, load()?);
    Ok(format!(
        "{processors} processors {with} SHA extensions; load average {before} when the run began and {after} when it \
         ended, of which the run itself makes about 1 to 2."
    ))
}

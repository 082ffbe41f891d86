//! Kafka's jars and the programs that are needed to run them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::VERSION;
use super::state::Lock;

/// What Maven is to fetch.
pub(super) const POM: &str = include_str!("pom.xml");
/// The oldest Java that runs this Kafka.
const JAVA_MIN: u32 = 17;
/// Written when every jar is there. It holds the pom, so that another pom is fetched anew.
const MARKER: &str = "complete";

/// The folder with the jars, fetched by the first who asks.
pub(super) fn jars(kafka: &Path) -> Result<PathBuf> {
    let library = kafka.join(format!("lib-{VERSION}"));
    if is_complete(&library) {
        return Ok(library);
    }
    let _lock = Lock::take(&kafka.join(format!("lib-{VERSION}.lock")))?;
    if !is_complete(&library) {
        fetch(&library)?;
    }
    Ok(library)
}

fn is_complete(library: &Path) -> bool {
    std::fs::read_to_string(library.join(MARKER)).is_ok_and(|pom| pom == POM)
}

/// Fetches into a folder beside, which becomes the library when all of it is there.
fn fetch(library: &Path) -> Result<()> {
    let part = library.with_file_name(format!("lib-{VERSION}.part"));
    remove(&part)?;
    std::fs::create_dir_all(&part).with_context(|| format!("cannot make {}", part.display()))?;
    std::fs::write(part.join("pom.xml"), POM)?;
    eprintln!("fetching Kafka {VERSION} with Maven");
    let status = Command::new("mvn")
        .args([
            "-q",
            "-B",
            "-Dstyle.color=never",
            "dependency:copy-dependencies",
            "-DoutputDirectory=.",
        ])
        .current_dir(&part)
        .stdin(Stdio::null())
        .stdout(Stdio::from(std::io::stderr()))
        .status();
    let status = found(status, "mvn", "Maven 3, e.g. apt package maven")?;
    if !status.success() {
        bail!("Maven did not fetch Kafka {VERSION}: mvn ended with {status}");
    }
    std::fs::write(part.join(MARKER), POM)?;
    remove(library)?;
    std::fs::rename(&part, library)
        .with_context(|| format!("cannot make {} of {}", library.display(), part.display()))
}

/// Removes a folder that may be absent.
pub(super) fn remove(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// Refuses a machine on which no broker could start.
pub(super) fn check_java() -> Result<()> {
    let output = Command::new("java").arg("-version").stdin(Stdio::null()).output();
    let install = format!("a JDK {JAVA_MIN} or newer, e.g. apt package openjdk-17-jre-headless");
    let output = found(output, "java", &install)?;
    let said = String::from_utf8_lossy(&output.stderr);
    match java_version(&said) {
        Some(version) if version >= JAVA_MIN => Ok(()),
        Some(version) => bail!("java is of version {version}: install {install}"),
        None => bail!("`java -version` did not say its version: {}", said.trim()),
    }
}

/// What `attempt` answered, or which program is missing and where it comes from.
pub(super) fn found<T>(attempt: std::io::Result<T>, program: &str, install: &str) -> Result<T> {
    attempt.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => anyhow::anyhow!("{program} is missing: install {install}"),
        _ => anyhow::Error::new(error).context(format!("cannot start {program}")),
    })
}

/// The 17 of `openjdk version "17.0.15" ..`.
fn java_version(said: &str) -> Option<u32> {
    let (_, rest) = said.split_once("version \"")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn java_says_its_version_in_several_ways() {
        assert_eq!(Some(17), java_version("openjdk version \"17.0.15\" 2025-04-15\nOpenJDK .."));
        assert_eq!(Some(21), java_version("Picked up X: y\nopenjdk version \"21\" 2023-09-19"));
        assert_eq!(Some(1), java_version("java version \"1.8.0_402\""));
        assert_eq!(None, java_version("command not understood"));
    }

    #[test]
    fn a_missing_program_is_named() {
        let attempt = Command::new("/no/such/program").output();
        let error = found(attempt, "java", "a JDK").unwrap_err().to_string();
        assert_eq!("java is missing: install a JDK", error);
    }
}

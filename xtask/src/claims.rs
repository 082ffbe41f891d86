//! The claims: which numbered cases of the specification this workspace passes, and where they run.
//!
//! `claims.toml` is compared twice: with the source text (fast, part of `tidy`: a claimed case has a test, a
//! numbered test is claimed) and with the tests that were built (`claims`: the case runs where it says).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::workspace::{Workspace, capture, cargo};

/// The file of claims, at the root.
pub(crate) const FILE: &str = "claims.toml";

/// Families whose ids are words: `LR-017`, `CUR-4`. The others are one letter and two digits.
const WORD_FAMILIES: &[&str] =
    &["LR", "DEC", "DSP", "SEQ", "CUR", "RUN", "PRM", "REG", "IDN", "ERR", "DUR"];

/// The family whose first numbers have one digit: reports that became experiments (`B7`; `B07` is another case).
const REPORTS: char = 'B';

/// The last letter family.
const LAST_LETTER: char = 'X';

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Claims {
    #[serde(rename = "case", default)]
    pub(crate) cases: Vec<Claim>,
}

/// One case, and where it runs. An empty list says that the axis has no meaning for the case.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Claim {
    /// The case's id in the specification.
    pub(crate) id: String,
    /// How the harness is reached.
    #[serde(default)]
    runs: Vec<RunPlace>,
    /// Where the journal lies.
    #[serde(default)]
    stores: Vec<Store>,
    /// Which compute.
    #[serde(default)]
    runtimes: Vec<Runtime>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RunPlace {
    InProcess,
    Wire,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Store {
    Memory,
    Redb,
    Fjall,
    Kafka,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Runtime {
    Local,
    Remote,
    Pod,
    Kata,
}

/// A test as its binary lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Listed {
    package: String,
    target: String,
    /// `module::name`.
    path: String,
}

/// A numbered test in the source text.
#[derive(Debug)]
pub(crate) struct NumberedTest {
    pub(crate) name: String,
    pub(crate) file: PathBuf,
    pub(crate) line: usize,
}

/// Builds all tests and checks that each claimed case runs where it claims to.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let claims = Claims::load(&workspace.root.join(FILE))?;
    let tests = listed(workspace)?;
    let problems = check_places(&claims, &tests);
    for problem in &problems {
        println!("error: {problem}");
    }
    if !problems.is_empty() {
        bail!("claims: {} not kept", problems.len());
    }
    println!(
        "claims: {} cases run where {FILE} says, among {} tests",
        claims.cases.len(),
        tests.len()
    );
    Ok(())
}

impl Claims {
    /// Reads the file.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {FILE}"))?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).with_context(|| format!("{FILE} is not in the form of claims"))
    }
}

/// The id of the case that a test of this name is for: `a01_one_model_turn` is `A01`, `lr_017_x` is `LR-017`.
pub(crate) fn case_of(name: &str) -> Option<String> {
    let (head, rest) = name.split_once('_')?;
    let word = head.to_ascii_uppercase();
    if WORD_FAMILIES.contains(&word.as_str()) {
        let number = rest.split('_').next().unwrap_or_default();
        let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        return digits.then(|| format!("{word}-{number}"));
    }
    let mut chars = head.chars();
    let letter = chars.next()?.to_ascii_uppercase();
    let number = chars.as_str();
    let family =
        ('A'..=LAST_LETTER).contains(&letter) && head.starts_with(|c: char| c.is_ascii_lowercase());
    let report = letter == REPORTS && matches!(number.as_bytes(), [b'1'..=b'9']);
    (family && (report || is_number(number))).then(|| format!("{letter}{number}"))
}

/// Two digits, and perhaps the letter of a case that was added between two others (`V07b`).
fn is_number(text: &str) -> bool {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_lowercase());
    digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit()) && text.len() <= 3
}

/// How the name of a test for the case begins.
fn prefix(id: &str) -> String {
    format!("{}_", id.to_ascii_lowercase().replace('-', "_"))
}

/// Compares the claims with the numbered tests of the source text.
pub(crate) fn check_source(claims: &Claims, tests: &[NumberedTest]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut seen: BTreeMap<&str, ()> = BTreeMap::new();
    for claim in &claims.cases {
        let id = claim.id.as_str();
        if case_of(&prefix(id)).as_deref() != Some(id) {
            problems.push(format!("{FILE}: {id} is not the form of a case id"));
            continue;
        }
        if seen.insert(id, ()).is_some() {
            problems.push(format!("{FILE}: {id} is claimed twice"));
        }
        if !tests.iter().any(|test| test.name.starts_with(&prefix(id))) {
            problems.push(format!("{FILE}: {id} has no test: none begins with `{}`", prefix(id)));
        }
    }
    for test in tests {
        if let Some(id) = case_of(&test.name)
            && !seen.contains_key(id.as_str())
        {
            let place = format!("{}:{}", test.file.display(), test.line);
            problems.push(format!(
                "{place}: {} is a test for {id}, which {FILE} does not claim",
                test.name
            ));
        }
    }
    problems
}

/// Compares the claims with the tests that were built.
fn check_places(claims: &Claims, tests: &[Listed]) -> Vec<String> {
    let mut problems = Vec::new();
    for claim in &claims.cases {
        let own: Vec<&Listed> =
            tests.iter().filter(|test| test.name().starts_with(&prefix(&claim.id))).collect();
        if own.is_empty() {
            problems.push(format!("{} has no test that is built", claim.id));
            continue;
        }
        for place in claim.places() {
            if !own.iter().any(|test| test.runs_in(place)) {
                problems.push(format!(
                    "{} claims `{place}`, but no test of it has that in its path",
                    claim.id
                ));
            }
        }
    }
    problems
}

impl Claim {
    /// The words that the paths of its tests must contain, each in one test at least.
    fn places(&self) -> impl Iterator<Item = &'static str> {
        let runs = self.runs.iter().map(|run| match run {
            RunPlace::InProcess => "in_process",
            RunPlace::Wire => "wire",
        });
        let stores = self.stores.iter().map(|store| match store {
            Store::Memory => "memory",
            Store::Redb => "redb",
            Store::Fjall => "fjall",
            Store::Kafka => "kafka",
        });
        let runtimes = self.runtimes.iter().map(|runtime| match runtime {
            Runtime::Local => "local",
            Runtime::Remote => "remote",
            Runtime::Pod => "pod",
            Runtime::Kata => "kata",
        });
        runs.chain(stores).chain(runtimes)
    }
}

impl Listed {
    /// The function's own name.
    fn name(&self) -> &str {
        self.path.rsplit("::").next().unwrap_or(&self.path)
    }

    /// Is `place` a part of where the test stands: its package, its binary or its modules?
    ///
    /// `mainspring-wire` says what a crate is about, not how a harness is reached, so the package's name counts
    /// for the other places only.
    fn runs_in(&self, place: &str) -> bool {
        let modules = self.path.rsplit_once("::").map_or("", |(modules, _)| modules);
        let package = if matches!(place, "wire" | "in_process") { "" } else { &self.package };
        let words = format!("_{package}_{}_{modules}_", self.target).replace(['-', ':'], "_");
        words.contains(&format!("_{place}_"))
    }
}

/// Every test of the workspace, asked from the binaries that cargo builds.
fn listed(workspace: &Workspace) -> Result<Vec<Listed>> {
    let mut build = Command::new(cargo());
    build.current_dir(&workspace.root);
    build.args(["test", "--workspace", "--features", crate::plan::FEATURES]);
    build.args(["--no-run", "--message-format", "json-render-diagnostics"]);
    let mut tests = Vec::new();
    for binary in binaries(&capture(&mut build)?)? {
        let package =
            workspace.packages.iter().find(|package| package.manifest_path == binary.manifest_path);
        let package = package.map(|package| package.name.clone()).unwrap_or_default();
        let mut list = Command::new(&binary.executable);
        list.current_dir(binary.manifest_path.parent().unwrap_or(&workspace.root));
        list.args(["--list", "--format", "terse"]);
        let paths = capture(&mut list)?;
        tests.extend(test_paths(&paths).map(|path| Listed {
            package: package.clone(),
            target: binary.target.clone(),
            path: path.to_owned(),
        }));
    }
    Ok(tests)
}

#[derive(Debug, PartialEq, Eq)]
struct TestBinary {
    manifest_path: PathBuf,
    target: String,
    executable: PathBuf,
}

/// The test binaries among cargo's JSON messages.
fn binaries(messages: &str) -> Result<Vec<TestBinary>> {
    #[derive(Deserialize)]
    struct Message {
        reason: String,
        #[serde(default)]
        manifest_path: PathBuf,
        target: Option<Name>,
        profile: Option<Profile>,
        executable: Option<PathBuf>,
    }
    #[derive(Deserialize)]
    struct Name {
        name: String,
    }
    #[derive(Deserialize)]
    struct Profile {
        test: bool,
    }
    let mut found = Vec::new();
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let message: Message =
            serde_json::from_str(line).context("a message of cargo has an unknown form")?;
        if message.reason == "compiler-artifact"
            && message.profile.is_some_and(|profile| profile.test)
            && let (Some(target), Some(executable)) = (message.target, message.executable)
        {
            found.push(TestBinary {
                manifest_path: message.manifest_path,
                target: target.name,
                executable,
            });
        }
    }
    Ok(found)
}

/// The paths in what a test binary answers to `--list --format terse`.
fn test_paths(output: &str) -> impl Iterator<Item = &str> {
    output.lines().filter_map(|line| line.strip_suffix(": test"))
}

#[cfg(test)]
mod tests;

//! The command line of a bench, and what becomes of its report.
#![expect(clippy::print_stdout, reason = "a bench answers on standard output")]

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};

use crate::run::machine;
use crate::{Generated, Report};

/// What a bench can be asked.
#[derive(Debug)]
pub struct Command<P: 'static> {
    /// Its name, which is also that of its part in `docs/performance.md`.
    pub name: &'static str,
    /// What its options mean.
    pub usage: &'static str,
    /// Its rows, in the order in which they are measured.
    pub rows: &'static [&'static str],
    /// How much is measured; the first is the usual plan, the others go by their option.
    pub plans: &'static [(&'static str, P)],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Json,
    Markdown,
}

/// What a bench was asked.
#[derive(Debug)]
pub struct Asked<P> {
    /// How much to measure.
    pub plan: P,
    /// What to measure, in order.
    pub rows: Vec<&'static str>,
    name: &'static str,
    form: Form,
    document: bool,
    /// The load when the run began.
    load: f64,
}

impl<P: Clone> Command<P> {
    /// Reads the arguments after the program's name.
    ///
    /// # Errors
    /// An option or a row that there is not, in words for people.
    pub fn parse(&self, mut arguments: impl Iterator<Item = String>) -> Result<Asked<P>> {
        let (mut plan, mut form, mut document) = (&self.plans[0].1, Form::Text, false);
        let mut named = Vec::new();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--markdown" => document = true,
                "--row" => named.push(arguments.next().context("--row names a row")?),
                "--output" => {
                    form = match arguments.next().as_deref() {
                        Some("text") => Form::Text,
                        Some("json") => Form::Json,
                        Some("markdown") => Form::Markdown,
                        _ => bail!("--output is text, json or markdown"),
                    };
                }
                // Cargo says so to every bench.
                "--bench" => {}
                other => match self.plans.iter().find(|(option, _)| *option == other) {
                    Some((_, found)) => plan = found,
                    None => bail!("there is no option `{other}`\n\n{}", self.usage),
                },
            }
        }
        if document && !named.is_empty() {
            bail!("--markdown writes the whole table, so it goes without --row");
        }
        if let Some(other) = named.iter().find(|row| !self.rows.contains(&row.as_str())) {
            bail!("there is no row `{other}`; there are: {}", self.rows.join(", "));
        }
        let asked = |row: &&str| named.is_empty() || named.iter().any(|name| name == row);
        Ok(Asked {
            plan: plan.clone(),
            rows: self.rows.iter().copied().filter(asked).collect(),
            name: self.name,
            form,
            document,
            load: machine::load()?,
        })
    }
}

impl<P> Asked<P> {
    /// Shows the report as it was asked for.
    ///
    /// # Errors
    /// When the document cannot be written.
    pub fn answer(&self, mut report: Report) -> Result<()> {
        report.note(machine::described(self.load)?);
        match self.form {
            Form::Text => print!("{report}"),
            Form::Json => println!("{:#}", report.json()),
            Form::Markdown => print!("{}", report.markdown()),
        }
        if self.document { write_document(self.name, &report) } else { Ok(()) }
    }
}

fn write_document(name: &str, report: &Report) -> Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/performance.md");
    let document = std::fs::read_to_string(&path).context("docs/performance.md")?;
    let replaced = Generated(name).replace(&document, &report.markdown())?;
    std::fs::write(&path, replaced).context("docs/performance.md")
}

/// What a bench's `main` returns.
#[must_use]
pub fn ended(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

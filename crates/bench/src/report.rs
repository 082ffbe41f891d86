//! The table of a run, as text, as JSON and as Markdown.

use std::fmt::{self, Write as _};

use serde_json::{Value, json};

use crate::stats::{Direction, Spread};

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Microseconds.
    Micros,
    /// Nanoseconds.
    Nanos,
    /// Operations or records a second.
    PerSecond,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// Mebibytes.
    MiB,
    /// A count.
    Count,
    /// A share or a ratio of ratios.
    Ratio,
}

impl Unit {
    const fn name(self) -> &'static str {
        match self {
            Self::Micros => "us",
            Self::Nanos => "ns",
            Self::PerSecond => "/s",
            Self::Seconds => "s",
            Self::Bytes => "B",
            Self::MiB => "MiB",
            Self::Count => "",
            Self::Ratio => "x",
        }
    }

    fn show(self, figure: f64) -> String {
        match self {
            Self::PerSecond if figure >= 1e6 => format!("{:.2} M/s", figure / 1e6),
            Self::PerSecond if figure >= 1e3 => format!("{:.1} k/s", figure / 1e3),
            Self::Count => format!("{figure:.0}"),
            Self::Ratio => format!("{figure:.3}"),
            Self::Seconds => format!("{figure:.2} s"),
            Self::MiB | Self::Micros => format!("{figure:.1} {}", self.name()),
            Self::Nanos | Self::PerSecond | Self::Bytes => format!("{figure:.0} {}", self.name()),
        }
    }
}

/// What a line is held to: its ratio where it has a floor, else its figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// Which way is better.
    pub direction: Direction,
    /// How far.
    pub bound: f64,
}

impl Target {
    /// An upper bound.
    #[must_use]
    pub const fn at_most(bound: f64) -> Self {
        Self { direction: Direction::AtMost, bound }
    }

    /// A lower bound.
    #[must_use]
    pub const fn at_least(bound: f64) -> Self {
        Self { direction: Direction::AtLeast, bound }
    }
}

/// One line of the table.
#[derive(Debug, Clone)]
pub struct Line {
    /// The group that it belongs to, such as `append`.
    pub row: &'static str,
    /// What was measured.
    pub what: String,
    /// Beside what, if anything.
    pub floor: Option<String>,
    unit: Unit,
    figure: Spread,
    floor_figure: Option<Spread>,
    ratio: Option<Spread>,
    target: Option<Target>,
}

impl Line {
    /// A figure over rounds, with no floor.
    #[must_use]
    pub fn alone(row: &'static str, what: impl Into<String>, unit: Unit, figures: &[f64]) -> Self {
        Self {
            row,
            what: what.into(),
            floor: None,
            unit,
            figure: Spread::of(figures),
            floor_figure: None,
            ratio: None,
            target: None,
        }
    }

    /// The same beside a floor, each round with its own.
    #[must_use]
    pub fn beside(mut self, floor: impl Into<String>, figures: &[f64], floors: &[f64]) -> Self {
        self.floor = Some(floor.into());
        self.floor_figure = Some(Spread::of(floors));
        self.ratio = Some(Spread::of_ratios(figures, floors));
        self
    }

    /// The same, held to a target if there is one.
    #[must_use]
    pub fn held_to(mut self, target: Option<Target>) -> Self {
        self.target = target;
        self
    }

    /// Whether the middle round keeps to the target.
    #[must_use]
    pub fn is_met(&self) -> Option<bool> {
        let target = self.target?;
        Some(target.direction.keeps(self.ratio.unwrap_or(self.figure).median, target.bound))
    }

    fn shown_target(&self) -> String {
        self.target.map_or_else(String::new, |target| {
            let sign = target.direction.sign();
            match self.ratio {
                Some(_) => format!("{sign} {}x", target.bound),
                None => format!("{sign} {}", self.unit.show(target.bound)),
            }
        })
    }

    fn shown_met(&self) -> &'static str {
        match self.is_met() {
            None => "",
            Some(true) => "met",
            Some(false) => "not met",
        }
    }

    fn json(&self) -> Value {
        let spread = |spread: Spread| json!([spread.min, spread.median, spread.max]);
        json!({
            "row": self.row,
            "what": self.what,
            "floor": self.floor,
            "unit": self.unit.name(),
            "figure": spread(self.figure),
            "floor_figure": self.floor_figure.map(spread),
            "ratio": self.ratio.map(spread),
            "target": self.target.map(|target| json!([target.direction.sign(), target.bound])),
            "met": self.is_met(),
        })
    }
}

/// The lines of a run.
#[derive(Debug, Default)]
pub struct Report {
    lines: Vec<Line>,
    notes: Vec<String>,
}

impl Report {
    /// Adds a line.
    pub fn push(&mut self, line: Line) {
        self.lines.push(line);
    }

    /// Adds a sentence on the run, such as what machine it was on.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// The lines, as figures: each spread is the smallest, the middle and the largest round.
    #[must_use]
    pub fn json(&self) -> Value {
        let lines: Vec<Value> = self.lines.iter().map(Line::json).collect();
        json!({ "lines": lines, "notes": self.notes })
    }

    /// The lines, for documents: ratios where there is a floor, for only they
    /// mean anything on another machine.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut out = String::from(
            "| Row | What | Beside | Ratio, min / median / max | Target | |\n\
             |---|---|---|---|---|---|\n",
        );
        for line in &self.lines {
            let shown = match line.ratio {
                Some(Spread { min, median, max }) => {
                    format!("{min:.2} / **{median:.2}** / {max:.2}")
                }
                None => format!("figure: {}", line.unit.show(line.figure.median)),
            };
            let floor = line.floor.as_deref().unwrap_or("");
            let (target, met) = (line.shown_target(), line.shown_met());
            let _ = writeln!(
                out,
                "| {} | {} | {floor} | {shown} | {target} | {met} |",
                line.row, line.what
            );
        }
        if !self.notes.is_empty() {
            let _ = writeln!(out, "\n{}", self.notes.join(" "));
        }
        out
    }
}

/// Pushes one line for each length, and one for the ratio there over the ratio
/// at the first: what must not grow with a journal. Lengths come with the
/// figures and the floors of each round.
pub fn show_lengths(
    report: &mut Report,
    row: &'static str,
    name: &str,
    floor: &str,
    lengths: &[(u64, &[f64], &[f64])],
    target: Target,
) {
    let Some(((first, figures, floors), longer)) = lengths.split_first() else { return };
    let base = Spread::of_ratios(figures, floors);
    for (length, figures, floors) in lengths {
        let what = format!("{name} p50 at {length} records");
        let line = Line::alone(row, what, Unit::Micros, figures);
        report.push(line.beside(floor, figures, floors));
    }
    for (length, figures, floors) in longer {
        let at = Spread::of_ratios(figures, floors);
        let what = format!("{name}, ratio at {length} / ratio at {first}");
        // Rounds at two lengths have no floor in common: middle beside middle.
        let line = Line::alone(row, what, Unit::Ratio, &[at.median / base.median]);
        report.push(line.held_to(Some(target)));
    }
}

/// A table in columns.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heading =
            ["row", "what", "figure", "floor", "its figure", "min", "median", "max", "target", ""];
        let mut rows: Vec<Vec<String>> = vec![heading.map(str::to_owned).to_vec()];
        for line in &self.lines {
            let ratio = |pick: fn(Spread) -> f64| {
                line.ratio.map(|ratio| format!("{:.2}", pick(ratio))).unwrap_or_default()
            };
            rows.push(vec![
                line.row.to_owned(),
                line.what.clone(),
                line.unit.show(line.figure.median),
                line.floor.clone().unwrap_or_default(),
                line.floor_figure.map(|floor| line.unit.show(floor.median)).unwrap_or_default(),
                ratio(|ratio| ratio.min),
                ratio(|ratio| ratio.median),
                ratio(|ratio| ratio.max),
                line.shown_target(),
                line.shown_met().to_owned(),
            ]);
        }
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..heading.len()).map(width).collect();
        for row in &rows {
            let cells: Vec<String> =
                row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            writeln!(f, "{}", cells.join("  ").trim_end())?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "{note}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report::default();
        let figures = [12.0, 11.0, 40.0];
        report.push(
            Line::alone("append", "redb p50", Unit::Micros, &figures)
                .beside("bare redb", &figures, &[10.0, 10.0, 20.0])
                .held_to(Some(Target::at_most(1.3))),
        );
        report.push(
            Line::alone("memory", "listing", Unit::MiB, &[65.0])
                .held_to(Some(Target::at_most(64.0))),
        );
        report
    }

    #[test]
    fn ratios_and_figures_are_held_to_their_targets() {
        let report = report();
        assert_eq!(Some(true), report.lines[0].is_met());
        assert_eq!(Some(false), report.lines[1].is_met());
    }

    #[test]
    fn the_table_is_in_columns() {
        let text = report().to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(3, lines.len());
        assert_eq!(lines[0].find("median"), lines[1].find("1.20"));
        assert!(lines[1].ends_with("<= 1.3x      met"), "{}", lines[1]);
        assert!(lines[2].ends_with("<= 64.0 MiB  not met"), "{}", lines[2]);
    }

    #[test]
    fn markdown_shows_no_time_where_there_is_a_floor() {
        let text = report().markdown();
        assert!(text.contains(
            "| append | redb p50 | bare redb | 1.10 / **1.20** / 2.00 | <= 1.3x | met |"
        ));
        assert!(
            text.contains("| memory | listing |  | figure: 65.0 MiB | <= 64.0 MiB | not met |")
        );
        assert!(!text.contains(" us"));
    }

    #[test]
    fn notes_follow_the_table() {
        let mut report = report();
        assert!(!report.markdown().contains("\n\n"));
        report.note("Two processors.");
        report.note("Busy.");
        assert!(report.markdown().ends_with("|\n\nTwo processors. Busy.\n"));
        assert!(report.to_string().ends_with("\nTwo processors.\nBusy.\n"));
    }

    #[test]
    fn json_has_every_figure() {
        let json = report().json();
        assert_eq!(json!([1.1, 1.2, 2.0]), json["lines"][0]["ratio"]);
        assert_eq!(json!("us"), json["lines"][0]["unit"]);
        assert_eq!(json!(null), json["lines"][1]["floor"]);
    }
}

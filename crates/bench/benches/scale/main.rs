//! Capacity of stores on Kafka, reckoned from unit costs.
//!
//! `cargo xtask bench scale` prints the tables of `docs/scale.md`. The unit costs
//! are in `costs.json`, which `cargo xtask bench kafka --costs` writes.
#![expect(clippy::print_stdout, reason = "a bench answers on standard output")]

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use mainspring_bench::scale::{Inputs, costs_table, table};
use mainspring_bench::{Costs, Generated};

const USAGE: &str = "\
usage: cargo xtask bench scale [OPTION..]

  --sessions N          1000000; the table also has 0.1, 10 and 100 times as many
  --turns-a-day N       10, of each session
  --appends-a-turn N    9
  --records-a-turn N    10
  --bytes-a-record N    300, canonical
  --peak N              3: the busiest hour, as a multiple of the mean one
  --days N              30: how long the logs have run
  --partitions N        64, of each store
  --hosts N             4, of each store
  --busy-max N          0.5: how much of its time a fold may be busy
  --costs FILE          other unit costs
  --markdown            also write the tables into docs/scale.md; without others";

const COSTS: &str = include_str!("costs.json");

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let (mut inputs, mut costs, mut document) = (Inputs::default(), COSTS.to_owned(), false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let option = argument.strip_prefix("--").unwrap_or_default();
        let mut value = || arguments.next().ok_or(format!("{argument} takes a value"));
        if let Some(input) = inputs.named(option) {
            let value: f64 = value()?.parse()?;
            if !(value.is_finite() && value > 0.0) {
                return Err(format!("{argument} is a number above 0").into());
            }
            *input = value;
            continue;
        }
        match option {
            "costs" => costs = std::fs::read_to_string(value()?)?,
            "markdown" => document = true,
            // Cargo says so to every bench.
            "bench" => {}
            _ => return Err(format!("there is no option `{argument}`\n\n{USAGE}").into()),
        }
    }
    let costs = Costs::from_json(&costs)?;
    if document && inputs != Inputs::default() {
        return Err("--markdown writes the usual table, so it goes without other inputs".into());
    }
    println!("{}\n{}", costs_table(&costs), table(&inputs, &costs));
    if document { write_document(&costs) } else { Ok(()) }
}

/// The unit costs, the usual table, and others beside it.
fn write_document(costs: &Costs) -> Result<(), Box<dyn Error>> {
    let usual = Inputs::default();
    let mut quiet = usual;
    quiet.load.turns_a_day = 1.0;
    quiet.load.peak = 4.0;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scale.md");
    let mut text = std::fs::read_to_string(&path)?;
    for (name, part) in [
        ("costs", costs_table(costs)),
        ("scale", table(&usual, costs)),
        ("scale-quiet", table(&quiet, costs)),
    ] {
        text = Generated(name).replace(&text, &part)?;
    }
    Ok(std::fs::write(&path, text)?)
}

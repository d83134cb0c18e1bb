//! `ephor-model [--hosts 2|3] [--partitions 1|2] … [--mutation NAME]`: searches all states of the lease
//! protocol within the bounds, and prints a counterexample if a property is violated; with `--mutation` the
//! shortest one.

#![allow(clippy::print_stdout, reason = "a command that prints")]

use std::process::ExitCode;
use std::time::Instant;

use ephor_core::rules::Rules;
use ephor_model::bounds::Bounds;
use ephor_model::mutations;
use ephor_model::protocol::Protocol;
use ephor_model::search::{cores, search, search_shortest};

const USAGE: &str = "usage: ephor-model [--hosts 2|3] [--partitions 1|2] [--changes N] [--messages N]
                   [--events N] [--seeks N] [--stops N] [--failures N] [--unknowns N|any] [--ticks N|any]
                   [--named] [--no-recovery] [--threads N] [--mutation NAME]
  --changes N    at most N changes of owner, over all partitions
  --messages N   at most N requests and answers in flight at a time (up to 3);
                 all others arrive at once
  --events N     N events in a partition
  --seeks N      at most N seeks
  --stops N      at most N hosts that stop
  --failures N   at most N processors that fail
  --unknowns N   at most N outcomes that stay unknown, or any number
  --ticks N      at most N ticks, or any number
  --named        no symmetry reduction: states that differ only in names count separately
  --no-recovery  do not check the recovery from every state
  --mutation NAME  switch a rule off and print the shortest counterexample:";

struct Arguments {
    bounds: Bounds,
    mutation: Option<&'static mutations::Mutation>,
    named: bool,
    recovers: bool,
    threads: usize,
}

fn usage() -> String {
    let mutations =
        mutations::all().map(|mutation| format!("\n                 {}: {}", mutation.name, mutation.what));
    format!("{USAGE}{}", mutations.collect::<String>())
}

fn arguments() -> Result<Arguments, String> {
    let mut parsed = Arguments {
        bounds: Bounds::default(),
        mutation: None,
        named: false,
        recovers: true,
        threads: cores(),
    };
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        let mut value = || given.next().ok_or_else(|| format!("{name} needs a value\n{}", usage()));
        let number = |text: String, max: u8| {
            let number = text.parse::<u8>().ok().filter(|number| *number <= max);
            number.ok_or_else(|| format!("{text:?} is not a number up to {max}\n{}", usage()))
        };
        let any = |text: String, max: u8| {
            if text == "any" { Ok(None) } else { number(text, max).map(Some) }
        };
        let bounds = &mut parsed.bounds;
        match name.as_str() {
            "--hosts" => bounds.hosts = usize::from(number(value()?, 3)?.max(1)),
            "--partitions" => bounds.partitions = usize::from(number(value()?, 2)?.max(1)),
            "--changes" => bounds.changes = number(value()?, 100)?,
            "--messages" => bounds.messages = usize::from(number(value()?, 3)?.max(1)),
            "--events" => bounds.events = number(value()?, 100)?,
            "--seeks" => bounds.seeks = number(value()?, 100)?,
            "--stops" => bounds.stops = number(value()?, 3)?,
            "--failures" => bounds.failures = number(value()?, 100)?,
            "--unknowns" => bounds.unknowns = any(value()?, 200)?,
            "--ticks" => bounds.ticks = any(value()?, 200)?,
            "--threads" => parsed.threads = usize::from(number(value()?, 64)?.max(1)),
            "--named" => parsed.named = true,
            "--no-recovery" => parsed.recovers = false,
            "--mutation" => {
                let name = value()?;
                let found = mutations::find(&name);
                parsed.mutation =
                    Some(found.ok_or_else(|| format!("there is no mutation {name:?}\n{}", usage()))?);
            }
            _ => return Err(format!("unknown argument {name:?}\n{}", usage())),
        }
    }
    Ok(parsed)
}

#[expect(clippy::disallowed_methods, reason = "measures how long a search takes")]
fn main() -> ExitCode {
    let Arguments { bounds, mutation, named, recovers, threads } = match arguments() {
        Ok(arguments) => arguments,
        Err(message) => {
            println!("{message}");
            return ExitCode::from(2);
        }
    };
    println!("{bounds:?}");
    let rules = mutation.map_or(Rules::KEPT, |mutation| mutation.rules);
    let start = Instant::now();
    let mut findings = if mutation.is_some() {
        // In a counterexample hosts keep their names.
        search_shortest(|| Protocol { recovers, ..Protocol::new(bounds, rules) }.named())
    } else {
        let protocol = Protocol { recovers, ..Protocol::new(bounds, rules) };
        search(if named { protocol.named() } else { protocol }, threads)
    };
    findings.took = start.elapsed();
    println!("{findings}");
    if findings.properties.iter().all(|(_, holds)| *holds) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

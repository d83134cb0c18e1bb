//! `ephor-model [--hosts 2|3] [--partitions 1|2] … [--plant BUG]`: searches all states of the lease protocol.
//!
//! A broken promise is told as a story, the shortest there is.

#![allow(clippy::print_stdout, reason = "a command that prints")]

use std::process::ExitCode;
use std::time::Instant;

use ephor_core::rules::Rules;
use ephor_model::bounds::Bounds;
use ephor_model::plants;
use ephor_model::protocol::Protocol;
use ephor_model::search::{cores, search, search_shortest};

const USAGE: &str = "usage: ephor-model [--hosts 2|3] [--partitions 1|2] [--changes N] [--messages N]
                   [--events N] [--seeks N] [--stops N] [--failures N] [--unknowns N|any] [--ticks N|any]
                   [--named] [--no-recovery] [--threads N] [--plant BUG]
  --changes N    at most so many changes of owner, over all partitions
  --messages N   at most so many requests and answers on their way for longer (up to 3);
                 all others arrive at once
  --events N     so many events in a partition
  --seeks N      at most so many seeks
  --stops N      at most so many hosts that stop
  --failures N   at most so many processors that fail
  --unknowns N   at most so many outcomes that stay unknown, or any number
  --ticks N      at most so many ticks, or any number
  --named        hosts and partitions keep their names: states that differ in names count apart
  --no-recovery  do not try from every state that it comes right again
  --plant BUG    take a rule away and tell the shortest way to a broken promise:";

struct Arguments {
    bounds: Bounds,
    plant: Option<&'static plants::Plant>,
    named: bool,
    recovers: bool,
    threads: usize,
}

fn usage() -> String {
    let plants = plants::all().map(|plant| format!("\n                 {}: {}", plant.name, plant.what));
    format!("{USAGE}{}", plants.collect::<String>())
}

fn arguments() -> Result<Arguments, String> {
    let mut parsed =
        Arguments { bounds: Bounds::default(), plant: None, named: false, recovers: true, threads: cores() };
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        let mut value = || given.next().ok_or_else(|| format!("{name} needs a value\n{}", usage()));
        let number = |text: String, most: u8| {
            let number = text.parse::<u8>().ok().filter(|number| *number <= most);
            number.ok_or_else(|| format!("{text:?} is not a number up to {most}\n{}", usage()))
        };
        let any = |text: String, most: u8| {
            if text == "any" { Ok(None) } else { number(text, most).map(Some) }
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
            "--plant" => {
                let bug = value()?;
                let found =
                    plants::find(&bug).ok_or_else(|| format!("no bug {bug:?} to plant\n{}", usage()))?;
                parsed.plant = Some(found);
            }
            _ => return Err(format!("unknown argument {name:?}\n{}", usage())),
        }
    }
    Ok(parsed)
}

#[expect(clippy::disallowed_methods, reason = "says how long a search took")]
fn main() -> ExitCode {
    let Arguments { bounds, plant, named, recovers, threads } = match arguments() {
        Ok(arguments) => arguments,
        Err(message) => {
            println!("{message}");
            return ExitCode::from(2);
        }
    };
    println!("{bounds:?}");
    let rules = plant.map_or(Rules::KEPT, |plant| plant.rules);
    let start = Instant::now();
    let mut findings = if plant.is_some() {
        // In a story nobody changes its name.
        search_shortest(|| Protocol { recovers, ..Protocol::new(bounds, rules) }.named())
    } else {
        let protocol = Protocol { recovers, ..Protocol::new(bounds, rules) };
        search(if named { protocol.named() } else { protocol }, threads)
    };
    findings.took = start.elapsed();
    println!("{findings}");
    if findings.promises.iter().all(|(_, holds)| *holds) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

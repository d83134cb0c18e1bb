//! `ephor-fuzz`: runs random and mutated inputs, on all targets in turn or on each for a time.
//!
//! A case is a number: it determines the input of the corpus, the mutations, and the target if there are
//! several. A failing case is printed with the command that runs it alone.

#![allow(clippy::print_stdout, reason = "a command that prints")]

mod run_cases;

use std::process::ExitCode;
use std::time::Duration;

use ephor_fuzz::{TARGETS, Target};
use run_cases::{Limit, Played, play};

const USAGE: &str = "usage: ephor-fuzz [--cases N] [--from N] [--target NAME]
       ephor-fuzz [--seconds-each N] [--seconds-conversations N] [--from N] [--target NAME]
  --cases N                  number of cases, over all targets (default 10,000)
  --seconds-each N           seconds of CPU time for each parser, one after the other
  --seconds-conversations N  seconds of CPU time for all conversations together
  --from N                   number of the first case (default 0); other cases have other inputs
  --target NAME              run only this target";

const DEFAULT_CASES: u64 = 10_000;

#[derive(Default)]
struct Arguments {
    cases: Option<u64>,
    seconds_each: Option<u64>,
    seconds_conversations: Option<u64>,
    from: u64,
    target: Option<String>,
}

fn arguments() -> Result<Arguments, String> {
    let mut parsed = Arguments::default();
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        let value = given.next().ok_or_else(|| format!("{name} needs a value\n{USAGE}"))?;
        let number = |text: &str| text.parse().map_err(|_| format!("{text:?} is not a number\n{USAGE}"));
        match name.as_str() {
            "--cases" => parsed.cases = Some(number(&value)?),
            "--seconds-each" => parsed.seconds_each = Some(number(&value)?),
            "--seconds-conversations" => parsed.seconds_conversations = Some(number(&value)?),
            "--from" => parsed.from = number(&value)?,
            "--target" => parsed.target = Some(value),
            _ => return Err(format!("unknown argument {name:?}\n{USAGE}")),
        }
    }
    if parsed.cases.is_some() && parsed.by_time() {
        return Err(format!("--cases and --seconds-… cannot be used together\n{USAGE}"));
    }
    Ok(parsed)
}

impl Arguments {
    fn by_time(&self) -> bool {
        self.seconds_each.is_some() || self.seconds_conversations.is_some()
    }

    fn targets(&self) -> Result<Vec<Target>, String> {
        let wanted = |target: &Target| self.target.as_deref().is_none_or(|name| name == target.name);
        let targets: Vec<_> = TARGETS.into_iter().filter(wanted).collect();
        match targets.is_empty() {
            true => Err(format!("there is no such target\n{USAGE}")),
            false => Ok(targets),
        }
    }
}

/// Runs the cases, prints a summary, and returns the number of failures.
fn run() -> Result<usize, String> {
    let arguments = arguments()?;
    let targets = arguments.targets()?;
    if arguments.by_time() {
        return play_by_time(&arguments, &targets);
    }
    let count = targets.len();
    let Played { cases, rounds, failures, wall, .. } =
        play(targets, arguments.from, Limit::Cases(arguments.cases.unwrap_or(DEFAULT_CASES)))?;
    println!(
        "{count} targets, {cases} cases, {failures} failures; server answering after each of {rounds} rounds; {:.0} s, \
         {:.0} a second",
        wall.as_secs_f64(),
        cases as f64 / wall.as_secs_f64().max(0.001),
    );
    Ok(failures)
}

/// Runs one target after the other, each for its time; targets without time are skipped.
fn play_by_time(arguments: &Arguments, targets: &[Target]) -> Result<usize, String> {
    let conversations = targets.iter().filter(|target| target.is_conversation()).count();
    let share = u32::try_from(conversations).unwrap_or(1).max(1);
    let seconds = |given: Option<u64>| Duration::from_secs(given.unwrap_or(0));
    let (mut count, mut cases, mut failures) = (0, 0, 0);
    for target in targets {
        let time = match target.is_conversation() {
            true => seconds(arguments.seconds_conversations) / share,
            false => seconds(arguments.seconds_each),
        };
        if time.is_zero() {
            continue;
        }
        let played = play(vec![*target], arguments.from, Limit::Cpu(time))?;
        let cut = if played.cpu < time && played.failures == 0 {
            format!(", ended before the {:.0} s of CPU time that were asked for", time.as_secs_f64())
        } else {
            String::new()
        };
        println!(
            "{}: {} cases, {:.0} s of CPU in {:.0} s, {} failures{cut}",
            target.name,
            played.cases,
            played.cpu.as_secs_f64(),
            played.wall.as_secs_f64(),
            played.failures,
        );
        count += 1;
        cases += played.cases;
        failures += played.failures;
    }
    println!("{count} targets, {cases} cases, {failures} failures");
    Ok(failures)
}

fn main() -> ExitCode {
    match run() {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(wrong) => {
            println!("{wrong}");
            ExitCode::from(2)
        }
    }
}

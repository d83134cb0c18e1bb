//! `ephor-sim [--from N] [--count M] [--plant BUG]`: plays seeds and judges them.
//! `ephor-sim --moves`: how many moves a change takes, and how long nobody reads.
//!
//! A failing seed prints the command that replays it and the story of its run.

#![allow(clippy::print_stdout, reason = "a command that prints")]

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use ephor_core::rules::Rules;
use ephor_sim::coverage::Coverage;
use ephor_sim::judge::Figures;
use ephor_sim::run::{self, Outcome};

struct Arguments {
    from: u64,
    count: u64,
    rules: Rules,
    story: bool,
    moves: bool,
    plant: Option<String>,
}

const USAGE: &str = "usage: ephor-sim [--from N] [--count M] [--story] [--moves] [--plant fence|epoch|order]
  --from N     the first seed (default 0)
  --count M    how many seeds (default 100)
  --moves      without trouble: the moves that a join, a stop and a crash take,
               beside the fewest possible, and how long nobody reads
  --story      print what happened, also when all went well
  --plant BUG  take a rule away: checkpoints without the fence, a takeover that
               keeps the epoch, a release before the final checkpoint";

fn arguments() -> Result<Arguments, String> {
    let mut parsed =
        Arguments { from: 0, count: 100, rules: Rules::default(), story: false, moves: false, plant: None };
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        let mut value = || given.next().ok_or_else(|| format!("{name} needs a value\n{USAGE}"));
        let number = |text: String| text.parse().map_err(|_| format!("{text:?} is not a number\n{USAGE}"));
        match name.as_str() {
            "--from" => parsed.from = number(value()?)?,
            "--count" => parsed.count = number(value()?)?,
            "--story" => parsed.story = true,
            "--moves" => parsed.moves = true,
            "--plant" => {
                let bug = value()?;
                match bug.as_str() {
                    "fence" => parsed.rules.checkpoints_are_fenced = false,
                    "epoch" => parsed.rules.takeover_raises_the_epoch = false,
                    "order" => parsed.rules.final_checkpoint_comes_first = false,
                    _ => return Err(format!("no bug {bug:?} to plant\n{USAGE}")),
                }
                parsed.plant = Some(bug);
            }
            _ => return Err(format!("unknown argument {name:?}\n{USAGE}")),
        }
    }
    Ok(parsed)
}

#[derive(Default)]
struct Total {
    runs: u64,
    acts: u64,
    figures: Figures,
    coverage: Coverage,
    violations: Vec<(u64, String)>,
}

impl Total {
    fn add(&mut self, seed: u64, outcome: &Outcome) {
        self.runs += 1;
        self.acts += outcome.acts as u64;
        self.coverage.add(&outcome.coverage);
        let (sum, one) = (&mut self.figures, &outcome.figures);
        sum.finished += one.finished;
        sum.repeated += one.repeated;
        sum.skipped += one.skipped;
        sum.unsettled += one.unsettled;
        sum.saves += one.saves;
        for (reason, count) in &one.changes {
            *sum.changes.entry(reason.clone()).or_default() += count;
        }
        self.violations.extend(outcome.violation.clone().map(|violation| (seed, violation)));
    }
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(message) => {
            println!("{message}");
            return ExitCode::from(2);
        }
    };
    if arguments.moves {
        println!("{}", ephor_sim::moves::measure(arguments.from, arguments.count));
        return ExitCode::SUCCESS;
    }
    let next = AtomicU64::new(arguments.from);
    let end = arguments.from.saturating_add(arguments.count);
    let total = Mutex::new(Total::default());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let outcome = run::play(seed, arguments.rules);
                    let mut total = total.lock().expect("no run panics while it adds up");
                    total.add(seed, &outcome);
                    if arguments.story {
                        println!("{}", outcome.history.text());
                    }
                    if let Some(violation) = &outcome.violation {
                        tell(seed, violation, &outcome, arguments.plant.as_deref());
                    }
                    if total.runs.is_multiple_of(100) {
                        println!("{} seeds, {} violations", total.runs, total.violations.len());
                    }
                }
            });
        }
    });
    let total = total.into_inner().expect("no run panics while it adds up");
    sum_up(&total);
    if total.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn tell(seed: u64, violation: &str, outcome: &Outcome, plant: Option<&str>) {
    let plant = plant.map_or(String::new(), |bug| format!(" --plant {bug}"));
    println!("seed {seed}: {violation}");
    println!("the last 40 lines of its story:\n{}", outcome.history.tail(40));
    println!("replay: cargo run -p ephor-sim -- --from {seed} --count 1 --story{plant}\n");
}

fn sum_up(total: &Total) {
    let figures = &total.figures;
    println!("{}", total.coverage);
    println!("\nchanges of owner:");
    for (reason, count) in &figures.changes {
        println!("{count:>10}  {reason}");
    }
    println!(
        "\n{} events finished, {} of them again, {} skipped by policy; {} checkpoints; {} given away unsettled",
        figures.finished, figures.repeated, figures.skipped, figures.saves, figures.unsettled
    );
    for (seed, violation) in total.violations.iter().take(20) {
        println!("seed {seed}: {violation}");
    }
    println!("{} seeds, {} faults, {} violations", total.runs, total.acts, total.violations.len());
}

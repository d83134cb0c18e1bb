//! No acknowledged event is ever lost: crashes at every write and sync, and whatever they may leave.
//!
//! `EPHOR_CRASH_POINTS` says how many points are looked at (2,000 if it is not
//! set); `EPHOR_CRASH_POINT` names a single one, as a violation prints it.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on shall fail right there"
)]

mod crash_model;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crash_model::Checked;
use crash_model::faulty_files::Fate;
use crash_model::point::{Ending, Past, Point, Tally, first_life, steps};
use crash_model::script::{Variant, variants};
use tokio::runtime::Runtime;

const DEFAULT_POINTS: usize = 2_000;

/// So many violations are printed; the first one is the one to look at.
const MOST_PRINTED: usize = 10;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

/// One step of one variant, and the points in it.
struct Step<'a> {
    variant: &'a Variant,
    points: Vec<Point>,
}

/// The points, as evenly as they can be spread over all steps of all variants, and over the endings of each.
fn spread(variants: &[Variant], count: usize) -> Vec<Step<'_>> {
    let runtime = runtime();
    let parts = |variant| steps(variant, &runtime).unwrap_or_else(|violation| panic!("{violation}"));
    let all: Vec<(&Variant, u64, usize)> = variants
        .iter()
        .flat_map(|variant| {
            let steps = parts(variant).into_iter().enumerate();
            steps.map(move |(step, parts)| (variant, step as u64, parts))
        })
        .collect();
    let mut spread = Vec::new();
    for (at, (variant, step, parts)) in all.iter().enumerate() {
        // With fewer points than steps, some steps have none.
        let mine = (at + 1) * count / all.len() - at * count / all.len();
        let points = (0..mine).map(|round| {
            let ending = ending(at + round, round, *parts);
            Point { variant: variant.name.clone(), step: *step, ending, seed: (at + 31 * round) as u64 }
        });
        spread.push(Step { variant, points: points.collect() });
    }
    spread.retain(|step| !step.points.is_empty());
    spread
}

/// The ending of the point with this number. Of a step that has parts, in each round another one is cut.
fn ending(number: usize, round: usize, parts: usize) -> Ending {
    let number = if number.is_multiple_of(2) { number / 2 } else { number / 2 + 3 };
    match number % 8 {
        0 => Ending::Power(Fate::AllLost),
        1 => Ending::Power(Fate::AllKept),
        2 => Ending::Killed { done: false },
        3 => Ending::Killed { done: true },
        4 | 5 if parts > 1 => {
            // Multiples of the golden ratio never come close to one another.
            let share = ((number + round) as f64 * 0.618_033_988_749_894_9).fract();
            Ending::Power(Fate::TornAt((share * parts as f64) as usize))
        }
        _ => Ending::Power(Fate::Random((number * 1_000 + round) as u64)),
    }
}

fn judge_step(step: &Step<'_>, runtime: &Runtime, tally: &mut Tally, violations: &Mutex<Vec<String>>) {
    // What the power failure leaves of one life can be asked for any number of times.
    let mut shared: Option<Past> = None;
    for point in &step.points {
        let mut judge = || -> Checked {
            let live = || first_life(step.variant, runtime, point.step, point.ending);
            match point.ending {
                Ending::Killed { .. } => live()?.judge(step.variant, runtime, point, tally),
                Ending::Power(_) => {
                    let past = match shared.take() {
                        Some(past) => past,
                        None => live()?,
                    };
                    shared.insert(past).judge(step.variant, runtime, point, tally)
                }
            }
        };
        let judged = catch_unwind(AssertUnwindSafe(&mut judge));
        let judged = judged.unwrap_or_else(|_| Err("it panicked, see above".to_owned()));
        if let Err(violation) = judged {
            violations.lock().unwrap().push(format!(
                "{violation}\n  variant {}, step {}, {:?}; replay it with\n  EPHOR_CRASH_POINT={point} cargo test \
                 -p ephor-hub --test crashes -- --nocapture",
                point.variant, point.step, point.ending
            ));
        }
    }
}

fn judge_all(steps: &[Step<'_>]) -> (Tally, Vec<String>) {
    let (next, total, violations) = (AtomicUsize::new(0), Mutex::new(Tally::default()), Mutex::default());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let runtime = runtime();
                let mut tally = Tally::default();
                while let Some(step) = steps.get(next.fetch_add(1, Ordering::Relaxed)) {
                    judge_step(step, &runtime, &mut tally, &violations);
                }
                let mut total = total.lock().unwrap();
                total.points += tally.points;
                total.torn += tally.torn;
                total.reopened += tally.reopened;
            });
        }
    });
    (total.into_inner().unwrap(), violations.into_inner().unwrap())
}

fn report((tally, violations): (Tally, Vec<String>)) {
    violations.iter().take(MOST_PRINTED).for_each(|violation| println!("{violation}\n"));
    let Tally { points, torn, reopened } = tally;
    println!(
        "{points} crash points, {torn} torn tails, {reopened} reopened, {} violations",
        violations.len()
    );
    assert!(violations.is_empty(), "{}", violations[0]);
}

#[test]
fn what_was_acknowledged_survives_every_crash() {
    let variants = variants();
    let single = std::env::var("EPHOR_CRASH_POINT").ok();
    let steps = match &single {
        Some(point) => {
            let point: Point = point.parse().unwrap();
            let variant = variants.iter().find(|variant| variant.name == point.variant).unwrap();
            vec![Step { variant, points: vec![point] }]
        }
        None => {
            let points = std::env::var("EPHOR_CRASH_POINTS").ok();
            spread(&variants, points.map_or(DEFAULT_POINTS, |points| points.parse().unwrap()))
        }
    };
    report(judge_all(&steps));
}

/// The longest commit that is not beyond this is torn at every length.
const TORN_EVERYWHERE: usize = 2_000;

#[test]
fn a_commit_that_is_torn_at_any_length_leaves_whole_batches() {
    let variants = variants();
    let variant = &variants[0];
    let parts = steps(variant, &runtime()).unwrap();
    let short = parts.iter().enumerate().filter(|(_, parts)| **parts <= TORN_EVERYWHERE);
    let (step, parts) = short.max_by_key(|(_, parts)| **parts).unwrap();
    let point = |kept| {
        let ending = Ending::Power(Fate::TornAt(kept));
        Point { variant: variant.name.clone(), step: step as u64, ending, seed: 2 * kept as u64 + 1 }
    };
    report(judge_all(&[Step { variant, points: (0..=*parts).map(point).collect() }]));
}

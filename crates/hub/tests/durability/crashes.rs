//! Tests of crashes at every write and sync, with every file state that they may leave: no acknowledged
//! event is lost.
//!
//! `EPHOR_CRASH_POINTS` is the number of crash points that are tested (2,000 by default); `EPHOR_CRASH_POINT` selects a
//! single one, as a violation prints it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use tokio::runtime::Runtime;

use crate::common::faulty_files::{Fate, FaultyFiles};
use crate::crash_model::Checked;
use crate::crash_model::acknowledged::Model;
use crate::crash_model::committer_clock::START;
use crate::crash_model::crash_point::{Ending, Past, Point, Tally, first_life, steps};
use crate::crash_model::process_run::ProcessRun;
use crate::crash_model::script::{HOMES, Operation, Variant, variants};
use crate::crash_model::watched_files::Watched;
use crate::crash_model::workers::{for_each, runtime};

const DEFAULT_POINTS: usize = 2_000;

/// The violations of this many steps are printed; the first one is the one to look at.
const MAX_PRINTED: usize = 10;

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
    let weights: Vec<usize> = all.iter().map(|(_, _, parts)| weight(*parts)).collect();
    let total: usize = weights.iter().sum();
    let (mut spread, mut before) = (Vec::new(), 0);
    for (at, (variant, step, parts)) in all.iter().enumerate() {
        let behind = before + weights[at];
        // With few points, some steps have none.
        let mine = behind * count / total - before * count / total;
        before = behind;
        let points = (0..mine).map(|round| {
            let ending = ending(at + round, round, *parts);
            Point { variant: variant.name.clone(), step: *step, ending, seed: (at + 31 * round) as u64 }
        });
        spread.push(Step { variant, points: points.collect() });
    }
    spread.retain(|step| !step.points.is_empty());
    spread
}

/// A write over several sectors can be torn in more ways than others.
fn weight(parts: usize) -> usize {
    1 + (parts / 300).min(6)
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

fn judge_step(step: &Step<'_>, runtime: &Runtime, total: &Mutex<Tally>) -> Checked {
    // What the power failure leaves of one process run can be asked for any number of times.
    let mut shared: Option<Past> = None;
    let mut tally = Tally::default();
    let violations = step.points.iter().filter_map(|point| {
        let mut judge = || -> Checked {
            let live = || first_life(step.variant, runtime, point.step, point.ending);
            match point.ending {
                Ending::Killed { .. } => live()?.judge(step.variant, runtime, point, &mut tally),
                Ending::Power(_) => {
                    let past = match shared.take() {
                        Some(past) => past,
                        None => live()?,
                    };
                    shared.insert(past).judge(step.variant, runtime, point, &mut tally)
                }
            }
        };
        let judged = catch_unwind(AssertUnwindSafe(&mut judge));
        let violation = judged.unwrap_or_else(|_| Err("it panicked, see above".to_owned())).err()?;
        let Point { variant, step, ending, .. } = point;
        Some(format!(
            "{violation}\n  variant {variant}, step {step}, {ending:?}; replay it with\n  \
             EPHOR_CRASH_POINT={point} cargo test -p ephor-hub --test durability crashes:: -- --nocapture"
        ))
    });
    let violations: Vec<String> = violations.collect();
    total.lock().unwrap().add(tally);
    if violations.is_empty() { Ok(()) } else { Err(violations.join("\n\n")) }
}

fn judge_all(steps: &[Step<'_>]) {
    let total = Mutex::new(Tally::default());
    let violations = for_each(steps, |runtime, step| judge_step(step, runtime, &total));
    violations.iter().take(MAX_PRINTED).for_each(|(_, violation)| println!("{violation}\n"));
    let Tally { points, torn, reopened } = total.into_inner().unwrap();
    let count = violations.len();
    println!("{points} crash points, {torn} torn tails, {reopened} reopened, {count} violations");
    assert!(violations.is_empty(), "{}", violations[0].1);
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
    judge_all(&steps);
}

/// Nobody knows what of it is on disk: the next commit goes elsewhere.
#[test]
fn a_segment_into_which_a_commit_failed_is_never_written_again() {
    let variants = variants();
    let (variant, runtime) = (&variants[0], runtime());
    for fault in [Operation::FailSyncs(1), Operation::FailWrites(1)] {
        let files = FaultyFiles::new(u64::MAX);
        let watched = Watched::new(&files, None);
        let model = Arc::new(Mutex::new(Model::new(true)));
        let process_run = ProcessRun::open(variant, &runtime, &watched, START, &model).unwrap().unwrap();
        let send = || Operation::Send(HOMES, (0, vec![100]));
        let process_run = process_run.run(&[Operation::CreateHub(HOMES), send()]).unwrap().unwrap();
        let logs =
            || files.files().into_iter().filter(|(path, _)| path.ends_with(".log")).collect::<Vec<_>>();
        let before = logs();
        let process_run = process_run.run(&[fault, send(), send()]).unwrap().unwrap();
        assert_eq!(logs().len(), 2);
        assert_eq!(logs()[0], before[0]);
        process_run.check().unwrap();
    }
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
    // Some at a time, so that all processors have something to do.
    let lengths: Vec<usize> = (0..=*parts).collect();
    let some = |some: &[usize]| Step { variant, points: some.iter().copied().map(point).collect() };
    judge_all(&lengths.chunks(100).map(some).collect::<Vec<_>>());
}

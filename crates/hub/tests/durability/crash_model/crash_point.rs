//! One simulated crash: its step and variant, the state of the files after it, and the restarts that check
//! this state.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;
use tokio::runtime::Runtime;

use super::Checked;
use super::acknowledged::Model;
use super::committer_clock::START;
use super::process_run::{ProcessRun, check_files};
use super::script::Variant;
use super::watched_files::{Death, Watched};
use crate::common::faulty_files::{Fate, FaultyFiles};

/// How a process run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The power fails.
    Power(Fate),
    /// The process dies, and the machine stays on; the power fails in the process run after it.
    Killed { done: bool },
}

/// A crash. Written as `variant/step/ending/seed`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Point {
    pub variant: String,
    pub step: u64,
    pub ending: Ending,
    /// Of all that is left to chance: what the next process runs do, and how they end.
    pub seed: u64,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/", self.variant, self.step)?;
        match self.ending {
            Ending::Power(Fate::AllLost) => f.write_str("lost")?,
            Ending::Power(Fate::AllKept) => f.write_str("kept")?,
            Ending::Power(Fate::TornAt(kept)) => write!(f, "torn-{kept}")?,
            Ending::Power(Fate::Random(seed)) => write!(f, "random-{seed}")?,
            Ending::Killed { done: false } => f.write_str("killed-before")?,
            Ending::Killed { done: true } => f.write_str("killed-after")?,
        }
        write!(f, "/{}", self.seed)
    }
}

impl FromStr for Point {
    type Err = String;

    fn from_str(text: &str) -> Result<Point, String> {
        let wrong = || format!("{text:?} is no crash point; write variant/step/ending/seed");
        let parts: Vec<&str> = text.split('/').collect();
        let [variant, step, ending, seed] = parts[..] else { return Err(wrong()) };
        let ending = match ending.rsplit_once('-') {
            None if ending == "lost" => Ending::Power(Fate::AllLost),
            None if ending == "kept" => Ending::Power(Fate::AllKept),
            Some(("torn", kept)) => Ending::Power(Fate::TornAt(kept.parse().map_err(|_| wrong())?)),
            Some(("random", seed)) => Ending::Power(Fate::Random(seed.parse().map_err(|_| wrong())?)),
            Some(("killed", when)) => Ending::Killed { done: when == "after" },
            _ => return Err(wrong()),
        };
        let (step, seed) = (step.parse().map_err(|_| wrong())?, seed.parse().map_err(|_| wrong())?);
        Ok(Point { variant: variant.to_owned(), step, ending, seed })
    }
}

/// How many process runs there were.
#[derive(Debug, Default, Clone, Copy)]
pub struct Tally {
    pub points: u64,
    pub torn: u64,
    pub reopened: u64,
}

impl Tally {
    pub fn add(&mut self, other: Tally) {
        self.points += other.points;
        self.torn += other.torn;
        self.reopened += other.reopened;
    }
}

/// The files that a first process run left.
pub struct Past {
    files: FaultyFiles,
    model: Model,
    wall: i64,
}

/// The parts of each step of a variant: the space that crash points are taken from.
pub fn steps(variant: &Variant, runtime: &Runtime) -> Checked<Vec<usize>> {
    let files = FaultyFiles::new(u64::MAX);
    let watched = Watched::new(&files, None);
    let model = Arc::new(Mutex::new(Model::new(variant.is_strict())));
    let process_run = ProcessRun::open(variant, runtime, &watched, START, &model)?.ok_or("nothing opens")?;
    let process_run =
        process_run.run(&variant.script)?.ok_or("the script ends early, and nothing crashed")?;
    process_run.check()?;
    end_faults(&files);
    process_run.close()?;
    Ok(watched.parts())
}

/// From now on all that can fail works.
fn end_faults(files: &FaultyFiles) {
    files.lift_limit();
    files.fail_next_writes(0, Errno::IO);
    files.fail_next_syncs(0);
}

/// The first process run of a variant, up to this step.
pub fn first_life(variant: &Variant, runtime: &Runtime, step: u64, ending: Ending) -> Checked<Past> {
    let (crash_at, death) = match ending {
        Ending::Power(_) => (step, None),
        Ending::Killed { done } => (u64::MAX, Some(Death { step, done })),
    };
    let files = FaultyFiles::new(crash_at);
    let watched = Watched::new(&files, death);
    let model = Arc::new(Mutex::new(Model::new(variant.is_strict())));
    let mut wall = START;
    if let Some(process_run) = ProcessRun::open(variant, runtime, &watched, START, &model)?
        && let Some(process_run) = process_run.run(&variant.script)?
    {
        wall = process_run.wall_time();
        end_faults(&files);
        process_run.close()?;
    }
    if !watched.is_down() {
        return Err("the first life ends before its crash: its steps are not always the same".to_owned());
    }
    let model = model.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(Past { files, model, wall: wall + 10_000 })
}

impl Past {
    /// Checks the process runs after this crash.
    pub fn judge(&self, variant: &Variant, runtime: &Runtime, point: &Point, tally: &mut Tally) -> Checked {
        let mut next = Next { variant, runtime, wall: self.wall, seed: point.seed, tally };
        next.tally.points += 1;
        match point.ending {
            Ending::Power(fate) => {
                next.tally.torn += u64::from(matches!(fate, Fate::TornAt(_) | Fate::Random(_)));
                let after = self.files.after_crash(fate);
                let steps = next.whole_life(&after, self.model.clone())?;
                if point.seed.is_multiple_of(2) {
                    let again = self.files.after_crash(fate);
                    again.crash_at(next.chance().u64(0..steps.max(1)));
                    next.cut_life(&again, self.model.clone())?;
                }
                Ok(())
            }
            Ending::Killed { .. } => {
                // The same machine goes on, with all that it has not written yet.
                end_faults(&self.files);
                self.files.crash_at(self.files.operations() + next.chance().u64(0..60));
                next.cut_life(&self.files, self.model.clone())
            }
        }
    }
}

/// The process runs after a crash.
struct Next<'a> {
    variant: &'a Variant,
    runtime: &'a Runtime,
    wall: i64,
    seed: u64,
    tally: &'a mut Tally,
}

impl Next<'_> {
    fn chance(&self) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.seed)
    }

    /// A process run that ends in another crash, at the latest before it is closed; and one behind it.
    fn cut_life(&mut self, files: &FaultyFiles, model: Model) -> Checked {
        let model = Arc::new(Mutex::new(model));
        let watched = Watched::new(files, None);
        self.tally.reopened += 1;
        if let Some(process_run) = ProcessRun::open(self.variant, self.runtime, &watched, self.wall, &model)?
        {
            process_run.check().map_err(|violation| format!("in the second life: {violation}"))?;
            let script = process_run.afterlife(&mut self.chance());
            if let Some(process_run) = process_run.run(&script)? {
                files.power_off();
                drop(process_run);
            }
        }
        files.power_off();
        let mut chance = fastrand::Rng::with_seed(self.seed.wrapping_add(1));
        let fate = match chance.u8(0..10) {
            0..4 => Fate::AllLost,
            4 => Fate::AllKept,
            5..7 => Fate::TornAt(chance.usize(0..600)),
            _ => Fate::Random(chance.u64(..)),
        };
        let model = model.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let after = files.after_crash(fate);
        self.whole_life(&after, model).map(drop).map_err(|violation| {
            format!("after a second crash at step {} ({fate:?}): {violation}", files.operations())
        })
    }

    /// A process run without crash: all is there, sending goes on, and closing in good order is noticed. Tells how
    /// many steps it took up to closing.
    fn whole_life(&mut self, files: &FaultyFiles, model: Model) -> Checked<u64> {
        let strict = self.variant.is_strict();
        if strict {
            check_files(files)?;
        }
        let model = Arc::new(Mutex::new(model));
        let watched = Watched::new(files, None);
        let open = |wall| ProcessRun::open(self.variant, self.runtime, &watched, wall, &model);
        let process_run = open(self.wall)?.ok_or("nothing opens")?;
        process_run.check()?;
        let script = process_run.afterlife(&mut self.chance());
        let process_run = process_run.run(&script)?.ok_or("a life ends without a crash")?;
        process_run.check().map_err(|violation| format!("after sending: {violation}"))?;
        process_run.close()?;
        let steps = files.operations();
        let process_run = open(self.wall + 10_000)?.ok_or("nothing opens")?;
        process_run.check_was_closed()?;
        process_run.check().map_err(|violation| format!("after closing: {violation}"))?;
        process_run.close()?;
        self.tally.reopened += 2;
        if strict {
            check_files(files).map_err(|violation| format!("after closing: {violation}"))?;
        }
        Ok(steps)
    }
}

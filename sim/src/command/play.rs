//! Plays seeds on all cores, and reports the results.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ephor::environment::SystemClock;
use ephor_core::time::{Clock, Monotonic};
use ephor_sim::attempt::{self, Attempt};
use ephor_sim::scenario::Scenario;

use super::arguments::Play;
use super::failures::Failures;
use super::progress::{self, Begun, Progress};
use super::screen::{Far, Screen, violations};
use super::stop::Stop;

/// The interval at which progress is written.
const WRITE_EVERY: Duration = Duration::from_secs(2);
/// At most this many failing seeds are reported while it runs; all of them are listed in the end.
const TOLD_AT_ONCE: usize = 10;

/// Plays the seeds. Returns the exit code.
pub(crate) fn run(asked: &Play) -> u8 {
    attempt::keep_panics_for_the_report();
    let begun = match progress::begin(asked, &progress::program()) {
        Ok(begun) => begun,
        Err(wrong) => {
            println!("ephor-sim: {wrong}");
            return super::MISUSED;
        }
    };
    let Begun { asked, progress, file, said } = begun;
    if let Some(said) = said {
        println!("{said}");
    }
    let stop = Stop::listen();
    let jobs = asked.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let mut watch = Watch::new(&progress, file);
    let state = Mutex::new(progress);
    work(&state, jobs, &stop, &|seed| one(&asked, seed), &mut |progress| watch.look(progress));
    let progress = state.into_inner().unwrap_or_else(PoisonError::into_inner);
    watch.end(&progress, &Failures { asked: &asked, jobs, stop: &stop })
}

/// Plays one seed.
fn one(asked: &Play, seed: u64) -> Attempt {
    let attempt = attempt::attempt(Scenario::draw(seed), asked.rules());
    if asked.story {
        println!("{}", attempt.history.text());
    }
    attempt
}

/// Plays all seeds that are not done, several at a time, until all are done or a stop is requested. Calls
/// `look` from time to time.
pub(super) fn work(
    state: &Mutex<Progress>,
    jobs: usize,
    stop: &Stop,
    one: &(impl Fn(u64) -> Attempt + Sync),
    look: &mut impl FnMut(&Progress),
) {
    std::thread::scope(|scope| {
        let worker = || {
            while !stop.asked() {
                let Some(seed) = lock(state).seeds.take() else { return };
                let attempt = one(seed);
                let mut state = lock(state);
                state.total.add(seed, &attempt);
                state.seeds.done(seed);
            }
        };
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(worker)).collect();
        while workers.iter().any(|worker| !worker.is_finished()) {
            std::thread::park_timeout(Duration::from_millis(100));
            look(&lock(state));
        }
    });
}

fn lock(state: &Mutex<Progress>) -> MutexGuard<'_, Progress> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Shows and writes progress while seeds are played.
struct Watch {
    begun: Monotonic,
    screen: Screen,
    file: PathBuf,
    /// The time of the last write of progress, since the beginning.
    written: Duration,
    /// True once progress could not be written: reported once.
    unwritable: bool,
    /// Failing seeds that were reported.
    told: BTreeSet<u64>,
}

impl Watch {
    fn new(progress: &Progress, file: PathBuf) -> Self {
        Self {
            begun: SystemClock.now(),
            screen: Screen::new(progress.seeds.count_done()),
            file,
            written: Duration::ZERO,
            unwritable: false,
            told: BTreeSet::new(),
        }
    }

    fn far(&self, progress: &Progress) -> Far {
        Far {
            elapsed: SystemClock.now().since(self.begun),
            done: progress.seeds.count_done(),
            count: progress.seeds.count(),
            broken: progress.total.broken.len(),
        }
    }

    fn look(&mut self, progress: &Progress) {
        for (seed, broken) in &progress.total.broken {
            if self.told.len() < TOLD_AT_ONCE && self.told.insert(*seed) {
                self.screen.say(format_args!("seed {seed}: {broken}"));
            }
        }
        let far = self.far(progress);
        self.screen.show(&far);
        if far.elapsed >= self.written + WRITE_EVERY {
            self.written = far.elapsed;
            self.write(progress);
        }
    }

    fn write(&mut self, progress: &Progress) {
        if let Err(error) = progress.write(&self.file)
            && !std::mem::replace(&mut self.unwritable, true)
        {
            let file = self.file.display();
            self.screen.say(format_args!("{file} cannot be written, so this run cannot be resumed: {error}"));
        }
    }

    /// Prints the summary. Returns the exit code.
    fn end(mut self, progress: &Progress, failures: &Failures<'_>) -> u8 {
        let far = self.far(progress);
        let complete = far.done == far.count;
        if !complete {
            self.write(progress);
        }
        self.screen.say(format_args!("{}\n", progress.total));
        if complete {
            failures.tell(&progress.total.broken);
        }
        failures.list(&progress.total.broken);
        println!(
            "{} seeds, {} faults, {}; {:.1} seeds a second",
            progress.total.runs,
            progress.total.acts,
            violations(far.broken),
            self.screen.rate(&far)
        );
        if complete {
            // If it was never written, there is nothing to remove.
            let _ = std::fs::remove_file(&self.file);
        } else {
            let file = self.file.display();
            println!(
                "stopped after {} of {} seeds: the same command goes on from {file}",
                far.done, far.count
            );
        }
        match (far.broken, complete) {
            (0, true) => super::WELL,
            (0, false) => super::STOPPED,
            _ => super::BROKEN,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::super::arguments::Resume;
    use super::super::stop::Stop;
    use super::*;

    fn begun(asked: &Play) -> Begun {
        progress::begin(asked, "this build").expect("no file is named that is not there")
    }

    /// Plays seeds until `most` are done, and leaves the progress file.
    fn play(asked: &Play, most: u64) -> Progress {
        let begun = begun(asked);
        let (state, stop, played) = (Mutex::new(begun.progress), Stop::default(), AtomicU64::new(0));
        let one = |seed| {
            if played.fetch_add(1, Ordering::Relaxed) + 1 >= most {
                stop.ask();
            }
            one(asked, seed)
        };
        work(&state, 2, &stop, &one, &mut |_| {});
        let progress = state.into_inner().expect("nobody panics");
        progress.write(&begun.file).expect("it can be written");
        progress
    }

    #[test]
    fn a_run_that_was_stopped_and_went_on_adds_up_to_one_that_was_not() {
        let folder = std::env::temp_dir().join(format!("ephor-sim-resume-{}", std::process::id()));
        let plant = ephor_sim::plants::find("epoch");
        let asked = Play { count: 8, plant, folder: Some(folder.clone()), ..Play::default() };
        let whole = play(&Play { resume: Resume::No, ..asked.clone() }, u64::MAX);
        assert_eq!(whole.total.runs, 8);
        assert!(!whole.total.broken.is_empty(), "also what broke is remembered");
        let part = play(&Play { resume: Resume::No, ..asked.clone() }, 3);
        assert!((3..=4).contains(&part.total.runs), "{part:?}");
        // Twice: results that were added once are not added again.
        let more = play(&asked, 2);
        assert!(more.total.runs > part.total.runs && more.total.runs < 8);
        let end = play(&asked, u64::MAX);
        let text = |progress: &Progress| serde_json::to_string(progress).expect("plain data");
        assert_eq!(text(&end), text(&whole));
        assert_eq!(end.total.to_string(), whole.total.to_string());

        let other = progress::begin(&asked, "another build").expect("the file is there");
        assert_eq!(other.progress.total.runs, 0);
        assert!(other.said.expect("it is said").contains("another build"));
        std::fs::remove_dir_all(folder).expect("it was there");
    }
}

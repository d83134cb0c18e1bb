//! Runs the simulation for many seeds on all CPU cores, and reports the results.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ephor::environment::SystemClock;
use ephor_core::time::{Clock, Monotonic};
use ephor_sim::run_result::{self, RunResult};
use ephor_sim::scenario::Scenario;

use super::arguments::PlayArguments;
use super::failures::Failures;
use super::progress_display::{Screen, Status, violations};
use super::progress_file::{self, Progress, StartPoint};
use super::stop::Stop;

/// The interval at which progress is written.
const WRITE_INTERVAL: Duration = Duration::from_secs(2);
/// At most this many failing seeds are reported while it runs; all of them are listed in the end.
const MAX_REPORTED: usize = 10;

/// Plays the seeds. Returns the exit code.
pub(crate) fn run(arguments: &PlayArguments) -> u8 {
    run_result::capture_panics();
    let begun = match progress_file::begin(arguments, &progress_file::program()) {
        Ok(begun) => begun,
        Err(wrong) => {
            println!("ephor-sim: {wrong}");
            return super::EXIT_USAGE;
        }
    };
    let StartPoint { arguments, progress, file, message } = begun;
    if let Some(message) = message {
        println!("{message}");
    }
    let stop = Stop::listen();
    let jobs = arguments.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let mut display = ProgressDisplay::new(&progress, file);
    let state = Mutex::new(progress);
    work(&state, jobs, &stop, &|seed| play_seed(&arguments, seed), &mut |progress| display.refresh(progress));
    let progress = state.into_inner().unwrap_or_else(PoisonError::into_inner);
    display.end(&progress, &Failures { arguments: &arguments, jobs, stop: &stop })
}

/// Plays one seed.
fn play_seed(arguments: &PlayArguments, seed: u64) -> RunResult {
    let attempt = run_result::attempt(Scenario::draw(seed), arguments.rules());
    if arguments.history {
        println!("{}", attempt.history.text());
    }
    attempt
}

/// Plays all seeds that are not done, several at a time, until all are done or a stop is requested. Calls
/// `refresh` from time to time.
pub(super) fn work(
    state: &Mutex<Progress>,
    jobs: usize,
    stop: &Stop,
    play_seed: &(impl Fn(u64) -> RunResult + Sync),
    refresh: &mut impl FnMut(&Progress),
) {
    std::thread::scope(|scope| {
        let worker = || {
            while !stop.requested() {
                let Some(seed) = lock(state).seeds.take() else { return };
                let attempt = play_seed(seed);
                let mut state = lock(state);
                state.total.add(seed, &attempt);
                state.seeds.done(seed);
            }
        };
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(worker)).collect();
        while workers.iter().any(|worker| !worker.is_finished()) {
            std::thread::park_timeout(Duration::from_millis(100));
            refresh(&lock(state));
        }
    });
}

fn lock(state: &Mutex<Progress>) -> MutexGuard<'_, Progress> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Shows and writes progress while seeds are played.
struct ProgressDisplay {
    begun: Monotonic,
    screen: Screen,
    file: PathBuf,
    /// The time of the last write of progress, since the beginning.
    written: Duration,
    /// True once progress could not be written: reported once.
    unwritable: bool,
    /// Failing seeds that were reported.
    reported: BTreeSet<u64>,
}

impl ProgressDisplay {
    fn new(progress: &Progress, file: PathBuf) -> Self {
        Self {
            begun: SystemClock.now(),
            screen: Screen::new(progress.seeds.count_done()),
            file,
            written: Duration::ZERO,
            unwritable: false,
            reported: BTreeSet::new(),
        }
    }

    fn status(&self, progress: &Progress) -> Status {
        Status {
            elapsed: SystemClock.now().since(self.begun),
            done: progress.seeds.count_done(),
            count: progress.seeds.count(),
            broken: progress.total.broken.len(),
        }
    }

    fn refresh(&mut self, progress: &Progress) {
        for (seed, broken) in &progress.total.broken {
            if self.reported.len() < MAX_REPORTED && self.reported.insert(*seed) {
                self.screen.print_line(format_args!("seed {seed}: {broken}"));
            }
        }
        let status = self.status(progress);
        self.screen.show(&status);
        if status.elapsed >= self.written + WRITE_INTERVAL {
            self.written = status.elapsed;
            self.write(progress);
        }
    }

    fn write(&mut self, progress: &Progress) {
        if let Err(error) = progress.write(&self.file)
            && !std::mem::replace(&mut self.unwritable, true)
        {
            let file = self.file.display();
            self.screen
                .print_line(format_args!("{file} cannot be written, so this run cannot be resumed: {error}"));
        }
    }

    /// Prints the summary. Returns the exit code.
    fn end(mut self, progress: &Progress, failures: &Failures<'_>) -> u8 {
        let status = self.status(progress);
        let complete = status.done == status.count;
        if !complete {
            self.write(progress);
        }
        self.screen.print_line(format_args!("{}\n", progress.total));
        if complete {
            failures.print_stories(&progress.total.broken);
        }
        failures.list(&progress.total.broken);
        let too_many = progress.total.too_many_exemptions();
        for check in &too_many {
            println!("too many exemptions: {check}");
        }
        println!(
            "{} seeds, {} faults, {}; {:.1} seeds a second",
            progress.total.runs,
            progress.total.injections,
            violations(status.broken),
            self.screen.rate(&status)
        );
        if complete {
            // If it was never written, there is nothing to remove.
            let _ = std::fs::remove_file(&self.file);
        } else {
            let file = self.file.display();
            println!(
                "stopped after {} of {} seeds: the same command resumes from {file}",
                status.done, status.count
            );
        }
        match (status.broken + too_many.len(), complete) {
            (0, true) => super::EXIT_OK,
            (0, false) => super::EXIT_STOPPED,
            _ => super::EXIT_VIOLATION,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::super::arguments::Resume;
    use super::super::stop::Stop;
    use super::*;

    fn begun(arguments: &PlayArguments) -> StartPoint {
        progress_file::begin(arguments, "this build").expect("no file is named that is not there")
    }

    /// Plays seeds until `max` are done, and leaves the progress file.
    fn play(arguments: &PlayArguments, max: u64) -> Progress {
        let begun = begun(arguments);
        let (state, stop, played) = (Mutex::new(begun.progress), Stop::default(), AtomicU64::new(0));
        let count_and_play = |seed| {
            if played.fetch_add(1, Ordering::Relaxed) + 1 >= max {
                stop.request();
            }
            play_seed(arguments, seed)
        };
        work(&state, 2, &stop, &count_and_play, &mut |_| {});
        let progress = state.into_inner().expect("nobody panics");
        progress.write(&begun.file).expect("it can be written");
        progress
    }

    #[test]
    fn a_resumed_run_has_the_same_total_as_an_uninterrupted_one() {
        let folder = std::env::temp_dir().join(format!("ephor-sim-resume-{}", std::process::id()));
        let mutation = ephor_sim::mutations::find("epoch");
        let arguments =
            PlayArguments { count: 8, mutation, folder: Some(folder.clone()), ..PlayArguments::default() };
        let whole = play(&PlayArguments { resume: Resume::No, ..arguments.clone() }, u64::MAX);
        assert_eq!(whole.total.runs, 8);
        assert!(!whole.total.broken.is_empty(), "also what broke is remembered");
        let part = play(&PlayArguments { resume: Resume::No, ..arguments.clone() }, 3);
        assert!((3..=4).contains(&part.total.runs), "{part:?}");
        // Twice: results that were added once are not added again.
        let more = play(&arguments, 2);
        assert!(more.total.runs > part.total.runs && more.total.runs < 8);
        let end = play(&arguments, u64::MAX);
        let text = |progress: &Progress| serde_json::to_string(progress).expect("plain data");
        assert_eq!(text(&end), text(&whole));
        assert_eq!(end.total.to_string(), whole.total.to_string());

        let other = progress_file::begin(&arguments, "another build").expect("the file is there");
        assert_eq!(other.progress.total.runs, 0);
        assert!(other.message.expect("it is said").contains("another build"));
        std::fs::remove_dir_all(folder).expect("it was there");
    }
}

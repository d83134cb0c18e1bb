//! Plays a run and returns its result: success, a broken promise, or a panic of the simulation or of a host.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ephor_core::ids::PartitionId;
use ephor_core::rules::Rules;
use serde::{Deserialize, Serialize};

use crate::history::History;
use crate::run::{Outcome, Run};
use crate::scenario::Scenario;

/// A failure of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFailure {
    /// The kind of the failure. Two runs break the same promise if this text is the same.
    pub promise: String,
    /// The partition, if it is about one.
    pub partition: Option<u32>,
    /// The description, in the words of the judge or of the panic.
    pub what: String,
}

/// The result of a run, however it ended.
pub struct RunResult {
    /// The failure, if there was one.
    pub broken: Option<RunFailure>,
    /// The history, up to the panic if there was one.
    pub history: History,
    /// The outcome, unless the run ended with a panic.
    pub outcome: Option<Outcome>,
}

/// Plays a scenario. A panic counts as a broken promise.
pub fn attempt(scenario: Scenario, rules: Rules) -> RunResult {
    attempt_run(Run::new(scenario, rules))
}

/// Plays a run that is set up. A panic counts as a broken promise.
pub(crate) fn attempt_run(run: Run) -> RunResult {
    let history = run.world.history.clone();
    LAST_PANIC.take();
    match catch_unwind(AssertUnwindSafe(|| run.play())) {
        Ok(outcome) => RunResult { broken: broken(&outcome), history, outcome: Some(outcome) },
        Err(payload) => {
            let what = LAST_PANIC.take().unwrap_or_else(|| panic_message(&*payload));
            history.append(format_args!("VIOLATION: {what}"));
            let broken = RunFailure { promise: without_details(&what), partition: None, what };
            RunResult { broken: Some(broken), history, outcome: None }
        }
    }
}

/// The failure of a run, by its kind. Only this function reads the judge's verdict.
fn broken(outcome: &Outcome) -> Option<RunFailure> {
    let verdict = outcome.violation.as_ref()?;
    let (partition, what) = (verdict.partition.map(|partition| partition.0), verdict.what.clone());
    Some(RunFailure { promise: format!("{}: {}", verdict.promise, without_details(&what)), partition, what })
}

/// The words of a sentence without its numbers, names and data.
fn without_details(text: &str) -> String {
    let plain = text.split('{').next().unwrap_or(text);
    let kept = plain.split_whitespace().filter(|word| {
        word.trim_end_matches(&[',', ':', '.'][..]).chars().all(|letter| letter.is_ascii_lowercase())
    });
    kept.collect::<Vec<_>>().join(" ")
}

thread_local! {
    /// The text of the last panic on this thread, from the panic hook.
    static LAST_PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Stops the printing of panics, for the whole process: each run reports its own, with its location.
pub fn capture_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map_or(String::new(), |place| format!(" at {place}"));
        LAST_PANIC.set(Some(format!("{}{place}", panic_message(panic.payload()))));
    }));
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    format!("a panic: {}", text.unwrap_or("without a message"))
}

impl RunFailure {
    /// The partition that it is about.
    pub fn partition(&self) -> Option<PartitionId> {
        self.partition.map(PartitionId)
    }
}

impl std::fmt::Display for RunFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)?;
        self.partition().map_or(Ok(()), |partition| write!(f, " on {partition:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_recognized_without_its_numbers_and_names() {
        assert_eq!(
            without_details("a save in e1 was accepted after e2 began"),
            "a save in was accepted after began"
        );
        assert_eq!(
            without_details("the partition is owned by Some(host-1#3fa0), which does not run"),
            without_details("the partition is owned by None, which does not run")
        );
        assert_eq!(without_details("the load is not even: {\"host-1\": 3}"), "the load is not even:");
        assert_ne!(
            without_details("the epoch went from e1 to e1"),
            without_details("the checkpoint moved back from #1 to #0")
        );
    }

    #[test]
    fn a_panic_is_a_broken_promise_with_its_words_and_its_history() {
        // A scenario without events panics: the time between two events is a division by their number.
        let attempt = attempt(Scenario { events: 0, ..Scenario::draw(1) }, Rules::default());
        let broken = attempt.broken.expect("a violation");
        assert!(broken.what.contains("panic") && broken.what.contains("zero"), "{broken}");
        assert!(attempt.outcome.is_none());
        assert!(attempt.history.text().contains("VIOLATION: a panic"));
    }
}

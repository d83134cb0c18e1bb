//! Tests that the simulation finds bugs in a user's own processor and store, passes correct ones and repeats
//! a failing seed; and that `docs/simulation.md` shows the code of `recorder.rs`.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod recorder;
mod table;
mod user_store;

use std::sync::Arc;
use std::time::Duration;

use ephor::environment::Environment;
use ephor::memory::MemoryStore;
use ephor::{
    BoxError, CheckpointPolicy, CloseReason, Event, EventProcessor, EventProcessorOptions, PartitionContext,
};
use ephor_testkit::simulation::{self, Fault};
use table::Table;
use user_store::UserStore;

/// The recorder of the example, without its bug.
struct Careful {
    table: Table,
    environment: Arc<dyn Environment>,
}

impl EventProcessor for Careful {
    async fn process_events(&mut self, context: &PartitionContext, events: &[Event]) -> Result<(), BoxError> {
        for event in events {
            self.table.write(&*self.environment, event).await;
        }
        context.checkpoint().await?;
        Ok(())
    }
}

#[test]
fn no_event_is_lost_if_the_checkpoint_comes_after_the_write() {
    let report = simulation::seeds(0..40).play(|world| {
        let table = Table::default();
        let written = table.clone();
        world.processor(move |environment, _| Careful { table: table.clone(), environment });
        world.every_event(move |_, event| written.contains(event));
    });
    let report = report.unwrap();
    assert!(report.seeds == 40 && report.faults > 400 && report.finished > 80_000, "{report}");
}

#[test]
fn no_event_is_lost_either_if_calls_fail_before_and_after_the_write() {
    let report = simulation::seeds(0..20).play(|world| {
        let table = Table::default();
        let written = table.clone();
        world.inject_processor_faults();
        world.faults(|fault| {
            matches!(fault, Fault::Crash | Fault::FailingProcessor | Fault::HangingProcessor)
        });
        world.processor(move |environment, _| Careful { table: table.clone(), environment });
        world.every_event(move |_, event| written.contains(event));
    });
    let report = report.unwrap();
    assert!(report.seeds == 20 && report.faults > 20, "{report}");
}

#[test]
fn a_failing_seed_is_told_and_is_the_same_every_time() {
    let tell = || {
        let failure = simulation::seeds(0..20).play(|world| {
            let table = Table::default();
            let written = table.clone();
            world.processor(move |environment, _| recorder::Recorder { table: table.clone(), environment });
            world.every_event(move |_, event| written.contains(event));
        });
        failure.unwrap_err()
    };
    let first = tell();
    assert!(first.faults <= 2, "{first}");
    for part in ["THE REPORT OF SEED", "WHAT GOES WRONG", "missing from the user's own results"] {
        assert!(first.report.contains(part), "{part}:\n{first}");
    }
    assert_eq!(format!("{first:?}"), tell().to_string());
}

#[test]
fn a_write_that_nobody_waits_for_is_found_with_any_policy() {
    /// Returns at once, and writes in the background.
    struct Hasty {
        table: Table,
        environment: Arc<dyn Environment>,
        writes: Vec<ephor::environment::TaskHandle>,
    }

    impl EventProcessor for Hasty {
        async fn process_events(&mut self, _: &PartitionContext, events: &[Event]) -> Result<(), BoxError> {
            let (table, environment, events) =
                (self.table.clone(), self.environment.clone(), events.to_vec());
            self.writes.push(self.environment.spawn(Box::pin(async move {
                for event in &events {
                    table.write(&*environment, event).await;
                }
            })));
            Ok(())
        }
    }

    let failure = simulation::seeds(0..20).play(|world| {
        let table = Table::default();
        let written = table.clone();
        world.options(EventProcessorOptions {
            checkpoint: CheckpointPolicy::every(Duration::from_secs(1)),
            ..EventProcessorOptions::default()
        });
        world.processor(move |environment, _| Hasty { table: table.clone(), environment, writes: vec![] });
        world.every_event(move |_, event| written.contains(event));
    });
    let failure = failure.unwrap_err();
    assert!(failure.broken.contains("missing from the user's own results"), "{failure}");
    assert!(failure.report.contains("checkpoints: every 1 s"), "{failure}");
}

#[test]
fn every_event_is_counted_once_where_nothing_goes_wrong() {
    // A seed that reads from the earliest event: others skip earlier events.
    let report = simulation::seeds(2..3).play(|world| {
        world.faults(|_| false);
        world.events(100);
        world.bodies(|number| format!("order {number}"));
        world.processor(|_, _| Quiet);
        world.every_event(|_, event| event.text().is_some_and(|text| text.starts_with("order ")));
    });
    assert_eq!(report.unwrap(), simulation::Report { seeds: 1, faults: 0, finished: 100 });
}

#[test]
fn whoever_checkpoints_by_hand_and_seldom_is_not_blamed_for_it() {
    /// Checkpoints now and then, and does not always close.
    struct Seldom(u32);

    impl EventProcessor for Seldom {
        async fn process_events(&mut self, context: &PartitionContext, _: &[Event]) -> Result<(), BoxError> {
            self.0 += 1;
            if self.0.is_multiple_of(20) {
                context.checkpoint().await?;
            }
            Ok(())
        }

        async fn close(&mut self, _: &PartitionContext, _: CloseReason) -> Result<(), BoxError> {
            if self.0.is_multiple_of(2) { Ok(()) } else { Err("not now".into()) }
        }
    }

    let report = simulation::seeds(0..30).play(|world| {
        world.options(EventProcessorOptions {
            checkpoint: CheckpointPolicy::manual(),
            ..EventProcessorOptions::default()
        });
        world.processor(|_, _| Seldom(0));
    });
    assert_eq!(report.unwrap().seeds, 30);
}

struct Quiet;

impl EventProcessor for Quiet {
    async fn process_events(&mut self, _: &PartitionContext, _: &[Event]) -> Result<(), BoxError> {
        Ok(())
    }
}

fn play_store(seeds: std::ops::Range<u64>, fences: bool) -> Result<simulation::Report, simulation::Failure> {
    simulation::seeds(seeds).play(|world| {
        world.store(move |clock| Arc::new(UserStore { inner: MemoryStore::new(clock), fences }));
    })
}

#[test]
fn a_store_that_forgets_to_fence_is_found() {
    let failure = play_store(0..100, false).unwrap_err();
    assert!(failure.broken.contains("was accepted after"), "{failure}");
    assert!(failure.report.contains("goes from nobody to host-"), "{failure}");
}

#[test]
fn a_store_that_fences_keeps_all_promises() {
    let report = play_store(0..40, true).unwrap();
    assert_eq!(report.seeds, 40);
}

/// Checks that the example in the document is the tested one, word for word.
#[test]
fn the_document_shows_what_is_tested() {
    let document = include_str!("../../../../docs/simulation.md");
    let tested = include_str!("recorder.rs");
    let (_, example) = tested.split_once("// In docs/simulation.md from here.\n").unwrap();
    assert!(document.contains(&format!("```rust\n{example}```\n")), "copy it from recorder.rs");
    let test = &example[example.find("#[test]").unwrap()..];
    assert!(test.lines().count() < 30, "{}", test.lines().count());
}

//! The example of `docs/simulation.md`: a user's processor with a bug in its checkpointing, and the test that
//! finds it.

// In docs/simulation.md from here.
use std::sync::Arc;

use ephor::environment::Environment;
use ephor::{BoxError, Event, EventProcessor, PartitionContext};
use ephor_testkit::simulation;

use crate::table::Table;

/// Writes every event to a table.
pub(crate) struct Recorder {
    pub(crate) table: Table,
    pub(crate) environment: Arc<dyn Environment>,
}

impl EventProcessor for Recorder {
    async fn process_events(&mut self, context: &PartitionContext, events: &[Event]) -> Result<(), BoxError> {
        context.checkpoint().await?; // the bug: nothing is written yet
        for event in events {
            self.table.write(&*self.environment, event).await;
        }
        Ok(())
    }
}

#[test]
fn no_event_is_lost() {
    let outcome = simulation::seeds(0..100).play(|world| {
        let table = Table::default(); // outlives every crash, as a database does
        let written = table.clone();
        world.processor(move |environment, _| Recorder { table: table.clone(), environment });
        world.every_event(move |_, event| written.contains(event));
    });
    let failure = outcome.unwrap_err(); // `outcome.unwrap()` in a test of yours: it shows the report
    assert!(failure.broken.contains("missing from the user's own results"), "{failure}");
}

//! Captures the log of this thread.

use std::cell::RefCell;
use std::fmt::{Debug, Write};
use std::sync::Once;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

thread_local! {
    /// The captured lines; none while nobody listens.
    static LINES: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Captures lines from INFO on, until it is dropped.
pub(crate) struct Log(());

impl Log {
    pub(crate) fn of_this_thread() -> Self {
        // One recorder for all threads: tracing would cache an event that first occurs on a thread without
        // one as disabled everywhere.
        static RECORDER: Once = Once::new();
        RECORDER.call_once(|| tracing::subscriber::set_global_default(Recorder).unwrap());
        LINES.set(Some(Vec::new()));
        Self(())
    }

    /// The lines since the last call.
    pub(crate) fn take(&self) -> Vec<String> {
        LINES.replace(Some(Vec::new())).unwrap_or_default()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        LINES.set(None);
    }
}

struct Recorder;

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO && metadata.is_event()
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(format!("{} {}", event.metadata().level(), event.metadata().target()));
        event.record(&mut line);
        LINES.with_borrow_mut(|lines| lines.as_mut().map(|lines| lines.push(line.0)));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

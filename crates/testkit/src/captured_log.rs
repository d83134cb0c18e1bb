//! Captures the log of a thread, so that a test can read it.

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

/// Captures what this thread logs from INFO on, until it is dropped. Each line is the level, the target and the
/// fields: `WARN ephor_host::host message=… host=…`. It does not see other threads.
#[derive(Debug)]
pub struct CapturedLog(());

impl CapturedLog {
    /// Begins. Panics if the process has another global subscriber of `tracing`.
    pub fn of_this_thread() -> Self {
        // One recorder for all threads: tracing would cache an event that first occurs on a thread without
        // one as disabled everywhere.
        static RECORDER: Once = Once::new();
        RECORDER.call_once(|| {
            let set = tracing::subscriber::set_global_default(Recorder);
            assert!(set.is_ok(), "this process has a global subscriber already");
        });
        LINES.set(Some(Vec::new()));
        Self(())
    }

    /// The lines since the last call.
    pub fn take(&self) -> Vec<String> {
        LINES.replace(Some(Vec::new())).unwrap_or_default()
    }
}

impl Drop for CapturedLog {
    fn drop(&mut self) {
        LINES.set(None);
    }
}

struct Recorder;

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string does not fail.
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO && metadata.is_event()
    }

    fn event(&self, event: &Event<'_>) {
        LINES.with_borrow_mut(|lines| {
            let Some(lines) = lines else { return };
            let mut line = Line(format!("{} {}", event.metadata().level(), event.metadata().target()));
            event.record(&mut line);
            lines.push(line.0);
        });
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_this_thread_are_captured_until_it_is_dropped() {
        let log = CapturedLog::of_this_thread();
        tracing::warn!(host = "vm-1", lag = 7, "slow");
        tracing::debug!("a detail");
        std::thread::spawn(|| tracing::warn!("elsewhere")).join().unwrap();
        let target = module_path!();
        assert_eq!(log.take(), [format!("WARN {target} message=slow host=\"vm-1\" lag=7")]);
        assert_eq!(log.take(), [""; 0]);
        drop(log);
        tracing::warn!("unheard");
        assert_eq!(CapturedLog::of_this_thread().take(), [""; 0]);
    }
}

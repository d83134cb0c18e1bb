//! The lines that the code under test logs on the test's own thread.

use std::io;
use std::sync::{Arc, Mutex};

use tracing::subscriber::DefaultGuard;

#[derive(Clone, Default)]
pub(crate) struct LogLines(Arc<Mutex<Vec<u8>>>);

impl LogLines {
    /// Collects lines until the guard is dropped.
    pub(crate) fn collect() -> (Self, DefaultGuard) {
        let lines = Self::default();
        let to = lines.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || to.clone()).with_ansi(false).finish();
        (lines, tracing::subscriber::set_default(subscriber))
    }

    /// The number of lines with these words.
    pub(crate) fn count(&self, words: &str) -> usize {
        String::from_utf8_lossy(&self.0.lock().unwrap()).lines().filter(|line| line.contains(words)).count()
    }
}

impl io::Write for LogLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

//! Test helper: starts the test binary again as a child process that runs one part of the test.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// Tells the child which folder to work on. Without it, the test that is the child's part does nothing.
const FOLDER: &str = "EPHOR_TEST_CHILD_FOLDER";
/// Anything else the child has to know.
const ORDERS: &str = "EPHOR_TEST_CHILD_ORDERS";
/// Sets the child's words apart from those of the test harness, which writes to the same pipe.
const WORD: &str = "child: ";

/// Another process. It is killed when the test lets go of it.
pub(crate) struct ChildProcess {
    pub(crate) child: Child,
    /// Its output, line by line. Lines that it wrote before it died arrive in any case.
    pub(crate) words: Receiver<String>,
    pub(crate) input: Option<ChildStdin>,
}

impl ChildProcess {
    /// Runs one test of this binary alone, in a process of its own.
    pub(crate) fn start(test: &str, folder: &Path, orders: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(FOLDER, folder)
            .env(ORDERS, orders)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        let (words, heard) = channel();
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut line = String::new();
            // A line without its end was cut by the kill: the child had not said it yet.
            while output.read_line(&mut line).is_ok_and(|_| line.ends_with('\n')) {
                if let Some(word) = line.trim_end().strip_prefix(WORD)
                    && words.send(word.to_owned()).is_err()
                {
                    break;
                }
                line.clear();
            }
        });
        Self { child, words: heard, input }
    }

    /// Ends it as a power switch would, and waits until it is gone.
    pub(crate) fn kill(&mut self) -> std::process::ExitStatus {
        self.child.kill().unwrap();
        self.child.wait().unwrap()
    }

    /// Asks it to stop in good order, and waits until it has.
    pub(crate) fn stop(&mut self) -> std::process::ExitStatus {
        self.input = None;
        self.child.wait().unwrap()
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In the child: the folder and the orders; none in an ordinary run of the tests.
pub(crate) fn orders() -> Option<(std::path::PathBuf, String)> {
    let folder = std::env::var_os(FOLDER)?;
    // The harness has begun a line of its own.
    std::io::stdout().write_all(b"\n").unwrap();
    Some((folder.into(), std::env::var(ORDERS).unwrap_or_default()))
}

/// In the child: says one line, which outlives it once this returns.
pub(crate) fn say(word: &str) {
    // One write of less than a page: a pipe takes it whole or not at all.
    std::io::stdout().lock().write_all(format!("{WORD}{word}\n").as_bytes()).unwrap();
}

/// In the child: waits until the parent wants it to stop, or is gone.
pub(crate) fn wait_for_the_end() {
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
}

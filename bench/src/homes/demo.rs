//! Runs `ephor demo` as a child process at a given `--speed`, and measures the rate of readings, latency,
//! CPU time and memory, and whether any reading was lost or counted twice.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ephor::BoxError;
use rustix::process::{Pid, Signal, kill_process};

use super::speed_result::{Cores, Step};
use crate::machine::{busy_time, cpu_time, now, since, sleep};

/// The time limit for its start, and for the last readings to arrive.
const PATIENCE: Duration = Duration::from_secs(300);
const LOOK: Duration = Duration::from_millis(100);
/// The time until the demo runs steadily.
const WARM_UP: Duration = Duration::from_secs(3);

/// A running demo, killed with its processes on drop.
struct Demo {
    child: Child,
}

impl Drop for Demo {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Runs the demo in a folder for the duration `lasts`.
pub(super) fn run(folder: &Path, speed: f64, lasts: Duration) -> Result<Step, BoxError> {
    let program = std::env::current_exe()?.with_file_name("ephor");
    if !program.exists() {
        return Err(format!("{} is missing: run ./check bench, which builds it", program.display()).into());
    }
    let (stdout, stderr) = (folder.join("stdout.txt"), folder.join("stderr.txt"));
    let child = Command::new(program)
        .args(["demo", "--page", "127.0.0.1:0", "--speed", &speed.to_string(), "--data"])
        .arg(folder.join("demo"))
        .stdin(Stdio::null())
        .stdout(File::create(&stdout)?)
        .stderr(File::create(&stderr)?)
        .spawn()?;
    let mut demo = Demo { child };
    let complain = |what: &str| format!("{what}:\n{}", fs::read_to_string(&stderr).unwrap_or_default());
    let began = now();
    // Sensors send when every partition has an owner; then there are results.
    while fs::read_dir(folder.join("demo/results/homes")).map_or(0, Iterator::count) < 16 {
        if demo.child.try_wait()?.is_some() || since(began) > PATIENCE {
            return Err(complain("the demo did not start").into());
        }
        sleep(LOOK);
    }
    sleep(WARM_UP);
    let before = Used::of(demo.child.id());
    let measured = now();
    sleep(lasts);
    let (used, passed) = (Used::of(demo.child.id()), since(measured));
    if let Some(process) = Pid::from_raw(demo.child.id().cast_signed()) {
        kill_process(process, Signal::INT)?;
    }
    let ended = now();
    let status = loop {
        match demo.child.try_wait()? {
            Some(status) => break status,
            None if since(ended) > PATIENCE => return Err(complain("the demo did not end").into()),
            None => sleep(LOOK),
        }
    };
    let text = fs::read_to_string(&stdout)?;
    let number = |words| number(&text, words).ok_or_else(|| complain(&format!("no {words:?} in {text:?}")));
    let (cores, machine) = used.since(&before, passed);
    Ok(Step {
        speed,
        rate: number(" s, ")?,
        p50: number("p50 ")?,
        p99: number("p99 ")?,
        cores,
        machine: (machine, std::thread::available_parallelism()?.get()),
        mebibytes: number("at most ")?,
        exact: status.success(),
    })
}

/// The number after these words.
fn number(text: &str, words: &str) -> Option<u64> {
    let (_, rest) = text.split_once(words)?;
    rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

/// The child processes of a process.
fn children_of(parent: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |process: &u32| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // The second field is the program's name in brackets, which may contain anything.
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        fields.split_whitespace().nth(1).and_then(|id| id.parse().ok()) == Some(parent)
    };
    processes.filter(is_child).collect()
}

/// The CPU time used since the start.
struct Used {
    hub: Duration,
    hosts: Duration,
    parent: Duration,
    machine: Duration,
}

impl Used {
    fn of(demo: u32) -> Self {
        let mut used =
            Self { hub: Duration::ZERO, hosts: Duration::ZERO, parent: cpu_time(demo), machine: busy_time() };
        for child in children_of(demo) {
            let arguments = fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
            let is_hub = arguments.split(|byte| *byte == 0).nth(1) == Some(&b"dev"[..]);
            let part = if is_hub { &mut used.hub } else { &mut used.hosts };
            *part += cpu_time(child);
        }
        used
    }

    fn since(&self, before: &Self, passed: Duration) -> (Cores, f64) {
        let of =
            |now: Duration, then: Duration| now.saturating_sub(then).as_secs_f64() / passed.as_secs_f64();
        let cores = Cores {
            hub: of(self.hub, before.hub),
            hosts: of(self.hosts, before.hosts),
            parent: of(self.parent, before.parent),
        };
        (cores, of(self.machine, before.machine))
    }
}

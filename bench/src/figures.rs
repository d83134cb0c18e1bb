//! Prints a benchmark's figures (Ephor's, the one it is compared with, their ratio, and whether a bound is
//! met), and holds what all benchmarks share: medians, number formats, progress lines, the exit code.

use std::process::ExitCode;
use std::time::Duration;

use ephor::BoxError;

/// The exit code of a command: a bound that is missed is a failure, and an error prints the usage.
pub(crate) fn exit(outcome: Result<bool, BoxError>, usage: &str) -> ExitCode {
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("{error}\nusage: ephor-bench {usage}");
            ExitCode::from(2)
        }
    }
}

/// The number of runs of each side, in turn; the median counts.
pub(crate) const RUNS: usize = 5;

/// The bound of a ratio.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// Our figure beside the other one.
#[derive(Debug)]
pub(crate) struct Figure {
    name: String,
    ours: String,
    other: String,
    ratio: f64,
    bound: Option<Bound>,
}

impl Figure {
    pub(crate) fn new(name: impl Into<String>, ours: String, other: String, ratio: f64) -> Self {
        Self { name: name.into(), ours, other, ratio, bound: None }
    }

    /// A figure of two rates, both in events a second.
    pub(crate) fn rates(name: impl Into<String>, ours: f64, other: f64) -> Self {
        Self::new(name, per_second(ours), per_second(other), ours / other)
    }

    /// A figure of two times.
    pub(crate) fn times(name: impl Into<String>, ours: Duration, other: Duration) -> Self {
        Self::new(name, time(ours), time(other), ours.as_secs_f64() / other.as_secs_f64())
    }

    pub(crate) fn must_be(self, bound: Bound) -> Self {
        Self { bound: Some(bound), ..self }
    }

    pub(crate) fn is_met(&self) -> bool {
        match self.bound {
            Some(Bound::AtLeast(least)) => self.ratio >= least,
            Some(Bound::AtMost(most)) => self.ratio <= most,
            None => true,
        }
    }

    fn print(&self) {
        let Self { name, ours, other, ratio, bound } = self;
        let met = if self.is_met() { "met" } else { "MISSED" };
        let bound = match bound {
            Some(Bound::AtLeast(least)) => format!("  ≥ {least}: {met}"),
            Some(Bound::AtMost(most)) => format!("  ≤ {most}: {met}"),
            None => String::new(),
        };
        println!("{name:<62}{ours:>16}{other:>16}{ratio:>9.2}{bound}");
    }
}

pub(crate) fn print(figures: &[Figure]) {
    println!("{:<62}{:>16}{:>16}{:>9}  bound", "", "ours", "other", "ratio");
    figures.iter().for_each(Figure::print);
}

/// The cost of doubling something: times in rows, each with its ratio to the row before.
pub(crate) struct Doubling {
    columns: &'static [&'static str],
    before: Vec<Duration>,
}

impl Doubling {
    pub(crate) fn begin(what: &str, columns: &'static [&'static str]) -> Self {
        print!("\n{what:<30}");
        columns.iter().for_each(|column| print!("{column:>26}"));
        println!();
        Self { columns, before: Vec::new() }
    }

    pub(crate) fn row(&mut self, name: &str, times: Vec<Duration>) {
        debug_assert_eq!(self.columns.len(), times.len());
        print!("{name:<30}");
        for (column, cell) in times.iter().enumerate() {
            let ratio = match self.before.get(column) {
                Some(before) => format!("×{:.2}", cell.as_secs_f64() / before.as_secs_f64()),
                None => String::new(),
            };
            print!("{:>16}{ratio:>10}", time(*cell));
        }
        println!();
        self.before = times;
    }
}

/// Prints progress on stderr.
pub(crate) fn progress(what: &str) {
    eprintln!("… {what}");
}

pub(crate) fn median<T: PartialOrd + Copy>(values: &[T]) -> T {
    quantile(values, 0.5)
}

/// The value that this share of all values does not exceed.
pub(crate) fn quantile<T: PartialOrd + Copy>(values: &[T], share: f64) -> T {
    let mut sorted = values.to_vec();
    sorted.sort_by(|one, other| one.partial_cmp(other).expect("no value is NaN"));
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

/// `1,234,567/s`
pub(crate) fn per_second(rate: f64) -> String {
    format!("{}/s", thousands(rate as u64))
}

/// `1,234,567`
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().map(ascii).collect();
    groups.join(",")
}

fn ascii(digits: &[u8]) -> &str {
    std::str::from_utf8(digits).expect("digits are text")
}

/// At most four digits, in the unit that fits.
pub(crate) fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let (factor, unit) = match seconds {
        1.0.. => (1.0, "s"),
        1e-3.. => (1e3, "ms"),
        1e-6.. => (1e6, "µs"),
        _ => (1e9, "ns"),
    };
    let value = seconds * factor;
    if value < 10.0 { format!("{value:.2} {unit}") } else { format!("{value:.1} {unit}") }
}

/// In the unit that fits.
pub(crate) fn size(bytes: f64) -> String {
    match bytes {
        1_048_576.0.. => format!("{:.1} MiB", bytes / 1_048_576.0),
        1024.0.. => format!("{:.1} KiB", bytes / 1024.0),
        _ => format!("{bytes:.0} B"),
    }
}

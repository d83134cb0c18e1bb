//! The result of the demo benchmark at one speed: latency, CPU time, memory, and the resource that limits
//! the speed.

use super::FRESH;
use crate::figures::thousands;

/// Readings a second at speed 1.
const DEFAULT_RATE: f64 = 5_000.0;
/// The minimum share of the due readings that must be sent; a few batteries are empty.
const ENOUGH: f64 = 0.95;
/// The share of busy cores at which the machine counts as saturated.
const FULL: f64 = 0.9;

/// CPU time, in cores.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cores {
    pub(super) hub: f64,
    pub(super) hosts: f64,
    /// Sensors, view and page.
    pub(super) parent: f64,
}

impl Cores {
    pub(super) fn sum(self) -> f64 {
        self.hub + self.hosts + self.parent
    }
}

#[derive(Debug)]
pub(super) struct Step {
    pub(super) speed: f64,
    /// Readings a second that were sent.
    pub(super) rate: u64,
    /// The latency, in milliseconds.
    pub(super) p50: u64,
    pub(super) p99: u64,
    pub(super) cores: Cores,
    /// The cores that all processes of the machine kept busy, and the number of its cores.
    pub(super) machine: (f64, usize),
    pub(super) mebibytes: u64,
    /// True if the results match what was sent.
    pub(super) exact: bool,
}

impl Step {
    /// True if the latency was near real time, with all readings that were due.
    pub(super) fn holds(&self) -> bool {
        self.exact && self.is_fresh() && self.is_complete()
    }

    fn is_fresh(&self) -> bool {
        u128::from(self.p99) < FRESH.as_millis()
    }

    fn is_complete(&self) -> bool {
        self.rate as f64 >= ENOUGH * DEFAULT_RATE * self.speed
    }

    pub(super) fn print_head() {
        println!(
            "{:>6}{:>14}{:>10}{:>10}{:>8}{:>8}{:>8}{:>12}{:>10}{:>7}  results",
            "speed", "readings/s", "p50", "p99", "cores", "hub", "hosts", "city, page", "machine", "MiB"
        );
    }

    pub(super) fn print(&self) {
        let Self { speed, rate, p50, p99, cores, machine, mebibytes, exact } = self;
        println!(
            "{speed:>6}{:>14}{:>10}{:>10}{:>8.2}{:>8.2}{:>8.2}{:>12.2}{:>10}{mebibytes:>7}  {}",
            thousands(*rate),
            format!("{p50} ms"),
            format!("{p99} ms"),
            cores.sum(),
            cores.hub,
            cores.hosts,
            cores.parent,
            format!("{:.2}/{}", machine.0, machine.1),
            if *exact { "exact" } else { "WRONG" }
        );
    }

    /// Describes what kept it from being faster.
    pub(super) fn limit(&self) -> String {
        if !self.exact {
            return "the results are wrong".to_owned();
        }
        let what = match (self.is_fresh(), self.is_complete()) {
            (_, false) => format!(
                "{} of {} readings a second were sent, p99 {} ms",
                thousands(self.rate),
                thousands((DEFAULT_RATE * self.speed) as u64),
                self.p99
            ),
            _ => format!("p99 {} ms", self.p99),
        };
        let Cores { hub, hosts, parent } = self.cores;
        let most = [(hub, "the hub"), (hosts, "the hosts"), (parent, "the sensors and the view")];
        let most = most.into_iter().max_by(|one, other| one.0.total_cmp(&other.0)).map_or("", |most| most.1);
        let (used, there) = self.machine;
        let why = if used >= FULL * there as f64 {
            format!("all {there} cores are busy, mostly with {most}")
        } else {
            format!(
                "the processors are not the limit: {used:.2} of {there} cores are busy, mostly with {most}"
            )
        };
        format!("{what}; {why} (hub {hub:.2}, hosts {hosts:.2}, sensors and view {parent:.2})")
    }
}

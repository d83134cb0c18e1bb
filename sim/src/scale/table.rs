//! Formats the tables of `docs/scale.md` as Markdown; `documents.rs` writes the file. All but the last are
//! computed on virtual time from a seed, so they are reproducible.

use std::fmt::Write;
use std::time::Duration;

use super::Scale;
use super::fleet_changes::{Change, grouped};
use super::real_hosts::{Calls, Settling, Whole};

/// The changes, in the order of the tables.
const CHANGES: [Change; 7] = [
    Change::ColdStart,
    Change::SlowStart,
    Change::Join,
    Change::TenthJoins,
    Change::Stop,
    Change::Crash,
    Change::TenthCrashes,
];
/// Calls with a column of their own.
const KINDS: [&str; 7] = ["view", "heartbeat", "renew", "claim", "save", "transfer", "release"];

/// All tables.
pub fn tables(scale: &Scale) -> String {
    let mut text = String::new();
    let mut section = |title: &str, lines: Vec<String>| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{title}\n\n{}\n", lines.join("\n"));
    };
    section("**Whole hosts**: on a store that wakes its users / on one that cannot.", changes(scale));
    section(
        "**Calls to the store**, for each host, at rest and in the minute that begins with a change: \
         on a store that wakes its users / on one that cannot.",
        calls(scale),
    );
    section("**The decisions alone**, on a store that cannot wake anybody.", decisions(scale));
    section(&costs_title(), costs(scale));
    text.pop();
    text
}

fn line(cells: &[String]) -> String {
    format!("| {} |", cells.join(" | "))
}

fn head(names: &[&str], words: usize) -> Vec<String> {
    let rule = (0..names.len()).map(|column| if column < words { "---" } else { "--:" });
    vec![format!("| {} |", names.join(" | ")), format!("|{}|", rule.collect::<Vec<_>>().join("|"))]
}

fn seconds(duration: Duration) -> String {
    format!("{:.2} s", duration.as_secs_f64())
}

/// One text for both stores if it is the same.
fn both(one: String, other: String) -> String {
    if one == other { one } else { format!("{one} / {other}") }
}

fn found(whole: &Whole, change: Change) -> Option<&Settling> {
    whole.changes.iter().find(|settling| settling.change == change)
}

/// The columns of a change.
const COLUMNS: [&str; 7] =
    ["what happens", "hosts × partitions", "at rest after", "scans a host", "moves", "fewest", "claims lost"];

/// The table of the times, scans and moves of fleets of real hosts.
pub fn changes(scale: &Scale) -> Vec<String> {
    let mut lines = head(&COLUMNS, 2);
    for change in CHANGES {
        for (wakes, cannot) in &scale.wholes {
            let (Some(one), Some(other)) = (found(wakes, change), found(cannot, change)) else { continue };
            let pair = |cell: fn(&Settling) -> String| both(cell(one), cell(other));
            lines.push(line(&[
                change.to_string(),
                wakes.size.to_string(),
                pair(|settling| seconds(settling.after)),
                pair(|settling| format!("{:.1}", settling.scans)),
                pair(|settling| grouped(settling.moves as u64)),
                pair(|settling| grouped(settling.fewest as u64)),
                pair(|settling| grouped(settling.claims_lost)),
            ]));
        }
    }
    lines
}

/// The table of their store calls.
pub fn calls(scale: &Scale) -> Vec<String> {
    let names: Vec<&str> =
        ["what happens", "hosts × partitions"].into_iter().chain(KINDS).chain(["all"]).collect();
    let mut lines = head(&names, 2);
    let row = |what: String, size: String, one: &Calls, other: &Calls| {
        let rate = |rate: f64| format!("{rate:.1}");
        let by_kind = KINDS.map(|kind| both(rate(one.rate(kind)), rate(other.rate(kind))));
        let all = both(rate(one.rate_of_all()), rate(other.rate_of_all()));
        line(&[what, size].into_iter().chain(by_kind).chain([all]).collect::<Vec<_>>())
    };
    for (wakes, cannot) in &scale.wholes {
        lines.push(row("at rest".into(), wakes.size.to_string(), &wakes.rest, &cannot.rest));
    }
    for change in CHANGES {
        for (wakes, cannot) in &scale.wholes {
            let (Some(one), Some(other)) = (found(wakes, change), found(cannot, change)) else { continue };
            lines.push(row(change.to_string(), wakes.size.to_string(), &one.calls, &other.calls));
        }
    }
    lines
}

/// The table of fleets that only decide.
pub fn decisions(scale: &Scale) -> Vec<String> {
    let mut lines = head(&COLUMNS, 2);
    for change in CHANGES {
        for fleet in &scale.decisions {
            let Some(settling) = fleet.changes.iter().find(|settling| settling.change == change) else {
                continue;
            };
            lines.push(line(&[
                change.to_string(),
                fleet.size.to_string(),
                seconds(settling.after),
                format!("{:.1}", settling.scans),
                grouped(settling.moves as u64),
                grouped(settling.fewest as u64),
                grouped(settling.claims_lost),
            ]));
        }
    }
    lines
}

fn costs_title() -> String {
    let build = if cfg!(debug_assertions) { "the dev profile" } else { "a release build" };
    format!(
        "**What one decision costs**, by the wall clock of the machine that wrote this, in {build}; \
         no two runs print the same."
    )
}

fn costs(scale: &Scale) -> Vec<String> {
    let names = ["hosts × partitions", "reading a view", "a plan at rest", "a plan when a tenth has joined"];
    let mut lines = head(&names, 1);
    for cost in &scale.costs {
        let time = |time: Duration| format!("{:.2} ms", time.as_secs_f64() * 1_000.0);
        let times = [cost.read, cost.plan_at_rest, cost.plan_joining].map(time);
        lines.push(line(&[cost.size.to_string()].into_iter().chain(times).collect::<Vec<_>>()));
    }
    lines
}

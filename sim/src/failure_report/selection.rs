//! Selects the lines of the history of a failing run that its report shows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ephor_core::ids::PartitionId;

use crate::failure_report::history_lines;
use crate::scenario::Injection;

/// At most this many changes of owner before the end are shown.
const MAX_CHANGES: usize = 3;
/// Without a partition to follow, this many changes of all partitions.
const MAX_CHANGES_OF_ALL: usize = 12;
/// This many lines before the end are shown in detail.
const DETAILED_LINES: usize = 30;
/// The most lines of a report.
const MAX_LINES: usize = 60;

/// A piece of a report.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The line of this number.
    Line(usize),
    /// A short text in place of lines that are left out here.
    LeftOut(String),
}

/// The line about a fault, written when it was injected: with its name, or a sentence of its own.
pub(super) fn line_of(injection: &Injection, lines: &[(Duration, String)]) -> Option<usize> {
    let name = format!("{:?}", injection.fault);
    let sentence =
        |text: &str| ["the ", "an operator ", "a foreign reader"].iter().any(|who| text.starts_with(who));
    let then = || (0..lines.len()).filter(|line| lines[*line].0 == injection.at);
    let named = then().find(|line| lines[*line].1.contains(&name));
    named.or_else(|| then().find(|line| sentence(&lines[*line].1)))
}

/// The lines that matter, in order, up to the one in which the promise breaks.
pub(super) fn of(
    injections: &[Injection],
    partition: Option<PartitionId>,
    lines: &[(Duration, String)],
) -> Vec<Part> {
    let end = lines.iter().position(|(_, text)| text.starts_with("VIOLATION")).unwrap_or(lines.len());
    let lines = &lines[..lines.len().min(end + 1)];
    let done: BTreeSet<usize> = injections.iter().filter_map(|injection| line_of(injection, lines)).collect();
    let start = start(partition, lines);
    let mut hosts: BTreeSet<String> =
        done.iter().flat_map(|line| history_lines::hosts(&lines[*line].1)).collect();
    if let Some(partition) = partition {
        let owned =
            lines[start..].iter().filter(|(_, text)| history_lines::partitions(text).contains(&partition));
        hosts.extend(owned.flat_map(|(_, text)| history_lines::hosts(text)));
    }
    let chosen: Vec<usize> = (0..lines.len())
        .filter(|line| done.contains(line) || (*line >= start && matters(&lines[*line].1, partition, &hosts)))
        .collect();
    shorten(&chosen, lines)
}

/// The line at which the last epochs before the end begin.
fn start(partition: Option<PartitionId>, lines: &[(Duration, String)]) -> usize {
    let (most, of) = match partition {
        Some(partition) => (MAX_CHANGES, format!("{partition:?} goes from ")),
        None => (MAX_CHANGES_OF_ALL, " goes from ".to_owned()),
    };
    let changes = (0..lines.len()).rev().filter(|line| changes_owner(&lines[*line].1, &of));
    changes.take(most).last().unwrap_or(0)
}

fn changes_owner(text: &str, of: &str) -> bool {
    text.starts_with('p') && text.contains(of)
}

fn matters(text: &str, partition: Option<PartitionId>, hosts: &BTreeSet<String>) -> bool {
    let (named, places) = (history_lines::hosts(text), history_lines::partitions(text));
    match partition {
        Some(partition) if !places.is_empty() => places.contains(&partition),
        // Lines about a whole host, or about none: the hub, the store, the end of all faults.
        Some(_) => named.is_empty() || named.iter().any(|host| hosts.contains(host)),
        // Changes of owner, and faults of hosts.
        None if places.is_empty() => history_lines::faulty_call(text).is_none(),
        None => changes_owner(text, " goes from ") || text.starts_with("VIOLATION"),
    }
}

/// Leaves out lines that repeat themselves, and more of them the longer they were before the end.
fn shorten(chosen: &[usize], lines: &[(Duration, String)]) -> Vec<Part> {
    let text = |line: &usize| lines[*line].1.as_str();
    let near = chosen.len().checked_sub(DETAILED_LINES).map_or(0, |first| chosen[first]);
    let alike = |a: &usize, b: &usize| shape(text(a), *b < near) == shape(text(b), *b < near);
    let mut parts = vec![];
    for alike in chosen.chunk_by(alike) {
        match alike {
            // The last lines come right before something happens, and are often its cause.
            [first, middle @ .., last_but_one, last] if !middle.is_empty() && alike.len() > 3 => {
                let middle: Vec<&str> = middle.iter().map(text).collect();
                let left_out = Part::LeftOut(summarize(&middle));
                parts.extend([Part::Line(*first), left_out, Part::Line(*last_but_one), Part::Line(*last)]);
            }
            few => parts.extend(few.iter().map(|line| Part::Line(*line))),
        }
    }
    if parts.len() > MAX_LINES {
        // The beginning shows the cause, and the end the effect.
        let (middle, first) = (parts.len() - MAX_LINES, MAX_LINES / 4);
        parts.splice(first..first + middle, [Part::LeftOut(format!("{middle} lines are left out"))]);
    }
    parts
}

/// The key by which lines count as alike: of network faults the host and the place, of work the host,
/// partition and epoch; of lines long before the end only the host. Any other line is like itself only.
fn shape(text: &str, far_from_end: bool) -> String {
    let call = history_lines::faulty_call(text);
    match (call, history_lines::work(text), text.rsplit_once(" in ")) {
        (Some(call), _, _) if far_from_end => call.host.to_owned(),
        (Some(call), _, _) => format!("{} to the {}", call.host, call.place),
        (_, Some(_), _) if far_from_end => history_lines::hosts(text).concat(),
        (_, Some(_), Some((_, epoch))) => {
            format!("{:?} {:?} {epoch}", history_lines::hosts(text), history_lines::partitions(text))
        }
        _ => text.to_owned(),
    }
}

/// Summarizes lines of one shape.
fn summarize(left_out: &[&str]) -> String {
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for text in left_out {
        let call = history_lines::faulty_call(text).map(|call| format!("{} that fails", call.call));
        let kind =
            call.or_else(|| history_lines::work(text).map(str::to_owned)).unwrap_or_else(|| "more".into());
        *kinds.entry(kind).or_default() += 1;
    }
    let kinds: Vec<String> = kinds.into_iter().map(|(kind, count)| format!("{count} × {kind}")).collect();
    let last_save = left_out.iter().rev().find(|text| history_lines::work(text) == Some("save"));
    let last_save = last_save
        .and_then(|text| history_lines::event(text))
        .map_or(String::new(), |event| format!(" (the last at {event})"));
    format!("{}{last_save}", kinds.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Fault;

    fn history(lines: &[(u64, &str)]) -> Vec<(Duration, String)> {
        lines.iter().map(|(at, text)| (Duration::from_secs(*at), (*text).to_owned())).collect()
    }

    fn shown(partition: Option<u32>, injections: &[Injection], lines: &[(u64, &str)]) -> Vec<String> {
        let lines = history(lines);
        let parts = of(injections, partition.map(PartitionId), &lines);
        let text = |part: &Part| match part {
            Part::Line(line) => lines[*line].1.clone(),
            Part::LeftOut(what) => format!("… {what}"),
        };
        parts.iter().map(text).collect()
    }

    fn injection(at: u64, fault: Fault) -> Injection {
        Injection { at: Duration::from_secs(at), fault, target: 0, lasting: Duration::from_secs(1) }
    }

    #[test]
    fn an_injection_is_found_by_its_time_and_its_name_or_as_a_sentence() {
        let lines = history(&[
            (5, "host-1: PauseProcess for 1s"),
            (9, "host-1 renews p1 in e1"),
            (9, "host-1: PauseProcess for 1s"),
            (12, "host-2 finishes p1 #1 to #1 in e1"),
            (12, "the hub restarts"),
            (12, "p1 goes from host-2#0123456789abcdef to nobody in e1: the hub could not be read"),
        ]);
        assert_eq!(line_of(&injection(9, Fault::PauseProcess), &lines), Some(2));
        assert_eq!(line_of(&injection(12, Fault::HubRestart), &lines), Some(4));
        assert_eq!(line_of(&injection(9, Fault::HubRestart), &lines), None, "it did not take place");
    }

    #[test]
    fn only_the_partition_its_hosts_and_the_world_are_shown_up_to_the_end() {
        let lines = [
            (1, "p1 goes from nobody to host-1 in e1: nobody owned it"),
            (1, "p2 goes from nobody to host-2 in e1: nobody owned it"),
            (2, "host-1 starts"),
            (3, "host-3 starts"),
            (4, "host-1 opens p1 in e1"),
            (4, "host-1 opens p12 in e1"),
            (5, "the hub restarts"),
            (6, "VIOLATION of \"one owner: two of them on p1\""),
            (7, "host-1 closes p1 in e1: Shutdown"),
        ];
        assert_eq!(shown(Some(1), &[], &lines), [0, 2, 4, 6, 7].map(|line: usize| lines[line].1));
        assert_eq!(shown(None, &[], &lines), [0, 1, 2, 3, 6, 7].map(|line: usize| lines[line].1));
    }

    #[test]
    fn the_last_epochs_are_shown_and_every_injection_however_early() {
        let lines = [
            (1, "host-9: Crash for 1s"),
            (2, "p1 goes from nobody to host-1 in e1: a"),
            (3, "host-1 opens p1 in e1"),
            (4, "p1 goes from host-1 to host-2 in e2: b"),
            (5, "p1 goes from host-2 to host-3 in e3: c"),
            (6, "p1 goes from host-3 to host-4 in e4: d"),
        ];
        assert_eq!(
            shown(Some(1), &[injection(1, Fault::Crash)], &lines),
            [0, 3, 4, 5].map(|line: usize| lines[line].1)
        );
    }

    #[test]
    fn repeated_lines_are_counted() {
        let mut lines = vec![(1, "host-1 is called with p1 #0 to #3 in e1")];
        lines.extend([(2, "host-1 finishes p1 #0 to #3 in e1"), (2, "host-1 saves p1 at #3 in e1")]);
        lines.extend([(3, "host-1 renews p1 in e1"), (4, "host-1 is called with p1 #4 to #4 in e1")]);
        lines.extend([(5, "store: Slow hits Renew of host-1 None"); 4]);
        assert_eq!(
            shown(Some(1), &[], &lines),
            [
                lines[0].1,
                "… 1 × finished, 1 × save (the last at #3)",
                lines[3].1,
                lines[4].1,
                lines[5].1,
                "… 1 × renew that fails",
                lines[5].1,
                lines[5].1,
            ]
        );
    }

    #[test]
    fn a_report_has_a_maximum_length() {
        let texts: Vec<String> =
            (0..500).map(|number| format!("host-{number} opens p1 in e{number}")).collect();
        let lines: Vec<(u64, &str)> = texts.iter().map(|text| (1, text.as_str())).collect();
        let shown = shown(Some(1), &[], &lines);
        assert_eq!((shown.len(), shown.last()), (MAX_LINES + 1, texts.last()));
        assert!(shown.contains(&"… 440 lines are left out".to_owned()));
    }
}

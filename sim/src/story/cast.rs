//! Describes the fleet of a story in a few lines.

use ephor::{CheckpointPolicy, FailurePolicy, OnInvalidPosition, StartPosition};

use crate::scenario::{Ending, Fault, Scenario, Style, TROUBLE};
use crate::story::words::span;

/// The fleet, its options and its user code, line by line. Usual values are left out.
pub(super) fn of(scenario: &Scenario) -> Vec<String> {
    let mut told = vec![format!(
        "{}, {}; {} in {}",
        several(scenario.hosts as u64, "host"),
        several(u64::from(scenario.partitions), "partition"),
        several(u64::from(scenario.events), "event"),
        span(TROUBLE),
    )];
    told.extend(style(&scenario.style, scenario));
    if scenario.acts.iter().any(|act| act.fault == Fault::Upgrade) {
        told.push("after an upgrade:".into());
        told.extend(style(&scenario.upgraded, scenario).into_iter().map(|line| format!("  {line}")));
    }
    if scenario.initial != StartPosition::Earliest {
        told.push(format!("without a checkpoint, reading begins at: {}", scenario.initial));
    }
    if scenario.on_invalid != OnInvalidPosition::default() {
        told.push(format!("a position that does not exist: {:?}", scenario.on_invalid));
    }
    if !scenario.wakes {
        told.push("the store cannot wake its users: they look again and again".into());
    }
    if !scenario.distance.is_zero() {
        told.push(format!("the store is far away: one way takes up to {}", span(scenario.distance)));
    }
    if scenario.epochless {
        told.push(
            "the group is shared with processors that know no epochs: everybody reads in epoch 0".into(),
        );
    }
    match scenario.ending {
        Ending::Well => {}
        Ending::OneDrained => told.push("in the end a person has drained one host, and leaves it so".into()),
        Ending::OneBroken => told.push("in the end one host's processor does not open any more".into()),
    }
    told
}

fn style(style: &Style, scenario: &Scenario) -> Vec<String> {
    let most = match style.max_batch_size {
        1 => "one event".to_owned(),
        most => format!("up to {most} events"),
    };
    // A user's own processor takes the time that it takes.
    let time =
        if scenario.call.is_zero() { String::new() } else { format!(", and up to {}", span(scenario.call)) };
    let mut told = vec![
        format!("a lease lasts {}; a call takes {most}{time}", span(style.lease)),
        format!("checkpoints: {}", checkpoints(&style.checkpoint, scenario.by_hand)),
        format!("a call that fails {}", failures(&style.failure)),
    ];
    if let Some(timeout) = style.process_timeout {
        told.push(format!("a call is given up after {}", span(timeout)));
    }
    if let Some(most) = style.max_partitions {
        told.push(format!("no host may own more than {}", several(u64::from(most), "partition")));
    }
    told
}

fn several(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn checkpoints(policy: &CheckpointPolicy, by_hand: f64) -> String {
    let mut when = vec![];
    if let Some(events) = policy.every_events {
        when.push(format!("every {}", several(events, "event")));
    }
    if let Some(every) = policy.every {
        when.push(format!("every {}", span(every)));
    }
    if policy.on_close {
        when.push("when a partition closes".into());
    }
    if by_hand > 0.0 {
        when.push(format!("by hand in {:.0} of 100 calls", by_hand * 100.0));
    }
    if when.is_empty() { "never".into() } else { when.join(", ") }
}

fn failures(policy: &FailurePolicy) -> String {
    match policy {
        FailurePolicy::Retry(_) => "is made again until it succeeds".into(),
        FailurePolicy::SkipAfter { attempts, .. } => {
            format!("is made again; its event is skipped after {}", several(u64::from(*attempts), "attempt"))
        }
        FailurePolicy::Close { pause } => format!("closes its partition for {}", span(*pause)),
    }
}

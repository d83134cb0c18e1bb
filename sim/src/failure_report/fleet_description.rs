//! Describes the fleet of a failing run in a few lines, for its report.

use ephor::{CheckpointPolicy, FailurePolicy, OnInvalidPosition, StartPosition};
use ephor_core::time::duration_text;

use crate::scenario::{Ending, Fault, HostConfig, INJECTION_TIME, Scenario};

/// The fleet, its options and its user code, line by line. Usual values are left out.
pub(super) fn of(scenario: &Scenario) -> Vec<String> {
    let mut lines = vec![format!(
        "{}, {}; {} in {}",
        plural(scenario.hosts as u64, "host"),
        plural(u64::from(scenario.partitions), "partition"),
        plural(u64::from(scenario.events), "event"),
        duration_text(INJECTION_TIME),
    )];
    lines.extend(config(&scenario.config, scenario));
    if scenario.injections.iter().any(|injection| injection.fault == Fault::Upgrade) {
        lines.push("after an upgrade:".into());
        lines.extend(config(&scenario.upgraded, scenario).into_iter().map(|line| format!("  {line}")));
    }
    if scenario.initial != StartPosition::Earliest {
        lines.push(format!("without a checkpoint, reading begins at: {}", scenario.initial));
    }
    if scenario.on_invalid != OnInvalidPosition::default() {
        lines.push(format!("a position that does not exist: {:?}", scenario.on_invalid));
    }
    if !scenario.wakes {
        lines.push("the store cannot notify hosts: they poll it".into());
    }
    if !scenario.distance.is_zero() {
        lines
            .push(format!("the store is far away: one way takes up to {}", duration_text(scenario.distance)));
    }
    if scenario.shared_with_other_sdks {
        lines.push(
            "the group is shared with processors that know no epochs: all hosts read in epoch 0".into(),
        );
    }
    if scenario.reattaches {
        lines.push("receivers attach again by themselves when their links break".into());
    }
    if !scenario.hub_fences {
        lines.push("the hub does not fence readers: leases alone decide who reads".into());
    }
    match scenario.ending {
        Ending::Healthy => {}
        Ending::OneDrained => lines.push("in the end an operator drains one host for good".into()),
        Ending::OneBroken => lines.push("in the end one host's processor does not open any more".into()),
    }
    lines
}

fn config(config: &HostConfig, scenario: &Scenario) -> Vec<String> {
    let max = match config.max_batch_size {
        1 => "one event".to_owned(),
        max => format!("up to {max} events"),
    };
    // A user's own processor takes the time that it takes.
    let time = if scenario.call.is_zero() {
        String::new()
    } else {
        format!(", and up to {}", duration_text(scenario.call))
    };
    let mut lines = vec![
        format!("a lease lasts {}; a call takes {max}{time}", duration_text(config.lease)),
        format!("checkpoints: {}", checkpoints(&config.checkpoint, scenario.by_hand)),
        format!("a call that fails {}", failures(&config.failure)),
    ];
    if let Some(timeout) = config.process_timeout {
        lines.push(format!("a call is cancelled after {}", duration_text(timeout)));
    }
    if let Some(max) = config.max_partitions {
        lines.push(format!("no host may own more than {}", plural(u64::from(max), "partition")));
    }
    lines
}

fn plural(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn checkpoints(policy: &CheckpointPolicy, by_hand: f64) -> String {
    let mut when = vec![];
    if let Some(events) = policy.every_events {
        when.push(format!("every {}", plural(events, "event")));
    }
    if let Some(every) = policy.every {
        when.push(format!("every {}", duration_text(every)));
    }
    if policy.on_close {
        when.push("when a partition closes".into());
    }
    if by_hand > 0.0 {
        when.push(format!("manually in {:.0} of 100 calls", by_hand * 100.0));
    }
    if when.is_empty() { "never".into() } else { when.join(", ") }
}

fn failures(policy: &FailurePolicy) -> String {
    match policy {
        FailurePolicy::Retry(_) => "is retried until it succeeds".into(),
        FailurePolicy::SkipAfter { attempts, .. } => {
            format!("is retried; its event is skipped after {}", plural(u64::from(*attempts), "attempt"))
        }
        FailurePolicy::Close { pause } => format!("closes its partition for {}", duration_text(*pause)),
        other => format!("is handled by {other:?}"),
    }
}

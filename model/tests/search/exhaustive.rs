//! Tests that search exhaustively: all properties hold in all states within the bounds, and every kind of
//! event occurs. The `ephor-model` command runs longer searches.

use std::collections::BTreeMap;

use ephor_core::rules::Rules;
use ephor_model::bounds::Bounds;
use ephor_model::protocol::Protocol;
use ephor_model::search::{Findings, cores, search};

fn all_hold(bounds: Bounds) -> Findings {
    let findings = search(Protocol::new(bounds, Rules::KEPT), cores());
    println!("{bounds:?}\n{findings}");
    let violation: Vec<_> = findings.properties.iter().filter(|(_, holds)| !holds).collect();
    assert!(violation.is_empty(), "{violation:?}\n{findings}");
    findings
}

#[test]
fn two_hosts_two_partitions() {
    let findings = all_hold(Bounds { seeks: 0, ..Bounds::default() });
    assert!(findings.unique > 100_000, "{findings}");
    let counted: BTreeMap<&str, u64> = findings.counted.into_iter().collect();
    // One of each kind, or nothing was proved of it. People and failing processors have a test of their own.
    for (kind, count) in counted {
        let elsewhere = matches!(kind, "sought" | "a host stopped");
        assert!(count > 0 || elsewhere, "this never happened: {kind}");
    }
}

#[test]
fn two_hosts_one_partition_a_seek_a_stop_and_a_failure() {
    let bounds = Bounds { partitions: 1, stops: 1, failures: 1, events: 2, ..Bounds::default() };
    let findings = all_hold(bounds);
    let counted: BTreeMap<&str, u64> = findings.counted.into_iter().collect();
    for kind in ["sought", "a host stopped", "released", "a checkpoint of an older epoch refused"] {
        assert!(counted[kind] > 0, "this never happened: {kind}");
    }
}

#[test]
fn two_hosts_one_partition_two_messages_at_a_time() {
    all_hold(Bounds { partitions: 1, messages: 2, ..Bounds::default() });
}

#[test]
fn three_hosts_one_partition() {
    all_hold(Bounds { hosts: 3, partitions: 1, ..Bounds::default() });
}

#[test]
fn three_hosts_two_partitions() {
    // Two changes of owner: one more takes minutes.
    let bounds = Bounds { hosts: 3, changes: 2, seeks: 0, ..Bounds::default() };
    let findings = search(Protocol::new(bounds, Rules::KEPT), cores());
    println!("{bounds:?}\n{findings}");
    assert!(findings.violation.is_none(), "{findings}");
    assert!(findings.unique > 100_000, "{findings}");
}

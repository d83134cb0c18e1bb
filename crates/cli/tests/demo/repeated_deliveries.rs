//! Tests how many events the demo delivers twice: none after planned moves; after a kill at most those of a
//! few seconds, which no checkpoint covers.

use serde_json::json;

use crate::owner_changes::moves;
use crate::recount::recount;
use crate::running_demo::Demo;

/// 3,000 readings a second.
const LOAD: [&str; 6] = ["--homes", "10000", "--speed", "6", "--hosts", "3"];
const A_SECOND: u64 = 3_000;
/// Results are written every half second, checkpoints once a second; two seconds more for a busy machine, on
/// which a checkpoint may take that long.
const AGAIN_MILLISECONDS: u64 = 3_500;

/// The time without moves, in seconds; longer than that.
const QUIET_SECONDS: u64 = 8;

/// The maximum number of events that `unplanned` changes of owners can deliver again.
fn most(unplanned: u64) -> u64 {
    unplanned * A_SECOND / 16 * AGAIN_MILLISECONDS / 1_000
}

/// Waits until each running host has its share, and no other host owns a partition.
fn balanced(demo: &mut Demo, hosts: usize) {
    demo.wait_for("a balance", |demo| {
        let running = demo.hosts("running");
        let owners = demo.owners(0);
        let theirs = owners.iter().flatten().filter(|owner| running.contains(owner)).count();
        let shares = demo.shares(0);
        let even = shares.first().zip(shares.last()).is_some_and(|(most, least)| most - least <= 1);
        (running.len() == hosts && shares.len() == hosts && theirs == 16 && even).then_some(())
    });
}

#[test]
fn planned_moves_repeat_nothing_and_a_kill_what_no_checkpoint_covers() {
    let place = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(place.path(), &LOAD);
    demo.wait_until_it_flows();
    balanced(&mut demo, 3);
    for _ in 0..3 {
        demo.act(&json!({"action": "add_host"})).unwrap();
    }
    balanced(&mut demo, 6);
    demo.act(&json!({"action": "slow_host", "host": "host-4", "milliseconds": 150})).unwrap();
    for host in ["host-1", "host-4"] {
        demo.do_to(host, "stop_host").unwrap();
    }
    balanced(&mut demo, 4);
    assert_eq!(demo.hosts("stopped"), ["host-1", "host-4"], "both ended in good order");
    let before = moves(&demo.folder());
    let seen = demo.audit();
    assert!(before.planned >= 8, "{before:?}");
    assert!(seen.replayed <= most(before.unplanned), "{} after {before:?}", seen.replayed);

    // Nothing moves for a while, so that owners have saved several checkpoints.
    let quiet = seen.processed + QUIET_SECONDS * A_SECOND;
    demo.wait_for("readings", |demo| (demo.audit().processed >= quiet).then_some(()));
    demo.do_to("host-2", "kill_host").unwrap();
    balanced(&mut demo, 3);
    let after = moves(&demo.folder());
    assert!(after.unplanned > before.unplanned, "{after:?}");
    let folder = demo.folder();
    let audit = demo.interrupt().must_be_exact();
    let count = recount(&folder);
    assert_eq!(count.readings, audit.sent);
    let unplanned = moves(&folder).unplanned;
    assert!(count.replayed <= most(unplanned), "{count:?} after {unplanned} unplanned moves");
    println!(
        "planned: {} delivered again after {before:?}; {} (at most {}) after a kill",
        seen.replayed,
        count.replayed,
        most(unplanned)
    );
}

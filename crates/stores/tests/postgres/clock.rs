//! Tests of times after a failover to a server whose clock is minutes off, and after a clock was set by
//! years: times of the old clock are not compared with the new one. Whole hosts in a failover are in
//! `failover.rs`.

use std::time::Duration;

use ephor_core::epoch::Epoch;
use ephor_core::expiry::{LivenessTracker, Tolerance};
use ephor_core::lease::{ClaimCause, ClaimRequest, LeaseToken};
use ephor_core::store::{ClaimOutcome, RenewalOutcome, Store, View};
use ephor_core::time::Monotonic;

use crate::fixture::{LEASE, P, claim, database, group, host, open, record, save, sql, try_claim, wait};

/// Changes the tables as a failover to a server whose clock is this far ahead does.
async fn fail_over(url: &str, ahead_ms: i64) {
    let text = format!(
        "UPDATE ephor.leases SET server = server - 1, acquired_at = acquired_at - {ahead_ms}, \
         renewed_at = renewed_at - {ahead_ms}, \
         previous_until = CASE WHEN previous_until = 0 THEN 0 ELSE previous_until - {ahead_ms} END; \
         UPDATE ephor.hosts SET server = server - 1, written_at = written_at - {ahead_ms}"
    );
    sql(url, &text).await;
}

/// Whether a host that starts now takes the owner for dead, by two views more than half a lease apart.
fn declares_dead(view: &View) -> bool {
    let mut tracker = LivenessTracker::new(Tolerance::default(), LEASE);
    let second = |n: u64| Monotonic(n * 1_000_000_000);
    tracker.observe(view, second(100), second(100));
    let mut later = view.clone();
    later.at = later.at + Duration::from_secs(20);
    !tracker.observe(&later, second(120), second(120)).expired.is_empty()
}

#[test]
fn nobody_is_declared_dead_by_the_clock_of_another_server() {
    for minutes in [5, -5] {
        wait(async move {
            let url = database().await;
            let store = open(&url);
            store.heartbeat(&group(), &record("a")).await.unwrap();
            let token = claim(&store, P, "a").await;
            fail_over(&url, minutes * 60 * 1_000).await;
            let view = store.view(&group()).await.unwrap();
            assert_eq!(view.leases[0].age, Duration::ZERO);
            assert_eq!(view.hosts[0].age, Duration::ZERO);
            assert!(!declares_dead(&view));
            // The owner renews, and from then on its lease is dated by the new clock.
            assert_eq!(store.renew(&group(), LEASE, &[token]).await.unwrap(), [RenewalOutcome::Renewed]);
            let renewed = store.view(&group()).await.unwrap();
            assert!(renewed.leases[0].age < Duration::from_secs(60));
            assert_eq!(renewed.leases[0].takeover_delay, Duration::ZERO);
        });
    }
}

/// Hosts take an age of zero and watch; people are told that nobody knows.
#[test]
fn an_age_of_another_run_of_the_server_is_said_to_be_unknown() {
    wait(async {
        let url = database().await;
        let store = open(&url);
        store.heartbeat(&group(), &record("a")).await.unwrap();
        let token = claim(&store, P, "a").await;
        let known = |view: &View| (view.leases[0].age_known, view.hosts[0].age_known);
        assert_eq!(known(&store.view(&group()).await.unwrap()), (true, true));
        fail_over(&url, 0).await;
        assert_eq!(known(&store.view(&group()).await.unwrap()), (false, false));
        // Whoever loses a race is told the same.
        let stale = ClaimRequest {
            partition: P,
            host: host("b"),
            duration: LEASE,
            seen: None,
            above: Epoch::NONE,
            cause: ClaimCause::Unowned,
        };
        let lost = store.claim(&group(), &stale).await.unwrap();
        assert!(matches!(&lost, ClaimOutcome::Lost { holder: Some(lease) } if !lease.age_known), "{lost:?}");
        let other = LeaseToken { owner: host("b"), ..token.clone() };
        let lost = store.renew(&group(), LEASE, &[other]).await.unwrap();
        assert!(
            matches!(&lost[..], [RenewalOutcome::Lost { holder: Some(lease) }] if !lease.age_known),
            "{lost:?}"
        );
        // Whoever is heard again is dated again.
        store.renew(&group(), LEASE, &[token]).await.unwrap();
        assert_eq!(known(&store.view(&group()).await.unwrap()), (true, false));
        store.heartbeat(&group(), &record("a")).await.unwrap();
        assert_eq!(known(&store.view(&group()).await.unwrap()), (true, true));
    });
}

/// An hour of this run of the server has to go by before somebody is forgotten who was last heard of in another.
#[test]
fn nobody_is_forgotten_by_the_clock_of_another_server_and_everybody_dead_by_this_one() {
    for hours in [2, -2] {
        wait(async move {
            let url = database().await;
            let store = open(&url);
            for name in ["a", "b"] {
                store.heartbeat(&group(), &record(name)).await.unwrap();
            }
            fail_over(&url, hours * 60 * 60 * 1_000).await;
            for _ in 0..2 {
                store.heartbeat(&group(), &record("b")).await.unwrap();
                let hosts = store.view(&group()).await.unwrap().hosts;
                let seen = |index: usize| (hosts[index].age == Duration::ZERO, hosts[index].age_known);
                assert_eq!((hosts.len(), seen(0), hosts[1].age_known), (2, (true, false), true));
            }
            let an_hour = "UPDATE ephor.hosts SET written_at = written_at - 3600001 WHERE host LIKE 'a#%'";
            sql(&url, an_hour).await;
            store.heartbeat(&group(), &record("b")).await.unwrap();
            assert_eq!(store.view(&group()).await.unwrap().hosts.len(), 1);
        });
    }
}

/// Changes the tables as if the clock of the running server had been set this far ahead.
async fn set_clock(url: &str, ahead_ms: i64) {
    let text = format!(
        "UPDATE ephor.leases SET acquired_at = acquired_at - {ahead_ms}, renewed_at = renewed_at - {ahead_ms}, \
         previous_until = CASE WHEN previous_until = 0 THEN 0 ELSE previous_until - {ahead_ms} END; \
         UPDATE ephor.hosts SET written_at = written_at - {ahead_ms}"
    );
    sql(url, &text).await;
}

/// When a host that starts after the jump takes the owner for dead, by what it sees every second.
fn declared_dead_after(view: &View) -> Option<u64> {
    let mut tracker = LivenessTracker::new(Tolerance::default(), LEASE);
    let second = |n: u64| Monotonic(n * 1_000_000_000);
    (0..=LEASE.as_secs() + 1).find(|after| {
        let mut later = view.clone();
        let passed = Duration::from_secs(*after);
        later.at = later.at + passed;
        // What lies ahead of the clock has no age.
        for lease in later.leases.iter_mut().filter(|lease| !lease.age.is_zero()) {
            lease.age += passed;
        }
        !tracker.observe(&later, second(100 + after), second(100 + after)).expired.is_empty()
    })
}

#[test]
fn a_clock_that_is_set_by_years_while_the_server_runs_costs_nobody_a_lease_and_makes_nobody_wait() {
    for years in [10, -10] {
        wait(async move {
            let url = database().await;
            let store = open(&url);
            store.heartbeat(&group(), &record("a")).await.unwrap();
            let dead = claim(&store, P, "dead").await;
            let won = try_claim(&store, P, "a", ClaimCause::Unresponsive).await.unwrap();
            let ClaimOutcome::Won { token, .. } = won else { panic!("{won:?}") };
            set_clock(&url, years * 365 * 86_400_000).await;
            let view = store.view(&group()).await.unwrap();
            // Nobody delivers nothing for years: what is left of the takeover delay is a lease at most.
            assert!(view.leases[0].takeover_delay <= LEASE, "{:?}", view.leases[0].takeover_delay);
            let half = LEASE.as_secs() / 2;
            let after = declared_dead_after(&view).expect("a dead owner is found out within a lease");
            assert!((half..=LEASE.as_secs()).contains(&after), "after {after} s");
            // The living one renews within half a lease, saves, and hands over.
            let renewed = store.renew(&group(), LEASE, &[token.clone(), dead]).await.unwrap();
            assert!(
                matches!(renewed[..], [RenewalOutcome::Renewed, RenewalOutcome::Lost { .. }]),
                "{renewed:?}"
            );
            assert!(store.view(&group()).await.unwrap().leases[0].age < Duration::from_secs(60));
            save(&store, &token, 1).await.unwrap();
            let taken = try_claim(&store, P, "b", ClaimCause::Unresponsive).await.unwrap();
            let ClaimOutcome::Won { lease, .. } = taken else { panic!("{taken:?}") };
            assert!(
                lease.takeover_delay > LEASE / 2 && lease.takeover_delay <= LEASE,
                "{:?}",
                lease.takeover_delay
            );
        });
    }
}

/// The first test would be of no use if a lease of this server that is as old did not count as expired.
#[test]
fn the_clock_of_the_same_server_counts() {
    wait(async {
        let url = database().await;
        let store = open(&url);
        claim(&store, P, "a").await;
        sql(&url, "UPDATE ephor.leases SET renewed_at = renewed_at - 300000").await;
        let view = store.view(&group()).await.unwrap();
        assert!(view.leases[0].age >= Duration::from_secs(300));
        assert!(declares_dead(&view));
    });
}

/// An owner whose lease was stolen may be at work for the rest of it, whatever the new clock says.
#[test]
fn a_takeover_delay_is_neither_cut_short_nor_made_longer() {
    for minutes in [5, -5] {
        wait(async move {
            let url = database().await;
            let store = open(&url);
            claim(&store, P, "a").await;
            let won = try_claim(&store, P, "b", ClaimCause::Unresponsive).await.unwrap();
            let ClaimOutcome::Won { token, lease, .. } = won else { panic!("{won:?}") };
            assert!(lease.takeover_delay > LEASE / 2);
            fail_over(&url, minutes * 60 * 1_000).await;
            let after = store.view(&group()).await.unwrap().leases[0].clone();
            assert!(
                after.takeover_delay > LEASE / 2 && after.takeover_delay <= LEASE,
                "{:?}",
                after.takeover_delay
            );
            store.renew(&group(), LEASE, &[token]).await.unwrap();
            let renewed = store.view(&group()).await.unwrap().leases[0].clone();
            assert!(
                renewed.takeover_delay > LEASE / 2 && renewed.takeover_delay <= LEASE,
                "{:?}",
                renewed.takeover_delay
            );
            assert_eq!(renewed.previous_owner, after.previous_owner);
        });
    }
}

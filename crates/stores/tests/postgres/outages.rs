//! Tests of whole hosts while their store is unreachable, slow or restarted.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ephor::CloseReason;
use ephor_stores::postgres::PostgresStore;

use crate::fixture::{PATIENCE, open};
use crate::fleet::{Fleet, PARTITIONS, history, short, until};
use crate::guarantees::{Tally, at_most_each, judge, new_lines, takeovers};
use crate::proxy::Weather;
use crate::server::{Server, shared};

const SECOND: Duration = Duration::from_secs(1);

/// How often each trouble comes. `./check outages ROUNDS` lets it come more often.
pub(crate) fn rounds() -> usize {
    std::env::var("EPHOR_OUTAGE_ROUNDS").map_or(1, |rounds| rounds.parse().unwrap())
}

/// Runs to the end, or fails after a long time.
pub(crate) fn run(test: impl Future<Output = Tally>, name: &str) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let limit = PATIENCE * (2 + rounds() as u32);
    let tally = runtime.block_on(async { tokio::time::timeout(limit, test).await.expect("an end in time") });
    println!("{name}: {tally}");
}

/// How a store goes away.
#[derive(Clone, Copy, Debug)]
enum Outage {
    /// Connections are cut, and nobody is let in.
    Closed,
    /// Requests arrive, and no answer comes back.
    Silent,
}

impl Outage {
    /// From the moment that this returns, no call succeeds.
    fn begin(self, weather: &Weather) -> Instant {
        match self {
            Self::Closed => {
                weather.closed.store(true, Ordering::SeqCst);
                weather.cut();
            }
            Self::Silent => weather.swallows.store(true, Ordering::SeqCst),
        }
        Instant::now()
    }

    fn words(self) -> &'static str {
        match self {
            Self::Closed => "the server cannot be reached",
            Self::Silent => "no answer from the store within",
        }
    }
}

#[test]
fn when_the_store_is_away_for_longer_than_a_lease_processing_stops_by_itself_and_resumes() {
    let both = async {
        let (mut closed, silent) = tokio::join!(long(Outage::Closed), long(Outage::Silent));
        closed.add(&silent);
        closed
    };
    run(both, "the store away for longer than a lease");
}

async fn long(outage: Outage) -> Tally {
    let server = shared();
    let mut fleet = Fleet::start(server, short(SECOND * 3, SECOND)).await;
    let direct = open(&server.url(&fleet.database));
    let (mut troubles, mut changes) = (0, 0);
    for _ in 0..rounds() {
        fleet.balanced().await;
        fleet.caught_up().await;
        // By then every lease lives by a renewal, and no longer by its claim.
        tokio::time::sleep(fleet.lease()).await;
        let before = history(&direct, &fleet.group()).await;
        let began = outage.begin(&fleet.weather);
        stopped_by_itself(&fleet, outage, began).await;
        let back = Instant::now();
        fleet.weather.clear_up();
        fleet.balanced().await;
        went_on(&fleet).await;
        nothing_was_delivered_after_the_lease(&fleet, began, back);
        let lines = new_lines(&before, &history(&direct, &fleet.group()).await);
        // Its last owner gives it back, and one takes it; or it is taken over. Who comes back later than others gets its
        // share by one move more.
        at_most_each(&lines, 3);
        (troubles, changes) = (troubles + 1, changes + lines.len());
    }
    fleet.finish().await;
    Tally { troubles, changes, ..judge(&fleet, &server.url(&fleet.database)).await }
}

/// Waits until every processor is closed and every host has said why, and the outage is longer than a lease.
async fn stopped_by_itself(fleet: &Fleet, outage: Outage, began: Instant) {
    until("every processor is closed", async || {
        let closings = fleet.records.closings_since(began);
        let lost = closings.iter().filter(|closing| closing.reason == CloseReason::LeaseLost).count();
        if lost == PARTITIONS as usize && closings.len() == lost { Ok(()) } else { Err(closings) }
    })
    .await;
    tokio::time::sleep((fleet.lease() + SECOND).saturating_sub(began.elapsed())).await;
    until("every host reports the error and its duration", async || {
        for (name, host) in &fleet.hosts {
            let snapshot = host.snapshot().unwrap();
            let told = snapshot.store_error.as_ref().map(ToString::to_string).unwrap_or_default();
            let for_long = snapshot.store_failing_for.is_some_and(|time| time > SECOND);
            if !for_long || !told.contains(outage.words()) || !snapshot.partitions.is_empty() {
                return Err((name, told, snapshot.store_failing_for));
            }
        }
        Ok(())
    })
    .await;
    let complaints = fleet.records.complaints_since(began);
    for name in fleet.hosts.keys() {
        let own = || complaints.iter().filter(|complaint| complaint.host == *name);
        let long = own().filter(|complaint| complaint.failing_for.is_some_and(|time| time > SECOND));
        assert!(
            long.clone().any(|complaint| complaint.text.contains(outage.words())
                && complaint.text.contains("the store has been failing for")),
            "{name} reports the error and its duration: {:#?}",
            own().collect::<Vec<_>>()
        );
    }
    let stopped = complaints.iter().filter(|complaint| complaint.text.contains("stopped by itself"));
    assert_eq!(stopped.count(), PARTITIONS as usize, "{complaints:#?}");
}

/// Every renewal that succeeded was sent before the outage: no lease lasts longer than this.
fn nothing_was_delivered_after_the_lease(fleet: &Fleet, began: Instant, back: Instant) {
    let calls = fleet.records.calls.lock().unwrap();
    let during = calls.iter().filter(|call| call.at > began && call.at < back);
    let late: Vec<_> = during.filter(|call| call.at > began + fleet.lease()).collect();
    assert!(late.is_empty(), "delivered after the lease was over: {late:?}");
}

/// All is well again, and stays so over some renewals and scans.
async fn went_on(fleet: &Fleet) {
    fleet.caught_up().await;
    well_again(fleet).await;
    tokio::time::sleep(SECOND * 3).await;
    fleet.caught_up().await;
}

pub(crate) async fn well_again(fleet: &Fleet) {
    until("every host says that the store is well", async || {
        let ill = fleet.hosts.iter().filter(|(_, host)| {
            let snapshot = host.snapshot().unwrap();
            snapshot.store_failing_for.is_some() || snapshot.store_error.is_some()
        });
        let ill: Vec<_> = ill.map(|(name, _)| name).collect();
        if ill.is_empty() { Ok(()) } else { Err(ill) }
    })
    .await;
}

#[test]
fn when_the_store_is_away_for_less_than_a_lease_nothing_changes_hands() {
    let both = async {
        let (mut closed, silent) = tokio::join!(brief(Outage::Closed), brief(Outage::Silent));
        closed.add(&silent);
        closed
    };
    run(both, "the store away for less than a lease");
}

/// A lease that is long beside the outage, however slow the machine is.
async fn brief(outage: Outage) -> Tally {
    let server = shared();
    let mut fleet = Fleet::start(server, short(SECOND * 10, SECOND)).await;
    let direct = open(&server.url(&fleet.database));
    let mut troubles = 0;
    for _ in 0..rounds() {
        let calm = Calm::begin(&fleet, &direct).await;
        let began = outage.begin(&fleet.weather);
        tokio::time::sleep(SECOND * 2).await;
        assert!(!fleet.records.complaints_since(began).is_empty(), "no host noticed it");
        fleet.weather.clear_up();
        went_on(&fleet).await;
        calm.holds(&fleet, &direct).await;
        troubles += 1;
    }
    fleet.finish().await;
    Tally { troubles, ..judge(&fleet, &server.url(&fleet.database)).await }
}

/// The ownership of a balanced fleet, which shall not change.
struct Calm {
    since: Instant,
    lines: Vec<ephor::OwnershipChange>,
}

impl Calm {
    async fn begin(fleet: &Fleet, direct: &PostgresStore) -> Self {
        fleet.balanced().await;
        fleet.caught_up().await;
        Self { since: Instant::now(), lines: history(direct, &fleet.group()).await }
    }

    async fn holds(&self, fleet: &Fleet, direct: &PostgresStore) {
        let lines = new_lines(&self.lines, &history(direct, &fleet.group()).await);
        assert!(lines.is_empty(), "ownership changed: {lines:#?}");
        let closings = fleet.records.closings_since(self.since);
        assert!(closings.is_empty(), "processors were closed: {closings:?}");
    }
}

#[test]
fn answers_that_come_late_change_nothing() {
    run(late_answers(), "late answers");
}

async fn late_answers() -> Tally {
    let server = shared();
    let mut fleet = Fleet::start(server, short(SECOND * 10, SECOND * 3)).await;
    let direct = open(&server.url(&fleet.database));
    let mut troubles = 0;
    for _ in 0..rounds() {
        let calm = Calm::begin(&fleet, &direct).await;
        for (delay, jitter) in [(300, 0), (100, 400)] {
            fleet.weather.delay_ms.store(delay, Ordering::SeqCst);
            fleet.weather.jitter_ms.store(jitter, Ordering::SeqCst);
            tokio::time::sleep(SECOND * 4).await;
            troubles += 1;
        }
        fleet.caught_up().await;
        calm.holds(&fleet, &direct).await;
        fleet.weather.clear_up();
    }
    fleet.finish().await;
    Tally { troubles, ..judge(&fleet, &server.url(&fleet.database)).await }
}

#[test]
fn a_server_that_crashes_or_is_restarted_costs_nobody_its_partitions() {
    run(restarts(), "the server restarted");
}

async fn restarts() -> Tally {
    let server = tokio::task::spawn_blocking(|| Arc::new(Server::start())).await.unwrap();
    let mut fleet = Fleet::start(&server, short(SECOND * 10, SECOND)).await;
    let (mut troubles, mut changes) = (0, 0);
    for _ in 0..rounds() {
        for stop in [Server::crash, Server::stop] {
            let direct = open(&server.url(&fleet.database));
            let calm = Calm::begin(&fleet, &direct).await;
            let restarted = server.clone();
            let restart = move || {
                stop(&restarted);
                restarted.run_again();
            };
            tokio::task::spawn_blocking(restart).await.unwrap();
            let away = calm.since.elapsed();
            went_on(&fleet).await;
            let lines = new_lines(&calm.lines, &history(&direct, &fleet.group()).await);
            if away < fleet.lease() / 2 {
                calm.holds(&fleet, &direct).await;
                assert!(takeovers(&lines).is_empty());
            }
            at_most_each(&lines, 3);
            (troubles, changes) = (troubles + 1, changes + lines.len());
        }
    }
    fleet.finish().await;
    Tally { troubles, changes, ..judge(&fleet, &server.url(&fleet.database)).await }
}

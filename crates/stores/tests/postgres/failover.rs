//! Tests of whole hosts while their PostgreSQL server is killed and replaced by a standby whose clock is
//! five minutes off.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ephor::HostState;
use ephor_core::store::Store;
use ephor_stores::postgres::PostgresStore;
use ephor_stores::postgres::sqlx::Row;

use crate::fixture::{open, sql};
use crate::fleet::{Fleet, history, short, until};
use crate::guarantees::{Tally, at_most_each, judge, new_lines, takeovers};
use crate::outages::{rounds, run, well_again};
use crate::server::Server;

const SECOND: Duration = Duration::from_secs(1);
const FIVE_MINUTES: i64 = 300;

#[test]
fn a_failover_to_a_clock_five_minutes_off_declares_nobody_dead_and_loses_nothing() {
    let both = async {
        let mut all = Tally::default();
        for _ in 0..rounds() {
            let (ahead, behind) = tokio::join!(fail_over(FIVE_MINUTES), fail_over(-FIVE_MINUTES));
            all.add(&ahead);
            all.add(&behind);
        }
        all
    };
    run(both, "a failover to a clock five minutes off");
}

async fn blocking<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(act).await.unwrap()
}

async fn fail_over(ahead: i64) -> Tally {
    let primary = blocking(|| Arc::new(Server::start())).await;
    let followed = primary.clone();
    let mut fleet = Fleet::start(&primary, short(SECOND * 6, SECOND)).await;
    let standby = blocking(move || Arc::new(followed.standby(ahead))).await;
    follows(&primary, &standby).await;
    fleet.balanced().await;
    fleet.caught_up().await;
    let before = history(&open(&primary.url(&fleet.database)), &fleet.group()).await;

    let began = Instant::now();
    let (dying, successor) = (primary.clone(), standby.clone());
    blocking(move || {
        dying.crash();
        successor.promote();
    })
    .await;
    fleet.weather.lead_to(standby.port);
    fleet.weather.cut();
    let away = began.elapsed();

    let url = standby.url(&fleet.database);
    let direct = open(&url);
    its_clock_is_off(&url, ahead).await;
    fleet.caught_up().await;
    well_again(&fleet).await;
    // Longer than a lease after the jump: a host that counted as dead for it would have lost its leases by now.
    tokio::time::sleep(fleet.lease() + SECOND).await;
    let complaints = fleet.records.complaints_since(began);
    let says = |words: &str| complaints.iter().any(|complaint| complaint.text.contains(words));
    assert!(
        says("the store has been failing for") || says("the store has just begun to fail"),
        "{complaints:#?}"
    );
    assert!(says("the store's clock jumped"), "{complaints:#?}");
    let lines = new_lines(&before, &history(&direct, &fleet.group()).await);
    // Who could not renew in time gives its partition back, and one takes it; or it is taken over. Who comes back later
    // than others gets its share by one move more.
    at_most_each(&lines, 3);
    if away < fleet.lease() / 2 {
        assert!(lines.is_empty(), "after {away:?} without a server: {lines:#?}");
        assert!(fleet.records.closings_since(began).is_empty());
    }
    let changes = lines.len() + newcomer_and_death(&mut fleet, &direct).await;
    its_clock_is_off(&url, ahead).await;
    fleet.finish().await;
    Tally { troubles: 1, changes, ..judge(&fleet, &url).await }
}

/// Waits until the primary waits for its standby with every commit.
async fn follows(primary: &Server, standby: &Server) {
    let url = primary.url("postgres");
    until("the standby follows", async || {
        let rows = sql(&url, "SELECT sync_state FROM pg_stat_replication").await;
        let state = rows.first().map(|row| row.try_get_unchecked::<String, _>("sync_state").unwrap());
        if state.as_deref() == Some("sync") { Ok(()) } else { Err(state) }
    })
    .await;
    let rows = sql(&standby.url("postgres"), "SELECT pg_is_in_recovery()::text AS it").await;
    assert_eq!(rows[0].try_get_unchecked::<String, _>("it").unwrap(), "true");
}

/// The test would be of no use if the clock were right.
async fn its_clock_is_off(url: &str, ahead: i64) {
    let rows = sql(url, "SELECT floor(extract(epoch FROM clock_timestamp()))::bigint AS now").await;
    let now = rows[0].try_get_unchecked::<i64, _>("now").unwrap();
    let ours = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    assert!((now - ours - ahead).abs() < FIVE_MINUTES / 2, "the server's clock is {} s ahead", now - ours);
}

/// On the new clock, a host that joins gets its share and takes nobody for dead, and a host that dies is noticed:
/// its partitions, and no others, are taken over.
async fn newcomer_and_death(fleet: &mut Fleet, direct: &PostgresStore) -> usize {
    let before = history(direct, &fleet.group()).await;
    fleet.join("d").await;
    fleet.balanced().await;
    let joined = history(direct, &fleet.group()).await;
    let handed_over = new_lines(&before, &joined);
    at_most_each(&handed_over, 1);
    assert!(takeovers(&handed_over).is_empty(), "{handed_over:#?}");
    let mut hosts = direct.view(&fleet.group()).await.unwrap().hosts;
    hosts.retain(|host| host.record.state == HostState::Active);
    assert_eq!(hosts.len(), 4, "{hosts:#?}");

    let died = fleet.owned()["b"].clone();
    assert!(!died.is_empty());
    drop(fleet.hosts.remove("b"));
    fleet.balanced().await;
    fleet.caught_up().await;
    let lines = new_lines(&joined, &history(direct, &fleet.group()).await);
    let mut taken_over: Vec<u32> = takeovers(&lines).iter().map(|line| line.partition.0).collect();
    taken_over.sort_unstable();
    assert_eq!(taken_over, died, "{lines:#?}");
    at_most_each(&lines, 2);
    handed_over.len() + lines.len()
}

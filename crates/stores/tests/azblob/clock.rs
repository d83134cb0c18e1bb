//! Tests that the ages of records are computed by the service's clock, even if it differs from this
//! machine's by years.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ephor_core::store::{RenewalOutcome, Store};
use ephor_core::time::Timestamp;

use crate::fixture::{LEASE, P, claim, group, host, record, save, wait};
use crate::server::{Azurite, open, place_on};

const YEARS: i64 = 10 * 365 * 86_400;

fn own_time() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp(i64::try_from(since.as_millis()).unwrap())
}

fn ages_are_the_services(ahead: i64) {
    wait(async {
        let server = Azurite::start_ahead(ahead);
        let store = open(&place_on(&server));
        let token = claim(&store, P, "a").await;
        store.heartbeat(&group(), &record("a")).await.unwrap();
        save(&store, &token, 1).await.unwrap();
        let view = store.view(&group()).await.unwrap();
        let difference = view.at.0 - own_time().0 - ahead * 1_000;
        assert!(difference.abs() < 60_000, "its clock is not {ahead} s ahead, but {difference} ms from that");
        let recent = |time: Timestamp| (view.at.0 - time.0).abs() < 60_000;
        let lease = view.lease(P).unwrap();
        assert!(recent(lease.acquired_at), "{lease:?} at {}", view.at);
        assert!(recent(view.checkpoint(P).unwrap().saved_at));
        assert!(recent(store.history(&group(), None, 1).await.unwrap()[0].at));
        let young = |age: Duration| age < Duration::from_secs(30);
        assert!(young(lease.age) && young(view.host(&host("a")).unwrap().age), "{lease:?}");
        tokio::time::sleep(Duration::from_secs(4)).await;
        let later = store.view(&group()).await.unwrap();
        let (age, host_age) = (later.lease(P).unwrap().age, later.host(&host("a")).unwrap().age);
        assert!(age >= Duration::from_secs(2) && host_age >= Duration::from_secs(2), "{age:?} {host_age:?}");
        assert!(young(age) && young(host_age), "{age:?} {host_age:?}");
        assert_eq!(store.renew(&group(), LEASE, &[token]).await.unwrap(), [RenewalOutcome::Renewed]);
        assert!(store.view(&group()).await.unwrap().lease(P).unwrap().age < age);
    });
}

#[test]
fn a_service_that_is_years_ahead_buries_nobody() {
    ages_are_the_services(YEARS);
}

#[test]
fn a_service_that_is_years_behind_keeps_nobody_alive() {
    ages_are_the_services(-YEARS);
}

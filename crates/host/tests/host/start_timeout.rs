//! Tests of `start_timeout`: the start fails instead of waiting for a hub or a store that does not answer.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use crate::common::faulty_store::{FaultyStore, Op, Trouble};
use ephor::store::{RefusalCause, StoreFuture, StoreLayer, StoreRequest};
use ephor::{EventProcessorHost, EventProcessorOptions, StartError, Store, StoreError};
use ephor_testkit::TestFleet;

const SECOND: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(20);

/// A fleet, its store with faults, and a host that must start within [`LIMIT`].
fn host() -> (TestFleet, FaultyStore, EventProcessorHost) {
    let fleet = TestFleet::new(2).unwrap();
    let store = FaultyStore::new(fleet.store().clone());
    let host = host_on(&fleet, Arc::new(store.clone()));
    (fleet, store, host)
}

/// A host on the fleet's hub and this store.
fn host_on(fleet: &TestFleet, store: Arc<dyn Store>) -> EventProcessorHost {
    let options = EventProcessorOptions { start_timeout: Some(LIMIT), ..EventProcessorOptions::default() };
    EventProcessorHost::builder(Arc::new(fleet.hub().clone()), store)
        .environment(fleet.environment())
        .options(options)
        .for_each_event(|_, _| async { Ok(()) })
        .unwrap()
}

/// The error of a start that fails, and the time that it took.
async fn failed_start(fleet: &TestFleet, host: &EventProcessorHost) -> (StartError, Duration) {
    let environment = fleet.environment();
    let began = environment.now();
    let error = host.start().await.unwrap_err();
    assert!(host.snapshot().is_none(), "nothing runs");
    let has_cause = !matches!(error, StartError::EmptyHub { .. });
    assert_eq!(error.source().is_some(), has_cause, "the cause is the source");
    (error, environment.now().since(began))
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_does_not_answer_in_time_fails_the_start() {
    let (fleet, _, host) = host();
    fleet.hub().fail(Some("the hub is away"));
    let (error, took) = failed_start(&fleet, &host).await;
    assert!(matches!(error, StartError::HubUnavailable { .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        "the hub memory/test has not answered within 20s (start_timeout): the hub is not available: the hub is away"
    );
    assert!((LIMIT..LIMIT + SECOND).contains(&took), "{took:?}");
    assert!(fleet.store().groups().await.unwrap().is_empty(), "nothing is left behind");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_in_time_fails_the_start() {
    for (trouble, cause) in [
        (Trouble::Fails, "the store is not available: "),
        (Trouble::Hangs, "no answer from the store within "),
    ] {
        let (fleet, store, host) = host();
        store.trouble_all(trouble);
        let (error, took) = failed_start(&fleet, &host).await;
        assert!(matches!(error, StartError::StoreUnavailable { .. }), "{error:?}");
        let message = error.to_string();
        let expected = format!("the store has not answered within 20s (start_timeout): {cause}");
        assert!(message.starts_with(&expected), "{message}");
        assert!((LIMIT..LIMIT + SECOND).contains(&took), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hub_and_a_store_that_come_back_in_time_are_waited_for() {
    let (fleet, store, host) = host();
    fleet.hub().fail(Some("the hub is away"));
    store.trouble_times(Op::View, Trouble::Fails, 2);
    let hub_returns = async {
        fleet.pass(SECOND * 10).await;
        assert!(host.snapshot().is_none(), "it still waits");
        fleet.hub().fail(None);
    };
    let (started, ()) = tokio::join!(host.start(), hub_returns);
    started.unwrap();
    fleet.until("owns all", || host.snapshot().unwrap().partitions.len() == 2).await.unwrap();
}

/// A store that does not accept the credentials.
struct Refusing(Arc<dyn Store>);

impl StoreLayer for Refusing {
    fn inner(&self) -> &dyn Store {
        &*self.0
    }
    fn forward<T: Send + 'static>(&self, _: StoreRequest<T>) -> StoreFuture<'_, T> {
        Box::pin(async { Err(StoreError::refused(RefusalCause::InvalidCredentials, "wrong password")) })
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_retry_would_not_fix_fails_the_start_at_once() {
    let fleet = TestFleet::new(2).unwrap();
    let store = fleet.store().clone();
    let (error, took) = failed_start(&fleet, &host_on(&fleet, Arc::new(Refusing(store.clone())))).await;
    assert!(matches!(error, StartError::Store { .. }), "{error:?}");
    assert_eq!(error.to_string(), "cannot start on this store: the store refuses: wrong password");
    assert_eq!(took, Duration::ZERO);

    let fleet = TestFleet::new(0).unwrap();
    let (error, took) = failed_start(&fleet, &host_on(&fleet, store)).await;
    assert!(matches!(error, StartError::EmptyHub { .. }), "{error:?}");
    assert_eq!(took, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_the_wait() {
    let (fleet, _, host) = host();
    fleet.hub().fail(Some("the hub is away"));
    let report = host.run_until(fleet.pass(SECOND * 3), SECOND).await.unwrap();
    assert!(report.is_clean() && report.drained.is_empty());
    assert!(host.snapshot().is_none());
}

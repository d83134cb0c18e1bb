//! Tests of late and lost answers, cut connections, and a server that crashes: every call ends in time, and
//! no ownership rule is broken.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ephor_core::lease::TransferRequest;
use ephor_core::store::{GiveUpOutcome, Store, StoreError};
use ephor_stores::postgres::{PostgresOptions, PostgresStore};

use crate::fixture::{
    LEASE, P, claim, database_on, group, host, open, open_with, record, save, stored, wait,
};
use crate::proxy;
use crate::server::{Server, shared};
use crate::stress::{AcknowledgedChanges, hosts, look_on, settle};

const LIMIT: Duration = Duration::from_millis(400);

fn hasty() -> PostgresOptions {
    PostgresOptions { call_limit: LIMIT, lock_wait: LIMIT / 2, ..PostgresOptions::default() }
}

fn through(server: &Server, name: &str, port: u16) -> String {
    server.url(name).replace(&format!(":{}/", server.port), &format!(":{port}/"))
}

/// A store over a proxy, and one past it.
async fn two_ways() -> (PostgresStore, PostgresStore, Arc<proxy::Weather>) {
    let server = shared();
    let name = database_on(server).await;
    let (port, weather) = proxy::start(server.port).await;
    let store = open_with(&through(server, &name, port), hasty());
    store.check().await.unwrap();
    (store, open(&server.url(&name)), weather)
}

#[test]
fn a_save_whose_answer_is_lost_is_done_and_safe_to_repeat() {
    wait(async {
        let (store, direct, weather) = two_ways().await;
        let token = claim(&store, P, "a").await;
        save(&store, &token, 1).await.unwrap();
        weather.delay_ms.store(10_000, Ordering::SeqCst);
        let began = Instant::now();
        let error = save(&store, &token, 2).await.expect_err("no answer");
        assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
        assert!(began.elapsed() < LIMIT + Duration::from_secs(5), "{:?}", began.elapsed());
        weather.clear_up();
        // The connection that waits for the late answer is not used again.
        assert!(save(&store, &token, 3).await.is_ok());
        assert_eq!(stored(&direct, P).await, Some(3));
        assert!(store.view(&group()).await.unwrap().lease(P).unwrap().token() == Some(token));
    });
}

#[test]
fn every_call_ends_in_time_when_no_answer_comes() {
    wait(async {
        let (store, direct, weather) = two_ways().await;
        store.heartbeat(&group(), &record("a")).await.unwrap();
        let token = claim(&store, P, "a").await;
        weather.swallows.store(true, Ordering::SeqCst);
        let began = Instant::now();
        let tokens = [token.clone()];
        let request =
            TransferRequest { token: token.clone(), to: host("b"), duration: LEASE, checkpoint_saved: true };
        assert!(store.view(&group()).await.is_err());
        assert!(store.groups().await.is_err());
        assert!(store.heartbeat(&group(), &record("a")).await.is_err());
        assert!(store.renew(&group(), LEASE, &tokens).await.is_err());
        assert!(save(&store, &token, 1).await.is_err());
        assert!(store.transfer(&group(), &request).await.is_err());
        assert!(store.retire(&group(), &host("z")).await.is_err());
        assert!(began.elapsed() < 7 * LIMIT + Duration::from_secs(10), "{:?}", began.elapsed());
        weather.clear_up();
        // Nothing of it stands in anybody's way.
        save(&direct, &token, 2).await.unwrap();
        assert_eq!(store.transfer(&group(), &request).await.unwrap(), GiveUpOutcome::Done);
    });
}

#[test]
fn a_listener_that_was_cut_off_wakes_again() {
    wait(async {
        let (store, direct, weather) = two_ways().await;
        store.heartbeat(&group(), &record("b")).await.unwrap();
        let mut token = claim(&direct, P, "a").await;
        for _ in 0..2 {
            weather.cut();
            // After it has reconnected, everybody is woken once, for what may have been missed.
            store.changed(&group(), &host("b")).await;
            let request = TransferRequest { token, to: host("b"), duration: LEASE, checkpoint_saved: true };
            assert_eq!(direct.transfer(&group(), &request).await.unwrap(), GiveUpOutcome::Done);
            store.changed(&group(), &host("b")).await;
            token = claim(&direct, P, "a").await;
        }
    });
}

#[test]
fn no_rule_is_broken_by_a_bad_network() {
    wait(async {
        let server = shared();
        let name = database_on(server).await;
        let (port, weather) = proxy::start(server.port).await;
        let url = through(server, &name, port);
        let direct = open(&server.url(&name));
        direct.check().await.unwrap();
        let stores = [open_with(&url, hasty()), open_with(&url, hasty()), direct.clone()];
        let changes = Arc::new(AcknowledgedChanges::default());
        let mut tasks = hosts(&stores, 6, &changes);
        tasks.spawn(look_on(direct.clone(), changes.clone()));
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..40 {
            match random.u8(..4) {
                0 => weather.cut(),
                1 => weather.delay_ms.store(random.u64(1..600), Ordering::SeqCst),
                2 => weather.swallows.store(true, Ordering::SeqCst),
                _ => weather.closed.store(true, Ordering::SeqCst),
            }
            tokio::time::sleep(Duration::from_millis(random.u64(20..120))).await;
            weather.clear_up();
            changes.progress(5).await;
        }
        changes.end();
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
        assert!(changes.failed.load(Ordering::SeqCst) > 0, "nothing went wrong");
        settle(&direct, &changes).await;
    });
}

#[test]
fn no_rule_is_broken_by_a_server_that_crashes() {
    let server = Arc::new(Server::start());
    wait(async {
        let name = database_on(&server).await;
        let url = server.url(&name);
        let options = PostgresOptions { call_limit: Duration::from_secs(2), ..PostgresOptions::default() };
        let stores = [open_with(&url, options.clone()), open_with(&url, options)];
        stores[0].check().await.unwrap();
        let changes = Arc::new(AcknowledgedChanges::default());
        let mut tasks = hosts(&stores, 4, &changes);
        tasks.spawn(look_on(stores[1].clone(), changes.clone()));
        for _ in 0..3 {
            changes.progress(30).await;
            let crashing = server.clone();
            tokio::task::spawn_blocking(move || crashing.crash()).await.unwrap();
            let starting = server.clone();
            tokio::task::spawn_blocking(move || starting.run_again()).await.unwrap();
        }
        changes.progress(30).await;
        changes.end();
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
        settle(&stores[0], &changes).await;
    });
}

//! Renewals while requests hang, are late or are throttled: each lease gets its own outcome in time.

use std::time::Duration;

use ephor_core::ids::PartitionId;
use ephor_core::lease::LeaseToken;
use ephor_core::store::{Renewal, Store};
use ephor_stores::azblob::{BlobOptions, BlobStore, SharedWith};

use crate::proxy::{Asked, Fate, Proxy};
use crate::server::{open_with, place, shared};
use crate::world::{LEASE, claim, group, wait};

/// What a host waits for a store by default.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

async fn store(shared_with: SharedWith) -> (BlobStore, Proxy) {
    let proxy = Proxy::start(shared().port).await;
    let options = BlobOptions { shared_with, ..BlobOptions::default() };
    (open_with(&proxy.place(&place(), shared().port), options), proxy)
}

async fn claims(store: &BlobStore, partitions: &[u32]) -> Vec<LeaseToken> {
    let mut tokens = vec![];
    for partition in partitions {
        tokens.push(claim(store, PartitionId(*partition), "a").await);
    }
    tokens
}

/// As a host calls it.
async fn renew(store: &BlobStore, tokens: &[LeaseToken]) -> Vec<Renewal> {
    let group = group();
    let call = store.renew(&group, LEASE, tokens);
    tokio::time::timeout(STORE_TIMEOUT, call).await.expect("an answer while the host waits").unwrap()
}

fn is_write(asked: &Asked, part: &str) -> bool {
    asked.line.starts_with("PUT") && asked.line.contains(part)
}

fn known(answers: &[Renewal]) -> Vec<bool> {
    let lost = answers.iter().find(|answer| matches!(answer, Renewal::Lost { .. }));
    assert_eq!(lost, None);
    answers.iter().map(|answer| *answer == Renewal::Renewed).collect()
}

#[test]
fn a_request_that_hangs_costs_no_other_lease_its_renewal() {
    wait(async {
        for (shared_with, hanging) in
            [(SharedWith::OtherSdks, "/ownership/1?"), (SharedWith::EphorOnly, "/renewals/")]
        {
            let (store, proxy) = store(shared_with).await;
            // In batches these are in two.
            let tokens = claims(&store, &[1, 300]).await;
            assert_eq!(known(&renew(&store, &tokens).await), [true, true]);
            let mut held = false;
            proxy.rule(move |asked| match !held && is_write(asked, hanging) {
                true => {
                    held = true;
                    Fate::Hangs
                }
                false => Fate::Through,
            });
            let answers = known(&renew(&store, &tokens).await);
            assert_eq!(answers.iter().filter(|renewed| **renewed).count(), 1, "{shared_with:?}: {answers:?}");
            assert_eq!(known(&renew(&store, &tokens).await), [true, true], "{shared_with:?}");
        }
    });
}

/// The write counts though nobody heard of it. The next renewal finds the lease changed, and still its own.
#[test]
fn an_answer_that_comes_too_late_does_no_harm() {
    wait(async {
        for (shared_with, late) in
            [(SharedWith::OtherSdks, "/ownership/1?"), (SharedWith::EphorOnly, "/renewals/")]
        {
            let (store, proxy) = store(shared_with).await;
            let tokens = claims(&store, &[1, 300]).await;
            renew(&store, &tokens).await;
            let mut held = false;
            proxy.rule(move |asked| match !held && is_write(asked, late) {
                true => {
                    held = true;
                    Fate::AnsweredLate(STORE_TIMEOUT * 2)
                }
                false => Fate::Through,
            });
            let answers = known(&renew(&store, &tokens).await);
            assert_eq!(answers.iter().filter(|renewed| **renewed).count(), 1, "{shared_with:?}: {answers:?}");
            assert_eq!(known(&renew(&store, &tokens).await), [true, true], "{shared_with:?}");
        }
    });
}

#[test]
fn whoever_is_throttled_is_told_for_how_long() {
    wait(async {
        for (shared_with, busy) in
            [(SharedWith::OtherSdks, "/ownership/1?"), (SharedWith::EphorOnly, "/renewals/")]
        {
            let (store, proxy) = store(shared_with).await;
            let tokens = claims(&store, &[1, 300]).await;
            renew(&store, &tokens).await;
            let mut held = false;
            proxy.rule(move |asked| match !held && is_write(asked, busy) {
                true => {
                    held = true;
                    Fate::Busy(7)
                }
                false => Fate::Through,
            });
            let answers = renew(&store, &tokens).await;
            assert_eq!(known(&answers).iter().filter(|renewed| **renewed).count(), 1, "{answers:?}");
            let pause = answers.iter().find_map(|answer| match answer {
                Renewal::Unknown { retry_after, .. } => *retry_after,
                _ => None,
            });
            assert_eq!(pause, Some(Duration::from_secs(7)), "{shared_with:?}: {answers:?}");
            proxy.rule(|_| Fate::Busy(7));
            let error = store.renew(&group(), LEASE, &tokens).await.unwrap_err();
            assert_eq!(error.retry_after(), Some(Duration::from_secs(7)), "{error}");
            proxy.rule(|_| Fate::Answered(503, "ServerBusy"));
            let error = store.renew(&group(), LEASE, &tokens).await.unwrap_err();
            assert_eq!(error.retry_after(), Some(Duration::ZERO), "{error}");
        }
    });
}

/// Else everything would be asked again at once, in the very moment in which the service asks to be left alone.
#[test]
fn whoever_is_throttled_is_told_for_how_long_though_another_request_hangs() {
    wait(async {
        for (shared_with, hanging) in
            [(SharedWith::OtherSdks, "/ownership/1?"), (SharedWith::EphorOnly, "/renewals/")]
        {
            let (store, proxy) = store(shared_with).await;
            let tokens = claims(&store, &[1, 300]).await;
            renew(&store, &tokens).await;
            let mut held = false;
            proxy.rule(move |asked| match !held && is_write(asked, hanging) {
                true => {
                    held = true;
                    Fate::Hangs
                }
                false => Fate::Busy(7),
            });
            let error =
                store.renew_within(&group(), LEASE, &tokens, Duration::from_secs(1)).await.unwrap_err();
            assert_eq!(error.retry_after(), Some(Duration::from_secs(7)), "{shared_with:?}: {error}");
        }
    });
}

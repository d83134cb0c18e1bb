//! Tests of renewals while requests hang, are late or are throttled: each lease gets its own result in
//! time.

use std::time::Duration;

use ephor_core::ids::PartitionId;
use ephor_core::lease::LeaseToken;
use ephor_core::store::{RenewalOutcome, Store};
use ephor_stores::azblob::{BlobOptions, BlobStore, SharedWith};

use crate::fixture::{LEASE, claim, group, wait};
use crate::proxy::{Asked, Fate, Proxy};
use crate::raw_blobs::Raw;
use crate::server::{open, open_with, place, shared};

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
async fn renew(store: &BlobStore, tokens: &[LeaseToken]) -> Vec<RenewalOutcome> {
    let group = group();
    let call = store.renew(&group, LEASE, tokens);
    tokio::time::timeout(STORE_TIMEOUT, call).await.expect("an answer while the host waits").unwrap()
}

fn is_write(asked: &Asked, part: &str) -> bool {
    asked.line.starts_with("PUT") && asked.line.contains(part)
}

fn known(answers: &[RenewalOutcome]) -> Vec<bool> {
    let lost = answers.iter().find(|answer| matches!(answer, RenewalOutcome::Lost { .. }));
    assert_eq!(lost, None);
    answers.iter().map(|answer| *answer == RenewalOutcome::Renewed).collect()
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
                RenewalOutcome::Unknown { retry_after, .. } => *retry_after,
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

/// The limit of a call, and how late its slow request is: behind one that hangs it would come too late.
const CALL: Duration = Duration::from_secs(15);
const SLOW: Duration = Duration::from_secs(5);

const RENEWED: PartitionId = PartitionId(1);
const HANGING: PartitionId = PartitionId(2);

/// A store and one that is not behind the proxy, of the same container and host.
async fn stores() -> (BlobStore, BlobStore, Proxy, Raw) {
    let (proxy, place) = (Proxy::start(shared().port).await, place());
    let store = open(&proxy.place(&place, shared().port));
    (store, open(&place), proxy, Raw::new(shared().port, &place))
}

/// Renews both leases. Only the first one can be renewed.
async fn renews_one(store: &BlobStore, tokens: [LeaseToken; 2]) {
    let answers = store.renew_within(&group(), LEASE, &tokens, CALL).await.unwrap();
    assert_eq!(known(&answers), [true, false], "{answers:?}");
}

fn is_read(asked: &Asked, part: &str) -> bool {
    asked.line.starts_with("HEAD") && asked.line.contains(part)
}

/// A lease that this process has not seen must be read before it is renewed. The others are renewed first.
#[test]
fn leases_that_are_certain_are_renewed_before_others_are_read() {
    wait(async {
        let (store, other, proxy, _) = stores().await;
        let certain = claim(&store, RENEWED, "a").await;
        let uncertain = claim(&other, HANGING, "a").await;
        renew(&store, std::slice::from_ref(&certain)).await;
        proxy.rule(|asked| match asked {
            _ if is_read(asked, "/ownership/2") => Fate::Hangs,
            _ if is_write(asked, "/renewals/") => Fate::Late(SLOW),
            _ => Fate::Through,
        });
        renews_one(&store, [certain.clone(), uncertain.clone()]).await;
        proxy.rule(|_| Fate::Through);
        assert_eq!(known(&renew(&store, &[certain, uncertain]).await), [true, true]);
    });
}

#[test]
fn a_read_that_hangs_delays_no_lease_that_was_read() {
    wait(async {
        let (store, other, proxy, _) = stores().await;
        let tokens = [claim(&other, RENEWED, "a").await, claim(&other, HANGING, "a").await];
        proxy.rule(|asked| match asked {
            _ if is_read(asked, "/ownership/2") => Fate::Hangs,
            _ if is_write(asked, "/renewals/") => Fate::Late(SLOW),
            _ => Fate::Through,
        });
        renews_one(&store, tokens.clone()).await;
        proxy.rule(|_| Fate::Through);
        assert_eq!(known(&renew(&store, &tokens).await), [true, true]);
    });
}

/// Without its batch each lease is written by itself.
#[test]
fn a_write_that_hangs_costs_no_other_lease_its_renewal_when_the_batch_is_lost() {
    wait(async {
        let (store, _, proxy, raw) = stores().await;
        let tokens = [claim(&store, RENEWED, "a").await, claim(&store, HANGING, "a").await];
        renew(&store, &tokens).await;
        for name in raw.names().await.into_iter().filter(|name| name.contains("/renewals/")) {
            raw.set(&name, &[("beat", "many")]).await;
        }
        proxy.rule(|asked| match asked {
            _ if is_write(asked, "/ownership/2") => Fate::Hangs,
            _ if is_read(asked, "/renewals/") => Fate::Late(SLOW),
            _ => Fate::Through,
        });
        renews_one(&store, tokens.clone()).await;
        proxy.rule(|_| Fate::Through);
        assert_eq!(known(&renew(&store, &tokens).await), [true, true]);
    });
}

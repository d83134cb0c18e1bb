//! Tests that count the requests to the service: of a host's renewal interval, of a save, of changes of
//! ownership, and of the revocation of all leases of a dead host.

use std::time::{Duration, Instant};

use ephor_core::epoch::Epoch;
use ephor_core::ids::PartitionId;
use ephor_core::lease::{ClaimCause, ClaimRequest, LeaseToken, LeaseVersion, ReleaseCause, ReleaseRequest};
use ephor_core::store::{ClaimOutcome, GiveUpOutcome, RenewalOutcome, Store};
use ephor_stores::azblob::{BlobOptions, BlobStore, SharedWith};
use futures_util::{StreamExt, stream};

use crate::fixture::{LEASE, P, PATIENCE, claim, group, host, record, save, transfer, wait};
use crate::proxy::{Fate, Proxy};
use crate::server::{open, open_with, place, shared};

/// A claim without a look at all others.
async fn claim_seen(
    store: &dyn Store,
    partition: PartitionId,
    name: &str,
    seen: Option<LeaseVersion>,
) -> LeaseToken {
    let cause = if seen.is_some() { ClaimCause::Expired } else { ClaimCause::Unowned };
    let (host, above) = (host(name), Epoch::NONE);
    let request = ClaimRequest { partition, host, duration: LEASE, seen, above, cause };
    match store.claim(&group(), &request).await.unwrap() {
        ClaimOutcome::Won { token, .. } => token,
        ClaimOutcome::Lost { holder } => panic!("lost to {holder:?}"),
    }
}

/// The first claims of all, some at a time.
async fn first_claims(store: &dyn Store, partitions: std::ops::Range<u32>) -> Vec<LeaseToken> {
    let claims: Vec<_> =
        partitions.map(|partition| claim_seen(store, PartitionId(partition), "a", None)).collect();
    stream::iter(claims).buffered(8).collect().await
}

async fn version(store: &dyn Store, partition: PartitionId) -> Option<LeaseVersion> {
    store.view(&group()).await.unwrap().lease(partition).map(|lease| lease.version.clone())
}

/// What two intervals cost with so many leases more and more.
async fn intervals(shared_with: SharedWith, steps: &[(u32, usize)]) {
    let proxy = Proxy::start(shared().port).await;
    let options = BlobOptions { shared_with, ..BlobOptions::default() };
    let store = open_with(&proxy.place(&place(), shared().port), options);
    store.heartbeat(&group(), &record("a")).await.unwrap();
    let mut tokens: Vec<LeaseToken> = Vec::new();
    for (owned, expected) in steps {
        let already = u32::try_from(tokens.len()).unwrap();
        tokens.extend(first_claims(&store, already..*owned).await);
        for interval in 1..=2 {
            proxy.rule(|_| Fate::Through);
            store.heartbeat(&group(), &record("a")).await.unwrap();
            store.view(&group()).await.unwrap();
            // How long it takes is this machine's matter.
            let renewals = store.renew_within(&group(), LEASE, &tokens, PATIENCE).await.unwrap();
            assert!(renewals.iter().all(|renewal| *renewal == RenewalOutcome::Renewed), "{renewals:?}");
            let asked = proxy.asked();
            assert_eq!(asked.len(), *expected, "{owned} owned, interval {interval}: {asked:?}");
        }
    }
}

#[test]
fn an_interval_costs_three_requests_and_one_more_for_each_further_256_partitions() {
    wait(intervals(SharedWith::EphorOnly, &[(1, 3), (16, 3), (256, 3), (257, 4)]));
}

#[test]
fn beside_other_sdks_an_interval_costs_a_request_for_each_lease_and_two() {
    wait(intervals(SharedWith::OtherSdks, &[(1, 3), (16, 18), (256, 258)]));
}

/// Counts what was asked since the last time.
fn counted(proxy: &Proxy, what: &str, expected: usize) {
    let asked = proxy.asked();
    assert_eq!(asked.len(), expected, "{what}: {asked:#?}");
    proxy.rule(|_| Fate::Through);
}

#[test]
fn a_save_is_one_request_and_a_change_of_owner_a_few() {
    wait(async {
        let proxy = Proxy::start(shared().port).await;
        let place = place();
        let store = open(&proxy.place(&place, shared().port));
        let other = open(&proxy.place(&place, shared().port));
        let counted = |what, expected| counted(&proxy, what, expected);
        claim(&store, PartitionId(0), "a").await;
        store.heartbeat(&group(), &record("a")).await.unwrap();
        other.heartbeat(&group(), &record("b")).await.unwrap();
        proxy.rule(|_| Fate::Through);
        let token = claim_seen(&store, P, "a", None).await;
        counted("the first claim of a partition", 9);
        for sequence in 1..=3 {
            save(&store, &token, sequence).await.unwrap();
            counted("a save", 1);
        }
        let tokens = std::slice::from_ref(&token);
        assert_eq!(store.renew(&group(), LEASE, tokens).await.unwrap(), [RenewalOutcome::Renewed]);
        counted("a renewal", 1);
        assert_eq!(store.transfer(&group(), &transfer(&token, "b")).await.unwrap(), GiveUpOutcome::Done);
        counted("a transfer", 8);
        let token = other.view(&group()).await.unwrap().lease(P).unwrap().token().unwrap();
        proxy.rule(|_| Fate::Through);
        let tokens = std::slice::from_ref(&token);
        assert_eq!(other.renew(&group(), LEASE, tokens).await.unwrap(), [RenewalOutcome::Renewed]);
        counted("the first renewal of what was given", 2);
        let seen = version(&store, P).await;
        proxy.rule(|_| Fate::Through);
        let token = claim_seen(&store, P, "a", seen).await;
        counted("a claim of what is taken away", 10);
        let request =
            ReleaseRequest { token, cause: ReleaseCause::Shutdown, successor: None, checkpoint_saved: true };
        assert_eq!(store.release(&group(), &request).await.unwrap(), GiveUpOutcome::Done);
        counted("a release", 4);
        let seen = version(&other, P).await;
        proxy.rule(|_| Fate::Through);
        claim_seen(&other, P, "b", seen).await;
        counted("a claim of what was given back", 8);
    });
}

/// The first claim from a dead host revokes all its leases.
#[test]
fn all_leases_of_a_dead_host_are_revoked_with_one_request() {
    wait(async {
        const OWNED: u32 = 16;
        let proxy = Proxy::start(shared().port).await;
        let place = place();
        let dead = open(&place);
        let stores: Vec<BlobStore> = (0..2).map(|_| open(&proxy.place(&place, shared().port))).collect();
        let tokens = first_claims(&dead, 0..OWNED).await;
        let short = Duration::from_secs(2);
        let renewals = dead.renew(&group(), short, &tokens).await.unwrap();
        assert!(renewals.iter().all(|renewal| *renewal == RenewalOutcome::Renewed));
        // Each process must have seen the silence of a whole lease by itself.
        let mut since = None;
        let view = loop {
            let view = stores[0].view(&group()).await.unwrap();
            stores[1].view(&group()).await.unwrap();
            let since = since.get_or_insert_with(Instant::now);
            if since.elapsed() >= short && view.leases.iter().all(|lease| lease.age >= short) {
                break view;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        };
        for store in &stores {
            store.heartbeat(&group(), &record("b")).await.unwrap();
        }
        proxy.rule(|_| Fate::Through);
        let (last, others) = view.leases.split_last().unwrap();
        let claims: Vec<_> = (others.iter().enumerate())
            .map(|(place, lease)| {
                let store = &stores[place % 2];
                claim_seen(store, lease.partition, "b", Some(lease.version.clone()))
            })
            .collect();
        let claimed: Vec<LeaseToken> = stream::iter(claims).buffered(16).collect().await;
        assert_eq!(claimed.len(), others.len());
        let asked = proxy.asked();
        let revocations = asked.iter().filter(|line| line.starts_with("PUT") && line.contains("/renewals/"));
        // One for each process at most: whoever comes second is refused, and looks.
        let revocations = revocations.count();
        assert!((1..=2).contains(&revocations), "{revocations} revocations: {asked:#?}");
        proxy.rule(|_| Fate::Through);
        claim_seen(&stores[0], last.partition, "b", Some(last.version.clone())).await;
        counted(&proxy, "a claim of a lease that was revoked with others", 9);
        // It comes back, and is told of every one.
        let renewals = dead.renew(&group(), LEASE, &tokens).await.unwrap();
        assert!(
            renewals.iter().all(|renewal| matches!(renewal, RenewalOutcome::Lost { .. })),
            "{renewals:?}"
        );
    });
}

//! Tests of batched renewal: entries of a batch, revocations, and damaged batches.

use std::time::Duration;

use ephor_core::ids::PartitionId;
use ephor_core::lease::{ClaimCause, ClaimRequest, Lease, LeaseToken, ReleaseCause, ReleaseRequest};
use ephor_core::store::{ClaimOutcome, GiveUpOutcome, RenewalOutcome, Store};
use ephor_stores::azblob::{BlobOptions, BlobStore, SharedWith};

use crate::fixture::{BASE, LEASE, claim, group, host, record, seek, transfer, try_claim, wait};
use crate::proxy::{Fate, Proxy};
use crate::raw_blobs::Raw;
use crate::server::{open, open_with, place, shared};

const P: PartitionId = crate::fixture::P;
pub(crate) const Q: PartitionId = PartitionId(4);

fn open_shared(place: &str) -> BlobStore {
    open_with(place, BlobOptions { shared_with: SharedWith::OtherSdks, ..BlobOptions::default() })
}

async fn lease(store: &dyn Store, partition: PartitionId) -> Lease {
    store.view(&group()).await.unwrap().lease(partition).unwrap().clone()
}

pub(crate) async fn renewed(store: &dyn Store, tokens: &[&LeaseToken]) {
    let tokens: Vec<LeaseToken> = tokens.iter().map(|token| (*token).clone()).collect();
    let renewals = store.renew(&group(), LEASE, &tokens).await.unwrap();
    assert!(renewals.iter().all(|renewal| *renewal == RenewalOutcome::Renewed), "{renewals:?}");
}

pub(crate) async fn lost(store: &dyn Store, token: &LeaseToken) -> Option<Lease> {
    match store.renew(&group(), LEASE, std::slice::from_ref(token)).await.unwrap().remove(0) {
        RenewalOutcome::Lost { holder } => holder,
        other => panic!("{other:?}"),
    }
}

/// Until a lease is so old.
async fn aged(store: &dyn Store, partition: PartitionId, age: Duration) -> Lease {
    loop {
        let lease = lease(store, partition).await;
        if lease.age >= age {
            return lease;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

pub(crate) async fn batches(raw: &Raw) -> Vec<String> {
    let names = raw.names().await;
    names.into_iter().filter(|name| name.contains("/ephor/renewals/")).collect()
}

/// Only the owner's own writes make its leases young, and only they change their versions.
#[test]
fn a_revocation_is_no_sign_of_life_and_fails_no_other_claim() {
    wait(async {
        let place = place();
        let (owner, taker) = (open(&place), open(&place));
        let (p, q) = (claim(&owner, P, "a").await, claim(&owner, Q, "a").await);
        renewed(&owner, &[&p, &q]).await;
        let before = aged(&taker, Q, Duration::from_secs(2)).await;
        let stolen = claim(&taker, P, "b").await;
        let after = lease(&taker, Q).await;
        assert!(after.age >= before.age, "{after:?} after {before:?}");
        assert_eq!((after.version, after.owner), (before.version.clone(), Some(host("a"))));
        let request = ClaimRequest {
            partition: Q,
            host: host("b"),
            duration: LEASE,
            seen: Some(before.version),
            above: ephor_core::epoch::Epoch::NONE,
            cause: ClaimCause::Unresponsive,
        };
        let won = taker.claim(&group(), &request).await.unwrap();
        let ClaimOutcome::Won { lease, .. } = won else { panic!("{won:?}") };
        // It may be at work for as long as its last renewal lasts, and no longer.
        assert!(
            lease.takeover_delay > LEASE / 2 && lease.takeover_delay <= LEASE - Duration::from_secs(1),
            "{lease:?}"
        );
        for token in [&p, &q] {
            assert_eq!(lost(&owner, token).await.unwrap().owner, Some(host("b")));
        }
        renewed(&taker, &[&stolen]).await;
    });
}

/// Who renews one lease does not renew the others.
#[test]
fn what_is_left_out_of_a_renewal_grows_old() {
    wait(async {
        let store = open(&place());
        let (p, q) = (claim(&store, P, "a").await, claim(&store, Q, "a").await);
        renewed(&store, &[&p, &q]).await;
        let before = lease(&store, Q).await;
        aged(&store, Q, Duration::from_secs(2)).await;
        renewed(&store, &[&p]).await;
        let (p_now, q_now) = (lease(&store, P).await, lease(&store, Q).await);
        assert!(q_now.age >= Duration::from_secs(2) && p_now.age < q_now.age, "{p_now:?} {q_now:?}");
        assert_eq!(q_now.version, before.version);
        renewed(&store, &[&p, &q]).await;
        let q_now = lease(&store, Q).await;
        assert!(q_now.version != before.version && q_now.age < Duration::from_secs(2), "{q_now:?}");
    });
}

/// A taker that dies behind its revocation: the owner stops, the lease keeps its age, and whoever comes next gets it.
#[test]
fn a_lease_that_was_revoked_and_not_taken_can_be_claimed() {
    wait(async {
        let proxy = Proxy::start(shared().port).await;
        let place = place();
        let (owner, taker) = (open(&place), open(&proxy.place(&place, shared().port)));
        for released in [true, false] {
            let token = claim(&owner, P, "a").await;
            renewed(&owner, &[&token]).await;
            let before = aged(&owner, P, Duration::from_secs(1)).await;
            proxy.rule(|asked| match asked.line.contains("/ephor/epoch/") && asked.line.starts_with("PUT") {
                true => Fate::Lost,
                false => Fate::Through,
            });
            assert!(try_claim(&taker, P, "b", ClaimCause::Unresponsive).await.is_err());
            proxy.rule(|_| Fate::Through);
            let after = lease(&taker, P).await;
            assert_eq!((&after.version, after.token()), (&before.version, Some(token.clone())));
            assert!(after.age >= before.age, "{after:?} after {before:?}");
            assert_eq!(lost(&owner, &token).await.unwrap().token(), Some(token.clone()));
            assert_eq!(lost(&owner, &token).await.unwrap().version, before.version);
            if released {
                let cause = ReleaseCause::Unserved;
                let request = ReleaseRequest { token, cause, successor: None, checkpoint_saved: true };
                assert_eq!(owner.release(&group(), &request).await.unwrap(), GiveUpOutcome::Done);
            } else {
                let next = claim(&taker, P, "b").await;
                assert_eq!(lost(&owner, &token).await.unwrap().token(), Some(next));
            }
        }
    });
}

/// A taker whose request of this kind is held up, and what is done meanwhile.
async fn held_up<T>(
    what: &'static str,
    taker: (&Proxy, &BlobStore),
    meanwhile: impl Future<Output = T>,
) -> (ClaimOutcome, T) {
    let (proxy, taker) = taker;
    proxy.rule(move |asked| match asked.line.starts_with("PUT") && asked.line.contains(what) {
        true => Fate::Late(Duration::from_secs(3)),
        false => Fate::Through,
    });
    let later = async {
        while !proxy.asked().iter().any(|line| line.starts_with("PUT") && line.contains(what)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        meanwhile.await
    };
    let (claimed, done) = tokio::join!(try_claim(taker, P, "taker", ClaimCause::Unresponsive), later);
    (claimed.unwrap(), done)
}

/// A revocation is for what was seen: if the owner renews before it is written, it is refused.
#[test]
fn of_a_revocation_and_a_renewal_one_is_refused() {
    wait(async {
        let proxy = Proxy::start(shared().port).await;
        let place = place();
        let (owner, taker) = (open(&place), open(&proxy.place(&place, shared().port)));
        let token = claim(&owner, P, "a").await;
        for _ in 0..2 {
            let tokens = std::slice::from_ref(&token);
            let renewal = async { owner.renew(&group(), LEASE, tokens).await.unwrap().remove(0) };
            match held_up("/ephor/renewals/", (&proxy, &taker), renewal).await {
                (ClaimOutcome::Lost { holder }, RenewalOutcome::Renewed) => {
                    assert_eq!(holder.unwrap().token().as_ref(), Some(&token));
                }
                // The machine was very slow.
                (ClaimOutcome::Won { .. }, RenewalOutcome::Lost { .. }) => return,
                both => panic!("{both:?}"),
            }
            renewed(&owner, &[&token]).await;
        }
    });
}

/// The owner does not forget a revocation before the lease is taken: not with other renewals, and not because it knows of an
/// earlier epoch that is over.
#[test]
fn a_revocation_stays_until_the_lease_is_taken() {
    wait(async {
        let proxy = Proxy::start(shared().port).await;
        let place = place();
        let (owner, other) = (open(&place), open(&place));
        let taker = open(&proxy.place(&place, shared().port));
        owner.heartbeat(&group(), &record("a")).await.unwrap();
        let q = claim(&owner, Q, "a").await;
        let first = claim(&owner, P, "a").await;
        renewed(&owner, &[&q, &first]).await;
        let cause = ReleaseCause::Shutdown;
        let request = ReleaseRequest { token: first, cause, successor: None, checkpoint_saved: true };
        assert_eq!(owner.release(&group(), &request).await.unwrap(), GiveUpOutcome::Done);
        let second = claim(&other, P, "b").await;
        assert_eq!(other.transfer(&group(), &transfer(&second, "a")).await.unwrap(), GiveUpOutcome::Done);
        let given = lease(&other, P).await.token().unwrap();
        let meanwhile = async {
            renewed(&owner, &[&q]).await;
            renewed(&owner, &[&q]).await;
            lost(&owner, &given).await;
            lost(&owner, &given).await
        };
        let (claimed, _) = held_up("/ephor/epoch/", (&proxy, &taker), meanwhile).await;
        let ClaimOutcome::Won { token, .. } = claimed else { panic!("{claimed:?}") };
        assert_eq!(lost(&owner, &given).await.unwrap().token(), Some(token.clone()));
        renewed(&owner, &[&q]).await;
        renewed(&taker, &[&token]).await;
    });
}

/// Whoever looks sees a seek and a release in another's name, and the owner is told at once.
#[test]
fn a_seek_and_a_release_in_another_name_revoke_the_lease() {
    wait(async {
        let place = place();
        let (owner, person) = (open(&place), open(&place));
        owner.heartbeat(&group(), &record("a")).await.unwrap();
        let token = claim(&owner, P, "a").await;
        renewed(&owner, &[&token]).await;
        person.seek(&group(), &seek(5)).await.unwrap();
        assert_eq!(lost(&owner, &token).await.unwrap().owner, None);
        let token = claim(&owner, P, "a").await;
        renewed(&owner, &[&token]).await;
        let request = ReleaseRequest {
            token: token.clone(),
            cause: ReleaseCause::Shutdown,
            successor: None,
            checkpoint_saved: true,
        };
        assert_eq!(person.release(&group(), &request).await.unwrap(), GiveUpOutcome::Done);
        assert_eq!(lost(&owner, &token).await.unwrap().owner, None);
        let token = claim(&owner, P, "a").await;
        renewed(&owner, &[&token]).await;
        assert_eq!(person.transfer(&group(), &transfer(&token, "b")).await.unwrap(), GiveUpOutcome::Done);
        assert_eq!(lost(&owner, &token).await.unwrap().owner, Some(host("b")));
    });
}

/// The option may be changed while others are at work: what stands on a batch says so itself.
#[test]
fn hosts_with_both_ways_of_renewing_take_from_each_other() {
    wait(async {
        let place = place();
        let (alone, beside) = (open(&place), open_shared(&place));
        let token = claim(&alone, P, "a").await;
        renewed(&alone, &[&token]).await;
        // Its renewals are seen from there, and it is revoked from there.
        aged(&beside, P, Duration::from_secs(1)).await;
        renewed(&alone, &[&token]).await;
        assert!(lease(&beside, P).await.age < Duration::from_secs(1));
        let next = claim(&beside, P, "b").await;
        assert_eq!(lost(&alone, &token).await.unwrap().token(), Some(next.clone()));
        renewed(&beside, &[&next]).await;
        // Given away in both directions.
        assert_eq!(beside.transfer(&group(), &transfer(&next, "a")).await.unwrap(), GiveUpOutcome::Done);
        let back = lease(&alone, P).await.token().unwrap();
        for _ in 0..2 {
            let before = lease(&beside, P).await.version;
            renewed(&alone, &[&back]).await;
            assert_ne!(lease(&beside, P).await.version, before);
        }
        assert_eq!(alone.transfer(&group(), &transfer(&back, "b")).await.unwrap(), GiveUpOutcome::Done);
        let last = lease(&beside, P).await.token().unwrap();
        renewed(&beside, &[&last]).await;
        lost(&alone, &back).await;
        let end = claim(&alone, P, "a").await;
        lost(&beside, &last).await;
        renewed(&alone, &[&end]).await;
    });
}

#[test]
fn a_damaged_batch_expires_no_lease_and_its_owner_overwrites_it() {
    wait(async {
        let place = place();
        let (store, raw) = (open(&place), Raw::new(shared().port, &place));
        let token = claim(&store, P, "a").await;
        renewed(&store, &[&token]).await;
        let name = batches(&raw).await.remove(0);
        assert!(name.starts_with(BASE), "{name}");
        aged(&store, P, Duration::from_secs(1)).await;
        raw.set(&name, &[("beat", "many")]).await;
        let view = store.view(&group()).await.unwrap();
        let seen = view.lease(P).unwrap();
        assert_eq!((seen.age, seen.age_known, view.damaged.len()), (Duration::ZERO, false, 1), "{view:?}");
        // Somebody may have revoked there: the first renewal goes by the ownership, and the second mends the batch.
        renewed(&store, &[&token]).await;
        renewed(&store, &[&token]).await;
        let view = store.view(&group()).await.unwrap();
        assert!(view.lease(P).unwrap().age_known && view.damaged.is_empty(), "{view:?}");
        // Nor is it in the way of whoever takes the lease away.
        raw.set(&name, &[("beat", "many")]).await;
        claim(&open(&place), P, "b").await;
        lost(&store, &token).await;
    });
}

/// One Date far ahead, of a front end with a wrong clock, is no reason to take everything.
#[test]
fn a_claim_with_a_date_far_ahead_revokes_no_other_lease() {
    wait(async {
        let place = place();
        let proxy = Proxy::start(shared().port).await;
        let (owner, taker) = (open(&place), open(&proxy.place(&place, shared().port)));
        let (p, q) = (claim(&owner, P, "a").await, claim(&owner, Q, "a").await);
        renewed(&owner, &[&p, &q]).await;
        let seen = Some(lease(&taker, P).await.version);
        proxy.rule(|asked| match asked.line.starts_with("HEAD") {
            true => {
                Fate::Rewritten("\r\ndate: ", "\r\ndate: Fri, 01 Jan 2100 00:00:00 GMT\r\nx-was: ".into())
            }
            false => Fate::Through,
        });
        let request = ClaimRequest {
            partition: P,
            host: host("b"),
            duration: LEASE,
            seen,
            above: ephor_core::epoch::Epoch::NONE,
            cause: ClaimCause::Expired,
        };
        let won = taker.claim(&group(), &request).await.unwrap();
        assert!(matches!(won, ClaimOutcome::Won { .. }), "{won:?}");
        renewed(&owner, &[&q]).await;
        lost(&owner, &p).await;
    });
}

/// One write revokes all leases of a dead host, so that the claims of the others need none.
#[test]
fn all_leases_of_a_host_that_was_silent_for_a_lease_are_revoked_together() {
    const SHORT: Duration = Duration::from_secs(2);
    wait(async {
        let place = place();
        let proxy = Proxy::start(shared().port).await;
        let (owner, taker) = (open(&place), open(&proxy.place(&place, shared().port)));
        let (p, q) = (claim(&owner, P, "a").await, claim(&owner, Q, "a").await);
        owner.renew(&group(), SHORT, &[p.clone(), q.clone()]).await.unwrap();
        aged(&taker, Q, SHORT + Duration::from_secs(2)).await;
        proxy.rule(|_| Fate::Through);
        claim(&taker, P, "b").await;
        claim(&taker, Q, "b").await;
        let revocations = proxy.asked();
        let revocations =
            revocations.iter().filter(|line| line.starts_with("PUT") && line.contains("/renewals/"));
        assert_eq!(revocations.count(), 1, "{:?}", proxy.asked());
    });
}

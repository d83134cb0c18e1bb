//! Tests that a process that dies between any two requests of a call leaves consistent records, and that a
//! call whose answer was lost finds out its result.

use ephor_core::lease::{ClaimCause, LeaseToken};
use ephor_core::store::{ClaimOutcome, RenewalOutcome, SaveOutcome, Store};
use ephor_stores::azblob::BlobStore;

use crate::fixture::{LEASE, P, claim, group, save, seek, stored, transfer, try_claim, wait};
use crate::proxy::{Fate, Proxy};
use crate::server::{open, place, shared};

/// No call takes so many requests.
const ENOUGH: usize = 12;

/// What is done, by a process whose requests fail from a certain one on.
#[derive(Clone, Copy, Debug)]
enum Doing {
    Claim,
    Transfer,
    Seek,
    Save,
}

async fn act(doing: Doing, store: &BlobStore, token: &LeaseToken) -> bool {
    match doing {
        Doing::Claim => try_claim(store, P, "b", ClaimCause::Unresponsive).await.is_ok(),
        Doing::Transfer => store.transfer(&group(), &transfer(token, "b")).await.is_ok(),
        Doing::Seek => store.seek(&group(), &seek(20)).await.is_ok(),
        Doing::Save => save(store, token, 20).await.is_ok(),
    }
}

/// After whatever happened: somebody else takes over, in a later epoch than any before, from a position that
/// somebody saved or sought, and from then on nobody of before can save.
async fn goes_on(direct: &BlobStore, before: &LeaseToken, what: &str) {
    let view = direct.view(&group()).await.unwrap();
    let lease = view.lease(P).unwrap().clone();
    assert!(lease.epoch >= before.epoch, "{what}");
    // Who finds itself an owner here can rely on the checkpoint: no earlier epoch changes it any more.
    let shown = view.checkpoint(P).cloned();
    if lease.epoch > before.epoch {
        let late = save(direct, before, 900).await.unwrap();
        assert!(matches!(late, SaveOutcome::Fenced { .. }), "{what}: {late:?}");
        assert_eq!(direct.view(&group()).await.unwrap().checkpoint(P).cloned(), shown, "{what}");
    }
    let ClaimOutcome::Won { token, checkpoint, .. } =
        try_claim(direct, P, "c", ClaimCause::Expired).await.unwrap()
    else {
        panic!("{what}: nobody else claims");
    };
    assert!(token.epoch > lease.epoch, "{what}: {token:?} after {lease:?}");
    let position =
        checkpoint.and_then(|checkpoint| checkpoint.position.finished()).map(|sequence| sequence.0);
    assert!(matches!(position, Some(10 | 20)), "{what}: {position:?}");
    for earlier in [Some(before.clone()), lease.token()].into_iter().flatten() {
        let late = save(direct, &earlier, 901).await.unwrap();
        assert!(matches!(late, SaveOutcome::Fenced { .. }), "{what}: {late:?}");
    }
    assert_eq!(stored(direct, P).await, position, "{what}");
    let saved = save(direct, &token, 30).await.unwrap();
    assert!(matches!(saved, SaveOutcome::Saved(_)), "{what}: {saved:?}");
}

async fn every_prefix(doing: Doing, fate: Fate) {
    let proxy = Proxy::start(shared().port).await;
    let mut carried_out = false;
    for requests in 0..ENOUGH {
        let place = place();
        let direct = open(&place);
        let dying = open(&proxy.place(&place, shared().port));
        proxy.rule(|_| Fate::Through);
        let token = claim(&dying, P, "a").await;
        save(&dying, &token, 10).await.unwrap();
        let fate = fate.clone();
        proxy.rule(move |asked| match asked.place {
            place if place < requests => Fate::Through,
            place if place == requests => fate.clone(),
            _ => Fate::Lost,
        });
        carried_out = act(doing, &dying, &token).await;
        goes_on(&direct, &token, &format!("{doing:?}, dead after {requests} requests, {fate:?}", fate = ""))
            .await;
        if carried_out {
            break;
        }
    }
    assert!(carried_out, "{doing:?} takes fewer requests than {ENOUGH}");
}

#[test]
fn a_claimant_may_die_anywhere() {
    wait(every_prefix(Doing::Claim, Fate::Lost));
    wait(every_prefix(Doing::Claim, Fate::Unanswered));
}

#[test]
fn an_owner_may_die_anywhere_in_a_handover() {
    wait(every_prefix(Doing::Transfer, Fate::Lost));
    wait(every_prefix(Doing::Transfer, Fate::Unanswered));
}

#[test]
fn a_person_may_die_anywhere_in_a_seek() {
    wait(every_prefix(Doing::Seek, Fate::Lost));
    wait(every_prefix(Doing::Seek, Fate::Unanswered));
}

#[test]
fn a_save_may_be_lost_there_or_back() {
    wait(every_prefix(Doing::Save, Fate::Lost));
    wait(every_prefix(Doing::Save, Fate::Unanswered));
}

/// The write was carried out, and its answer lost: the same call again finds what it wrote itself.
#[test]
fn a_lost_answer_costs_nothing_but_a_look() {
    wait(async {
        let proxy = Proxy::start(shared().port).await;
        let store = open(&proxy.place(&place(), shared().port));
        let token = claim(&store, P, "a").await;
        proxy.rule(|asked| if asked.place == 0 { Fate::Unanswered } else { Fate::Through });
        let tokens = std::slice::from_ref(&token);
        assert!(store.renew(&group(), LEASE, tokens).await.is_err(), "the outcome is unknown");
        assert_eq!(store.renew(&group(), LEASE, tokens).await.unwrap(), [RenewalOutcome::Renewed]);
        assert!(matches!(save(&store, &token, 5).await.unwrap(), SaveOutcome::Saved(_)));
        proxy.rule(|asked| if asked.place == 0 { Fate::Unanswered } else { Fate::Through });
        assert!(save(&store, &token, 6).await.is_err(), "the outcome is unknown");
        assert_eq!(stored(&store, P).await, Some(6));
        assert!(matches!(save(&store, &token, 6).await.unwrap(), SaveOutcome::Saved(_)));
        assert!(matches!(save(&store, &token, 7).await.unwrap(), SaveOutcome::Saved(_)));
    });
}

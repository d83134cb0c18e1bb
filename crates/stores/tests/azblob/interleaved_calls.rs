//! Tests two calls on one partition whose requests interleave: one is held up at each of its requests, while
//! the other runs.

use std::time::Duration;

use ephor_core::epoch::Epoch;
use ephor_core::lease::{ClaimCause, ClaimRequest};
use ephor_core::store::{ClaimOutcome, GiveUpOutcome, SaveOutcome, SeekOutcome, Store};

use crate::fixture::{LEASE, P, claim, finished, group, host, save, seek, transfer, try_claim, wait};
use crate::proxy::{Fate, Proxy};
use crate::server::{open, place, shared};

/// No call takes so many requests.
const ENOUGH: usize = 12;
/// The request that is held up comes through after this.
const HOLD: Duration = Duration::from_millis(400);

/// A seek and a claim whose steps interleave: the position that was sought is where the claimant begins, or it loses.
#[test]
fn a_claim_in_the_middle_of_a_seek_begins_where_was_sought() {
    wait(async {
        let proxy = Proxy::start(shared().port).await;
        for after in 0..ENOUGH {
            let place = place();
            let direct = open(&place);
            let slow = open(&proxy.place(&place, shared().port));
            proxy.rule(|_| Fate::Through);
            let token = claim(&slow, P, "a").await;
            save(&slow, &token, 10).await.unwrap();
            let request = {
                let seen = direct.view(&group()).await.unwrap().lease(P).map(|lease| lease.version.clone());
                ClaimRequest {
                    partition: P,
                    host: host("b"),
                    duration: LEASE,
                    seen,
                    above: Epoch::NONE,
                    cause: ClaimCause::Unresponsive,
                }
            };
            proxy.rule(move |asked| if asked.place == after { Fate::Late(HOLD) } else { Fate::Through });
            let (group, sought) = (group(), seek(20));
            let later = async {
                tokio::time::sleep(HOLD / 2).await;
                direct.claim(&group, &request).await.unwrap()
            };
            let (done, claimed) = tokio::join!(slow.seek(&group, &sought), later);
            assert!(matches!(done.unwrap(), SeekOutcome::Done { .. }));
            let view = direct.view(&group).await.unwrap();
            assert_eq!(view.checkpoint(P).unwrap().position, finished(20), "after {after}");
            if let ClaimOutcome::Won { token, checkpoint, .. } = claimed {
                let owns = view.lease(P).unwrap().token() == Some(token);
                let begins = checkpoint.unwrap().position;
                assert!(!owns || begins == finished(20), "after {after}: {begins:?}");
            }
        }
    });
}

/// Only one of them has it in the end, and it is the one that was told so.
#[test]
fn a_steal_that_is_slow_loses_to_a_handover_and_locks_nobody_out() {
    wait(async {
        let proxy = Proxy::start(shared().port).await;
        for after in 1..ENOUGH {
            let place = place();
            let direct = open(&place);
            let slow = open(&proxy.place(&place, shared().port));
            proxy.rule(|_| Fate::Through);
            let token = claim(&direct, P, "a").await;
            save(&direct, &token, 10).await.unwrap();
            slow.groups().await.unwrap();
            proxy.rule(move |asked| if asked.place == after { Fate::Late(HOLD) } else { Fate::Through });
            let steal = async { try_claim(&slow, P, "taker", ClaimCause::Unresponsive).await.unwrap() };
            let handover = async {
                tokio::time::sleep(HOLD / 2).await;
                direct.transfer(&group(), &transfer(&token, "successor")).await.unwrap()
            };
            let (steal, handover) = tokio::join!(steal, handover);
            let lease = direct.view(&group()).await.unwrap().lease(P).unwrap().clone();
            let owner = lease.owner.clone().unwrap();
            match (steal, handover) {
                (ClaimOutcome::Won { token, .. }, GiveUpOutcome::NotOurs) => {
                    assert_eq!(lease.token(), Some(token))
                }
                (ClaimOutcome::Lost { .. }, GiveUpOutcome::Done) => assert_eq!(owner, host("successor")),
                // The steal came in order before the handover, or behind it.
                (ClaimOutcome::Won { .. }, GiveUpOutcome::Done) => panic!("both have it: {lease:?}"),
                (ClaimOutcome::Lost { .. }, GiveUpOutcome::NotOurs) => panic!("neither has it: {lease:?}"),
            }
            let saved = save(&direct, &lease.token().unwrap(), 11).await.unwrap();
            assert!(matches!(saved, SaveOutcome::Saved(_)), "after {after}: {saved:?}");
        }
    });
}

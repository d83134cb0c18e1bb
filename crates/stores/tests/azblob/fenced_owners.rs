//! Tests that a fenced owner with stale records in its cache cannot change leases or checkpoints.

use std::time::Duration;

use ephor_core::lease::ClaimCause;
use ephor_core::store::{ClaimOutcome, GiveUpOutcome, RenewalOutcome, SaveOutcome, Store};

use crate::fixture::{LEASE, P, claim, group, save, seek, stored, transfer, try_claim, wait};
use crate::proxy::{Fate, Proxy};
use crate::server::{open, place, shared};

/// Two processes: the one has just saved and needs not look before it saves again, the other takes over.
#[test]
fn a_late_save_is_refused_however_sure_its_owner_is() {
    wait(async {
        let place = place();
        let (one, other) = (open(&place), open(&place));
        let token = claim(&one, P, "a").await;
        assert!(matches!(save(&one, &token, 10).await.unwrap(), SaveOutcome::Saved(_)));
        let next = claim(&other, P, "b").await;
        let late = save(&one, &token, 11).await.unwrap();
        assert_eq!(late, SaveOutcome::Fenced { epoch: next.epoch });
        assert_eq!(stored(&other, P).await, Some(10));
        assert!(matches!(save(&other, &next, 12).await.unwrap(), SaveOutcome::Saved(_)));
        // Back to the first, and away again by a person.
        let back = claim(&one, P, "a").await;
        assert!(matches!(save(&one, &back, 13).await.unwrap(), SaveOutcome::Saved(_)));
        other.seek(&group(), &seek(5)).await.unwrap();
        assert!(matches!(save(&one, &back, 14).await.unwrap(), SaveOutcome::Fenced { .. }));
        assert_eq!(stored(&one, P).await, Some(5));
    });
}

/// The same, with a save that was on its way when the other took over.
#[test]
fn a_save_that_comes_late_changes_nothing_behind_the_new_owners_back() {
    wait(async {
        let proxy = Proxy::start(shared().port).await;
        let place = place();
        let slow = open(&proxy.place(&place, shared().port));
        let other = open(&place);
        let token = claim(&slow, P, "a").await;
        save(&slow, &token, 10).await.unwrap();
        proxy.rule(|asked| match asked.place {
            0 => Fate::Late(Duration::from_secs(2)),
            _ => Fate::Through,
        });
        let takeover = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            try_claim(&other, P, "b", ClaimCause::Unresponsive).await.unwrap()
        };
        let (late, claimed) = tokio::join!(save(&slow, &token, 11), takeover);
        let ClaimOutcome::Won { checkpoint, .. } = claimed else { panic!("{claimed:?}") };
        assert!(matches!(late.unwrap(), SaveOutcome::Fenced { .. }));
        let begins = checkpoint.unwrap().position.finished().map(|sequence| sequence.0);
        assert_eq!((begins, stored(&other, P).await), (Some(10), Some(10)));
    });
}

#[test]
fn a_late_renewal_and_a_late_handover_find_the_new_owner() {
    wait(async {
        let place = place();
        let (one, other) = (open(&place), open(&place));
        let token = claim(&one, P, "a").await;
        let tokens = std::slice::from_ref(&token);
        assert_eq!(one.renew(&group(), LEASE, tokens).await.unwrap(), [RenewalOutcome::Renewed]);
        let next = claim(&other, P, "b").await;
        let renewal = one.renew(&group(), LEASE, tokens).await.unwrap().remove(0);
        let RenewalOutcome::Lost { holder: Some(holder) } = renewal else { panic!("{renewal:?}") };
        assert_eq!(holder.token(), Some(next.clone()));
        assert_eq!(one.transfer(&group(), &transfer(&token, "c")).await.unwrap(), GiveUpOutcome::NotOurs);
        assert_eq!(other.renew(&group(), LEASE, &[next]).await.unwrap(), [RenewalOutcome::Renewed]);
    });
}

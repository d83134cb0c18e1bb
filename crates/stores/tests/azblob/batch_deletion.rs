//! Tests that renewal batches are deleted when nobody needs them, and that no lost lease is renewed after
//! that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ephor_core::store::Store;

use crate::batch_renewals::{Q, batches, lost, renewed};
use crate::fixture::{P, claim, group, host, record, wait};
use crate::proxy::{Fate, Proxy};
use crate::raw_blobs::Raw;
use crate::server::{open, place, shared};

#[test]
fn the_batch_of_a_retired_host_is_deleted_an_hour_after_it_lost_its_last_lease() {
    wait(async {
        let (place, proxy) = (place(), Proxy::start(shared().port).await);
        let (gone, stays) = (open(&place), open(&proxy.place(&place, shared().port)));
        let raw = Raw::new(shared().port, &place);
        let later = Arc::new(AtomicBool::new(false));
        let is_later = later.clone();
        proxy.rule(move |asked| match is_later.load(Ordering::SeqCst) && asked.line.contains("comp=list") {
            true => {
                Fate::Rewritten("\r\ndate: ", "\r\ndate: Fri, 01 Jan 2100 00:00:00 GMT\r\nx-was: ".into())
            }
            false => Fate::Through,
        });
        gone.heartbeat(&group(), &record("a")).await.unwrap();
        stays.heartbeat(&group(), &record("b")).await.unwrap();
        let (p, q) = (claim(&gone, P, "a").await, claim(&gone, Q, "a").await);
        renewed(&gone, &[&p, &q]).await;
        let look = async |after_years: bool| {
            later.store(after_years, Ordering::SeqCst);
            stays.view(&group()).await.unwrap();
            stays.heartbeat(&group(), &record("b")).await.unwrap();
            later.store(false, Ordering::SeqCst);
            batches(&raw).await.len()
        };
        claim(&stays, P, "b").await;
        gone.retire(&group(), &host("a")).await.unwrap();
        assert_eq!(look(true).await, 1, "it has a lease");
        let mine = claim(&stays, Q, "b").await;
        assert_eq!(look(false).await, 1, "it was written a moment ago");
        assert_eq!(look(true).await, 0, "it has nothing");
        // If it is still there after all, it learns that it has lost both.
        lost(&gone, &p).await;
        lost(&gone, &q).await;
        renewed(&stays, &[&mine]).await;
        assert_eq!(look(false).await, 1, "that of the other");
    });
}

/// The lease is taken from a host that has no record yet. Its batch holds nothing but the revocation.
#[test]
fn a_host_that_never_renewed_does_not_renew_a_lease_that_was_taken_from_it() {
    wait(async {
        let place = place();
        let (former, owner, raw) = (open(&place), open(&place), Raw::new(shared().port, &place));
        let old = claim(&former, P, "a").await;
        let new = claim(&owner, P, "b").await;
        owner.view(&group()).await.unwrap();
        owner.heartbeat(&group(), &record("b")).await.unwrap();
        assert_eq!(batches(&raw).await.len(), 1, "the batch with the revocation");
        lost(&former, &old).await;
        renewed(&owner, &[&new]).await;
    });
}

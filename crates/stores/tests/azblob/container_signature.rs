//! Tests that a shared access signature for one container (`sr=c`) is enough for the store and for the
//! container of a legacy Event Processor Host, although it does not permit requests about the container
//! itself.

use ephor_core::store::{RenewalOutcome, Store, StoreError};
use ephor_stores::azblob::LegacyContainer;
use ephor_stores::{StoreUrl, open as open_by_url, open_existing};

use crate::fixture::{LEASE, P, claim, group, save, stored, wait};
use crate::proxy::{Asked, Fate, Proxy};
use crate::raw_blobs::Raw;
use crate::server::{open, place, shared};
use crate::signatures::{FAR, signed_container};

/// The service's answer to such a signature; an emulator gives it to some of these alone.
fn forbid(asked: &Asked) -> Fate {
    if asked.is_of_container() { Fate::Answered(403, "AuthorizationFailure") } else { Fate::Through }
}

/// Places of one container: with the key, and with its signature by way of a proxy that forbids.
async fn places() -> (String, String, Proxy) {
    let proxy = Proxy::start(shared().port).await;
    proxy.rule(forbid);
    let by_key = place();
    let signed = proxy.place(&signed_container(&by_key, "racwdl", FAR), shared().port);
    (by_key, signed, proxy)
}

#[test]
fn a_signature_for_the_container_alone_is_enough() {
    wait(async {
        let (by_key, signed, _proxy) = places().await;
        open(&by_key).check().await.unwrap();
        let url: StoreUrl = signed.parse().unwrap();
        let store = open_by_url(&url).await.unwrap();
        let token = claim(&*store, P, "a").await;
        save(&*store, &token, 7).await.unwrap();
        let renewed = store.renew(&group(), LEASE, std::slice::from_ref(&token)).await.unwrap();
        assert_eq!(renewed, [RenewalOutcome::Renewed]);
        let tool = open_existing(&url).await.unwrap().expect("it is there");
        assert_eq!(stored(&*tool, P).await, Some(7));
    });
}

#[test]
fn a_container_that_such_a_signature_names_and_that_is_missing_is_missed() {
    wait(async {
        let (by_key, signed, _proxy) = places().await;
        let url: StoreUrl = signed.parse().unwrap();
        assert!(open_existing(&url).await.unwrap().is_none());
        let error = open_by_url(&url).await.err().expect("it may not create one").to_string();
        assert!(error.contains("the container does not exist") && error.contains("create it"), "{error}");
        open(&by_key).check().await.unwrap();
        open_by_url(&url).await.unwrap();
    });
}

#[test]
fn positions_of_old_hosts_are_read_with_such_a_signature() {
    wait(async {
        let (by_key, signed, _proxy) = places().await;
        let eph = |place: &str| format!("{place};Layout=eph;Namespace=ns.example.net;Hub=homes");
        let fleet = LegacyContainer::new(&eph(&signed), &Default::default()).unwrap();
        let error = fleet.check().await.unwrap_err();
        assert!(
            matches!(&error, StoreError::Refused { message, .. } if message.contains("no Event Processor Host has used it")),
            "{error}"
        );
        open(&by_key).check().await.unwrap();
        Raw::new(shared().port, &by_key).put("$Default/0", &[], "").await;
        fleet.check().await.unwrap();
        assert_eq!(fleet.groups().await.unwrap().len(), 1);
    });
}

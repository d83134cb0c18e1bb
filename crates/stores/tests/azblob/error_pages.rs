//! Tests that error pages of an HTTP gateway between host and service do not count as answers of the
//! service.

use ephor_core::store::{RenewalOutcome, SaveOutcome, Store, StoreError};
use ephor_stores::azblob::{BlobOptions, SharedWith};

use crate::fixture::{LEASE, P, claim, group, save, wait};
use crate::proxy::{Fate, Proxy};
use crate::server::{open_with, place, shared};

/// A page with status 404 says nothing about a blob.
#[test]
fn a_page_of_a_gateway_takes_no_lease_and_no_checkpoint_away() {
    wait(async {
        for shared_with in [SharedWith::EphorOnly, SharedWith::OtherSdks] {
            for status in [404, 502] {
                let proxy = Proxy::start(shared().port).await;
                let options = BlobOptions { shared_with, ..BlobOptions::default() };
                let store = open_with(&proxy.place(&place(), shared().port), options.clone());
                let token = claim(&store, P, "a").await;
                let tokens = std::slice::from_ref(&token);
                assert!(matches!(save(&store, &token, 1).await.unwrap(), SaveOutcome::Saved(_)));
                assert_eq!(store.renew(&group(), LEASE, tokens).await.unwrap(), [RenewalOutcome::Renewed]);
                // A store that knows nothing by heart asks before it writes.
                let fresh = open_with(&proxy.place(&place(), shared().port), options);
                fresh.check().await.unwrap();
                proxy.rule(move |_| Fate::Page(status));
                for _ in 0..2 {
                    let renewed = store.renew(&group(), LEASE, tokens).await;
                    let unknown = match &renewed {
                        Ok(answers) => matches!(answers[..], [RenewalOutcome::Unknown { .. }]),
                        Err(error) => matches!(error, StoreError::Unavailable(_)),
                    };
                    assert!(unknown, "{shared_with:?} {status}: {renewed:?}");
                    let error = save(&store, &token, 2).await.unwrap_err();
                    assert!(matches!(error, StoreError::Unavailable(_)), "{shared_with:?} {status}: {error}");
                    let error = fresh.exists().await.unwrap_err();
                    assert!(matches!(error, StoreError::Unavailable(_)), "{shared_with:?} {status}: {error}");
                    assert!(!error.to_string().contains("nginx"), "{error}");
                }
                proxy.rule(|_| Fate::Through);
                assert_eq!(store.renew(&group(), LEASE, tokens).await.unwrap(), [RenewalOutcome::Renewed]);
                assert!(matches!(save(&store, &token, 2).await.unwrap(), SaveOutcome::Saved(_)));
            }
        }
    });
}

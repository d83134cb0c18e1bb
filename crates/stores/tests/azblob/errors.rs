//! Tests that errors of configuration, permissions and service say what to do, and show no key. Also tests
//! the account warnings, and that requests have the service version that is set.

use std::time::Duration;

use ephor_core::store::{Store, StoreError};
use ephor_stores::azblob::{BlobOptions, BlobStore};
use ephor_stores::{StoreUrl, open as open_by_url, open_existing};
use ephor_testkit::azurite_server::KEY;

use crate::fixture::{P, claim, group, record, save, wait};
use crate::proxy::{Fate, Proxy};
use crate::raw_blobs::Raw;
use crate::server::{open, open_with, place, shared};
use crate::signatures::{FAR, signed};

/// The key of the account, and a canary in its place: neither is ever told.
fn tells(error: &StoreError, words: &str) {
    let text = format!("{error} {error:?}");
    assert!(text.contains(words), "{words}: {text}");
    assert!(!text.contains("canary") && !text.contains("Y2FuYXJ5") && !text.contains("sig="), "{text}");
    assert!(!text.contains(&KEY[..20]), "{text}");
}

fn refused(error: StoreError, words: &str) {
    assert!(matches!(error, StoreError::Refused { .. }), "{error}");
    tells(&error, words);
}

#[test]
fn a_wrong_key_is_told_apart_from_a_missing_container() {
    wait(async {
        let wrong = place().replace(KEY, "Y2FuYXJ5");
        refused(open(&wrong).check().await.unwrap_err(), "is not of this account");
        let error = open(&wrong).heartbeat(&group(), &record("a")).await.unwrap_err();
        refused(error, "is not of this account");
    });
}

#[test]
fn a_signature_is_as_good_as_a_key_as_far_as_it_goes() {
    wait(async {
        let place = place();
        let store = open(&signed(&place, "racwdl", FAR));
        store.check().await.unwrap();
        let token = claim(&store, P, "a").await;
        save(&store, &token, 1).await.unwrap();
        // One that may only look.
        let reader = open(&signed(&place, "rl", FAR));
        reader.check().await.unwrap();
        assert_eq!(reader.view(&group()).await.unwrap().leases.len(), 1);
        let error = reader.heartbeat(&group(), &record("b")).await.unwrap_err();
        refused(error, "lacks a right");
        // One that is over.
        let late = open(&signed(&place, "racwdl", "2020-01-01T00:00:00Z"));
        let error = late.view(&group()).await.unwrap_err();
        assert!(matches!(error, StoreError::Refused { .. }), "{error}");
        tells(&error, "has expired (2020-01-01T00:00:00Z): create a new one");
    });
}

#[test]
fn a_missing_container_is_made_where_that_is_allowed_and_missed_where_not() {
    wait(async {
        let place = place();
        // Not for a tool: a new one would only hide that the name is wrong.
        let url: StoreUrl = place.parse().unwrap();
        assert!(open_existing(&url).await.unwrap().is_none());
        let tool = BlobStore::new_existing(&place, BlobOptions::default()).unwrap();
        refused(tool.check().await.unwrap_err(), "container does not exist");
        refused(tool.view(&group()).await.unwrap_err(), "container does not exist");
        // Nor where the rights do not reach.
        let reader = open(&signed(&place, "rl", FAR));
        refused(reader.check().await.unwrap_err(), "lacks a right");
        assert!(open_existing(&url).await.unwrap().is_none());
        let store = open_by_url(&url).await.unwrap();
        claim(&*store, P, "a").await;
        assert!(open_existing(&url).await.unwrap().is_some());
    });
}

#[test]
fn a_container_that_is_removed_is_not_begun_anew_in_silence() {
    wait(async {
        let place = place();
        let store = open(&place);
        let token = claim(&store, P, "a").await;
        Raw::new(shared().port, &place).remove().await;
        refused(store.view(&group()).await.unwrap_err(), "container does not exist");
        refused(save(&store, &token, 1).await.unwrap_err(), "container does not exist");
    });
}

#[test]
fn a_service_that_is_busy_or_away_is_told_so() {
    wait(async {
        let proxy = Proxy::start(shared().port).await;
        let options = BlobOptions { call_limit: Duration::from_millis(500), ..BlobOptions::default() };
        let store = open_with(&proxy.place(&place(), shared().port), options);
        let token = claim(&store, P, "a").await;
        for (status, code) in [(503, "ServerBusy"), (429, "TooManyRequests")] {
            proxy.rule(move |_| Fate::Answered(status, code));
            let error = save(&store, &token, 1).await.unwrap_err();
            assert!(matches!(error, StoreError::Throttled(_)), "{error}");
            tells(&error, "busy");
        }
        proxy.rule(|_| Fate::Answered(500, "InternalError"));
        let error = save(&store, &token, 1).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
        proxy.rule(|_| Fate::Late(Duration::from_secs(5)));
        tells(&store.view(&group()).await.unwrap_err(), "no answer within 500ms");
        proxy.rule(|_| Fate::Lost);
        let error = store.view(&group()).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
        tells(&error, "it is up");
        // What is only read is asked again, and no write is.
        assert_eq!(proxy.asked().len(), 3);
        proxy.rule(|asked| if asked.place == 0 { Fate::Lost } else { Fate::Through });
        store.view(&group()).await.unwrap();
        save(&store, &token, 1).await.unwrap();
        proxy.rule(|_| Fate::Lost);
        assert!(save(&store, &token, 2).await.is_err());
        assert_eq!(proxy.asked().len(), 1);
        proxy.rule(|_| Fate::Through);
        save(&store, &token, 2).await.unwrap();
    });
}

#[test]
fn nobody_there_is_unavailable() {
    wait(async {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let endpoint = format!("http://127.0.0.1:{port}/contoso");
        let sas =
            format!("BlobEndpoint={endpoint};AccountName=contoso;SharedAccessSignature=sv=1&sig=canary");
        for place in [sas, format!("BlobEndpoint={endpoint};AccountName=contoso;AccountKey=Y2FuYXJ5")] {
            let store = open(&place);
            let error = store.check().await.unwrap_err();
            assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
            tells(&error, "it is up");
            assert_eq!(format!("{store:?}"), "BlobStore { place: \"azblob://contoso/ephor\", .. }");
        }
    });
}

#[test]
fn what_of_an_account_breaks_ownership_is_said() {
    wait(async {
        let proxy = Proxy::start(shared().port).await;
        let store = open(&proxy.place(&place(), shared().port));
        store.check().await.unwrap();
        assert_eq!(store.account_warnings().await, [""; 0]);
        proxy.rule(|asked| match asked.line.contains("restype=service") {
            true => Fate::Rewritten(
                "</StorageServiceProperties>",
                "<DeleteRetentionPolicy><Enabled>true</Enabled><Days>7</Days></DeleteRetentionPolicy>\
                 </StorageServiceProperties>"
                    .into(),
            ),
            false => Fate::Through,
        });
        let advice = store.account_warnings().await;
        assert!(
            matches!(&advice[..], [one] if one.contains("soft delete") && one.contains("switch soft delete off")),
            "{advice:?}"
        );
        proxy.rule(|asked| match asked.line.contains("restype=account") {
            true => Fate::Rewritten("x-ms-is-hns-enabled: false", "x-ms-is-hns-enabled: true".into()),
            false => Fate::Through,
        });
        let advice = store.account_warnings().await;
        assert!(matches!(&advice[..], [one] if one.contains("hierarchical namespace")), "{advice:?}");
        proxy.rule(|asked| match asked.line.starts_with("PUT") {
            true => {
                Fate::Rewritten("\r\nx-ms-request-id", "\r\nx-ms-version-id: 2026\r\nx-ms-request-id".into())
            }
            false => Fate::Through,
        });
        claim(&store, P, "a").await;
        let advice = store.account_warnings().await;
        assert!(matches!(&advice[..], [one] if one.contains("versions")), "{advice:?}");
    });
}

/// Azure Stack Hub speaks an older version than we do by ourselves.
#[test]
fn the_version_of_the_service_is_the_one_that_is_set() {
    wait(async {
        for version in ["2017-11-09", "2019-07-07", "2024-11-04"] {
            let store = open(&format!("{};ServiceVersion={version}", place()));
            let token = claim(&store, P, "a").await;
            save(&store, &token, 1).await.unwrap();
            assert_eq!(store.view(&group()).await.unwrap().checkpoints.len(), 1);
        }
    });
}

//! Tests that one damaged or missing blob affects only its own partition, and that tools change nothing. The
//! last test is about the size of a host record.

use std::time::Duration;

use ephor_core::host_record::HostRecord;
use ephor_core::ids::{HostId, PartitionId};
use ephor_core::lease::ClaimCause;
use ephor_core::store::{ClaimOutcome, RenewalOutcome, SaveOutcome, Store, StoreError};
use ephor_stores::azblob::{BlobOptions, BlobStore, SharedWith};

use crate::fixture::{BASE, LEASE, P, claim, group, host, record, save, transfer, try_claim, wait};
use crate::proxy::{Fate, Proxy};
use crate::raw_blobs::Raw;
use crate::server::{open, open_with, place, shared};

const OTHER: PartitionId = PartitionId(4);

/// The claim owns the partition before it finds out that it cannot fence the checkpoint.
#[test]
fn a_checkpoint_that_cannot_be_written_stops_its_own_partition_only() {
    wait(async {
        let place = place();
        let (one, other) = (open(&place), open(&place));
        let raw = Raw::new(shared().port, &place);
        let token = claim(&one, P, "a").await;
        assert!(matches!(save(&one, &token, 10).await.unwrap(), SaveOutcome::Saved(_)));
        raw.lease(&format!("{BASE}/checkpoint/{P}")).await;
        let refused = try_claim(&other, P, "b", ClaimCause::Unresponsive).await.unwrap_err();
        assert!(matches!(refused, StoreError::Refused { .. }), "{refused}");
        let view = one.view(&group()).await.unwrap();
        assert_eq!(view.damaged.len(), 1, "{view:?}");
        assert!(view.damaged[0].contains("the checkpoint of partition 3"), "{view:?}");
        claim(&one, OTHER, "a").await;
        claim(&other, OTHER, "b").await;
    });
}

/// The claiming host has revoked the lease and is slow; then the batch is lost, and the owner renews.
#[test]
fn a_batch_that_is_lost_or_damaged_during_a_claim_does_not_make_two_owners() {
    wait(async {
        for damage in [false, true] {
            let place = place();
            let proxy = Proxy::start(shared().port).await;
            let one = open(&place);
            let other = open(&proxy.place(&place, shared().port));
            let raw = Raw::new(shared().port, &place);
            let token = claim(&one, P, "a").await;
            let tokens = std::slice::from_ref(&token);
            assert_eq!(one.renew(&group(), LEASE, tokens).await.unwrap(), [RenewalOutcome::Renewed]);
            other.view(&group()).await.unwrap();
            let names = raw.names().await;
            let batch = names.iter().find(|name| name.contains("/ephor/renewals/")).unwrap();
            proxy.rule(|asked| match asked.line.starts_with("PUT") && asked.line.contains("/epoch") {
                true => Fate::Late(Duration::from_secs(2)),
                false => Fate::Through,
            });
            let lose = async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                match damage {
                    true => raw.set(batch, &[("beat", "nonsense")]).await,
                    false => raw.delete(batch).await,
                }
                one.renew(&group(), LEASE, tokens).await.unwrap()
            };
            let (claimed, renewed) = tokio::join!(try_claim(&other, P, "b", ClaimCause::Unresponsive), lose);
            let won = matches!(claimed.unwrap(), ClaimOutcome::Won { .. });
            let again = one.renew(&group(), LEASE, tokens).await.unwrap();
            let keeps = again == [RenewalOutcome::Renewed];
            assert_ne!(won, keeps, "damaged {damage}: {renewed:?}, then {again:?}");
        }
    });
}

#[test]
fn a_damaged_lease_says_which_blob_to_delete_and_is_mended_by_that() {
    wait(async {
        let place = place();
        let store = open(&place);
        let raw = Raw::new(shared().port, &place);
        let token = claim(&store, P, "a").await;
        let blob = format!("{BASE}/ownership/{P}");
        raw.set(&blob, &[("ownerid", "a"), ("ephor", "nonsense")]).await;
        let failed = try_claim(&store, P, "b", ClaimCause::Unresponsive).await.unwrap_err().to_string();
        assert!(failed.contains(&format!("delete the blob {blob}")), "{failed}");
        let view = store.view(&group()).await.unwrap();
        assert!(view.damaged[0].contains(&format!("delete the blob {blob}")), "{view:?}");
        raw.delete(&blob).await;
        let next = claim(&store, P, "b").await;
        assert!(next.epoch > token.epoch, "{next:?}");
    });
}

/// Other SDKs would begin at a checkpoint that a tool has made.
#[test]
fn a_tool_that_looks_changes_nothing() {
    wait(async {
        let place = place();
        let host =
            open_with(&place, BlobOptions { shared_with: SharedWith::OtherSdks, ..BlobOptions::default() });
        claim(&host, P, "a").await;
        let raw = Raw::new(shared().port, &place);
        let before = raw.names().await;
        for looks in [BlobStore::new_existing(&place, BlobOptions::default()).unwrap(), open(&place)] {
            let view = looks.view(&group()).await.unwrap();
            assert!(view.lease(P).is_some(), "{view:?}");
        }
        assert_eq!(raw.names().await, before);
    });
}

/// To count it as zero would give epochs out again that others have used.
#[test]
fn an_epoch_that_cannot_be_read_is_damage_and_no_epoch_is_taken() {
    wait(async {
        for metadata in
            [&[("epoch", "-1")][..], &[("epoch", "1e3")], &[("epoch", "many")], &[("mood", "new")]]
        {
            let place = place();
            let store = open(&place);
            let raw = Raw::new(shared().port, &place);
            let token = claim(&store, P, "a").await;
            claim(&store, OTHER, "a").await;
            let name = format!("{BASE}/ephor/epoch/{P}");
            raw.set(&name, metadata).await;
            let error = try_claim(&store, P, "b", ClaimCause::Unresponsive).await.unwrap_err();
            assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
            let text = error.to_string();
            assert!(text.contains("the highest epoch of partition 3") && text.contains(&name), "{text}");
            let view = store.view(&group()).await.unwrap();
            assert_eq!((view.leases.len(), view.damaged.len()), (2, 1), "{view:?}");
            assert!(view.damaged[0].contains("the highest epoch of partition 3"), "{view:?}");
            // Its owner goes on, and so do the others.
            let renewed = store.renew(&group(), LEASE, std::slice::from_ref(&token)).await.unwrap();
            assert_eq!(renewed, [RenewalOutcome::Renewed]);
            assert!(matches!(save(&store, &token, 10).await.unwrap(), SaveOutcome::Saved(_)));
            claim(&store, OTHER, "b").await;
            raw.set(&name, &[("epoch", "40")]).await;
            assert_eq!(claim(&store, P, "b").await.epoch.get(), 41);
        }
    });
}

/// Whoever received it would begin anew: at the oldest event or at the latest, as it is told to.
#[test]
fn a_partition_whose_checkpoint_cannot_be_read_is_not_handed_over() {
    wait(async {
        let place = place();
        let store = open(&place);
        let raw = Raw::new(shared().port, &place);
        let token = claim(&store, P, "a").await;
        assert!(matches!(save(&store, &token, 10).await.unwrap(), SaveOutcome::Saved(_)));
        for text in ["nonsense", r#"{"seal":1,"position":{"before":7}}"#] {
            raw.set(&format!("{BASE}/checkpoint/{P}"), &[("ephor", text)]).await;
            let given = store.transfer(&group(), &transfer(&token, "b")).await;
            assert!(matches!(given, Err(StoreError::Damaged { .. })), "{given:?}");
            let view = store.view(&group()).await.unwrap();
            assert_eq!(view.damaged.len(), 1, "{view:?}");
            assert!(view.damaged[0].contains("the checkpoint of partition 3"), "{view:?}");
            let owner = view.lease(P).and_then(|lease| lease.owner.clone());
            assert_eq!(owner, Some(host("a")), "{text}");
        }
    });
}

/// The claim has written the lease, and its answer was lost; then the checkpoint is damaged.
#[test]
fn a_lease_whose_checkpoint_is_not_its_owners_yet_and_cannot_be_read_is_not_shown() {
    wait(async {
        let place = place();
        let proxy = Proxy::start(shared().port).await;
        let (one, other) = (open(&place), open(&proxy.place(&place, shared().port)));
        let raw = Raw::new(shared().port, &place);
        let token = claim(&one, P, "a").await;
        assert!(matches!(save(&one, &token, 10).await.unwrap(), SaveOutcome::Saved(_)));
        other.view(&group()).await.unwrap();
        proxy.rule(|asked| match asked.line.starts_with("PUT") && asked.line.contains("/ownership/") {
            true => Fate::Unanswered,
            false => Fate::Through,
        });
        assert!(try_claim(&other, P, "b", ClaimCause::Unresponsive).await.is_err());
        proxy.rule(|_| Fate::Through);
        raw.set(&format!("{BASE}/checkpoint/{P}"), &[("ephor", r#"{"seal":1,"position":{"before":7}}"#)])
            .await;
        let view = other.view(&group()).await.unwrap();
        assert_eq!((view.lease(P), view.damaged.len()), (None, 1), "{view:?}");
    });
}

/// The service takes 8 KiB of metadata, names and values together; an emulator takes more.
#[test]
fn a_host_with_a_long_name_and_much_to_say_stays_below_what_the_service_takes() {
    wait(async {
        let place = place();
        let store = open(&place);
        let raw = Raw::new(shared().port, &place);
        let id = HostId { name: "🏠".repeat(200).parse().unwrap(), ..host("a") };
        for length in [100, 4_000, 5_000, 6_500, 9_000] {
            let record = HostRecord { id: id.clone(), software: "x".repeat(length), ..record("a") };
            store.heartbeat(&group(), &record).await.unwrap();
            let names = raw.names().await;
            let name = names.iter().find(|name| name.contains("/ephor/hosts/")).unwrap();
            let fields = raw.metadata(name).await.unwrap();
            let bytes: usize = fields.iter().map(|(name, value)| name.len() + value.len()).sum();
            assert!(bytes <= 8_000, "{length}: {bytes} bytes");
            let view = store.view(&group()).await.unwrap();
            assert_eq!(view.host(&id).map(|entry| entry.record.software.len()), Some(length), "{view:?}");
        }
    });
}

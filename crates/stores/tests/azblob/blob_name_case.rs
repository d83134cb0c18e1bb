//! Tests that views find checkpoints whose blob names differ only in case, with few requests, and report
//! unreadable ones.

use std::time::Duration;

use ephor_core::lease::ClaimCause;
use ephor_core::store::{Store, StoreError};
use ephor_stores::azblob::BlobStore;

use crate::fixture::{P, group, try_claim, wait};
use crate::proxy::{Fate, Proxy};
use crate::raw_blobs::Raw;
use crate::renewal_load::leases;
use crate::server::{open, place, shared};

/// Where SDKs that keep the case have the group's blobs.
const KEPT: &str = "ns.example.net/Homes/$Default";
const PARTITIONS: u32 = 64;
const LATENCY: Duration = Duration::from_millis(80);

/// A fleet's leases without checkpoints, as a host sees them that has just started.
async fn fleet() -> (BlobStore, Proxy, Raw) {
    let place = format!("{};SharedWith=other-sdks", place());
    let raw = Raw::new(shared().port, place.trim_end_matches(";SharedWith=other-sdks"));
    leases(&open(&place), &raw, PARTITIONS).await;
    let proxy = Proxy::start(shared().port).await;
    let store = open(&proxy.place(&place, shared().port));
    // The container is looked at before the first view.
    store.check().await.unwrap();
    proxy.rule(|_| Fate::Late(LATENCY));
    (store, proxy, raw)
}

/// One request for each, 80 ms away: with some hundred partitions no view would come in time.
#[test]
fn a_view_asks_once_for_all_partitions_without_a_checkpoint() {
    wait(async {
        let (store, proxy, _) = fleet().await;
        let view = store.view(&group()).await.unwrap();
        assert_eq!((view.leases.len(), view.checkpoints.len()), (PARTITIONS as usize, 0));
        let looked = proxy.asked().iter().filter(|line| line.contains("Homes/")).count();
        assert_eq!(looked, 1, "{:#?}", proxy.asked());
        proxy.rule(|_| Fate::Through);
        assert_eq!(store.view(&group()).await.unwrap().leases.len(), PARTITIONS as usize);
        let looked = proxy.asked().iter().filter(|line| line.contains("Homes/")).count();
        assert_eq!(looked, 0, "{:#?}", proxy.asked());
    });
}

#[test]
fn a_view_takes_over_several_checkpoints_at_a_time() {
    wait(async {
        let (store, proxy, raw) = fleet().await;
        for partition in 0..PARTITIONS {
            let name = format!("{KEPT}/checkpoint/{partition}");
            raw.put(&name, &[("sequencenumber", "41"), ("offset", "1312")], "").await;
        }
        let view = store.view(&group()).await.unwrap();
        assert_eq!((view.leases.len(), view.checkpoints.len()), (PARTITIONS as usize, PARTITIONS as usize));
        assert!(proxy.most_at_once() >= 4, "{} at a time", proxy.most_at_once());
    });
}

/// A host that is shown its lease without a checkpoint begins where it is told to, and may pass over everything.
#[test]
fn a_lease_is_not_shown_while_the_checkpoint_under_a_name_of_another_case_cannot_be_read() {
    wait(async {
        for options in ["", ";SharedWith=other-sdks"] {
            let place = place();
            let (store, raw) = (open(&format!("{place}{options}")), Raw::new(shared().port, &place));
            raw.make().await;
            let name = format!("{KEPT}/checkpoint/{}", P.0);
            raw.put(&name, &[("ephor", "nonsense")], "").await;
            let claimed = try_claim(&store, P, "a", ClaimCause::Unowned).await;
            assert!(matches!(claimed, Err(StoreError::Damaged { .. })), "{options}: {claimed:?}");
            for _ in 0..2 {
                let view = store.view(&group()).await.unwrap();
                assert_eq!(view.lease(P), None, "{options}: {:?}", view.damaged);
                let [damaged] = &view.damaged[..] else { panic!("{options}: {:?}", view.damaged) };
                assert!(damaged.contains("partition 3") && damaged.contains(&name), "{options}: {damaged}");
            }
            raw.delete(&name).await;
            let view = store.view(&group()).await.unwrap();
            assert!(view.lease(P).is_some() && view.damaged.is_empty(), "{options}: {:?}", view.damaged);
        }
    });
}

//! Tests of groups shared with other SDKs: they read Ephor's blobs, and Ephor reads theirs.

use ephor_core::checkpoint::Position;
use ephor_core::ids::PartitionId;
use ephor_core::lease::ClaimCause;
use ephor_core::position::{Offset, SequenceNumber, StartPosition};
use ephor_core::store::{
    ClaimOutcome, RenewalOutcome, SaveOutcome, SaveRequest, SeekOutcome, SeekRequest, Store,
};
use ephor_stores::azblob::{BlobOptions, BlobStore, SharedWith};
use ephor_stores::open_existing;

use crate::fixture::{BASE, LEASE, P, claim, group, save, seek, stored, try_claim, wait};
use crate::proxy::{Asked, Fate, Proxy};
use crate::raw_blobs::Raw;
use crate::server::{open, open_with, place, shared};

const UUID: &str = "4f0c7b52-9f5c-4f0e-8f2d-2f6f0f0f0f0f";

fn open_shared(place: &str) -> BlobStore {
    open_with(place, BlobOptions { shared_with: SharedWith::OtherSdks, ..BlobOptions::default() })
}

/// The store, and its container past the store.
fn both(open: impl Fn(&str) -> BlobStore) -> (BlobStore, Raw) {
    let place = place();
    (open(&place), Raw::new(shared().port, &place))
}

/// The metadata of a checkpoint, the owner, and what we read of it.
type Theirs<'a> = (&'a [(&'a str, &'a str)], &'a str, Option<Position>);

fn text<'a>(metadata: &'a std::collections::BTreeMap<String, String>, name: &str) -> &'a str {
    metadata.get(name).map_or("", String::as_str)
}

#[test]
fn other_sdks_read_who_owns_a_partition_and_how_far_it_is() {
    wait(async {
        for open in [open as fn(&str) -> BlobStore, open_shared] {
            let (store, raw) = both(open);
            let token = claim(&store, P, "a").await;
            let owned = raw.metadata(&format!("{BASE}/ownership/3")).await.unwrap();
            assert_eq!(text(&owned, "ownerid"), "a#0000000000000001");
            let position = Position::Finished {
                sequence: SequenceNumber(41),
                offset: Some(Offset::new("1312")),
                enqueued_at: None,
            };
            store.save(&group(), &SaveRequest::new(&token, &position, None)).await.unwrap();
            let at = raw.metadata(&format!("{BASE}/checkpoint/3")).await.unwrap();
            assert_eq!((text(&at, "sequencenumber"), text(&at, "offset")), ("41", "1312"));
            store
                .release(
                    &group(),
                    &ephor_core::lease::ReleaseRequest {
                        token,
                        cause: ephor_core::lease::ReleaseCause::Shutdown,
                        successor: None,
                        checkpoint_saved: true,
                    },
                )
                .await
                .unwrap();
            let free = raw.metadata(&format!("{BASE}/ownership/3")).await.unwrap();
            assert_eq!(free.get("ownerid").map(String::as_str), Some(""), "{free:?}");
            // They list two folders, and find nothing else in them.
            for name in raw.names().await {
                let theirs = [format!("{BASE}/ownership/3"), format!("{BASE}/checkpoint/3")];
                assert!(theirs.contains(&name) || name.starts_with(&format!("{BASE}/ephor/")), "{name}");
            }
        }
    });
}

/// From the first claim on an autoscaler finds a checkpoint, and where it begins is still for the options to say.
#[test]
fn the_first_checkpoint_says_that_nothing_is_finished() {
    wait(async {
        let (store, raw) = both(open);
        let ClaimOutcome::Won { checkpoint, .. } =
            try_claim(&store, P, "a", ClaimCause::Unowned).await.unwrap()
        else {
            panic!("no other host claims");
        };
        assert_eq!(checkpoint, None);
        assert_eq!(store.view(&group()).await.unwrap().checkpoint(P), None);
        let synthetic = raw.metadata(&format!("{BASE}/checkpoint/3")).await.unwrap();
        assert_eq!((text(&synthetic, "sequencenumber"), text(&synthetic, "offset")), ("-1", "-1"));
        // Another SDK would begin there, whatever it is told.
        let (store, raw) = both(open_shared);
        claim(&store, P, "a").await;
        assert_eq!(raw.metadata(&format!("{BASE}/checkpoint/3")).await, None);
    });
}

#[test]
fn a_fleet_of_another_sdk_is_taken_over_where_it_stopped() {
    wait(async {
        for open in [open as fn(&str) -> BlobStore, open_shared] {
            let (store, raw) = both(open);
            raw.make().await;
            let finished = |sequence, offset: Option<&str>| Position::Finished {
                sequence: SequenceNumber(sequence),
                offset: offset.map(Offset::new),
                enqueued_at: None,
            };
            let after = |offset: &str| {
                Position::Start(StartPosition::Offset { offset: Offset::new(offset), inclusive: false })
            };
            let theirs: [Theirs<'_>; 4] = [
                (&[("sequencenumber", "41"), ("offset", "1312")], UUID, Some(finished(41, Some("1312")))),
                (
                    &[("sequencenumber", "41"), ("offset", ""), ("clientidentifier", "x")],
                    "",
                    Some(finished(41, None)),
                ),
                (&[("offset", "1312")], UUID, Some(after("1312"))),
                (&[], "", None),
            ];
            for (partition, (metadata, owner, _)) in theirs.iter().enumerate() {
                raw.put(&format!("{BASE}/checkpoint/{partition}"), metadata, "").await;
                raw.put(&format!("{BASE}/ownership/{partition}"), &[("ownerid", owner)], "").await;
            }
            assert_eq!(store.groups().await.unwrap().len(), 1);
            let view = store.view(&group()).await.unwrap();
            assert_eq!(view.damaged, [""; 0]);
            for (partition, (_, owner, expected)) in (0..).map(PartitionId).zip(&theirs) {
                let lease = view.lease(partition).unwrap();
                let shown = lease.owner.as_ref().map_or("", |owner| owner.name.as_str());
                assert_eq!((shown, lease.duration), (*owner, None));
                let won = try_claim(&store, partition, "a", ClaimCause::Expired).await.unwrap();
                let ClaimOutcome::Won { token, checkpoint, .. } = won else { panic!("{won:?}") };
                assert_eq!(checkpoint.map(|checkpoint| checkpoint.position), *expected, "{partition:?}");
                let saved = save(&store, &token, 50).await.unwrap();
                assert!(matches!(saved, SaveOutcome::Saved(_)), "{saved:?}");
            }
            // What they added stays.
            let kept = raw.metadata(&format!("{BASE}/checkpoint/1")).await.unwrap();
            assert_eq!(text(&kept, "clientidentifier"), "x");
        }
    });
}

/// Where SDKs that keep the case have the group's checkpoint.
const KEPT: &str = "ns.example.net/Homes/$Default";

#[test]
fn a_checkpoint_under_a_name_of_another_case_is_found() {
    wait(async {
        for (options, base) in [("", KEPT), (";SharedWith=other-sdks", KEPT), (";Case=as-given", BASE)] {
            let place = place();
            let (store, raw) = (open(&format!("{place}{options}")), Raw::new(shared().port, &place));
            raw.make().await;
            let name = format!("{base}/checkpoint/3");
            raw.put(&name, &[("sequencenumber", "41"), ("offset", "1312")], "").await;
            let won = try_claim(&store, P, "a", ClaimCause::Unowned).await.unwrap();
            let ClaimOutcome::Won { checkpoint: Some(checkpoint), token, .. } = won else {
                panic!("{options}: {won:?}")
            };
            assert_eq!(checkpoint.position.finished(), Some(SequenceNumber(41)));
            assert!(matches!(save(&store, &token, 42).await.unwrap(), SaveOutcome::Saved(_)));
            // Theirs is left alone, and is not looked at again.
            assert_eq!(text(&raw.metadata(&name).await.unwrap(), "sequencenumber"), "41");
            claim(&store, P, "b").await;
            assert_eq!(stored(&store, P).await, Some(42));
        }
    });
}

/// Whoever finds itself an owner without a checkpoint may begin at the end.
#[test]
fn a_lease_is_not_shown_without_the_checkpoint_that_lies_under_a_name_of_another_case() {
    wait(async {
        let place = place();
        let proxy = Proxy::start(shared().port).await;
        let raw = Raw::new(shared().port, &place);
        raw.make().await;
        let name = format!("{KEPT}/checkpoint/3");
        raw.put(&name, &[("sequencenumber", "41"), ("offset", "1312")], "").await;
        let store = open(&proxy.place(&format!("{place};SharedWith=other-sdks"), shared().port));
        let is_theirs = |asked: &Asked| asked.line.contains("/Homes/") && asked.line.contains("/checkpoint/");
        proxy.rule(move |asked| if is_theirs(asked) { Fate::Busy(1) } else { Fate::Through });
        let claimed = try_claim(&store, P, "a", ClaimCause::Unowned).await;
        assert!(claimed.is_err(), "{claimed:?}");
        for _ in 0..2 {
            let view = store.view(&group()).await;
            let shown = view.as_ref().ok().and_then(|view| view.lease(P));
            assert_eq!(shown, None, "{view:?}");
        }
        proxy.rule(|_| Fate::Through);
        assert_eq!(stored(&store, P).await, Some(41));
        let again = try_claim(&store, P, "a", ClaimCause::Unresponsive).await.unwrap();
        assert!(matches!(&again, ClaimOutcome::Won { checkpoint: Some(_), .. }), "{again:?}");
    });
}

/// Every look would cost a request for each partition without a checkpoint.
#[test]
fn where_nothing_lies_under_a_name_of_another_case_is_looked_up_once_for_each_owner() {
    wait(async {
        let place = place();
        let proxy = Proxy::start(shared().port).await;
        let store = open(&proxy.place(&format!("{place};SharedWith=other-sdks"), shared().port));
        claim(&store, P, "a").await;
        proxy.rule(|_| Fate::Through);
        for _ in 0..3 {
            assert!(store.view(&group()).await.unwrap().lease(P).is_some());
        }
        let looked = proxy.asked().iter().filter(|line| line.contains("/Homes/")).count();
        assert!(looked <= 1, "{:?}", proxy.asked());
    });
}

#[test]
fn names_keep_their_case_if_the_place_says_so() {
    wait(async {
        let place = place();
        let raw = Raw::new(shared().port, &place);
        claim(&open(&format!("{place};Case=as-given")), P, "a").await;
        for name in raw.names().await {
            assert!(name.starts_with(KEPT), "{name}");
        }
        let tool = open_existing(&format!("{place};Case=as-given").parse().unwrap()).await.unwrap().unwrap();
        assert_eq!(tool.view(&group()).await.unwrap().leases.len(), 1);
    });
}

/// What is exported must be where hosts would begin.
#[test]
fn tools_see_a_checkpoint_under_a_name_of_another_case_until_there_is_one_of_ours() {
    wait(async {
        for (options, base) in [("", KEPT), (";SharedWith=other-sdks", KEPT), (";Case=as-given", BASE)] {
            let place = place();
            let raw = Raw::new(shared().port, &place);
            raw.make().await;
            for partition in [2, 3] {
                let name = format!("{base}/checkpoint/{partition}");
                raw.put(&name, &[("sequencenumber", "41"), ("offset", "1312")], "").await;
            }
            let place = format!("{place}{options}");
            let tool = open_existing(&place.parse().unwrap()).await.unwrap().unwrap();
            assert_eq!(stored(&*tool, P).await, Some(41), "{options}");
            assert_eq!(tool.view(&group()).await.unwrap().checkpoints.len(), 2, "{options}");
            let store = open(&place);
            let token = claim(&store, P, "a").await;
            save(&store, &token, 42).await.unwrap();
            let shown: Vec<_> = tool.view(&group()).await.unwrap().checkpoints;
            let shown = shown.iter().map(|(partition, at)| (partition.0, at.position.finished().unwrap().0));
            assert_eq!(shown.collect::<Vec<_>>(), [(2, 41), (3, 42)], "{options}");
            // One that cannot be read would stop a host, too.
            raw.put(&format!("{base}/checkpoint/5"), &[("ephor", "nonsense")], "").await;
            let damaged = tool.view(&group()).await.unwrap().damaged;
            assert!(matches!(&damaged[..], [one] if one.contains("partition 5")), "{damaged:?}");
        }
    });
}

/// A host that found none began as its options say: what is written there later is not where it is.
#[test]
fn a_checkpoint_elsewhere_counts_no_more_once_a_host_has_begun() {
    wait(async {
        let place = place();
        let (store, raw) = (open(&place), Raw::new(shared().port, &place));
        claim(&store, P, "a").await;
        raw.put(&format!("{KEPT}/checkpoint/3"), &[("sequencenumber", "41"), ("offset", "1312")], "").await;
        let tool = open_existing(&place.parse().unwrap()).await.unwrap().unwrap();
        assert_eq!(stored(&*tool, P).await, None);
    });
}

#[test]
fn a_rewrite_by_another_sdk_never_resets_the_epoch() {
    wait(async {
        for open in [open as fn(&str) -> BlobStore, open_shared] {
            let (store, raw) = both(open);
            let name = format!("{BASE}/ownership/3");
            let first = claim(&store, P, "a").await;
            let second = claim(&store, P, "b").await;
            raw.set(&name, &[("ownerid", UUID)]).await;
            // An owner that shares with nobody notices with its next look at everything.
            store.view(&group()).await.unwrap();
            let tokens = std::slice::from_ref(&second);
            let renewal = store.renew(&group(), LEASE, tokens).await.unwrap().remove(0);
            let RenewalOutcome::Lost { holder: Some(holder) } = renewal else { panic!("{renewal:?}") };
            assert_eq!(holder.owner.unwrap().name.as_str(), UUID);
            let lease = store.view(&group()).await.unwrap().lease(P).unwrap().clone();
            assert!(lease.epoch >= second.epoch && lease.duration.is_none(), "{lease:?}");
            let third = claim(&store, P, "a").await;
            assert!(third.epoch > second.epoch && second.epoch > first.epoch);
            // Not even if the record is gone, and its checkpoint with it.
            raw.delete(&name).await;
            let checkpoint = format!("{BASE}/checkpoint/3");
            if raw.metadata(&checkpoint).await.is_some() {
                raw.delete(&checkpoint).await;
            }
            store.view(&group()).await.unwrap();
            assert_eq!(
                store.renew(&group(), LEASE, std::slice::from_ref(&third)).await.unwrap(),
                [RenewalOutcome::Lost { holder: None }]
            );
            assert!(claim(&store, P, "b").await.epoch > third.epoch);
        }
    });
}

#[test]
fn an_owner_of_another_sdk_is_not_sought_away_by_accident() {
    wait(async {
        let (store, raw) = both(open_shared);
        claim(&store, P, "a").await;
        raw.set(&format!("{BASE}/ownership/3"), &[("ownerid", UUID)]).await;
        let refused = store.seek(&group(), &seek(5)).await.unwrap();
        assert_eq!(refused, SeekOutcome::OtherSdkOwner { owner: UUID.into() });
        assert_eq!(stored(&store, P).await, None);
        let forced = SeekRequest { force: true, ..seek(5) };
        assert!(matches!(store.seek(&group(), &forced).await.unwrap(), SeekOutcome::Done { .. }));
        assert_eq!(stored(&store, P).await, Some(5));
        let owner = raw.metadata(&format!("{BASE}/ownership/3")).await.unwrap();
        assert_eq!(text(&owner, "ownerid"), "");
    });
}

/// Another SDK writes over a checkpoint without looking. Nobody is locked out by it, and what it says counts.
#[test]
fn a_checkpoint_that_another_sdk_wrote_over_is_gone_on_from() {
    wait(async {
        for open in [open as fn(&str) -> BlobStore, open_shared] {
            let (store, raw) = both(open);
            let token = claim(&store, P, "a").await;
            save(&store, &token, 10).await.unwrap();
            raw.set(&format!("{BASE}/checkpoint/3"), &[("sequencenumber", "20"), ("offset", "640")]).await;
            assert_eq!(stored(&store, P).await, Some(20));
            let behind = save(&store, &token, 15).await.unwrap();
            assert!(matches!(behind, SaveOutcome::Behind { .. }), "{behind:?}");
            assert!(matches!(save(&store, &token, 21).await.unwrap(), SaveOutcome::Saved(_)));
            let next = claim(&store, P, "b").await;
            let late = save(&store, &token, 22).await.unwrap();
            assert!(matches!(late, SaveOutcome::Fenced { .. }), "{late:?}");
            assert!(matches!(save(&store, &next, 22).await.unwrap(), SaveOutcome::Saved(_)));
        }
    });
}

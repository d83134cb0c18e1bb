//! What a call costs: requests, counted on the way to the service.

use ephor_core::epoch::Epoch;
use ephor_core::ids::PartitionId;
use ephor_core::lease::{ClaimCause, ClaimRequest, LeaseToken};
use ephor_core::store::{Claim, Store};

use crate::proxy::Proxy;
use crate::server::{open, place, shared};
use crate::world::{LEASE, P, claim, group, host, record, save, transfer, wait};

/// A claim of a partition that nobody has had, without a look at all others.
async fn first_claim(store: &dyn Store, partition: PartitionId) -> LeaseToken {
    let (host, above, cause) = (host("a"), Epoch::NONE, ClaimCause::Unowned);
    let request = ClaimRequest { partition, host, duration: LEASE, seen: None, above, cause };
    match store.claim(&group(), &request).await.unwrap() {
        Claim::Won { token, .. } => token,
        Claim::Lost { holder } => panic!("lost to {holder:?}"),
    }
}

#[test]
fn an_interval_costs_a_list_a_heartbeat_and_a_request_for_each_lease() {
    wait(async {
        let proxy = Proxy::start(shared().port).await;
        for owned in [16_u32, 256] {
            let place = place();
            let store = open(&proxy.place(&place, shared().port));
            let mut tokens = Vec::new();
            for partition in (0..owned).map(PartitionId) {
                tokens.push(first_claim(&store, partition).await);
            }
            store.heartbeat(&group(), &record("a")).await.unwrap();
            proxy.rule(|_| crate::proxy::Fate::Through);
            for interval in 1..=2 {
                store.heartbeat(&group(), &record("a")).await.unwrap();
                store.view(&group()).await.unwrap();
                store.renew(&group(), LEASE, &tokens).await.unwrap();
                let asked = proxy.asked().len();
                assert_eq!(asked, interval * (usize::try_from(owned).unwrap() + 2), "{:?}", proxy.asked());
            }
        }
    });
}

#[test]
fn a_save_is_one_request_and_a_change_of_owner_a_few() {
    wait(async {
        let proxy = Proxy::start(shared().port).await;
        let place = place();
        let store = open(&proxy.place(&place, shared().port));
        claim(&store, PartitionId(0), "a").await;
        let counted = |what: &str, most: usize| {
            let asked = proxy.asked();
            assert!(asked.len() <= most, "{what}: {asked:?}");
            proxy.rule(|_| crate::proxy::Fate::Through);
        };
        counted("the first claim of all", 20);
        let token = claim(&store, P, "a").await;
        counted("a view, and a claim", 10);
        for sequence in 1..=3 {
            save(&store, &token, sequence).await.unwrap();
            counted("a save", 1);
        }
        store.transfer(&group(), &transfer(&token, "b")).await.unwrap();
        counted("a transfer", 8);
    });
}

//! Tests that count the round trips of store calls, and that every statement is a simple query, which a
//! connection pooler can run. Also tests that a connection that died while idle is replaced.

use ephor_core::host_record::HandoverRequest;
use ephor_core::ids::PartitionId;
use ephor_core::lease::TransferRequest;
use ephor_core::store::{RenewalOutcome, Store};
use ephor_stores::postgres::PostgresOptions;

use crate::fixture::{
    LEASE, claim, database_on, group, host, open, open_with, record, save, sql, stored, wait,
};
use crate::server::shared;
use crate::{fixture, proxy};

/// Every message is a simple query (`Q`): one round trip each, and nothing prepared.
#[test]
fn a_call_is_one_or_two_simple_queries_whatever_the_number_of_partitions() {
    wait(async {
        let server = shared();
        let name = database_on(server).await;
        let direct = open(&server.url(&name));
        let (port, weather) = proxy::start(server.port).await;
        let url = server.url(&name).replace(&server.port.to_string(), &port.to_string());
        let store = open_with(&url, PostgresOptions { listen: false, ..PostgresOptions::default() });
        store.check().await.unwrap();
        weather.take_kinds();
        for count in [16_u32, 256] {
            let mut tokens = Vec::new();
            for partition in 0..count {
                tokens.push(claim(&direct, PartitionId(partition), "a").await);
            }
            let mut costs = Vec::new();
            let renewals = store.renew(&group(), LEASE, &tokens).await.unwrap();
            assert!(renewals.iter().all(|renewal| *renewal == RenewalOutcome::Renewed));
            costs.push(("renew", weather.take_kinds(), 1));
            store.view(&group()).await.unwrap();
            costs.push(("view", weather.take_kinds(), 1));
            store.heartbeat(&group(), &record("a")).await.unwrap();
            costs.push(("heartbeat", weather.take_kinds(), 1));
            let want =
                HandoverRequest { partition: PartitionId(0), owner: host("b"), epoch: tokens[0].epoch };
            let asking = ephor_core::host_record::HostRecord { wants: vec![want; 20], ..record("a") };
            store.heartbeat(&group(), &asking).await.unwrap();
            costs.push(("heartbeat that asks", weather.take_kinds(), 2));
            save(&store, &tokens[0], u64::from(count)).await.unwrap();
            costs.push(("save", weather.take_kinds(), 2));
            let request = TransferRequest {
                token: tokens[0].clone(),
                to: host("b"),
                duration: LEASE,
                checkpoint_saved: true,
            };
            store.transfer(&group(), &request).await.unwrap();
            costs.push(("transfer", weather.take_kinds(), 2));
            let taken =
                fixture::try_claim(&store, PartitionId(1), "c", ephor_core::lease::ClaimCause::Unresponsive)
                    .await;
            assert!(matches!(taken, Ok(ephor_core::store::ClaimOutcome::Won { .. })));
            costs.push(("view and claim", weather.take_kinds(), 3));
            for (call, kinds, most) in &costs {
                println!("{count} partitions: {call}: {} round trips", kinds.len());
                assert_eq!(kinds, &"Q".repeat(*most), "{call}");
            }
        }
        assert_eq!(weather.connections(), 1);
        assert_eq!(stored(&direct, PartitionId(0)).await, Some(256));
    });
}

/// A server that was restarted, or a firewall that forgot: no call fails for it.
#[test]
fn a_connection_that_died_while_nobody_used_it_is_replaced() {
    wait(async {
        let server = shared();
        let name = database_on(server).await;
        let url = server.url(&name);
        let store = open_with(&url, PostgresOptions { listen: false, ..PostgresOptions::default() });
        let token = claim(&store, fixture::P, "a").await;
        for _ in 0..3 {
            let ended = format!(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                WHERE datname = '{name}' AND pid <> pg_backend_pid()"
            );
            sql(&server.url("postgres"), &ended).await;
            assert_eq!(
                store.renew(&group(), LEASE, std::slice::from_ref(&token)).await.unwrap(),
                [RenewalOutcome::Renewed]
            );
        }
    });
}

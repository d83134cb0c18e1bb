//! Tests that advisory requests (account checks, deletions of dead records) do not delay callers.

use std::time::Duration;

use ephor_core::store::Store;

use crate::fixture::{group, host, record, wait};
use crate::proxy::{Fate, Proxy};
use crate::raw_blobs::Raw;
use crate::server::{open, place, shared};

const STORE_TIMEOUT: Duration = Duration::from_secs(5);

#[test]
fn questions_about_the_account_that_hang_do_not_keep_a_host_from_starting() {
    wait(async {
        let proxy = Proxy::start(shared().port).await;
        proxy.rule(|asked| match asked.line.contains("comp=properties") {
            true => Fate::Hangs,
            false => Fate::Through,
        });
        let store = open(&proxy.place(&place(), shared().port));
        let beat = tokio::time::timeout(STORE_TIMEOUT, store.heartbeat(&group(), &record("a"))).await;
        beat.expect("an answer while the host waits").unwrap();
    });
}

#[test]
fn records_of_the_dead_that_cannot_be_deleted_do_not_hold_a_heartbeat_up() {
    wait(async {
        let proxy = Proxy::start(shared().port).await;
        let place = place();
        let (store, raw) = (open(&proxy.place(&place, shared().port)), Raw::new(shared().port, &place));
        for name in ["a", "b", "c", "d", "e"] {
            store.heartbeat(&group(), &record(name)).await.unwrap();
        }
        for name in raw.names().await.into_iter().filter(|name| name.contains("/ephor/hosts/")) {
            let mut fields = raw.metadata(&name).await.unwrap();
            if fields["id"] != host("a").to_string() {
                fields.insert("at".into(), "1000".into());
                let fields: Vec<(&str, &str)> =
                    fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
                raw.set(&name, &fields).await;
            }
        }
        proxy.rule(|asked| if asked.line.starts_with("DELETE") { Fate::Hangs } else { Fate::Through });
        store.view(&group()).await.unwrap();
        let beat = tokio::time::timeout(STORE_TIMEOUT, store.heartbeat(&group(), &record("a"))).await;
        beat.expect("an answer while the host waits").unwrap();
        assert!(proxy.asked().iter().any(|line| line.starts_with("DELETE")), "{:?}", proxy.asked());
    });
}

//! Tests of the page's live updates: server-sent events carry what changed, to a limited number of listeners.

use std::time::Duration;

use ephor_homes::page::{Action, LIVE_LISTENERS, Source};
use ephor_homes::view::model::{CityNow, FleetNow, HomeNow};
use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use crate::fake_source::{BROKEN, Fake};
use crate::page::{JSON, PATIENCE, Site};

#[tokio::test]
async fn all_that_is_sent_has_its_place_on_the_page() {
    let site = Site::fake().await;
    for (page, stream) in
        [("/", "/live/city"), ("/home/41234", "/live/home/41234"), ("/operator", "/live/fleet")]
    {
        let html = site.get(page).await.body;
        let mut live = site.live(stream).await;
        live.until("\n\n", 1).await;
        let data = live.text.split("data: ").nth(1).unwrap().lines().next().unwrap();
        let shown: Value = serde_json::from_str(data).unwrap();
        for kind in ["texts", "attributes", "lists"] {
            let ids = shown[kind].as_object().unwrap();
            assert!(!ids.is_empty(), "{page} {kind}");
            for id in ids.keys() {
                assert!(html.contains(&format!(" id=\"{id}\"")), "{page} has no place for {kind} of {id}");
            }
        }
        for (id, rows) in shown["lists"].as_object().unwrap() {
            let row = &rows[0];
            for part in
                row["texts"].as_object().unwrap().keys().chain(row["parts"].as_object().unwrap().keys())
            {
                assert!(html.contains(&format!("data-part=\"{part}\"")), "{page} {id} has no part {part}");
            }
        }
    }
}

#[tokio::test]
async fn what_changes_is_sent_and_the_end_is_told() {
    let site = Site::fake().await;
    let mut city = site.live("/live/city").await;
    city.until("data: {", 2).await;
    assert!(city.text.to_lowercase().contains("content-type: text/event-stream"), "{}", city.text);
    let mut fleet = site.live("/live/fleet").await;
    fleet.until("data: {", 1).await;
    assert!(!fleet.text.contains("host-6"));
    assert_eq!(site.post(JSON, r#"{"action":"add_host"}"#).await.status, 200);
    fleet.until("host-6", 1).await;
    let mut home = site.live(&format!("/live/home/{BROKEN}")).await;
    home.until("broken glass", 1).await;

    site.stop.send(()).unwrap();
    for live in [&mut city, &mut fleet, &mut home] {
        live.until("event: end", 1).await;
    }
    timeout(PATIENCE, site.served).await.expect("it ends").unwrap().unwrap();
}

/// A city in which time stands still.
struct Still(CityNow, Fake);

impl Source for Still {
    fn city(&self) -> CityNow {
        self.0.clone()
    }

    fn home(&self, home: u32) -> Option<HomeNow> {
        self.1.home(home)
    }

    fn homes(&self) -> u32 {
        self.1.homes()
    }

    fn fleet(&self) -> FleetNow {
        FleetNow::default()
    }

    fn act(&self, action: Action) -> BoxFuture<'_, Result<String, String>> {
        self.1.act(action)
    }
}

#[tokio::test]
async fn nothing_is_sent_for_nothing() {
    let site = Site::of(Still(CityNow::default(), Fake::new())).await;
    let mut live = site.live("/live/fleet").await;
    live.until("data: {", 1).await;
    let more = timeout(Duration::from_secs(3), live.until("data: {", 2)).await;
    assert!(more.is_err(), "the same was sent again");
    // A city of which nothing is known yet has its words, too.
    let city = site.get("/").await.body;
    assert!(city.contains("waiting for the first data") && city.contains("No reading has been sent yet."));
    assert!(site.get("/operator").await.body.contains("No host is running."));
}

#[tokio::test]
async fn only_so_many_listen_at_a_time() {
    let site = Site::fake().await;
    let mut all = Vec::new();
    for _ in 0..LIVE_LISTENERS {
        let mut live = site.live("/live/fleet").await;
        live.until("data: {", 1).await;
        all.push(live);
    }
    let refused = site.get("/live/city").await;
    assert_eq!(refused.status, 503);
    assert!(refused.head.contains("retry-after:") && refused.body.contains("Too many pages"));
    assert_eq!(site.get("/").await.status, 200, "pages are still served");
    drop(all.pop());
    // The server sees that one is gone when it next writes to it.
    let freed = async {
        loop {
            let mut live = site.live("/live/home/7").await;
            let mut start = [0; 12];
            live.stream.read_exact(&mut start).await.unwrap();
            if start.ends_with(b"200") {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(PATIENCE, freed).await.expect("a place becomes free");
}

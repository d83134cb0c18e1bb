//! Tests that pin the content of a container after a fixed script: blob names, metadata and bodies, with
//! batched renewal (`shared-with = ephor`) and shared with other SDKs (`shared-with = other-sdks`).

#[path = "../shared/golden.rs"]
mod script;

use std::fmt::Write as _;

use ephor_core::time::Timestamp;

use crate::fixture::{group, wait};
use crate::raw_blobs::Raw;
use crate::server::{open, place, shared};

/// A list of `PLACE:EPOCH:BEAT:SECONDS`, without the seconds where they are a time.
fn without_seconds(list: &str) -> String {
    let masked = list.split(',').map(|line| match line.rsplit_once(':') {
        Some((front, seconds)) if seconds != "0" => format!("{front}:<seconds>"),
        _ => line.to_owned(),
    });
    masked.collect::<Vec<_>>().join(",")
}

async fn dump(raw: &Raw, now: Timestamp) -> String {
    let shown = |text: &str| script::shortened(&script::without_times(text, now));
    let mut dump = String::new();
    for name in raw.names().await {
        writeln!(dump, "{name}").unwrap();
        for (key, value) in raw.metadata(&name).await.unwrap() {
            let value = match key.as_str() {
                "left" | "struck" => without_seconds(&value),
                _ => value,
            };
            writeln!(dump, "  {key} = {}", shown(&value)).unwrap();
        }
        let body = raw.body(&name).await;
        if !body.is_empty() {
            writeln!(dump, "  body {}", shown(&body)).unwrap();
        }
    }
    dump
}

fn as_it_was(options: &str, golden: &str) {
    wait(async {
        let place = place();
        let raw = Raw::new(shared().port, &place);
        let store = open(&format!("{place}{options}"));
        let now = script::play(&store, &group(), &|| {}).await;
        script::compare(golden, &dump(&raw, now).await);
    });
}

#[test]
fn what_is_stored_with_batched_renewal_is_as_it_was() {
    as_it_was("", "azblob.txt");
}

#[test]
fn what_is_stored_beside_other_sdks_is_as_it_was() {
    as_it_was(";SharedWith=other-sdks", "azblob-sdk.txt");
}

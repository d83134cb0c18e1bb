//! Generates the seeds of the fuzz corpus from valid encodings, and compares them with the stored files.
//!
//! `EPHOR_FUZZ_WRITE=1 cargo test -p ephor-fuzz --test seeds` writes them; otherwise the files must match
//! what is generated. So a seed never becomes an encoding that nobody sends any more.

#![allow(clippy::unwrap_used, reason = "a test that unwraps says where it failed")]

mod bodies;
mod conversation;
mod events;
mod files;
mod gateway_conversations;
mod logs;
mod producers;
mod raw_frames;
mod records;
mod replay;
mod request_response;
mod texts;

use std::fs;

use ephor_fuzz::{TARGETS, corpus};

/// The names and inputs of one target.
type Seeds = Vec<(String, Vec<u8>)>;

fn seeds(target: &str) -> Seeds {
    match target {
        "values" => bodies::values(),
        "sections" | "messages" => events::messages(),
        "deliveries" => events::deliveries(),
        "batches" => events::batches(),
        "stored" => events::stored(),
        "frames" => vec![("one-of-each".into(), bodies::row_of_frames())],
        "performatives" => bodies::performatives(),
        "sasl" => bodies::sasl(),
        "server" => conversation::said_to_a_server(),
        "client" => conversation::said_to_a_client(),
        "selectors" => texts::selectors(),
        "addresses" => texts::addresses(),
        "secrets" => texts::secrets(),
        "current_readers" => texts::current_readers(),
        "names" => texts::names(),
        "store_urls" => texts::store_urls(),
        "hub_urls" => texts::hub_urls(),
        "configs" => files::configs(),
        "catalogs" => files::catalogs(),
        "requests" => request_response::both_sides(),
        "rows" => records::rows(),
        "blobs" => records::blobs(),
        "exports" => records::exports(),
        "gateway" => gateway_conversations::conversations(),
        "logs" => logs::folders(),
        "producers" => producers::lives(),
        other => panic!("there are no seeds for {other}: write some"),
    }
}

#[test]
fn every_seed_is_in_the_corpus_as_it_is_made() {
    let write = std::env::var_os("EPHOR_FUZZ_WRITE").is_some();
    for target in TARGETS {
        let folder = corpus::folder(target.name);
        let mut made: Vec<_> =
            seeds(target.name).into_iter().map(|(name, bytes)| (format!("seed-{name}"), bytes)).collect();
        made.sort();
        assert!(!made.is_empty(), "{}", target.name);
        if write {
            fs::create_dir_all(&folder).unwrap();
            made.iter().for_each(|(name, bytes)| fs::write(folder.join(name), bytes).unwrap());
        }
        let mut kept = corpus::read(target.name).unwrap();
        kept.retain(|(name, _)| name.starts_with("seed-"));
        let names = |seeds: &Seeds| seeds.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&kept), names(&made), "{}: write them with EPHOR_FUZZ_WRITE=1", target.name);
        for ((name, kept), (_, made)) in kept.iter().zip(&made) {
            assert!(
                kept == made,
                "{}/{name} differs from its generator: write it with EPHOR_FUZZ_WRITE=1",
                target.name
            );
        }
    }
}

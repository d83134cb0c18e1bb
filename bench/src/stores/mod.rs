//! What a store does to a planned move: how long nobody reads a partition that one host releases and another
//! goes on with, beside one scan interval, which is what it would take without a wake.
//!
//! `ephor-bench stores [--postgres URL]`: the stores in memory and in a SQLite file, the latter opened twice as
//! two processes would; and a PostgreSQL database, where there is one.

mod moves;

use std::process::ExitCode;
use std::sync::Arc;

use ephor::memory::MemoryStore;
use ephor::{BoxError, DEFAULT_SLOW_SCAN, Store};
use ephor_stores::StoreUrl;

use crate::machine;
use crate::report::{self, Bound, Figure, RUNS, median, progress, quantile, time};

pub(crate) const USAGE: &str = "stores [--postgres URL]";

/// Runs what the words behind `stores` ask for.
pub(crate) fn command(words: &[&str]) -> ExitCode {
    report::exit(run(words), USAGE)
}

fn run(words: &[&str]) -> Result<bool, BoxError> {
    let postgres = match words {
        [] => None,
        ["--postgres", url] => Some(url.parse::<StoreUrl>()?),
        _ => return Err(format!("{words:?} are no options").into()),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let before = machine::load_average();
    let folder = tempfile::tempdir()?;
    let sqlite = StoreUrl::Sqlite(folder.path().join("ephor.db"));
    let mut figures = Vec::new();
    for (name, url) in [("memory", None), ("SQLite", Some(sqlite)), ("PostgreSQL", postgres.clone())] {
        if name == "PostgreSQL" && url.is_none() {
            continue;
        }
        figures.push(runtime.block_on(moves_on(name, url.as_ref()))?);
    }
    println!(
        "planned moves of {} partitions, from the release by one host to the first event at the other, median of {RUNS} runs",
        moves::PARTITIONS
    );
    report::print(&figures);
    println!("load before: {before}; after: {}", machine::load_average());
    Ok(figures.iter().all(Figure::is_met))
}

async fn moves_on(name: &str, url: Option<&StoreUrl>) -> Result<Figure, BoxError> {
    let memory = MemoryStore::default();
    let (mut typical, mut longest) = (Vec::new(), Vec::new());
    for round in 1..=RUNS {
        progress(&format!("stores: {name}, round {round} of {RUNS}"));
        // One for each host, as if they were processes of their own.
        let mut stores: Vec<Arc<dyn Store>> = Vec::new();
        for _ in 0..2 {
            stores.push(match url {
                Some(url) => ephor_stores::open(url).await?,
                None => Arc::new(memory.clone()),
            });
        }
        let [one, other] = [stores.remove(0), stores.remove(0)];
        let took = moves::release_to_first_event(round, one, other).await?;
        typical.push(median(&took));
        longest.push(quantile(&took, 1.0));
    }
    let name =
        format!("{name}: a planned move, the longest {} / one scan interval", time(quantile(&longest, 1.0)));
    Ok(Figure::times(name, median(&typical), DEFAULT_SLOW_SCAN).must_be(Bound::AtMost(1.0)))
}

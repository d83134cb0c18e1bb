//! Measures planned moves of partitions on three stores: the time between the release by one host and the
//! first event at another.
//!
//! The stores are in memory, in a SQLite file that is opened twice as two processes would, and in a PostgreSQL
//! database. Azure Blob is not measured. All of them wake hosts up; the measured time is compared with a scan interval,
//! which a move takes at most where hosts only poll.

use std::sync::Arc;

use ephor::defaults::DEFAULT_SLOW_SCAN;
use ephor::memory::MemoryStore;
use ephor::{BoxError, Store};
use ephor_stores::StoreUrl;

use super::database::{Database, NOT_INSTALLED};
use super::reading_pause;
use crate::figures::{self, Bound, Figure, RUNS, median, progress, quantile, time};
use crate::machine;

pub(crate) fn run(words: &[&str]) -> Result<bool, BoxError> {
    let named = match words {
        [] => None,
        ["--postgres", url] => Some(*url),
        _ => return Err(format!("unknown options {words:?}").into()),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let before = machine::load_average();
    let folder = tempfile::tempdir()?;
    let mut stores =
        vec![("memory", None), ("SQLite", Some(StoreUrl::Sqlite(folder.path().join("ephor.db"))))];
    let database = Database::find(named);
    match &database {
        Some(database) => stores.push(("PostgreSQL", Some(database.url.parse()?))),
        None => println!("{NOT_INSTALLED}"),
    }
    let mut figures = Vec::new();
    for (name, url) in stores {
        figures.push(runtime.block_on(moves_on(name, url.as_ref()))?);
    }
    println!(
        "planned moves of {} partitions, from the release by one host to the first event at the other, median of {RUNS} runs",
        reading_pause::PARTITIONS
    );
    figures::print(&figures);
    println!("load before: {before}; after: {}", machine::load_average());
    Ok(figures.iter().all(Figure::is_met))
}

async fn moves_on(name: &str, url: Option<&StoreUrl>) -> Result<Figure, BoxError> {
    let memory = MemoryStore::default();
    let (mut typical, mut longest) = (Vec::new(), Vec::new());
    for round in 1..=RUNS {
        progress(&format!("stores: {name}, round {round} of {RUNS}"));
        // One store for each host, as if they were processes of their own.
        let mut stores: Vec<Arc<dyn Store>> = Vec::new();
        for _ in 0..2 {
            stores.push(match url {
                Some(url) => ephor_stores::open(url).await?,
                None => Arc::new(memory.clone()),
            });
        }
        let [one, other] = [stores.remove(0), stores.remove(0)];
        let took = reading_pause::release_to_first_event(round, one, other).await?;
        typical.push(median(&took));
        longest.push(quantile(&took, 1.0));
    }
    let name =
        format!("{name}: a planned move, the longest {} / one scan interval", time(quantile(&longest, 1.0)));
    Ok(Figure::times(name, median(&typical), DEFAULT_SLOW_SCAN).must_be(Bound::AtMost(1.0)))
}

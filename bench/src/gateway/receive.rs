//! Benchmark of receiving over one connection, compared with a plain TCP stream of the same bytes and with
//! the library fe2o3-amqp at both ends.

use ephor::BoxError;
use ephor_hub::{Durability, HubConfig, LocalNamespace, NamespaceConfig, Target};

use super::dev::{Dev, HUB};
use super::other_clients;
use super::our_client::{Typical, receive, runtime};
use super::tcp_stream;
use crate::figures::{Bound, Figure, RUNS, progress};
use crate::hub::hub_under_test::{EVENT_BYTES, event};
use crate::options::Options;

const DEFAULT_MIB: u64 = 384;
/// fe2o3-amqp is slower, and gets this fraction of the events.
const PEER_SHARE: u64 = 4;

pub(crate) fn one_connection(options: &Options) -> Result<Vec<Figure>, BoxError> {
    let bytes = options.mib.unwrap_or(DEFAULT_MIB) << 20;
    let events = bytes / EVENT_BYTES as u64;
    let folder = options.folder(bytes + bytes / 4 + (64 << 20))?;
    let runtime = runtime()?;
    progress("receive: filling a partition");
    runtime.block_on(fill(folder.path(), events))?;
    let fe2o3 = other_clients::Fe2o3::build()?;
    let dev = Dev::start(folder.path(), 1)?;
    let (mut ours, mut plain, mut peer) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=RUNS {
        progress(&format!("receive: round {round} of {RUNS}"));
        // Leave the last events unread, so that the prefetch never runs dry.
        ours.push(runtime.block_on(receive(&dev, events - events / 64))?);
        plain.push(tcp_stream::read(bytes, events)?);
        peer.push(fe2o3.receive(events / PEER_SHARE)?);
    }
    let [ours, plain, peer] = [&ours, &plain, &peer].map(|runs| Typical::of(runs));
    ours.line("receive over one connection");
    plain.line("  a plain TCP stream of the same bodies");
    peer.line("  fe2o3-amqp 0.18, server and client");
    Ok(vec![
        Figure::rates("receive over one connection / a plain TCP stream", ours.rate, plain.rate)
            .must_be(Bound::AtLeast(0.15)),
        Figure::rates("receive over one connection / fe2o3-amqp, both ends", ours.rate, peer.rate)
            .must_be(Bound::AtLeast(3.0)),
        Figure::times("  CPU time per event, both ends / fe2o3-amqp", ours.processor(), peer.processor()),
    ])
}

/// Stores `events` events in partition 0, through the hub itself.
pub(crate) async fn fill(folder: &std::path::Path, events: u64) -> Result<(), BoxError> {
    let config = NamespaceConfig { durability: Durability::PageCache, ..NamespaceConfig::default() };
    let namespace = LocalNamespace::open(folder, config)?;
    let hub = namespace.ensure_hub(&HubConfig::new(HUB, 1)?)?;
    let producer = hub.producer();
    for begin in (0..events).step_by(256) {
        let batch = (begin..events.min(begin + 256)).map(|_| event());
        producer.send_batch(Target::Any, batch).await?;
    }
    Ok(namespace.close()?)
}

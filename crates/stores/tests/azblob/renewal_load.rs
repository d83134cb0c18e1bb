//! Tests that no lease is lost when leases are renewed at a service that is 80 ms away, hangs on a few
//! requests and throttles one in 20: 256 leases, or 1,024 in the long form (one request in 1,000 hangs).
//!
//! `EPHOR_RENEWALS_SECONDS` is the time with faults (`./check renewals`); a quarter of it is played without them first.
//! Without it one round is played of each kind, of a quarter of the leases, and one request in 100 hangs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ephor_core::ids::PartitionId;
use ephor_core::lease::LeaseToken;
use ephor_core::store::{RenewalOutcome, Store};
use ephor_stores::azblob::{BlobOptions, BlobStore, SharedWith};
use futures_util::StreamExt;

use crate::fixture::{BASE, LEASE, claim, group};
use crate::proxy::{Fate, Proxy};
use crate::raw_blobs::Raw;
use crate::server::{open_with, place, shared};

/// In the long form, and in the short one.
const LEASES: [u32; 2] = [1_024, 256];
const LATENCY: Duration = Duration::from_millis(80);
/// As a host's by default: how often everything is renewed, what it waits for the store, and what a lease is worth to it.
const INTERVAL: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(4);
const WORTH: Duration = Duration::from_secs(27);

/// The leases of one host, written by hand after the form of one that was claimed.
pub(crate) async fn leases(store: &BlobStore, raw: &Raw, count: u32) -> Vec<LeaseToken> {
    let first = claim(store, PartitionId(0), "a").await;
    let fields = raw.metadata(&format!("{BASE}/ownership/0")).await.unwrap();
    let fields: Vec<(&str, &str)> =
        fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let fields = &fields;
    futures_util::stream::iter(1..count)
        .for_each_concurrent(16, |number| async move {
            raw.put(&format!("{BASE}/ownership/{number}"), fields, "").await;
        })
        .await;
    (0..count).map(|number| LeaseToken { partition: PartitionId(number), ..first.clone() }).collect()
}

struct Load {
    store: BlobStore,
    proxy: Proxy,
    /// When each lease was last known to be renewed.
    renewed: BTreeMap<PartitionId, Instant>,
    requests: usize,
}

impl Load {
    /// Renews everything, and what is unknown again, as a host does. Every lease must be renewed while it is worth something.
    async fn round(&mut self, tokens: &[LeaseToken]) {
        let mut open: Vec<LeaseToken> = tokens.to_vec();
        let group = group();
        while !open.is_empty() {
            let sent = Instant::now();
            let answers = self.store.renew_within(&group, LEASE, &open, LIMIT).await;
            // Where nothing came through, the call fails as a whole.
            let answers = answers.unwrap_or_else(|error| {
                let retry_after = error.retry_after();
                open.iter()
                    .map(|_| RenewalOutcome::Unknown { what: error.to_string(), retry_after })
                    .collect()
            });
            let mut unknown = vec![];
            let mut pause = Duration::from_secs(1);
            for (token, answer) in open.into_iter().zip(answers) {
                let before = self.renewed.get(&token.partition);
                let without = before.map_or(Duration::ZERO, |before| sent - *before);
                assert!(without < WORTH, "{:?} was not renewed for {without:?}", token.partition);
                match answer {
                    RenewalOutcome::Renewed => {
                        self.renewed.insert(token.partition, sent);
                    }
                    RenewalOutcome::Unknown { retry_after, .. } => {
                        pause = pause.max(retry_after.unwrap_or_default());
                        unknown.push(token);
                    }
                    RenewalOutcome::Lost { holder } => panic!("{:?} is lost to {holder:?}", token.partition),
                }
            }
            if !unknown.is_empty() {
                tokio::time::sleep(pause).await;
            }
            open = unknown;
        }
    }

    /// Rounds for this long; how many requests a minute they cost.
    async fn play(&mut self, tokens: &[LeaseToken], time: Option<Duration>) -> f64 {
        let (began, mut rounds) = (Instant::now(), 0);
        let before = self.proxy.asked().len();
        while rounds < 1 || time.is_some_and(|time| began.elapsed() < time) {
            let round = Instant::now();
            self.round(tokens).await;
            rounds += 1;
            if time.is_some() {
                tokio::time::sleep(INTERVAL.saturating_sub(round.elapsed())).await;
            }
        }
        let requests = self.proxy.asked().len() - before;
        self.requests += requests;
        // By rounds: how long each takes is this machine's matter, and a host makes six a minute.
        f64::from(u32::try_from(requests).unwrap()) / f64::from(rounds) * 6.0
    }
}

/// Every so many requests one. In the short form more hang, or none would.
fn faults(is_short: bool, hung: Arc<AtomicU32>) -> impl FnMut(&crate::proxy::Asked) -> Fate {
    let mut count = 0_u32;
    let (every, first) = if is_short { (100, 30) } else { (1_000, 300) };
    move |_| {
        count += 1;
        match count {
            _ if count % every == first => {
                hung.fetch_add(1, Ordering::SeqCst);
                Fate::Hangs
            }
            _ if count.is_multiple_of(20) => Fate::Busy(1),
            _ => Fate::Late(LATENCY),
        }
    }
}

#[allow(clippy::print_stdout, reason = "a long run prints its figures")]
fn run(seconds: Option<u64>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let place = place();
        let proxy = Proxy::start(shared().port).await;
        // Beside other SDKs each lease is written by itself: the most requests that there are.
        let options = BlobOptions { shared_with: SharedWith::OtherSdks, ..BlobOptions::default() };
        let store = open_with(&proxy.place(&place, shared().port), options);
        let raw = Raw::new(shared().port, &place);
        let count = LEASES[usize::from(seconds.is_none())];
        let tokens = leases(&store, &raw, count).await;
        let mut load = Load { store, proxy, renewed: BTreeMap::new(), requests: 0 };
        let time = seconds.map(Duration::from_secs);
        // The first look at each lease is no renewal as it will be.
        load.proxy.rule(|_| Fate::Late(LATENCY));
        load.round(&tokens).await;
        load.proxy.rule(|_| Fate::Late(LATENCY));
        let without = load.play(&tokens, time.map(|time| time / 4)).await;
        let hung = Arc::new(AtomicU32::new(0));
        load.proxy.rule(faults(seconds.is_none(), hung.clone()));
        let with = load.play(&tokens, time).await;
        let hung = hung.load(Ordering::SeqCst);
        println!(
            "{count} leases at {LATENCY:?}: {without:.0} requests a minute without faults, {with:.0} with {hung} \
             hanging and 1 of 20 throttled ({} in all), no lease lost",
            load.requests
        );
        assert!(hung > 0, "no request hung");
        // What is unknown is asked again, and nothing else is: a twentieth and the looks at what may have been written.
        assert!(with < without * 1.25, "{with:.0} requests a minute with faults, {without:.0} without");
    });
}

#[test]
fn no_lease_is_lost_where_requests_hang_and_are_throttled() {
    run(std::env::var("EPHOR_RENEWALS_SECONDS").ok().map(|text| text.parse().unwrap()));
}

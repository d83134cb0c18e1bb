//! The page: the city, a home, and the operator's view, live.
//!
//! The server says what is to be shown (`shown`), in words; the same goes into the first paint and, twice a
//! second, to the browser, which only puts text in its place. So the words are written once, here.
//!
//! | module | what it is |
//! |---|---|
//! | `shown` | what goes to the browser: texts, attributes and lists by name |
//! | `city`, `map`, `home`, `operator`, `board`, `layout` | what each page shows, and its HTML |
//! | `words` | numbers and times for people |
//! | `answers`, `live`, `order`, `assets` | the routes: pages and JSON, streams, actions, files |
//! | `guard` | who may ask at all |
//! | `visitors` | connections, and which of them nobody uses |

mod answers;
mod assets;
mod board;
mod city;
mod guard;
mod home;
mod layout;
mod live;
mod map;
mod operator;
mod order;
mod shown;
mod visitors;
mod words;

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use self::visitors::Visitors;
use crate::view::model::{CityNow, FleetNow, HomeNow};

pub use crate::fleet::Action;

/// Pages that may be live at the same time.
pub const LIVE_LISTENERS: usize = 64;

/// Seconds of which the rate is remembered, for the sparkline.
const REMEMBERED: usize = 120;

/// How long those who are being answered may take once the page stops.
const GRACE: Duration = Duration::from_secs(2);

/// Where the page takes its data from, and whom it tells what to do.
pub trait Source: Send + Sync + 'static {
    /// The city at this moment.
    fn city(&self) -> CityNow;
    /// One home, if there is one of this number.
    fn home(&self, home: u32) -> Option<HomeNow>;
    /// How many homes there are: their numbers are 0 and up.
    fn homes(&self) -> u32;
    /// The hosts and what they own.
    fn fleet(&self) -> FleetNow;
    /// Does it, and says what was done or why not, for people.
    fn act(&self, action: Action) -> BoxFuture<'_, Result<String, String>>;
}

/// What the routes share.
#[derive(Clone)]
struct State {
    source: Arc<dyn Source>,
    rates: Arc<Mutex<VecDeque<f64>>>,
    listeners: Arc<Semaphore>,
    stopping: watch::Receiver<bool>,
    port: u16,
}

impl State {
    /// The rates of the last seconds, oldest first.
    fn rates(&self) -> Vec<f64> {
        self.rates.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }

    fn remember_rate(&self) {
        let rate = self.source.city().rate;
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        if rates.len() == REMEMBERED {
            rates.pop_front();
        }
        rates.push_back(rate);
    }
}

/// Serves the page until `stopped` is done. The caller binds the listener, and to loopback only.
pub async fn serve(listener: TcpListener, source: Arc<dyn Source>, stopped: impl Future) -> io::Result<()> {
    let (stop, stopping) = watch::channel(false);
    let state = State {
        source,
        rates: Arc::default(),
        listeners: Arc::new(Semaphore::new(LIVE_LISTENERS)),
        stopping: stopping.clone(),
        port: listener.local_addr()?.port(),
    };
    let visitors = Visitors::new(listener);
    let server =
        axum::serve(visitors, answers::router(state.clone())).with_graceful_shutdown(ended(stopping));
    let mut server = std::pin::pin!(server.into_future());
    let mut stopped = std::pin::pin!(stopped);
    let mut second = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            result = &mut server => return result,
            _ = &mut stopped => break,
            _ = second.tick() => state.remember_rate(),
        }
    }
    stop.send_replace(true);
    // Whoever takes longer is cut off: a page must not keep the demo from ending.
    tokio::time::timeout(GRACE, server).await.unwrap_or(Ok(()))
}

/// Done when the page stops.
async fn ended(mut stopping: watch::Receiver<bool>) {
    // An error says that the sender is gone: then it is over as well.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

//! The web page of the demo: live pages of the city, of each home, and for the operator.
//!
//! The server says what is to be shown (`shown`), in words; the same goes into the first paint and, twice a
//! second, to the browser, which only puts text in its place. So the words are written once, here.
//!
//! | module | what it is |
//! |---|---|
//! | `page_content` | the content for the browser: texts, attributes and lists by name |
//! | `city`, `map`, `home`, `operator`, `host_columns`, `layout` | the content of each page, and its HTML |
//! | `format` | numbers and times for people |
//! | `routes`, `streams`, `command`, `assets` | the routes: pages and JSON, streams, actions, files |
//! | `request_checks` | the check of requests |
//! | `connections` | connections, and which of them nobody uses |

mod assets;
mod city;
mod command;
mod connections;
mod format;
mod home;
mod host_columns;
mod layout;
mod map;
mod operator;
mod page_content;
mod request_checks;
mod routes;
mod streams;

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use self::connections::LimitedListener;
use crate::view::model::{CityNow, FleetNow, HomeNow};

pub use crate::fleet::Action;

/// Pages that may be live at the same time.
pub const LIVE_LISTENERS: usize = 64;

/// Seconds of which the rate is remembered, for the sparkline.
const REMEMBERED: usize = 120;

/// The time for requests under way when the page stops.
const GRACE: Duration = Duration::from_secs(2);

/// The source of the page's data, which also carries out actions.
pub trait Source: Send + Sync + 'static {
    /// The city at this moment.
    fn city(&self) -> CityNow;
    /// One home, if there is one of this number.
    fn home(&self, home: u32) -> Option<HomeNow>;
    /// Returns the number of homes, which are numbered from 0.
    fn homes(&self) -> u32;
    /// The hosts and what they own.
    fn fleet(&self) -> FleetNow;
    /// Carries out an action, and returns a message about it.
    fn act(&self, action: Action) -> BoxFuture<'_, Result<String, String>>;
}

/// The state that the routes share.
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
    let visitors = LimitedListener::new(listener);
    let server = axum::serve(visitors, routes::router(state.clone())).with_graceful_shutdown(ended(stopping));
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
    // Slower requests are cut off: a page must not keep the demo from ending.
    tokio::time::timeout(GRACE, server).await.unwrap_or(Ok(()))
}

/// Done when the page stops.
async fn ended(mut stopping: watch::Receiver<bool>) {
    // An error says that the sender is gone: then it is over as well.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

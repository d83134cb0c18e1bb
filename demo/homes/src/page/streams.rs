//! Server-sent events: sends the content of a page twice a second if it has changed, and a last event at
//! the end.

use std::convert::Infallible;
use std::time::Duration;

use axum::http::{StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::Interval;

use super::State;
use super::page_content::Shown;

/// How often a page may change.
const EVERY: Duration = Duration::from_millis(500);

/// How often a page that does not change hears that we are there.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

struct Listener<F> {
    look: F,
    last: String,
    tick: Interval,
    stopping: watch::Receiver<bool>,
    over: bool,
    _place: OwnedSemaphorePermit,
}

/// A stream of what `look` sees; nothing new is said for nothing.
pub(super) fn stream<F>(state: &State, look: F) -> Response
where
    F: Fn() -> Option<Shown> + Send + 'static,
{
    let Ok(place) = state.listeners.clone().try_acquire_owned() else {
        let text = "Too many pages are open: close some of them.\n";
        return (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "5")], text).into_response();
    };
    let listener = Listener {
        look,
        last: String::new(),
        tick: tokio::time::interval(EVERY),
        stopping: state.stopping.clone(),
        over: false,
        _place: place,
    };
    let events = stream::unfold(listener, |mut listener| async {
        let event = listener.next().await?;
        Some((Ok::<_, Infallible>(event), listener))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

impl<F: Fn() -> Option<Shown>> Listener<F> {
    async fn next(&mut self) -> Option<Event> {
        if self.over {
            return None;
        }
        loop {
            tokio::select! {
                biased;
                _ = self.stopping.wait_for(|stopping| *stopping) => {
                    self.over = true;
                    return Some(Event::default().event("end").data("the demo has ended"));
                }
                _ = self.tick.tick() => {}
            }
            let Some(shown) = (self.look)() else { continue };
            let text = shown.to_json();
            if text != self.last {
                self.last.clone_from(&text);
                return Some(Event::default().data(text));
            }
        }
    }
}

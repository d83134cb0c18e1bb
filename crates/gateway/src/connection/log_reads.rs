//! Outbound (hub → peer): limits how many receivers of a connection, and of all connections, read the log at
//! a time.
//!
//! Events that are not in memory have to be read from disk by a blocking thread, and take memory until they
//! are sent or given back. A client may grant credit to a thousand receivers at once, and read nothing.
//!
//! Receivers read in the order in which they asked. One that gets its permits while there is no room for the
//! events that it would bring keeps the permit of the connection until there is, and returns that of the
//! gateway, so that others can read.

use std::sync::Arc;

use ephor_amqp::connection::{Blocked, LinkId, Sent};
use ephor_core::source::ReceiveError;
use ephor_hub::HubReceiver;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Conversation;
use super::lines::Line;
use super::link::{Link, Reading};
use super::receiving::{ASKED_AT_ONCE, News, READ_BYTES};
use super::tally::Charge;

/// The bytes that one read of the log may bring. A receiver of a hub with larger events takes several
/// permits.
const BYTES_OF_A_READ: u64 = 1 << 20;

/// At most this many receivers of all connections read the log at once: each takes a blocking thread, and
/// there are a few hundred for everything that blocks.
pub(crate) const LOG_READS_AT_ONCE: usize = 64;

/// Permits to read the log: some of the connection's, and one of the gateway's.
pub(super) struct LogTurn {
    ours: Option<OwnedSemaphorePermit>,
    all: Option<OwnedSemaphorePermit>,
    /// The bytes that the read may bring, and those that it does bring once that is known. It is 0 while the
    /// receiver only waits for its permits, so that it takes no memory from others.
    brings: Charge,
}

impl LogTurn {
    /// Waits for `count` permits of the connection, unless some were kept, and then for one of the gateway.
    /// Neither semaphore is ever closed.
    async fn take(
        kept: Option<OwnedSemaphorePermit>,
        ours: Arc<Semaphore>,
        count: u32,
        all: Arc<Semaphore>,
        mut brings: Charge,
    ) -> Self {
        let ours = match kept {
            Some(kept) => Some(kept),
            None => ours.acquire_many_owned(count).await.ok(),
        };
        let all = all.acquire_owned().await.ok();
        brings.set(count as usize * BYTES_OF_A_READ as usize);
        Self { ours, all, brings }
    }
}

/// Counts the bytes that a read brings: what was reserved for it, or the frames that it finds, if those are
/// larger.
fn growing(mut brings: Charge) -> impl FnMut(usize) + Send + 'static {
    let least = brings.get();
    move |bytes| brings.set(bytes.max(least))
}

impl<S: AsyncRead + AsyncWrite + Unpin> Conversation<S> {
    /// Waits for permits to read the log: first those of this connection, then one of the gateway's.
    pub(super) fn wait_for_log(&mut self, link: LinkId, mut receiver: Box<HubReceiver>) {
        let Some(Link::Receiver(found)) = self.links.get_mut(&link) else { return };
        let kept = found.log_turn.take();
        // Queued receivers were here before, and would have to read as well.
        if kept.is_none() && self.lines.waits_for_room() && !self.asked.contains(&link) {
            if found.in_line.is_none() {
                found.in_line = Some(Line::Room);
                self.lines.join_room(link);
            }
            let state = self.stay_idle(link, receiver);
            if let Some(Link::Receiver(found)) = self.links.get_mut(&link) {
                found.state = state;
            }
            return;
        }
        let largest = self.shared.hubs.of(&found.hub).max_event_bytes;
        let count = largest.div_ceil(BYTES_OF_A_READ).clamp(1, ASKED_AT_ONCE as u64) as u32;
        let (ours, all) = (self.log_reads.clone(), self.shared.log_reads.clone());
        let turn = LogTurn::take(kept, ours, count, all, self.reading.charge());
        let state = self.wait_for(async move {
            let ended = tokio::select! {
                biased;
                error = receiver.disconnected() => Err(error),
                turn = turn => Ok(turn),
            };
            match ended {
                Ok(turn) => News::Turn { link, receiver, turn },
                Err(error) => News::Batch { link, receiver, batch: Err(error) },
            }
        });
        if let Some(Link::Receiver(found)) = self.links.get_mut(&link) {
            (found.state, found.reads_log) = (state, true);
        }
    }

    /// Reads the log, unless the events would only be given back. The permits are released when the log has
    /// been read, also if the link is gone by then.
    pub(super) fn read_log(&mut self, link: LinkId, mut receiver: Box<HubReceiver>, turn: LogTurn) {
        let Some(Link::Receiver(found)) = self.links.get_mut(&link) else { return };
        found.reads_log = false;
        let obstacle = self.driver.connection().obstacle(link, true);
        let room = Sent::Blocked(Blocked::Room);
        match obstacle {
            Some(obstacle) if obstacle != room => return self.ask(link, receiver),
            Some(_) if self.is_holding_much() => return self.keep_log_turn(link, receiver, turn.ours),
            _ => {}
        }
        if !self.share.admit(READ_BYTES) {
            return self.keep_log_turn(link, receiver, turn.ours);
        }
        let LogTurn { ours, all, brings } = turn;
        let state = self.wait_for(async move {
            let read = receiver.read_older((ours, all), growing(brings)).await;
            News::Read { link, receiver, read }
        });
        if let Some(Link::Receiver(found)) = self.links.get_mut(&link) {
            (found.state, found.reads_log) = (state, true);
        }
    }

    /// Keeps the permit of the connection, because there is no room for what the read would bring. Nobody
    /// overtakes it.
    fn keep_log_turn(
        &mut self,
        link: LinkId,
        receiver: Box<HubReceiver>,
        turn: Option<OwnedSemaphorePermit>,
    ) {
        let state = self.stay_idle(link, receiver);
        if let Some(Link::Receiver(found)) = self.links.get_mut(&link) {
            (found.state, found.log_turn) = (state, turn);
            self.log_readers.push(link);
        }
    }

    pub(super) fn has_log_turn(&self, link: LinkId) -> bool {
        matches!(self.links.get(&link), Some(Link::Receiver(found)) if found.log_turn.is_some())
    }

    /// Continues with a permit that was kept. It is released if anything else than room is missing, so that
    /// others can read.
    pub(super) fn use_log_turn(&mut self, link: LinkId, receiver: Box<HubReceiver>, obstacle: Option<Sent>) {
        let Some(Link::Receiver(found)) = self.links.get_mut(&link) else { return };
        match obstacle {
            None => self.wait_for_log(link, receiver),
            Some(Sent::Blocked(Blocked::Room)) => {
                let turn = found.log_turn.take();
                self.keep_log_turn(link, receiver, turn);
            }
            Some(obstacle) => {
                found.log_turn = None;
                self.wait_in_line(link, receiver, &obstacle);
            }
        }
    }

    /// There is room: receivers that keep their permit read, or find what else they lack.
    pub(super) fn call_log_readers(&mut self) {
        for link in std::mem::take(&mut self.log_readers) {
            if let Some(Link::Receiver(found)) = self.links.get_mut(&link)
                && matches!(found.state, Reading::Idle { .. })
            {
                found.go_on();
            }
        }
    }

    pub(super) fn on_log_read(
        &mut self,
        link: LinkId,
        receiver: Box<HubReceiver>,
        read: Result<(), ReceiveError>,
    ) {
        let Some(Link::Receiver(found)) = self.links.get_mut(&link) else { return };
        found.reads_log = false;
        self.asked.retain(|asked| *asked != link);
        match read {
            Ok(()) => self.ask(link, receiver),
            Err(error) => self.on_receiver_ended(link, &error),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::super::tally::Tally;
    use super::*;

    #[test]
    fn a_large_frame_counts_as_what_it_is_while_it_is_read() {
        let (ours, all) = (Arc::new(Semaphore::new(ASKED_AT_ONCE)), Arc::new(Semaphore::new(1)));
        let reading = Tally::default();
        let turn = LogTurn::take(None, ours, 1, all, reading.charge()).now_or_never().unwrap();
        let mut loading = growing(turn.brings);
        loading(1_000);
        assert_eq!(reading.get(), BYTES_OF_A_READ as usize, "that was set aside");
        loading(20 << 20);
        assert_eq!(reading.get(), 20 << 20);
        drop(loading);
        assert_eq!(reading.get(), 0);
    }

    #[test]
    fn only_who_reads_counts_and_not_who_waits_for_its_turn() {
        let (ours, all) = (Arc::new(Semaphore::new(ASKED_AT_ONCE)), Arc::new(Semaphore::new(1)));
        let reading = Tally::default();
        let take = || Box::pin(LogTurn::take(None, ours.clone(), 2, all.clone(), reading.charge()));
        let first = take().now_or_never().unwrap();
        assert_eq!(reading.get(), 2 * BYTES_OF_A_READ as usize);
        let mut second = take();
        assert!(second.as_mut().now_or_never().is_none());
        assert_eq!(ours.available_permits(), ASKED_AT_ONCE - 4, "it has the connection's turns already");
        assert_eq!(reading.get(), 2 * BYTES_OF_A_READ as usize);
        drop(first);
        assert_eq!(reading.get(), 0);
        drop(second.now_or_never().unwrap());
        assert_eq!((reading.get(), ours.available_permits()), (0, ASKED_AT_ONCE));
    }
}

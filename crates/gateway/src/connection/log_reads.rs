//! Turns to read the log: a few receivers of a connection at a time, and a few of all connections.
//!
//! What is not in memory has to be read, by a thread that may wait, and takes memory until it is sent or given
//! back. A client may grant credit to a thousand receivers at once, and read nothing.
//!
//! Receivers read in the order in which they asked. One whose turn comes while there is no room for what it would
//! bring keeps its turn of the connection until there is, and gives that of the gateway back: others may read.

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

/// What one of those who read the log may bring. One whose hub takes larger events counts as several.
const BYTES_OF_A_READ: u64 = 1 << 20;

/// So many receivers of all connections read the log at once: each takes a thread that may wait, and there
/// are a few hundred for everything that does.
pub(crate) const LOG_READS_AT_ONCE: usize = 64;

/// A turn to read the log: some of the connection's, and one of the gateway's.
pub(super) struct LogTurn {
    ours: Option<OwnedSemaphorePermit>,
    all: Option<OwnedSemaphorePermit>,
    /// What the read may bring, and what it brings once that is known. Whoever only waits for its turn brings nothing, and
    /// takes no memory from others.
    brings: Charge,
}

impl LogTurn {
    /// Waits for so many turns of the connection, unless it has kept them, and then for one of the gateway. Neither
    /// semaphore is ever closed.
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

/// Counts what a read brings: as much as was set aside for it, or the frames that it finds, if those are larger.
fn growing(mut brings: Charge) -> impl FnMut(usize) + Send + 'static {
    let least = brings.get();
    move |bytes| brings.set(bytes.max(least))
}

impl<S: AsyncRead + AsyncWrite + Unpin> Conversation<S> {
    /// Waits for its turn to read the log: one of this connection's, and then one of the gateway's.
    pub(super) fn wait_for_log(&mut self, link: LinkId, mut receiver: Box<HubReceiver>) {
        let Some(Link::Receiver(found)) = self.links.get_mut(&link) else { return };
        let kept = found.log_turn.take();
        // Those in line were here before, and would come to read as well.
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

    /// Reads the log, unless what it brings would only be given back. The turn ends when the log has been read,
    /// also if the link is gone by then.
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

    /// Its turn has come, and there is no room for what it would bring. Nobody reads before it.
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

    /// Goes on with a turn that was kept. It is given up where more than room is missing: others may read.
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

    /// There is room: those who keep their turn read, or find out why they may not.
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

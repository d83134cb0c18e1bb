//! Outbound (hub → peer): limits how many receivers read the log at a time, of one connection and of all
//! together.
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

use super::ConnectionTask;
use super::byte_counter::Charge;
use super::link::Link;
use super::outbound::{MAX_CONCURRENT_POLLS, READ_BYTES, ReceiverEvent};
use super::receiver::ReceiverState;

/// The bytes that one read of the log may bring. A receiver of a hub with larger events takes several
/// permits.
const LOG_READ_BYTES: u64 = 1 << 20;

/// At most this many receivers of all connections read the log at once: each takes a blocking thread, and
/// there are a few hundred for everything that blocks.
pub(crate) const MAX_CONCURRENT_LOG_READS: usize = 64;

/// Permits to read the log: some of the connection's, and one of the gateway's.
pub(super) struct LogReadPermits {
    ours: Option<OwnedSemaphorePermit>,
    all: Option<OwnedSemaphorePermit>,
    /// The bytes that the read may bring, and those that it does bring once that is known. It is 0 while the
    /// receiver only waits for its permits, so that it takes no memory from others.
    brings: Charge,
}

impl LogReadPermits {
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
        brings.set(count as usize * LOG_READ_BYTES as usize);
        Self { ours, all, brings }
    }
}

/// Counts the bytes that a read brings: what was reserved for it, or the frames that it finds, if those are
/// larger.
fn growing(mut brings: Charge) -> impl FnMut(usize) + Send + 'static {
    let least = brings.get();
    move |bytes| brings.set(bytes.max(least))
}

impl<S: AsyncRead + AsyncWrite + Unpin> ConnectionTask<S> {
    /// Waits for permits to read the log: first those of this connection, then one of the gateway's.
    pub(super) fn wait_for_log(&mut self, link: LinkId, mut receiver: Box<HubReceiver>) {
        let Some(Link::Receiver(found)) = self.links.get_mut(&link) else { return };
        let kept = found.state.permit().and_then(Option::take);
        // Queued receivers were here before, and would have to read as well.
        if kept.is_none() && self.queues.waits_for_room() && !self.polling.contains(&link) {
            self.queues.enqueue_for_room(link);
            return self.wait_blocked(link, receiver, None);
        }
        let largest = self.shared.hub_info.get(&found.hub).max_event_bytes;
        let count = largest.div_ceil(LOG_READ_BYTES).clamp(1, MAX_CONCURRENT_POLLS as u64) as u32;
        let (ours, all) = (self.log_reads.clone(), self.shared.log_reads.clone());
        let permits = LogReadPermits::take(kept, ours, count, all, self.reading.charge());
        let abort = self.push_receiver_event(async move {
            let ended = tokio::select! {
                biased;
                error = receiver.disconnected() => Err(error),
                permits = permits => Ok(permits),
            };
            match ended {
                Ok(permits) => ReceiverEvent::LogPermits { link, receiver, permits },
                Err(error) => ReceiverEvent::Batch { link, receiver, batch: Err(error) },
            }
        });
        self.set_state(link, ReceiverState::ReadingLog(abort));
    }

    /// Reads the log, unless the events would only be given back. The permits are released when the log has
    /// been read, also if the link is gone by then.
    pub(super) fn read_log(&mut self, link: LinkId, mut receiver: Box<HubReceiver>, permits: LogReadPermits) {
        if !self.links.contains_key(&link) {
            return;
        }
        let obstacle = self.driver.connection().obstacle(link, true);
        let room = Sent::Blocked(Blocked::Room);
        match obstacle {
            Some(obstacle) if obstacle != room => return self.poll_events(link, receiver),
            Some(_) if self.is_holding_much() => return self.keep_log_permit(link, receiver, permits.ours),
            _ => {}
        }
        if !self.share.admit(READ_BYTES) {
            return self.keep_log_permit(link, receiver, permits.ours);
        }
        let LogReadPermits { ours, all, brings } = permits;
        let abort = self.push_receiver_event(async move {
            let read = receiver.read_older((ours, all), growing(brings)).await;
            ReceiverEvent::LogRead { link, receiver, read }
        });
        self.set_state(link, ReceiverState::ReadingLog(abort));
    }

    /// Keeps the permit of the connection, because there is no room for what the read would bring. Nobody
    /// overtakes it.
    fn keep_log_permit(
        &mut self,
        link: LinkId,
        receiver: Box<HubReceiver>,
        permit: Option<OwnedSemaphorePermit>,
    ) {
        self.wait_blocked(link, receiver, permit);
        self.log_readers.push(link);
    }

    /// True if a receiver that resumes has kept its permit to read the log.
    pub(super) fn has_log_permit(&mut self, link: LinkId) -> bool {
        match self.links.get_mut(&link) {
            Some(Link::Receiver(found)) => found.state.permit().is_some_and(|permit| permit.is_some()),
            _ => false,
        }
    }

    /// Continues with a permit that was kept. It is released if anything else than room is missing, so that
    /// others can read.
    pub(super) fn use_log_permit(
        &mut self,
        link: LinkId,
        receiver: Box<HubReceiver>,
        obstacle: Option<Sent>,
    ) {
        let Some(Link::Receiver(found)) = self.links.get_mut(&link) else { return };
        match obstacle {
            None => self.wait_for_log(link, receiver),
            Some(Sent::Blocked(Blocked::Room)) => {
                let permit = found.state.permit().and_then(Option::take);
                self.keep_log_permit(link, receiver, permit);
            }
            Some(obstacle) => {
                drop(found.state.permit().and_then(Option::take));
                self.wait_in_queue(link, receiver, &obstacle);
            }
        }
    }

    /// There is room: receivers that keep their permit read, or find what else they lack.
    pub(super) fn resume_log_readers(&mut self) {
        for link in std::mem::take(&mut self.log_readers) {
            if let Some(Link::Receiver(found)) = self.links.get_mut(&link) {
                found.resume();
            }
        }
    }

    pub(super) fn on_log_read(
        &mut self,
        link: LinkId,
        receiver: Box<HubReceiver>,
        read: Result<(), ReceiveError>,
    ) {
        if !self.links.contains_key(&link) {
            return;
        }
        self.polling.retain(|polling| *polling != link);
        match read {
            Ok(()) => self.poll_events(link, receiver),
            Err(error) => self.on_receiver_ended(link, &error),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::super::byte_counter::Tally;
    use super::*;

    #[test]
    fn a_large_frame_counts_as_what_it_is_while_it_is_read() {
        let (ours, all) = (Arc::new(Semaphore::new(MAX_CONCURRENT_POLLS)), Arc::new(Semaphore::new(1)));
        let reading = Tally::default();
        let permits = LogReadPermits::take(None, ours, 1, all, reading.charge()).now_or_never().unwrap();
        let mut loading = growing(permits.brings);
        loading(1_000);
        assert_eq!(reading.get(), LOG_READ_BYTES as usize, "that was set aside");
        loading(20 << 20);
        assert_eq!(reading.get(), 20 << 20);
        drop(loading);
        assert_eq!(reading.get(), 0);
    }

    #[test]
    fn only_receivers_that_read_count_and_not_those_that_wait_for_permits() {
        let (ours, all) = (Arc::new(Semaphore::new(MAX_CONCURRENT_POLLS)), Arc::new(Semaphore::new(1)));
        let reading = Tally::default();
        let take = || Box::pin(LogReadPermits::take(None, ours.clone(), 2, all.clone(), reading.charge()));
        let first = take().now_or_never().unwrap();
        assert_eq!(reading.get(), 2 * LOG_READ_BYTES as usize);
        let mut second = take();
        assert!(second.as_mut().now_or_never().is_none());
        assert_eq!(
            ours.available_permits(),
            MAX_CONCURRENT_POLLS - 4,
            "it has the connection's permits already"
        );
        assert_eq!(reading.get(), 2 * LOG_READ_BYTES as usize);
        drop(first);
        assert_eq!(reading.get(), 0);
        drop(second.now_or_never().unwrap());
        assert_eq!((reading.get(), ours.available_permits()), (0, MAX_CONCURRENT_POLLS));
    }
}

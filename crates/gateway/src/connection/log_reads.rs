//! Turns to read the log: a few receivers of a connection at a time, and a few of all connections.
//!
//! What is not in memory has to be read, by a thread that may wait, and takes memory until it is sent or given
//! back. A client may grant credit to a thousand receivers at once, and read nothing.

use ephor_amqp::connection::{Blocked, LinkId, Sent};
use ephor_core::source::ReceiveError;
use ephor_hub::HubReceiver;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::OwnedSemaphorePermit;

use super::Conversation;
use super::lines::Line;
use super::link::Link;
use super::receiving::{ASKED_AT_ONCE, News};

/// What one of those who read the log may bring. One whose hub takes larger events counts as several.
pub(super) const BYTES_OF_A_READ: u64 = 1 << 20;

/// So many receivers of all connections read the log at once: each takes a thread that may wait, and there
/// are a few hundred for everything that does.
pub(crate) const LOG_READS_AT_ONCE: usize = 64;

/// A turn to read the log: one of the connection's, and one of the gateway's.
pub(super) type LogTurn = (Option<OwnedSemaphorePermit>, Option<OwnedSemaphorePermit>);

impl<S: AsyncRead + AsyncWrite + Unpin> Conversation<S> {
    /// Waits for its turn to read the log: one of this connection's, and then one of the gateway's.
    pub(super) fn wait_for_log(&mut self, link: LinkId, mut receiver: Box<HubReceiver>) {
        let Some(Link::Receiver(found)) = self.links.get_mut(&link) else { return };
        // Those in line were here before, and would come to read as well.
        if self.lines.waits_for_room() && !self.asked.contains(&link) {
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
        let state = self.wait_for(async move {
            // Neither of them is ever closed.
            let turn = async {
                let ours = ours.acquire_many_owned(count).await.ok();
                (ours, all.acquire_owned().await.ok())
            };
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
        if obstacle.is_some() && (obstacle != Some(Sent::Blocked(Blocked::Room)) || self.is_holding_much()) {
            return self.ask(link, receiver);
        }
        let state = self.wait_for(async move {
            let read = receiver.read_older(turn).await;
            News::Read { link, receiver, read }
        });
        if let Some(Link::Receiver(found)) = self.links.get_mut(&link) {
            (found.state, found.reads_log) = (state, true);
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

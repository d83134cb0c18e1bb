//! Receivers whose peer wants its credit used up now, or back.

use ephor_amqp::connection::LinkId;
use futures_util::{FutureExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};

use super::Conversation;
use super::link::Link;

impl<S: AsyncRead + AsyncWrite + Unpin> Conversation<S> {
    /// Takes note of a receiver whose peer wants its credit used up or back, if it could come to that now. Those
    /// in line, and those who read the log, have something to send.
    pub(super) fn look_if_drained(&mut self, link: LinkId) {
        if let Some(Link::Receiver(found)) = self.links.get(&link)
            && found.draining
            && found.in_line.is_none()
            && !found.reads_log
        {
            self.draining.insert(link);
        }
    }

    /// Sends what there is to those who want their credit back, and gives back the rest.
    pub(super) fn drain(&mut self) {
        /// Beyond it the peer's turn comes first.
        const MOST_NEWS: usize = 64;
        for _ in 0..MOST_NEWS {
            match self.news.next().now_or_never().flatten() {
                Some(Ok(news)) => self.on_news(news),
                Some(Err(_)) => {}
                None => break,
            }
        }
        for link in std::mem::take(&mut self.draining) {
            let Some(Link::Receiver(found)) = self.links.get_mut(&link) else { continue };
            if found.has_nothing_to_send() {
                found.draining = false;
                self.driver.connection().drained(link);
            } else {
                self.look_if_drained(link);
            }
        }
    }
}

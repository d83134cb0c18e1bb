//! The end of a conversation: all credit is given, everything that was sent arrives and is settled, and after
//! the last detach, end and close nothing is left in any table.

use std::time::Duration;

use ephor_amqp::connection::{LinkId, SessionId};
use ephor_amqp::performative::{Outcome, Role};

use crate::conversation::Conversation;
use crate::model::{LinkState, Phase};

/// More rounds than the longest queue needs with a credit of [`CREDIT`].
const MAX_ROUNDS: usize = 100;

/// The credit that every receiver grants in each round.
const CREDIT: u32 = 1_000;

impl Conversation {
    pub(crate) fn finish(&mut self) {
        self.let_everything_go();
        self.run_until_idle();
        for round in 0.. {
            if self.ends.iter().any(|end| end.model.phase != Phase::Open) {
                return self.finish_closed();
            }
            if round > 2 && self.is_done() {
                break;
            }
            assert!(round < MAX_ROUNDS, "messages wait, or are not settled: {}", self.waiting());
            self.give_all_credit();
            self.run_until_idle();
        }
        self.detach_and_end();
        if self.ends.iter().all(|end| end.model.phase == Phase::Open) {
            self.ends[0].close(None);
            self.run_until_idle();
        }
        self.finish_closed();
    }

    fn let_everything_go(&mut self) {
        for side in 0..2 {
            self.ends[side].pause(false);
            self.others_hold(side, 0, 0);
            let requests = std::mem::take(&mut self.ends[side].requests);
            requests.iter().for_each(|request| self.ends[side].answer(request, true));
        }
    }

    fn give_all_credit(&mut self) {
        self.let_everything_go();
        for end in &mut self.ends {
            let attached = end.model.links.iter().filter(|(_, link)| link.state == LinkState::Attached);
            let links: Vec<(LinkId, Role)> = attached.map(|(id, link)| (*id, link.role)).collect();
            for (link, role) in links {
                match role {
                    Role::Receiver => {
                        while end.held.get(&link).is_some_and(|held| !held.is_empty()) {
                            end.settle(link, 0, usize::MAX, &Outcome::Accepted);
                        }
                        end.grant(link, CREDIT);
                    }
                    Role::Sender => end.drained(link),
                }
            }
            end.send_woken();
        }
    }

    /// Everything was sent, and everything is settled.
    fn is_done(&self) -> bool {
        self.ends.iter().all(|end| {
            let sent = end
                .queues
                .iter()
                .all(|(link, queue)| queue.is_empty() || !end.model.links.contains_key(link));
            let settled = end
                .model
                .sessions
                .values()
                .all(|session| session.unsettled_out.is_empty() && session.unsettled_in.is_empty());
            sent && settled && end.requests.is_empty()
        })
    }

    fn waiting(&self) -> String {
        let ends = self.ends.iter().map(|end| {
            let queues: Vec<(LinkId, usize)> = end
                .queues
                .iter()
                .map(|(link, queue)| (*link, queue.len()))
                .filter(|(_, count)| *count > 0)
                .collect();
            let unsettled: Vec<_> =
                end.model.sessions.values().map(|session| &session.unsettled_out).collect();
            format!("queued {queues:?}, refused {:?}, unsettled {unsettled:?}", end.refused)
        });
        ends.collect::<Vec<_>>().join("; ")
    }

    fn detach_and_end(&mut self) {
        for side in 0..2 {
            let links: Vec<LinkId> = self.ends[side].model.links.keys().copied().collect();
            // Each link is detached by one side, which is as good as the other.
            let links = links.into_iter().enumerate().filter(|(index, _)| index % 2 == side);
            links.for_each(|(_, link)| self.ends[side].detach(link, None));
        }
        self.run_until_idle();
        for side in 0..2 {
            let links: Vec<LinkId> = self.ends[side].model.links.keys().copied().collect();
            links.into_iter().for_each(|link| self.ends[side].detach(link, None));
        }
        self.run_until_idle();
        for side in 0..2 {
            assert_eq!(self.ends[side].connection.links(), 0, "links that both sides have detached");
            self.check_limits(side);
            let buffered = self.ends[side].connection.buffered();
            assert_eq!((buffered.unended, buffered.oldest), (0, None), "memory of deliveries that are gone");
            let sessions: Vec<SessionId> = self.ends[side].model.sessions.keys().copied().collect();
            sessions.into_iter().for_each(|session| self.ends[side].end(session, None));
        }
        self.run_until_idle();
        for side in 0..2 {
            assert_eq!(self.ends[side].connection.sessions(), 0, "sessions that both sides have ended");
            self.check_limits(side);
        }
    }

    /// One end has closed, or failed: both are told, and nothing is left.
    fn finish_closed(&mut self) {
        self.run_until_idle();
        // An end that failed waits a while for the close of the other.
        let mut now = Duration::from_secs(31);
        for end in &mut self.ends {
            assert!(end.told_closed, "the end of the connection is not reported");
            for _ in 0..10 {
                end.connection.on_time(now);
                let count = end.connection.output().len();
                end.connection.wrote(count);
                now += Duration::from_secs(1);
            }
            assert!(end.connection.is_finished(), "{:?}", end.connection);
            assert_eq!((end.connection.links(), end.connection.sessions()), (0, 0), "links and sessions");
            let buffered = end.connection.buffered();
            assert_eq!((buffered.unended, buffered.oldest), (0, None), "memory of deliveries that are gone");
            let shared = &end.model.shared;
            assert_eq!((shared.sessions.used(), shared.links.used()), (0, 0), "permits of the shared limits");
        }
    }
}

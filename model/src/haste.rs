//! What happens at once, because it makes no difference when it happens.
//!
//! A request that its host has given up and that the store refuses now, it will refuse for ever: epochs and versions
//! do not come back. A pump whose time is over and that no answer can give more has nothing left to do but to end.
//! Both are as good as over, and are taken to be; the search would otherwise try every later moment in vain.

use crate::state::{Call, Message, State};
use crate::turn::Turn;

impl Turn<'_> {
    /// Lets happen what may as well happen now.
    pub fn hasten(&mut self) {
        for host in 0..self.protocol.bounds.hosts {
            for partition in 0..self.protocol.bounds.partitions {
                if self.is_done(host, partition) {
                    self.notice(host, partition);
                }
                self.forget_answer(host, partition);
            }
        }
        for index in 0..self.state.messages.len() {
            if let Some(message) = self.state.messages[index].filter(|message| !message.awaited) {
                self.refuse(index, message);
            }
        }
    }

    /// Whether a pump can only end: its time is over, and no renewal is under way. If it is giving its partition
    /// away, that request is on its way, or was one that came too late to be sent.
    fn is_done(&self, host: usize, partition: usize) -> bool {
        let Some(slot) = self.state.hosts[host].slots[partition] else { return false };
        let rules = &self.protocol.rules;
        slot.left == 0
            && rules.loss_comes_before_delivery
            && !self.state.awaits(host, |message| message.of_renewer())
    }

    /// An answer goes with the request that it answers.
    fn forget_answer(&mut self, host: usize, partition: usize) {
        let Some(answered) = self.state.hosts[host].answers[partition] else { return };
        let asked = self.state.hosts[usize::from(answered.asker)].asks[partition];
        if asked.is_none_or(|asked| usize::from(asked.owner) != host) {
            self.state.hosts[host].answers[partition] = None;
        }
    }

    /// Lets a request land that the store refuses.
    fn refuse(&mut self, index: usize, message: Message) {
        let mut tried =
            Turn { protocol: self.protocol, state: self.state, kinds: self.kinds, words: self.words.clone() };
        tried.state.messages[index] = None;
        tried.land(message);
        if stored(&tried.state) == stored(&self.state) && !writes_the_same(&self.state, &message) {
            *self = tried;
        }
    }
}

fn stored(state: &State) -> impl PartialEq {
    (state.partitions, state.broken)
}

/// A renewal or a save that was accepted may leave everything as it was.
fn writes_the_same(state: &State, message: &Message) -> bool {
    let epoch_of = |partition: usize| state.partitions[partition].lease.map_or(0, |lease| lease.epoch);
    match message.call {
        Call::Renew { epochs, .. } => epochs
            .iter()
            .enumerate()
            .any(|(partition, epoch)| epoch.is_some_and(|epoch| epoch >= epoch_of(partition))),
        Call::Save { partition, epoch, .. } => epoch >= state.partitions[usize::from(partition)].seal,
        _ => false,
    }
}

//! Partial-order reduction: executes a step immediately if its time makes no difference.
//!
//! If the store refuses a request that has timed out, it refuses it for ever: epochs and versions do not return. A pump
//! that is past its deadline, and that no answer can extend, can only end. Both steps are taken at once; otherwise the
//! search would try every later moment in vain.

use crate::state::{Call, Message, State};
use crate::step::Step;

impl Step<'_> {
    /// Takes all steps that need not wait.
    pub fn take_eager_steps(&mut self) {
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

    /// Whether a pump can only end: its deadline is over, and no renewal is in flight. If it gives its partition away, that
    /// request is in flight, or it was too late to send it.
    fn is_done(&self, host: usize, partition: usize) -> bool {
        let Some(slot) = self.state.hosts[host].slots[partition] else { return false };
        let rules = &self.protocol.rules;
        slot.left == 0
            && rules.loss_comes_before_delivery
            && !self.state.awaits(host, |message| message.of_renewer())
    }

    /// Drops an answer whose request is gone.
    fn forget_answer(&mut self, host: usize, partition: usize) {
        let Some(answered) = self.state.hosts[host].answers[partition] else { return };
        let asked = self.state.hosts[usize::from(answered.asker)].asks[partition];
        if asked.is_none_or(|asked| usize::from(asked.owner) != host) {
            self.state.hosts[host].answers[partition] = None;
        }
    }

    /// Applies a request if the store refuses it.
    fn refuse(&mut self, index: usize, message: Message) {
        let mut tried =
            Step { protocol: self.protocol, state: self.state, kinds: self.kinds, trace: self.trace.clone() };
        tried.state.messages[index] = None;
        tried.apply_request(message);
        if stored(&tried.state) == stored(&self.state) && !writes_the_same(&self.state, &message) {
            *self = tried;
        }
    }
}

fn stored(state: &State) -> impl PartialEq {
    (state.partitions, state.violation)
}

/// A renewal or a save that was accepted may leave everything as it was.
fn writes_the_same(state: &State, message: &Message) -> bool {
    let epoch_of = |partition: usize| state.partitions[partition].lease.map_or(0, |lease| lease.epoch);
    match message.call {
        Call::Renew { epochs, .. } => epochs
            .iter()
            .enumerate()
            .any(|(partition, epoch)| epoch.is_some_and(|epoch| epoch >= epoch_of(partition))),
        Call::Save { partition, epoch, .. } => epoch >= state.partitions[usize::from(partition)].fence,
        _ => false,
    }
}

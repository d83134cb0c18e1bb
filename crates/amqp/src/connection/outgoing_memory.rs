//! Decides whether there is memory to buffer the rest of a large outgoing message, when the peer's window
//! or the output buffer is full.

use super::incomplete_deliveries::UnendedDeliveries;
use super::output::{Fit, Output};
use crate::performative::MAX_TRANSFER_HEAD;

/// The size of a message that was refused because rests of other messages take too much memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct MessageSize {
    pub(super) bytes: usize,
    /// The number of frames that it needs.
    pub(super) frames: usize,
}

/// The result of [`MessageSize::check_memory`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MemoryCheck {
    /// There is memory.
    Free,
    /// There is none, but the message leaves no rest, or is the only one that may.
    OverLimit,
    /// It has to wait until there is room in the output.
    NeedsRoom,
    /// It has to wait until rests of other messages are written.
    NeedsOthers,
}

impl MessageSize {
    /// Checks the memory for a message of this size, in a session with this window.
    pub(super) fn check_memory(
        self,
        unended: &UnendedDeliveries,
        output: &Output,
        peer_window: u32,
        incomplete: usize,
    ) -> MemoryCheck {
        let taken = unended.outgoing_bytes;
        if taken == 0 || taken.saturating_add(self.bytes) <= incomplete {
            return MemoryCheck::Free;
        }
        if self.frames > peer_window as usize {
            return MemoryCheck::NeedsOthers;
        }
        match output.fit(self.bytes + self.frames * MAX_TRANSFER_HEAD) {
            Fit::Now => MemoryCheck::OverLimit,
            Fit::Later => MemoryCheck::NeedsRoom,
            // The output takes it bit by bit. The peer may close its window midway, so only one such message
            // may begin.
            Fit::Never if unended.over_limit.is_none() => MemoryCheck::OverLimit,
            Fit::Never => MemoryCheck::NeedsOthers,
        }
    }
}

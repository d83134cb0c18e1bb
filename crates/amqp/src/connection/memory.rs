//! Decides whether there is memory for the rest that a large message may leave when the peer's window or the output ends
//! before it does.

use super::held::Held;
use super::output::{Fit, Output};
use crate::performative::MAX_TRANSFER_HEAD;

/// The size of a message that was refused because of the memory that rests of others take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    pub(super) bytes: usize,
    /// In so many frames.
    pub(super) frames: usize,
}

/// Whether there is memory for the rest that a message may leave.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Memory {
    /// There is.
    Free,
    /// There is none, but the message leaves nothing, or is the one that may.
    Beyond,
    /// It has to wait until there is room in the output.
    NeedsRoom,
    /// It has to wait until rests of others have gone.
    NeedsOthers,
}

impl Refused {
    /// Whether there is memory for one of this size, in a session with this window.
    pub(super) fn memory(self, held: &Held, output: &Output, peer_window: u32, incomplete: usize) -> Memory {
        let taken = held.outgoing_bytes;
        if taken == 0 || taken.saturating_add(self.bytes) <= incomplete {
            return Memory::Free;
        }
        if self.frames > peer_window as usize {
            return Memory::NeedsOthers;
        }
        match output.fit(self.bytes + self.frames * MAX_TRANSFER_HEAD) {
            Fit::Now => Memory::Beyond,
            Fit::Later => Memory::NeedsRoom,
            // The output takes it bit by bit. The peer may close its window midway, so only one may begin.
            Fit::Never if held.beyond.is_none() => Memory::Beyond,
            Fit::Never => Memory::NeedsOthers,
        }
    }
}

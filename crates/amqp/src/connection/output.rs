//! The buffer of output bytes, with a high and a low watermark.
//!
//! ```text
//! 0        written      length          low      high
//! ├──────────┼─────────────┤             │        │
//!   gone       to be written      room ◄─┘        └─► congested, until it is down to low again
//! ```

use crate::frame;

/// The capacity that an empty output buffer keeps after a large one was shrunk.
const KEPT: usize = 128 * 1024;

#[derive(Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
    written: usize,
    high: usize,
    congested: bool,
    /// A message was refused, and [`wrote`](Self::wrote) has to report when there is room.
    pub(super) wanted: bool,
    /// Bytes were written since this was last reset.
    pub(super) progressed: bool,
    /// The number of bytes that were written since this was last reset.
    pub(super) taken: usize,
    /// The memory that the owner knows of.
    known: usize,
    /// The number of bytes that were written since the owner was last told.
    taken_unreported: usize,
}

/// A frame that is larger than the peer accepts.
#[derive(Debug)]
pub(super) struct TooLarge(pub(super) u32);

/// The result of [`Output::fit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    Now,
    /// Once the peer has read enough.
    Later,
    /// They are more than the high mark.
    Never,
}

impl Output {
    pub(super) fn new(high: usize) -> Self {
        Self { high, ..Self::default() }
    }

    /// Sets the high mark.
    pub(super) fn set_high(&mut self, high: usize) {
        self.high = high;
    }

    #[inline]
    pub(super) fn pending(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.written
    }

    /// The memory of the buffer, which may be twice its length.
    #[inline]
    pub(super) fn memory(&self) -> usize {
        self.bytes.capacity()
    }

    /// Notes that the owner knows the memory as it is now.
    pub(super) fn mark_known(&mut self) {
        (self.known, self.taken_unreported) = (self.memory(), 0);
    }

    /// True if the memory has changed by `step` since the owner was told, or the peer has read that much, or
    /// it has read all of what was at least a quarter of that.
    #[inline]
    pub(super) fn is_news(&self, step: usize) -> bool {
        let read_all = self.bytes.is_empty() && self.taken_unreported >= step / 4;
        self.taken_unreported >= step || self.memory().abs_diff(self.known) >= step || read_all
    }

    /// True if nothing should be added that can wait.
    #[inline]
    pub(super) fn is_congested(&mut self) -> bool {
        self.congested |= self.len() >= self.high;
        self.congested
    }

    /// Tells whether this many bytes can be added below the high mark.
    pub(super) fn fit(&self, bytes: usize) -> Fit {
        match bytes {
            _ if self.len().saturating_add(bytes) <= self.high => Fit::Now,
            _ if bytes <= self.high => Fit::Later,
            _ => Fit::Never,
        }
    }

    /// The buffer to append to.
    #[inline]
    pub(super) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Writes a frame, or nothing if it is larger than `limit`.
    pub(super) fn frame(
        &mut self,
        kind: u8,
        channel: u16,
        limit: u32,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), TooLarge> {
        let start = frame::begin(&mut self.bytes, kind, channel);
        body(&mut self.bytes);
        let size = frame::end(&mut self.bytes, start);
        if size > limit {
            self.bytes.truncate(start);
            return Err(TooLarge(size));
        }
        Ok(())
    }

    /// Removes the first `count` bytes, which were written. True if messages that were refused can be sent
    /// again.
    pub(super) fn wrote(&mut self, count: usize) -> bool {
        self.progressed |= count > 0;
        self.taken = self.taken.saturating_add(count);
        self.taken_unreported = self.taken_unreported.saturating_add(count);
        self.written = (self.written + count).min(self.bytes.len());
        if self.written == self.bytes.len() {
            self.bytes.clear();
            self.written = 0;
            if self.bytes.capacity() > KEPT * 4 {
                self.bytes.shrink_to(KEPT);
            }
        } else if self.written >= self.high {
            // Enough bytes were written to be worth the move, and the moved bytes are bounded by the limit of
            // waiting output.
            self.bytes.drain(..self.written);
            self.written = 0;
        }
        if self.congested && self.len() <= self.high / 2 {
            self.congested = false;
        }
        !self.congested && std::mem::take(&mut self.wanted)
    }

    /// Releases the memory that is not needed for what waits to be written.
    pub(super) fn release(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = Vec::new();
        } else if self.memory() - self.len() > KEPT {
            self.bytes.drain(..self.written);
            self.written = 0;
            self.bytes.shrink_to_fit();
        }
    }

    /// Drops the output, because nobody will read it any more.
    pub(super) fn discard(&mut self) {
        self.bytes = Vec::new();
        self.written = 0;
    }
}

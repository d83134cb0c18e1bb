//! Bytes on their way to the peer.
//!
//! ```text
//! 0        written      length          low      high
//! ├──────────┼─────────────┤             │        │
//!   gone       to be written      room ◄─┘        └─► congested, until it is down to low again
//! ```

use crate::frame;

/// What an output buffer keeps of its memory when it is empty.
const KEPT: usize = 128 * 1024;

#[derive(Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
    written: usize,
    high: usize,
    congested: bool,
    /// Somebody was refused, and waits to be told.
    pub(super) wanted: bool,
    /// The peer has read something since somebody last looked.
    pub(super) progressed: bool,
}

/// A frame that its receiver would not take.
#[derive(Debug)]
pub(super) struct TooLarge(pub(super) u32);

/// Whether something fits into the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    Now,
    /// Once the peer has read enough.
    Later,
    /// It is larger than all of it.
    Never,
}

impl Output {
    pub(super) fn new(high: usize) -> Self {
        Self { high, ..Self::default() }
    }

    /// So much may wait from now on.
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

    /// Whether nothing should be added that can wait.
    #[inline]
    pub(super) fn is_congested(&mut self) -> bool {
        self.congested |= self.len() >= self.high;
        self.congested
    }

    /// Whether so many bytes can be added before nothing more should be.
    pub(super) fn fit(&self, bytes: usize) -> Fit {
        match bytes {
            _ if self.len().saturating_add(bytes) <= self.high => Fit::Now,
            _ if bytes <= self.high => Fit::Later,
            _ => Fit::Never,
        }
    }

    /// Where to write.
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

    /// The peer took the first `count` bytes. Says whether whoever was refused may try again.
    pub(super) fn wrote(&mut self, count: usize) -> bool {
        self.progressed |= count > 0;
        self.written = (self.written + count).min(self.bytes.len());
        if self.written == self.bytes.len() {
            self.bytes.clear();
            self.written = 0;
            if self.bytes.capacity() > KEPT * 4 {
                self.bytes.shrink_to(KEPT);
            }
        } else if self.written >= self.high {
            // More than enough to be worth the move; what is moved is bounded by what may wait.
            self.bytes.drain(..self.written);
            self.written = 0;
        }
        if self.congested && self.len() <= self.high / 2 {
            self.congested = false;
        }
        !self.congested && std::mem::take(&mut self.wanted)
    }

    /// Keeps no memory while there is nothing to write.
    pub(super) fn release(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = Vec::new();
        }
    }

    /// Nobody will read it any more.
    pub(super) fn discard(&mut self) {
        self.bytes = Vec::new();
        self.written = 0;
    }
}

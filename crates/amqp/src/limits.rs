//! What a peer may use up.
//!
//! Everything that a peer can make a connection keep, or wait for, has a bound here. Beyond it the peer
//! is told which one it was, and loses the link, the session or the connection.

use std::time::Duration;

use crate::frame::MIN_MAX_FRAME_SIZE;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// The bounds of one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest frame before a peer has sent its `open`: 8 KiB.
    pub frame_before_open: u32,
    /// The largest frame after it, which a peer is told: 64 KiB.
    pub frame: u32,
    /// The largest frame that is written, to a peer that takes it: 64 KiB.
    pub frame_out: u32,
    /// The highest channel: 254.
    pub channel_max: u16,
    /// All sessions of the connection: 255.
    pub sessions: usize,
    /// The highest handle of a session, and so one less than the number of its links: 255.
    pub handle_max: u32,
    /// All links of the connection: 2,048, for one to each partition of the largest hub and a few more.
    pub links: usize,
    /// How many frames with messages a session takes before its next flow. It is not held against a peer
    /// that sends more (Azure's Python SDK counts otherwise), so this bounds only well-behaved ones:
    /// 5,000.
    pub window: u32,
    /// The largest message: 1 MiB, and 64 KiB for what peers do not count. A link that says less in its
    /// `attach` is held to that, and the same 64 KiB.
    pub message: u64,
    /// Unsettled deliveries of a session, in each direction: 16,384.
    pub unsettled: usize,
    /// All bytes of deliveries of which the end has not come yet, or could not be written yet because the peer
    /// has no window or does not read: 8 MiB.
    pub incomplete: usize,
    /// How much more such deliveries take, as far as they come in, before the owner is told
    /// ([`Event::Unended`](crate::connection::Event::Unended)): never by default.
    pub incomplete_notice: usize,
    /// What a driver reads at once when much comes: 128 KiB.
    pub read: usize,
    /// Bytes that wait for the peer to read them before nothing more is sent of one's own accord: 256 KiB.
    pub output: usize,
    /// Bytes that wait for the peer to read them before nothing more is read: 1 MiB.
    pub output_when_deaf: usize,
    /// From the start to the peer's `open`: 30 seconds.
    pub time_to_open: Duration,
    /// From a `close` to the peer's: 5 seconds.
    pub time_to_close: Duration,
    /// For a peer to read anything, while something waits for it: 60 seconds.
    pub time_to_read: Duration,
    /// For the next part of a delivery whose end has not come: 60 seconds. For all of it there is ten times as long.
    pub time_to_finish: Duration,
}

/// What is added to the size of messages that a link announces: some peers do not count the envelope.
pub(crate) const MESSAGE_OVERHEAD: u64 = 64 * KIB as u64;

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_before_open: 8 * KIB as u32,
            frame: 64 * KIB as u32,
            frame_out: 64 * KIB as u32,
            channel_max: 254,
            sessions: 255,
            handle_max: 255,
            links: 2_048,
            window: 5_000,
            message: MIB as u64 + MESSAGE_OVERHEAD,
            unsettled: 16_384,
            incomplete: 8 * MIB,
            incomplete_notice: usize::MAX,
            read: 128 * KIB,
            output: 256 * KIB,
            output_when_deaf: MIB,
            time_to_open: Duration::from_secs(30),
            time_to_close: Duration::from_secs(5),
            time_to_read: Duration::from_secs(60),
            time_to_finish: Duration::from_secs(60),
        }
    }
}

impl Limits {
    /// Says what is wrong with them.
    pub fn validate(&self) -> Result<(), String> {
        for (name, value) in [
            ("frame_before_open", self.frame_before_open),
            ("frame", self.frame),
            ("frame_out", self.frame_out),
        ] {
            if value < MIN_MAX_FRAME_SIZE {
                return Err(format!("{name} ({value}) must be at least 512, which every peer may send"));
            }
        }
        if self.window < 2 {
            return Err(format!(
                "window ({}) must be at least 2, or every frame needs an answer",
                self.window
            ));
        }
        if self.output_when_deaf < self.output {
            return Err(format!(
                "output_when_deaf ({}) must be at least output ({}), or nothing is read while sending",
                self.output_when_deaf, self.output
            ));
        }
        Ok(())
    }
}

//! The limits of one connection: sizes, counts and times, with their defaults. The limits of many connections
//! together are in `connection/config.rs` and `shared_limit.rs`.
//!
//! Everything that a peer can make a connection buffer, or wait for, has a limit here. When the peer exceeds
//! one, its link, session or connection is ended, or its message rejected, with an error that names the
//! limit. Two are different: `window` may be exceeded, and beyond the limits of waiting output nothing more is
//! sent or read.

use std::time::Duration;

use crate::frame::MIN_MAX_FRAME_SIZE;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// The limits of one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest frame that a server takes before the peer's `open`: 8 KiB.
    pub frame_before_open: u32,
    /// The largest frame after it, which is announced in our `open`: 64 KiB.
    pub frame: u32,
    /// The largest frame that is written, if the peer takes it: 64 KiB.
    pub frame_out: u32,
    /// The highest channel: 254.
    pub channel_max: u16,
    /// All sessions of the connection: 255.
    pub sessions: usize,
    /// The highest handle of a session, and so one less than the number of its links: 255.
    pub handle_max: u32,
    /// All links of the connection: 2,048, for one to each partition of the largest hub and a few more.
    pub links: usize,
    /// The number of transfer frames that a session takes before its next flow: 5,000. It limits only
    /// well-behaved peers: a peer that sends more is not refused, because Azure's Python SDK counts
    /// otherwise.
    pub window: u32,
    /// The largest message: 1 MiB, and 64 KiB for what a hub adds to it. If our `attach` announces less, the
    /// limit of the link is that.
    pub message: u64,
    /// Unsettled deliveries of a session, in each direction: 16,384. A received one counts until our side
    /// settles it, also if the peer has settled it before.
    pub unsettled: usize,
    /// Bytes of incomplete deliveries, in each direction: incoming ones whose end has not come yet, and
    /// outgoing ones whose rest could not be written yet because the peer has no window or does not read: 8
    /// MiB. Buffers of incoming ones may take up to twice as much.
    pub incomplete: usize,
    /// The growth of incoming incomplete deliveries, or the change of output, in bytes, after which the owner
    /// is notified
    /// ([`Event::Unended`](crate::connection::Event::Unended)): never by default.
    pub incomplete_notice: usize,
    /// The most bytes that a driver reads at once: 128 KiB.
    pub read: usize,
    /// The bytes of waiting output at which no more messages are sent: 256 KiB.
    pub output: usize,
    /// The bytes of waiting output at which nothing more is read from the peer: 1 MiB.
    pub output_to_pause_reading: usize,
    /// Time from the start to the peer's `open`: 30 seconds.
    pub time_to_open: Duration,
    /// Time from our `close` to the peer's: 5 seconds.
    pub time_to_close: Duration,
    /// Time for a peer to read a tenth of the output that waits for it: 60 seconds.
    pub time_to_read: Duration,
    /// Time for the next part of an incomplete delivery: 60 seconds. The whole delivery may take ten times as
    /// long.
    pub time_to_finish: Duration,
}

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
            message: (MIB + 64 * KIB) as u64,
            unsettled: 16_384,
            incomplete: 8 * MIB,
            incomplete_notice: usize::MAX,
            read: 128 * KIB,
            output: 256 * KIB,
            output_to_pause_reading: MIB,
            time_to_open: Duration::from_secs(30),
            time_to_close: Duration::from_secs(5),
            time_to_read: Duration::from_secs(60),
            time_to_finish: Duration::from_secs(60),
        }
    }
}

impl Limits {
    /// Returns the first error of the limits.
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
        if self.output_to_pause_reading < self.output {
            return Err(format!(
                "output_to_pause_reading ({}) must be at least output ({}), or nothing is read while sending",
                self.output_to_pause_reading, self.output
            ));
        }
        Ok(())
    }
}

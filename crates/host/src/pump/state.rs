//! The states of a pump, as snapshots show them.

/// The state of a partition's pump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum PumpState {
    /// The partition is ours; waiting until its previous owner has certainly stopped.
    Waiting,
    /// Finding the position, creating and opening the processor, attaching the receiver.
    Opening,
    /// Receiving and delivering.
    Running,
    /// The last call failed; the same batch is redelivered.
    Failing,
    /// Held by `pause`: owned, but nothing is delivered.
    Paused,
    /// The hub cannot be read; retrying.
    Retrying,
    /// The position does not exist, and by the options the partition waits for a seek.
    Halted,
    /// Finishing, closing, saving and giving away.
    Closing,
}

impl PumpState {
    /// All states, in the order of their numbers.
    pub(crate) const ALL: [Self; 8] = [
        Self::Waiting,
        Self::Opening,
        Self::Running,
        Self::Failing,
        Self::Paused,
        Self::Retrying,
        Self::Halted,
        Self::Closing,
    ];
}

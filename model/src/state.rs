//! The state of the model: hosts, store, messages in flight. Small numbers only, so that millions of states fit.
//!
//! Every time is relative to now: an age, or the ticks that are left.

/// The maximum number of hosts.
pub const MAX_HOSTS: usize = 3;
/// The maximum number of partitions.
pub const MAX_PARTITIONS: usize = 2;
/// The maximum number of messages in flight.
pub const MAX_MESSAGES: usize = 3;

/// One for each partition.
pub type EachPartition<T> = [T; MAX_PARTITIONS];

/// The whole state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct State {
    /// The state of each host.
    pub hosts: [Host; MAX_HOSTS],
    /// The records of the store.
    pub partitions: EachPartition<Partition>,
    /// The messages in flight, sorted, so that states with the same messages are equal.
    pub messages: [Option<Message>; MAX_MESSAGES],
    /// Seeks so far.
    pub seeks: u8,
    /// Hosts that stopped so far.
    pub stops: u8,
    /// Processors that failed so far.
    pub failures: u8,
    /// Outcomes that stayed unknown so far, where they are bounded.
    pub unknowns: u8,
    /// Ticks so far, where they are bounded.
    pub ticks: u8,
    /// The property that the last step violated.
    pub violation: Option<Violation>,
}

/// The state of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Host {
    /// It stops: it takes no more partitions and releases its own.
    pub leaving: bool,
    /// The partitions that it serves.
    pub slots: EachPartition<Option<Slot>>,
    /// Its requests for partitions. They are in its record, too.
    pub asks: EachPartition<Option<Asked>>,
    /// Its answers to requests. They are in its record, too.
    pub answers: EachPartition<Option<Answered>>,
    /// The highest epoch that it served, as long as that is the lease's.
    pub served: EachPartition<u8>,
}

/// A partition that a host serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// Its epoch.
    pub epoch: u8,
    /// Ticks until its deadline, after which it must not deliver.
    pub left: u8,
    /// Ticks until the last owner has certainly stopped.
    pub takeover_delay: u8,
    /// Events finished.
    pub finished: u8,
    /// Something finished is not known to be saved.
    pub unsaved: bool,
    /// It is being given away.
    pub disposition: Option<Disposition>,
    /// It began before the last seek, in an epoch that may still write.
    pub before_seek: bool,
}

/// How a partition is given away: handed over or released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Disposition {
    /// To the host that asked.
    HandOver(u8),
    /// Released, with the host that should have it next.
    Release(Option<u8>),
}

/// A request in a host's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Asked {
    /// The owner that is asked.
    pub owner: u8,
    /// Its epoch.
    pub epoch: u8,
    /// The age of the request.
    pub age: u8,
    /// How long ago the owner was seen draining, and how long it said that would take.
    pub draining: Option<(u8, u8)>,
}

/// An answer in a host's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Answered {
    /// The host that asked.
    pub asker: u8,
    /// The ticks until the handover; none if the owner declined.
    pub draining: Option<u8>,
}

/// The records of a partition in the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition {
    /// The lease, once there is a record.
    pub lease: Option<Lease>,
    /// The epoch that may save.
    pub fence: u8,
    /// Events finished, by the checkpoint.
    pub position: u8,
}

/// A lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease {
    /// Its owner.
    pub owner: Option<u8>,
    /// The epoch of the last change of owner.
    pub epoch: u8,
    /// How long ago it was written.
    pub age: u8,
    /// The owner from which it was taken.
    pub previous_owner: Option<u8>,
    /// The ticks for which that owner may still deliver.
    pub takeover_delay: u8,
    /// The host that should have it next.
    pub successor: Option<u8>,
}

/// A request or an answer in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Message {
    /// The host that made the call.
    pub host: u8,
    /// The host still waits for it. Otherwise the call has timed out, and the request may still arrive.
    pub awaited: bool,
    /// The call.
    pub call: Call,
}

/// The content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Call {
    /// A claim.
    Claim {
        /// Of this partition.
        partition: u8,
        /// For this reason.
        reason: ClaimReason,
        /// The lease is unchanged since the view.
        current: bool,
        /// How long ago it was sent.
        age: u8,
        /// The position in the view, which only the mutation uses.
        viewed_position: u8,
    },
    /// The answer to a claim that won.
    Won {
        /// This partition.
        partition: u8,
        /// In this epoch.
        epoch: u8,
        /// How long ago the claim was sent.
        age: u8,
        /// The position to start at.
        position: u8,
        /// The ticks for which the last owner may still deliver.
        takeover_delay: u8,
        /// Somebody sought since, and the epoch may still write.
        before_seek: bool,
    },
    /// A renewal of everything that is served.
    Renew {
        /// The epoch of each lease that is to be renewed.
        epochs: EachPartition<Option<u8>>,
        /// How long ago it was sent.
        age: u8,
    },
    /// The answer to a renewal.
    Renewed {
        /// The epoch of each lease, and whether it was renewed.
        epochs: EachPartition<Option<(u8, bool)>>,
        /// How long ago the renewal was sent.
        age: u8,
    },
    /// A checkpoint.
    Save {
        /// Of this partition.
        partition: u8,
        /// In this epoch.
        epoch: u8,
        /// Events finished.
        position: u8,
        /// Somebody sought since, and the epoch may still write.
        before_seek: bool,
    },
    /// A transfer or a release.
    Handoff {
        /// This partition.
        partition: u8,
        /// In this epoch.
        epoch: u8,
        /// To whom.
        disposition: Disposition,
        /// The owner says that everything finished is saved.
        checkpoint_saved: bool,
        /// The events that the owner finished, for the check of `checkpoint_saved`.
        finished: u8,
        /// No pump serves it: a claim arrived late, or giving it away failed.
        unserved: bool,
    },
}

/// Why a host claims a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClaimReason {
    /// Nobody owns it.
    Unowned,
    /// Its owner stopped renewing.
    Expired,
    /// Its owner does not respond to requests.
    Unresponsive,
}

/// A property that a step violated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Violation {
    /// An epoch was assigned twice, or an older one.
    EpochTwice,
    /// A save was accepted in an older epoch than the newest.
    OldSave,
    /// A checkpoint moved back without a seek.
    MovedBack,
    /// A position from before a seek was saved over it.
    SeekUndone,
    /// Given away as saved, with something finished that is not saved.
    Unsaved,
    /// An epoch did not start right after the checkpoint at its beginning.
    WrongStart,
    /// A host served one epoch twice.
    ServedTwice,
}

impl Message {
    /// Returns the partition that it is about, if any.
    pub fn partition(&self) -> Option<usize> {
        match self.call {
            Call::Claim { partition, .. }
            | Call::Won { partition, .. }
            | Call::Save { partition, .. }
            | Call::Handoff { partition, .. } => Some(usize::from(partition)),
            Call::Renew { .. } | Call::Renewed { .. } => None,
        }
    }

    /// Whether it is an answer. Otherwise it is a request.
    pub fn is_answer(&self) -> bool {
        matches!(self.call, Call::Won { .. } | Call::Renewed { .. })
    }

    /// Whether the manager waits for it.
    pub fn of_manager(&self) -> bool {
        let unserved = matches!(self.call, Call::Handoff { unserved: true, .. });
        unserved || matches!(self.call, Call::Claim { .. } | Call::Won { .. })
    }

    /// Whether the renewer waits for it.
    pub fn of_renewer(&self) -> bool {
        matches!(self.call, Call::Renew { .. } | Call::Renewed { .. })
    }
}

impl State {
    /// Iterates over the messages in flight.
    pub fn in_flight(&self) -> impl Iterator<Item = Message> {
        self.messages.into_iter().flatten()
    }

    /// Whether a host waits for a message of this kind.
    pub fn awaits(&self, host: usize, what: impl Fn(&Message) -> bool) -> bool {
        self.in_flight().any(|message| usize::from(message.host) == host && message.awaited && what(&message))
    }

    /// Whether the pump of a host for a partition waits for the store.
    pub fn pump_waits(&self, host: usize, partition: usize) -> bool {
        self.awaits(host, |message| {
            !message.of_manager() && !message.of_renewer() && message.partition() == Some(partition)
        })
    }
}

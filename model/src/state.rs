//! What a state is made of: small numbers only, so that millions of states fit.
//!
//! Every time is relative to now: an age, or what is left.

/// As many hosts as there can be.
pub const MOST_HOSTS: usize = 3;
/// As many partitions as there can be.
pub const MOST_PARTITIONS: usize = 2;
/// As many messages as can be on their way.
pub const MOST_MESSAGES: usize = 3;

/// One for each partition.
pub type EachPartition<T> = [T; MOST_PARTITIONS];

/// Everything, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct State {
    /// What each host believes.
    pub hosts: [Host; MOST_HOSTS],
    /// What the store keeps.
    pub partitions: EachPartition<Partition>,
    /// What is on its way, in order, so that two states with the same messages are the same.
    pub messages: [Option<Message>; MOST_MESSAGES],
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
    /// The promise that the last step broke.
    pub broken: Option<Broken>,
}

/// What a host believes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Host {
    /// It stops: it takes nothing more and gives everything back.
    pub leaving: bool,
    /// The partitions that it serves.
    pub slots: EachPartition<Option<Slot>>,
    /// What it asks for. It stands in its record, too.
    pub asks: EachPartition<Option<Asked>>,
    /// What it answers. It stands in its record, too.
    pub answers: EachPartition<Option<Answered>>,
    /// The highest epoch that it served, as long as that is the lease's.
    pub served: EachPartition<u8>,
}

/// A partition that a host serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// Its epoch.
    pub epoch: u8,
    /// Ticks until nothing may be delivered any more.
    pub left: u8,
    /// Ticks until the last owner has certainly stopped.
    pub quiet: u8,
    /// Events finished.
    pub finished: u8,
    /// Something finished is not known to be saved.
    pub unsaved: bool,
    /// It is being given away.
    pub way: Option<Way>,
    /// It began before the last seek, in an epoch that may still write.
    pub bygone: bool,
}

/// How a partition is given away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// To the one that asked.
    HandOver(u8),
    /// Back, with a word on who should have it next.
    Release(Option<u8>),
}

/// A request that stands in a host's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Asked {
    /// Who is asked.
    pub owner: u8,
    /// In which epoch.
    pub epoch: u8,
    /// How long ago.
    pub age: u8,
    /// How long ago it was seen draining, and how long it said that would take.
    pub draining: Option<(u8, u8)>,
}

/// An answer that stands in a host's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Answered {
    /// Who asked.
    pub asker: u8,
    /// How many ticks are left until it will be handed over; none means no.
    pub draining: Option<u8>,
}

/// What the store keeps of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition {
    /// The lease, once there is a record.
    pub lease: Option<Lease>,
    /// The epoch that may save.
    pub seal: u8,
    /// Events finished, by the checkpoint.
    pub position: u8,
}

/// A lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease {
    /// Who owns it.
    pub owner: Option<u8>,
    /// The epoch of the last change of owner.
    pub epoch: u8,
    /// How long ago it was written.
    pub age: u8,
    /// Who was owner until it was taken away.
    pub previous: Option<u8>,
    /// For how long that one may be at work without knowing.
    pub quiet: u8,
    /// Who should have it next.
    pub heir: Option<u8>,
}

/// A request or an answer on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Message {
    /// Whose call it is.
    pub host: u8,
    /// The host still waits for it. Otherwise it has given up, and the request may land all the same.
    pub awaited: bool,
    /// What it says.
    pub call: Call,
}

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Call {
    /// A claim.
    Claim {
        /// Of this partition.
        partition: u8,
        /// On what ground.
        ground: Ground,
        /// The lease is still as it was seen.
        current: bool,
        /// How long ago it was sent.
        age: u8,
        /// The position in the view, which nobody should use.
        glimpsed: u8,
    },
    /// The answer to a claim that won.
    Won {
        /// This partition.
        partition: u8,
        /// In this epoch.
        epoch: u8,
        /// How long ago the claim was sent.
        age: u8,
        /// Where to go on.
        position: u8,
        /// How long the last owner may be at work.
        quiet: u8,
        /// Somebody sought since, and the epoch may still write.
        bygone: bool,
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
        bygone: bool,
    },
    /// A lease changes hands, or goes back.
    GiveAway {
        /// This partition.
        partition: u8,
        /// In this epoch.
        epoch: u8,
        /// To whom.
        way: Way,
        /// Everything finished is also saved, says the owner.
        settled: bool,
        /// What the owner finished, which the judge remembers.
        finished: u8,
        /// No pump serves it: a claim landed late, or giving it away did not work out.
        unserved: bool,
    },
}

/// On what ground a host claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ground {
    /// Nobody owns it.
    Unowned,
    /// Its owner stopped renewing.
    Expired,
    /// Its owner does not answer.
    Silent,
}

/// A promise that a step broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Broken {
    /// An epoch was given out again, or an older one.
    EpochTwice,
    /// A save was accepted in an older epoch than the newest.
    OldSave,
    /// A checkpoint moved back without a seek.
    MovedBack,
    /// A position from before a seek was saved over it.
    SeekUndone,
    /// Given away as settled, with something finished that is not saved.
    Unsettled,
    /// An epoch did not go on right behind the checkpoint that stood when it began.
    WrongStart,
    /// A host served one epoch twice.
    ServedTwice,
}

impl Message {
    /// The partition that it is about, if it is about one.
    pub fn partition(&self) -> Option<usize> {
        match self.call {
            Call::Claim { partition, .. }
            | Call::Won { partition, .. }
            | Call::Save { partition, .. }
            | Call::GiveAway { partition, .. } => Some(usize::from(partition)),
            Call::Renew { .. } | Call::Renewed { .. } => None,
        }
    }

    /// Whether it is an answer. Otherwise it is a request.
    pub fn is_answer(&self) -> bool {
        matches!(self.call, Call::Won { .. } | Call::Renewed { .. })
    }

    /// Whether the manager waits for it.
    pub fn of_manager(&self) -> bool {
        let unserved = matches!(self.call, Call::GiveAway { unserved: true, .. });
        unserved || matches!(self.call, Call::Claim { .. } | Call::Won { .. })
    }

    /// Whether the renewer waits for it.
    pub fn of_renewer(&self) -> bool {
        matches!(self.call, Call::Renew { .. } | Call::Renewed { .. })
    }
}

impl State {
    /// The messages that are on their way.
    pub fn on_the_way(&self) -> impl Iterator<Item = Message> {
        self.messages.into_iter().flatten()
    }

    /// Whether a host waits for a message of this kind.
    pub fn awaits(&self, host: usize, what: impl Fn(&Message) -> bool) -> bool {
        self.on_the_way()
            .any(|message| usize::from(message.host) == host && message.awaited && what(&message))
    }

    /// Whether the pump of a host for a partition waits for the store.
    pub fn pump_waits(&self, host: usize, partition: usize) -> bool {
        self.awaits(host, |message| {
            !message.of_manager() && !message.of_renewer() && message.partition() == Some(partition)
        })
    }
}

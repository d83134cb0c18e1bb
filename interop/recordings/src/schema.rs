//! The fields of every performative: their names in a recording and on the wire, and their defaults.

/// The type of a field, as far as reading it depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A number, a text, a boolean, a list of names or a map.
    Plain,
    /// An id that depends on the run: only its presence is compared.
    Id,
    /// Nanoseconds in a recording, milliseconds on the wire.
    Duration,
    /// Bytes, in base64 in a recording.
    Bytes,
    /// A list of fields with a descriptor.
    Nested(&'static [Field]),
    /// The state of a delivery.
    State,
    /// Never compared.
    Skipped,
}

/// One field of a performative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    /// Its name in recordings.
    pub(crate) recorded: &'static str,
    /// Its name in the specification.
    pub(crate) name: &'static str,
    /// Its type.
    pub(crate) kind: Kind,
    /// What recordings show if it is absent; empty if they show null.
    pub(crate) default: &'static str,
}

const fn field(recorded: &'static str, name: &'static str, kind: Kind, default: &'static str) -> Field {
    Field { recorded, name, kind, default }
}

const fn plain(recorded: &'static str, name: &'static str, default: &'static str) -> Field {
    field(recorded, name, Kind::Plain, default)
}

/// A performative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Performative {
    /// Its descriptor.
    pub(crate) descriptor: u8,
    /// Its name in recordings.
    pub(crate) recorded: &'static str,
    /// Its name in the specification.
    pub(crate) name: &'static str,
    /// Its fields, in their order on the wire.
    pub(crate) fields: &'static [Field],
}

const LARGEST_UINT: &str = "4294967295";

const ERROR: &[Field] = &[
    plain("Condition", "condition", ""),
    plain("Description", "description", ""),
    plain("Info", "info", ""),
];

const SOURCE: &[Field] = &[
    plain("Address", "address", ""),
    plain("Durable", "durable", "0"),
    plain("ExpiryPolicy", "expiry-policy", "session-end"),
    plain("Timeout", "timeout", "0"),
    plain("Dynamic", "dynamic", "false"),
    plain("DynamicNodeProperties", "dynamic-node-properties", ""),
    plain("DistributionMode", "distribution-mode", ""),
    plain("Filter", "filter", ""),
    plain("DefaultOutcome", "default-outcome", ""),
    plain("Outcomes", "outcomes", ""),
    plain("Capabilities", "capabilities", ""),
];

const TARGET: &[Field] = &[
    plain("Address", "address", ""),
    plain("Durable", "durable", "0"),
    plain("ExpiryPolicy", "expiry-policy", "session-end"),
    plain("Timeout", "timeout", "0"),
    plain("Dynamic", "dynamic", "false"),
    plain("DynamicNodeProperties", "dynamic-node-properties", ""),
    plain("Capabilities", "capabilities", ""),
];

/// All performatives that a service sends.
pub(crate) const PERFORMATIVES: [Performative; 11] = [
    Performative {
        descriptor: 0x40,
        recorded: "SASLMechanisms",
        name: "sasl-mechanisms",
        fields: &[plain("Mechanisms", "sasl-server-mechanisms", "")],
    },
    Performative {
        descriptor: 0x44,
        recorded: "SASLOutcome",
        name: "sasl-outcome",
        fields: &[plain("Code", "code", ""), field("AdditionalData", "additional-data", Kind::Bytes, "")],
    },
    Performative {
        descriptor: 0x10,
        recorded: "Open",
        name: "open",
        fields: &[
            field("ContainerID", "container-id", Kind::Id, ""),
            plain("Hostname", "hostname", ""),
            plain("MaxFrameSize", "max-frame-size", LARGEST_UINT),
            plain("ChannelMax", "channel-max", "65535"),
            field("IdleTimeout", "idle-time-out", Kind::Duration, "0"),
            plain("OutgoingLocales", "outgoing-locales", ""),
            plain("IncomingLocales", "incoming-locales", ""),
            plain("OfferedCapabilities", "offered-capabilities", ""),
            plain("DesiredCapabilities", "desired-capabilities", ""),
            plain("Properties", "properties", ""),
        ],
    },
    Performative {
        descriptor: 0x11,
        recorded: "Begin",
        name: "begin",
        fields: &[
            plain("RemoteChannel", "remote-channel", ""),
            plain("NextOutgoingID", "next-outgoing-id", ""),
            plain("IncomingWindow", "incoming-window", ""),
            plain("OutgoingWindow", "outgoing-window", ""),
            plain("HandleMax", "handle-max", LARGEST_UINT),
            plain("OfferedCapabilities", "offered-capabilities", ""),
            plain("DesiredCapabilities", "desired-capabilities", ""),
            plain("Properties", "properties", ""),
        ],
    },
    Performative {
        descriptor: 0x12,
        recorded: "Attach",
        name: "attach",
        fields: &[
            plain("Name", "name", ""),
            field("Handle", "handle", Kind::Skipped, ""),
            plain("Role", "role", ""),
            plain("SenderSettleMode", "snd-settle-mode", ""),
            plain("ReceiverSettleMode", "rcv-settle-mode", ""),
            field("Source", "source", Kind::Nested(SOURCE), ""),
            field("Target", "target", Kind::Nested(TARGET), ""),
            plain("Unsettled", "unsettled", ""),
            plain("IncompleteUnsettled", "incomplete-unsettled", "false"),
            plain("InitialDeliveryCount", "initial-delivery-count", "0"),
            plain("MaxMessageSize", "max-message-size", "0"),
            plain("OfferedCapabilities", "offered-capabilities", ""),
            plain("DesiredCapabilities", "desired-capabilities", ""),
            plain("Properties", "properties", ""),
        ],
    },
    Performative {
        descriptor: 0x13,
        recorded: "Flow",
        name: "flow",
        fields: &[
            plain("NextIncomingID", "next-incoming-id", ""),
            plain("IncomingWindow", "incoming-window", ""),
            plain("NextOutgoingID", "next-outgoing-id", ""),
            plain("OutgoingWindow", "outgoing-window", ""),
            field("Handle", "handle", Kind::Id, ""),
            plain("DeliveryCount", "delivery-count", ""),
            plain("LinkCredit", "link-credit", ""),
            plain("Available", "available", ""),
            plain("Drain", "drain", "false"),
            plain("Echo", "echo", "false"),
            plain("Properties", "properties", ""),
        ],
    },
    Performative {
        descriptor: 0x14,
        recorded: "Transfer",
        name: "transfer",
        fields: &[
            field("Handle", "handle", Kind::Skipped, ""),
            field("DeliveryID", "delivery-id", Kind::Id, ""),
            field("DeliveryTag", "delivery-tag", Kind::Id, ""),
            plain("MessageFormat", "message-format", ""),
            plain("Settled", "settled", "false"),
            // Deliveries are compared whole.
            field("More", "more", Kind::Skipped, ""),
            plain("ReceiverSettleMode", "rcv-settle-mode", ""),
            field("State", "state", Kind::State, ""),
            plain("Resume", "resume", "false"),
            plain("Aborted", "aborted", "false"),
            plain("Batchable", "batchable", "false"),
        ],
    },
    Performative {
        descriptor: 0x15,
        recorded: "Disposition",
        name: "disposition",
        fields: &[
            plain("Role", "role", ""),
            // Both sides are compared delivery by delivery.
            field("First", "first", Kind::Skipped, ""),
            field("Last", "last", Kind::Skipped, ""),
            plain("Settled", "settled", "false"),
            field("State", "state", Kind::State, ""),
            plain("Batchable", "batchable", "false"),
        ],
    },
    Performative {
        descriptor: 0x16,
        recorded: "Detach",
        name: "detach",
        fields: &[
            field("Handle", "handle", Kind::Skipped, ""),
            plain("Closed", "closed", "false"),
            field("Error", "error", Kind::Nested(ERROR), ""),
        ],
    },
    Performative {
        descriptor: 0x17,
        recorded: "End",
        name: "end",
        fields: &[field("Error", "error", Kind::Nested(ERROR), "")],
    },
    Performative {
        descriptor: 0x18,
        recorded: "Close",
        name: "close",
        fields: &[field("Error", "error", Kind::Nested(ERROR), "")],
    },
];

/// The performative with this name in recordings.
pub(crate) fn recorded(name: &str) -> Option<&'static Performative> {
    PERFORMATIVES.iter().find(|performative| performative.recorded == name)
}

/// The performative with this descriptor.
pub(crate) fn described(descriptor: u64) -> Option<&'static Performative> {
    PERFORMATIVES.iter().find(|performative| u64::from(performative.descriptor) == descriptor)
}

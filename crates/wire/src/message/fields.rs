//! The names of event properties that are stored in a standard field of an AMQP message.

/// The fields of the properties section, in their order there (AMQP 1.0, part 3, section 3.2.4).
pub const FIELDS: [&str; 13] = [
    "message-id",
    "user-id",
    "to",
    "subject",
    "reply-to",
    "correlation-id",
    "content-type",
    "content-encoding",
    "absolute-expiry-time",
    "creation-time",
    "group-id",
    "group-sequence",
    "reply-to-group-id",
];

/// The index of a name in [`FIELDS`].
pub(super) fn field(name: &str) -> Option<usize> {
    FIELDS.iter().position(|field| *field == name)
}

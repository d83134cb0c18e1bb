//! Fuzz targets: for any input bytes, the properties that each target states must hold.
//!
//! A target is a function of bytes that panics when a property is violated. It is run in three ways:
//!
//! | command | what it does |
//! |---|---|
//! | `cargo test -p ephor-fuzz` | every file of `corpus/`, and a thousand mutations of them (`EPHOR_FUZZ_CASES`) |
//! | `./check fuzz` | random and mutated inputs on all cores: two minutes of CPU time for each parser, thirty for the conversations; `./check fuzz CASES`: this number of cases over all targets |
//! | `cargo +nightly fuzz run --fuzz-dir fuzz/fuzz_targets NAME fuzz/corpus/NAME` | inputs that reach new code, which are kept |
//!
//! | target | input | property |
//! |---|---|---|
//! | [`values`] | an AMQP value | a value that [`check`](ephor_amqp::check) accepts can be read completely; a value that was read can be written, no longer than before |
//! | [`sections`] | a message | its sections cover all of it, without gaps |
//! | [`frames`] | a sequence of frames | none is larger than allowed, none is smaller than its header |
//! | [`performatives`], [`sasl`] | the body of a frame | read, written and read again, it is the same |
//! | [`connection::server`], [`connection::client`] | a configuration and a peer's input | the result is the same in pieces and at once; all output is well-formed; it ends once |
//! | [`messages`] | a message | decoded, encoded and decoded again, it is the same; the lenient decoder never returns less |
//! | [`batches`] | a batch | every event lies in it; the fast key lookup finds the key |
//! | [`selectors`] | a filter set, or text | a parsed selector is the same when it is written and parsed again |
//! | [`addresses`] | text | likewise; a scope covers itself |
//! | [`secrets`] | a token, a connection string, or a list of keys | no token without a valid signature is accepted; no secret is shown |
//! | [`current_readers`] | an epoch and two names | whatever a reader calls itself, a client reads its epoch from the hub's text, or nothing |
//! | [`requests`] | a request, or a response | a parsed request can be answered, and written again |
//! | [`deliveries`] | a message | a client reads the annotations that the hub added |
//! | [`sqlite_rows`] | values in the columns of a SQLite store | every call succeeds or returns an error; one bad row hides no other |
//! | [`blobs`] | a blob of a container, ours or another SDK's | read as ours, written and read again, it is the same |
//! | [`exports`] | a file of checkpoints, or the text of a record | likewise |
//! | [`names`] | text | a name is written as it is read, on one line |
//! | [`store_urls`], [`hub_urls`] | text | no password is shown, nor repeated by an error |
//! | [`configs`] | a configuration file, ours or the emulator's | a parsed configuration is valid; an error names a line of the file |
//! | [`catalogs`] | the `hub.json` of a hub | it is parsed, or the hub is reported as broken, left unchanged, and does not prevent others from being served |
//! | [`gateway`] | a peer's input | the gateway ends the conversation, and serves all other clients |
//! | [`logs`] | the files of a hub | they are opened or refused, read to their end, written to and opened again |
//! | [`stored_messages`] | a message in a log | a message that a hub accepts can be decoded in every section; delivered messages are valid, whatever is stored |
//! | [`producers`] | faults of an idempotent producer, its connections and the disk | acknowledged events are stored, once |
//!
//! **To add a target**: a function here with its line in [`TARGETS`], its seeds in `tests/seeds`, a file and
//! a `[[bin]]` in `fuzz_targets`, the entry points of cargo-fuzz. A test reports what is missing.

pub mod addresses;
pub mod batches;
pub mod blobs;
pub mod catalogs;
pub mod configs;
pub mod connection;
pub mod corpus;
pub mod current_readers;
pub mod deliveries;
pub mod exports;
pub mod frames;
pub mod gateway;
pub mod hub_urls;
pub mod logs;
pub mod messages;
pub mod mutate;
pub mod names;
pub mod performatives;
pub mod producers;
pub mod requests;
pub mod sasl;
pub mod secrets;
pub mod sections;
pub mod selectors;
pub mod sqlite_rows;
pub mod store_urls;
pub mod stored_messages;
pub mod values;

/// A function of bytes that panics when a property is violated.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, which is also the name of its folder in the corpus.
    pub name: &'static str,
    /// Runs one input.
    pub run: fn(&[u8]),
    /// Its share of the cases, relative to the other targets.
    weight: u64,
}

/// The weight of a conversation, relative to a parser.
const CONVERSATION: u64 = 4;

impl Target {
    const fn parser(name: &'static str, run: fn(&[u8])) -> Self {
        Self { name, run, weight: 1 }
    }

    /// Conversations reach most code, and are run most often.
    const fn conversation(name: &'static str, run: fn(&[u8])) -> Self {
        Self { name, run, weight: CONVERSATION }
    }

    /// True if it runs a whole conversation, and not one parser.
    pub fn is_conversation(&self) -> bool {
        self.weight == CONVERSATION
    }
}

/// The target of a case, as an index into `targets`, which must not be empty.
pub fn turn(targets: &[Target], case: u64) -> usize {
    let mut left = case % targets.iter().map(|target| target.weight).sum::<u64>();
    let mut index = 0;
    while left >= targets[index].weight {
        left -= targets[index].weight;
        index += 1;
    }
    index
}

/// All targets.
pub const TARGETS: [Target; 27] = [
    Target::parser("values", values::run),
    Target::parser("sections", sections::run),
    Target::parser("frames", frames::run),
    Target::parser("performatives", performatives::run),
    Target::parser("sasl", sasl::run),
    Target::conversation("server", connection::server),
    Target::conversation("client", connection::client),
    Target::parser("messages", messages::run),
    Target::parser("batches", batches::run),
    Target::parser("selectors", selectors::run),
    Target::parser("addresses", addresses::run),
    Target::parser("secrets", secrets::run),
    Target::parser("current_readers", current_readers::run),
    Target::parser("requests", requests::run),
    Target::parser("deliveries", deliveries::run),
    Target::parser("rows", sqlite_rows::run),
    Target::parser("blobs", blobs::run),
    Target::parser("exports", exports::run),
    Target::parser("names", names::run),
    Target::parser("store_urls", store_urls::run),
    Target::parser("hub_urls", hub_urls::run),
    Target::parser("configs", configs::run),
    Target::parser("catalogs", catalogs::run),
    Target::conversation("gateway", gateway::run),
    Target::parser("logs", logs::run),
    Target::parser("stored", stored_messages::run),
    // Each one waits for a disk, even if only one in memory, so it has the weight of a parser.
    Target::parser("producers", producers::run),
];

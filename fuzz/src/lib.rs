//! Whatever bytes come, what is promised of them holds.
//!
//! A target is a function of bytes that panics when a promise is broken. It is played in three ways:
//!
//! | by | what it does |
//! |---|---|
//! | `cargo test -p ephor-fuzz` | every file of `corpus/`, and a thousand mutations of them (`EPHOR_FUZZ_CASES`) |
//! | `./check fuzz` | random and mutated inputs on all cores: two minutes of CPU time for each parser, thirty for the conversations; `./check fuzz CASES` so many over all targets |
//! | `cargo +nightly fuzz run --fuzz-dir fuzz/targets NAME fuzz/corpus/NAME` | inputs that reach new code, which are kept |
//!
//! | target | input | promise |
//! |---|---|---|
//! | [`values`] | an AMQP value | what [`check`](ephor_amqp::check) accepts can be read to its last leaf; what is read can be written, no longer than before |
//! | [`sections`] | a message | its sections are all of it, in a row |
//! | [`frames`] | a row of frames | none is larger than allowed, none is smaller than its header |
//! | [`performatives`], [`sasl`] | the body of a frame | what is read, written and read again is the same |
//! | [`connection::server`], [`connection::client`] | a setting and what a peer says | the same in pieces and at once; every answer is well-formed; it ends once |
//! | [`messages`] | a message | what is decoded, encoded and decoded again is the same; the lenient reader never says less |
//! | [`batches`] | a batch | every event lies in it; the key found by a short cut is the key |
//! | [`selectors`] | a filter set, or text | what is understood says the same when it is written |
//! | [`addresses`] | text | likewise; a scope covers itself |
//! | [`secrets`] | a token, a connection string, or a list of keys | nobody is let in by what nobody signed; no secret is shown |
//! | [`holders`] | an epoch and two names | whatever a reader calls itself, a client reads its epoch from the hub's sentence, or nothing |
//! | [`requests`] | a request, or a response | what is understood can be answered and asked again |
//! | [`deliveries`] | a message | what a hub says of an event is what a client reads |
//! | [`rows`] | values in the columns of a SQLite store | every call answers or says what is wrong; one bad row hides no other |
//! | [`blobs`] | a blob of a container, ours or another SDK's | what is read as ours, written and read again is the same |
//! | [`exports`] | a file of checkpoints, or the text of a record | likewise |
//! | [`names`] | text | a name is written as it is read, on one line |
//! | [`store_urls`] | text | no password is shown, nor repeated by a refusal |
//! | [`configs`] | a configuration file, ours or the emulator's | what is read can be used; what is refused is refused with a line of the file |
//! | [`catalogs`] | the `hub.json` of a hub | it is understood, or the hub is called broken, left as it is, and keeps nobody from being served |
//! | [`gateway`] | what a peer says | the gateway ends the conversation, and serves everybody else |
//! | [`logs`] | the files of a hub | they are opened or refused, read to their end, written to and opened again |
//! | [`stored`] | a message in a log | what a hub takes can be decoded in every section; what it delivers is valid, whatever is stored |
//! | [`producers`] | what happens to a producer that numbers its events, its connections and the disk | what is acknowledged is stored, once |
//!
//! **To add a target**: a function here with its line in [`TARGETS`], its seeds in `tests/seeds`, a file and a `[[bin]]` in
//! `targets`. A test says what is missing.

pub mod addresses;
pub mod batches;
pub mod blobs;
pub mod catalogs;
pub mod configs;
pub mod connection;
pub mod corpus;
pub mod deliveries;
pub mod exports;
pub mod frames;
pub mod gateway;
pub mod holders;
pub mod logs;
pub mod messages;
pub mod mutate;
pub mod names;
pub mod performatives;
pub mod producers;
pub mod requests;
pub mod rows;
pub mod sasl;
pub mod secrets;
pub mod sections;
pub mod selectors;
pub mod store_urls;
pub mod stored;
pub mod values;

/// A function of bytes that panics when a promise is broken.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// What it is called, as its folder in the corpus is.
    pub name: &'static str,
    /// Plays one input.
    pub run: fn(&[u8]),
    /// How often its turn comes.
    weight: u64,
}

/// How often a conversation has its turn while a parser has one.
const CONVERSATION: u64 = 4;

impl Target {
    const fn parser(name: &'static str, run: fn(&[u8])) -> Self {
        Self { name, run, weight: 1 }
    }

    /// Conversations get to most places, and are played most.
    const fn conversation(name: &'static str, run: fn(&[u8])) -> Self {
        Self { name, run, weight: CONVERSATION }
    }

    /// Whether it plays a whole conversation, and not one parser.
    pub fn is_conversation(&self) -> bool {
        self.weight == CONVERSATION
    }
}

/// Whose turn it is, as an index into `targets`, of which there is at least one.
pub fn turn(targets: &[Target], case: u64) -> usize {
    let mut left = case % targets.iter().map(|target| target.weight).sum::<u64>();
    let mut index = 0;
    while left >= targets[index].weight {
        left -= targets[index].weight;
        index += 1;
    }
    index
}

/// All of them.
pub const TARGETS: [Target; 26] = [
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
    Target::parser("holders", holders::run),
    Target::parser("requests", requests::run),
    Target::parser("deliveries", deliveries::run),
    Target::parser("rows", rows::run),
    Target::parser("blobs", blobs::run),
    Target::parser("exports", exports::run),
    Target::parser("names", names::run),
    Target::parser("store_urls", store_urls::run),
    Target::parser("configs", configs::run),
    Target::parser("catalogs", catalogs::run),
    Target::conversation("gateway", gateway::run),
    Target::parser("logs", logs::run),
    Target::parser("stored", stored::run),
    // Each waits for a disk, if only one in memory.
    Target::parser("producers", producers::run),
];

//! Compares an answer of Azure Event Hubs with Ephor's, and maps the service's offsets and times to
//! Ephor's.

use std::collections::BTreeMap;

use ephor_core::time::Timestamp;

use crate::fields::{self, Fields};
use crate::initial_state::Place;
use crate::message::{Marks, flatten};
use crate::recording::Frame;
use crate::schema::Performative;

/// The value of a field that is not there.
const ABSENT: &str = "absent";

/// Fields of a link's properties whose values identify a client, a machine or a request: only their presence counts.
const IDENTIFYING: [&str; 6] =
    ["app-id", "client-auth-id", "client-id", "client-ip", "com.microsoft:tracking-id", "auth-type"];

/// Positions of the service and ours that stand for the same event.
#[derive(Clone, Debug)]
pub(crate) struct Pairs {
    offsets: BTreeMap<(String, String), String>,
    times: BTreeMap<i64, i64>,
    /// The difference between our clock and the recorded one, in milliseconds.
    clock: i64,
}

impl Pairs {
    /// No pairs yet; both clocks start together.
    pub(crate) fn starting(recorded: i128, ours: Timestamp) -> Self {
        let recorded = i64::try_from(recorded / 1_000_000).unwrap_or(0);
        Self { offsets: BTreeMap::new(), times: BTreeMap::new(), clock: ours.0 - recorded }
    }

    /// Learns from two messages that stand for each other.
    pub(crate) fn learn(&mut self, address: &str, service: &Marks, ours: &Marks) {
        let partition = partition(address);
        for ((path, theirs), (_, mine)) in paired(&service.offsets, &ours.offsets) {
            if path.ends_with("offset") {
                self.offsets.insert((partition.clone(), theirs.clone()), mine.clone());
            }
        }
        for ((_, theirs), (_, mine)) in paired(&service.times, &ours.times) {
            self.times.insert(*theirs, *mine);
        }
    }

    /// The filter of a receiver, with our position in place of the service's.
    pub(crate) fn translate(&self, address: &str, selector: &str) -> String {
        let Some((name, rest)) = selector.split_once('\'') else { return selector.to_owned() };
        let value = rest.trim_end_matches('\'');
        let ours = if name.contains("enqueued-time") {
            value.parse().ok().map(|time: i64| {
                self.times.get(&time).copied().unwrap_or(time.saturating_add(self.clock)).to_string()
            })
        } else if name.contains("offset") {
            self.offsets.get(&(partition(address), value.to_owned())).cloned()
        } else {
            None
        };
        format!("{name}'{}'", ours.as_deref().unwrap_or(value))
    }
}

fn partition(address: &str) -> String {
    Place::of(address).and_then(|place| place.partition).unwrap_or_default()
}

/// Items with the same path.
fn paired<'a, T>(
    service: &'a [(String, T)],
    ours: &'a [(String, T)],
) -> impl Iterator<Item = (&'a (String, T), &'a (String, T))> {
    service.iter().filter_map(|theirs| Some((theirs, ours.iter().find(|mine| mine.0 == theirs.0)?)))
}

/// The fields of an answer of the service, with those of its message.
pub(crate) fn service(performative: &Performative, frame: &Frame, message: &[u8]) -> (Fields, Marks) {
    let mut found = fields::of_recorded(performative, &frame.body);
    if message.is_empty() {
        return (found, Marks::default());
    }
    match flatten(message) {
        Ok((content, marks)) => {
            found.extend(content);
            (found, marks)
        }
        Err(error) => {
            found.insert("message".to_owned(), error.to_string());
            (found, Marks::default())
        }
    }
}

/// The fields that differ: the path, the service's value, ours.
pub(crate) fn compare(pairs: &Pairs, service: &Fields, ours: &Fields) -> Vec<(String, String, String)> {
    let mut different = Vec::new();
    let paths = service.keys().chain(ours.keys().filter(|path| !service.contains_key(*path)));
    for path in paths {
        let (theirs, mine) = (service.get(path), ours.get(path));
        let identifies =
            path.starts_with("properties.") && IDENTIFYING.iter().any(|name| path.ends_with(name));
        let same = match (theirs, mine) {
            (Some(_), Some(_)) if identifies => true,
            (Some(theirs), Some(mine)) if path.starts_with("source.filter") => {
                theirs == mine || pairs.translates(theirs, mine)
            }
            (theirs, mine) => theirs == mine,
        };
        if !same {
            let shown = |value: Option<&String>| value.map_or_else(|| ABSENT.to_owned(), Clone::clone);
            different.push((path.clone(), shown(theirs), shown(mine)));
        }
    }
    different
}

impl Pairs {
    /// True if two filters differ in their positions alone, and that is how it was asked for.
    fn translates(&self, theirs: &str, mine: &str) -> bool {
        let name = |selector: &str| selector.split_once('\'').map(|(name, _)| name.to_owned());
        let by_position = theirs.contains("x-opt-offset") || theirs.contains("x-opt-enqueued-time");
        by_position && !theirs.contains("-1") && !theirs.contains('@') && name(theirs) == name(mine)
    }
}

/// A short text for an answer of which one side has none.
pub(crate) fn summary(performative: &Performative, fields: &Fields) -> String {
    let telling = ["error.condition", "error.description", "link-credit", "echo", "state"];
    let mut text = performative.name.to_owned();
    for name in telling {
        if let Some(value) = fields.get(name) {
            text.push_str(&format!(" {name} {value}"));
        }
    }
    text
}

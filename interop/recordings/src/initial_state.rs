//! Derives the initial state of a test from its recordings: hubs, partitions, consumer groups, which tokens
//! were valid, and the partition that the service chose for events without a key.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;

use crate::client::{Signature, payload};
use crate::message::{content, flatten};
use crate::recording::{Direction, Frame, Group};

/// The partitions of a hub about which the recordings say nothing.
const DEFAULT_PARTITIONS: u32 = 2;
/// The message format of a batch of events.
const BATCH: u64 = 0x8001_3700;

/// A hub, a group and a partition that an address names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// The hub.
    pub(crate) hub: String,
    /// The consumer group.
    pub(crate) group: Option<String>,
    /// The partition.
    pub(crate) partition: Option<String>,
}

impl Place {
    /// Parses `scheme://host/hub[/ConsumerGroups/group][/Partitions/n]`; `None` for `$cbs` and `$management`.
    pub(crate) fn of(address: &str) -> Option<Self> {
        let path = match address.split_once("://") {
            Some((_, rest)) => rest.split_once('/')?.1,
            None => address,
        };
        if path.is_empty() || path.starts_with('$') || path.ends_with("$management") {
            return None;
        }
        let (rest, partition) = split(path, "/partitions/");
        let (hub, group) = split(rest, "/consumergroups/");
        Some(Self { hub: hub.to_owned(), group, partition })
    }
}

/// The texts before and after a word, which is written in any case.
fn split<'a>(path: &'a str, word: &str) -> (&'a str, Option<String>) {
    match path.to_ascii_lowercase().find(word) {
        Some(at) => (&path[..at], Some(path[at + word.len()..].to_owned())),
        None => (path, None),
    }
}

/// A hub that has to exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hub {
    /// Its number of partitions.
    pub(crate) partitions: u32,
    /// Its consumer groups beside `$Default`.
    pub(crate) groups: BTreeSet<String>,
}

/// A frame of a group: the index of its conversation, and its index there.
pub(crate) type Index = (usize, usize);

/// What has to be prepared for a group, and chosen while it is played.
#[derive(Clone, Debug, Default)]
pub(crate) struct Preparation {
    /// The hubs that have to exist, by name.
    pub(crate) hubs: BTreeMap<String, Hub>,
    /// How the refused tokens have to be signed. The service names a request only if it does not know the key's name.
    pub(crate) signatures: BTreeMap<Index, Signature>,
    /// Conversations with a namespace that the service does not know.
    pub(crate) elsewhere: BTreeSet<usize>,
    /// The partitions to which the service sent events without a partition and a key, by the first frame of each.
    pub(crate) partitions: BTreeMap<Index, String>,
}

/// Derives it.
pub(crate) fn prepare(group: &Group) -> Preparation {
    let mut prepared = Preparation::default();
    let mut unknown = BTreeSet::new();
    let mut counts = BTreeSet::new();
    for (conversation, recorded) in group.conversations.iter().enumerate() {
        let mut asked: Option<(Index, String)> = None;
        for (number, frame) in recorded.frames.iter().enumerate() {
            prepared.add(&frame.address);
            let name = frame.message["CBSData"]["ApplicationProperties"]["name"].as_str();
            if let Some(name) = name.filter(|_| frame.direction == Direction::Client) {
                prepared.add(name);
                asked = Some(((conversation, number), name.to_owned()));
            }
            if frame.direction != Direction::Service || frame.kind != "Transfer" {
                continue;
            }
            let answer = &frame.message["Message"]["ApplicationProperties"];
            match (answer["status-code"].as_u64(), asked.take().filter(|_| frame.address == "$cbs")) {
                (Some(401), Some((index, _))) => {
                    let named = says(answer, "TrackingId");
                    let signature = if named { Signature::UnknownName } else { Signature::WrongKey };
                    prepared.signatures.insert(index, signature);
                }
                (Some(404), Some(_)) if says(answer, "Namespace cannot be resolved") => {
                    prepared.elsewhere.insert(conversation);
                }
                (Some(404), Some((_, name))) => unknown.extend(Place::of(&name).map(|place| place.hub)),
                _ => {}
            }
            if frame.address == "$management"
                && let Ok((fields, _)) = flatten(&payload(frame))
            {
                let count = fields.get("body.value.partition_count").and_then(|count| count.split_once(' '));
                counts.extend(count.and_then(|(_, count)| count.parse::<u32>().ok()));
            }
        }
    }
    prepared.hubs.retain(|hub, _| !unknown.contains(hub));
    if let Some(count) = counts.last() {
        for hub in prepared.hubs.values_mut() {
            hub.partitions = hub.partitions.max(*count);
        }
    }
    prepared.partitions = chosen_partitions(group);
    prepared
}

fn says(answer: &Json, word: &str) -> bool {
    answer["status-description"].as_str().is_some_and(|text| text.contains(word))
}

impl Preparation {
    fn add(&mut self, address: &str) {
        let Some(place) = Place::of(address) else { return };
        let hub = self.hubs.entry(place.hub).or_default();
        hub.partitions = hub.partitions.max(DEFAULT_PARTITIONS);
        hub.groups.extend(place.group.filter(|group| !group.eq_ignore_ascii_case("$Default")));
    }
}

/// An event that a receiver got.
struct Delivered {
    partition: String,
    sequence: i64,
    time: i64,
    content: Vec<u8>,
    sent: bool,
}

/// Finds for each delivery without a partition and a key where its events were received.
fn chosen_partitions(group: &Group) -> BTreeMap<Index, String> {
    let mut delivered = deliveries(group);
    delivered.sort_by_key(|event| (event.time, event.sequence));
    let mut chosen = BTreeMap::new();
    for (index, fixed, events) in sends(group) {
        let mut partition = fixed.clone();
        for content in &events {
            let fits = |event: &&mut Delivered| {
                !event.sent
                    && event.content == *content
                    && partition.as_ref().is_none_or(|p| *p == event.partition)
            };
            if let Some(event) = delivered.iter_mut().find(fits) {
                event.sent = true;
                partition = Some(event.partition.clone());
            }
        }
        if let (None, Some(partition)) = (fixed, partition) {
            chosen.insert(index, partition);
        }
    }
    chosen
}

fn deliveries(group: &Group) -> Vec<Delivered> {
    let mut seen = BTreeSet::new();
    let mut delivered = Vec::new();
    for recorded in &group.conversations {
        for (_, frame, message) in whole(&recorded.frames, Direction::Service) {
            let Some(partition) = Place::of(&frame.address).and_then(|place| place.partition) else {
                continue;
            };
            let Ok((_, marks)) = flatten(&message) else { continue };
            let (Some(sequence), Some((_, time))) = (marks.sequence, marks.times.first()) else { continue };
            if seen.insert((partition.clone(), sequence)) {
                let content = content(&message);
                delivered.push(Delivered { partition, sequence, time: *time, content, sent: false });
            }
        }
    }
    delivered
}

/// All sends in the order of time: the index of the frame, the partition if the client chose it (empty if a key did),
/// and the content of each event.
fn sends(group: &Group) -> Vec<(Index, Option<String>, Vec<Vec<u8>>)> {
    let mut sends = Vec::new();
    for (conversation, recorded) in group.conversations.iter().enumerate() {
        for (number, frame, message) in whole(&recorded.frames, Direction::Client) {
            let Some(place) = Place::of(&frame.address) else { continue };
            let keyed = flatten(&message).is_ok_and(|(_, marks)| marks.key.is_some());
            // Keys are hashed as in the service; such an event is not looked for.
            if keyed {
                continue;
            }
            let events = match frame.body["MessageFormat"].as_u64() {
                Some(BATCH) => batch(&message).iter().map(|event| content(event)).collect(),
                _ => vec![content(&message)],
            };
            sends.push((frame.time, ((conversation, number), place.partition, events)));
        }
    }
    sends.sort_by_key(|(time, _)| *time);
    sends.into_iter().map(|(_, send)| send).collect()
}

/// The messages in a batch.
fn batch(message: &[u8]) -> Vec<Vec<u8>> {
    match ephor_amqp::Sections::scan(message) {
        Ok(sections) => sections.data(message).map(<[u8]>::to_vec).collect(),
        Err(_) => Vec::new(),
    }
}

/// The deliveries that one side sent: the index of their first frame, that frame, and the whole message.
pub(crate) fn whole(frames: &[Frame], direction: Direction) -> Vec<(usize, &Frame, Vec<u8>)> {
    let mut open: BTreeMap<&str, (usize, Vec<u8>)> = BTreeMap::new();
    let mut found = Vec::new();
    for (number, frame) in frames.iter().enumerate() {
        if frame.kind != "Transfer" || frame.direction != direction || frame.body.is_null() {
            continue;
        }
        let entry = open.entry(frame.link.as_str()).or_insert_with(|| (number, Vec::new()));
        entry.1.extend_from_slice(&payload(frame));
        if frame.body["More"] != Json::Bool(true)
            && let Some((first, message)) = open.remove(frame.link.as_str())
        {
            found.push((first, &frames[first], message));
        }
    }
    found
}

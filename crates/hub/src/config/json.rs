//! Reads JSON with the path of each value, so that an error can name `hubs[2].partitions` and the line.
//!
//! A field that is given twice is refused; other readers silently take the last one.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use super::invalid::{InvalidConfig, Place, Step};
use super::quantity::{parse_duration, parse_size};

/// One JSON value; fields in the order of the file.
#[derive(Debug)]
pub(super) enum Node {
    Null,
    Truth(bool),
    /// A whole number that is not negative.
    Count(u64),
    OtherNumber(String),
    Text(String),
    List(Vec<Node>),
    Object(Vec<(String, Node)>),
}

impl fmt::Display for Node {
    /// Writes the value as errors show it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Truth(truth) => truth.fmt(f),
            Self::Count(number) => number.fmt(f),
            Self::OtherNumber(number) => f.write_str(number),
            Self::Text(text) => write!(f, "the text {:?}", text.chars().take(80).collect::<String>()),
            Self::List(_) => f.write_str("a list"),
            Self::Object(_) => f.write_str("an object"),
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_unit<E: Error>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }
    fn visit_bool<E: Error>(self, truth: bool) -> Result<Node, E> {
        Ok(Node::Truth(truth))
    }
    fn visit_u64<E: Error>(self, number: u64) -> Result<Node, E> {
        Ok(Node::Count(number))
    }
    fn visit_i64<E: Error>(self, number: i64) -> Result<Node, E> {
        Ok(Node::OtherNumber(number.to_string()))
    }
    fn visit_f64<E: Error>(self, number: f64) -> Result<Node, E> {
        Ok(Node::OtherNumber(number.to_string()))
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Text(text.to_owned()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(node) = access.next_element()? {
            list.push(node);
        }
        Ok(Node::List(list))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut fields: Vec<(String, Node)> = Vec::new();
        while let Some(name) = access.next_key::<String>()? {
            if fields.iter().any(|(earlier, _)| *earlier == name) {
                return Err(A::Error::custom(format!("the field {name:?} is given twice; leave one out")));
            }
            fields.push((name, access.next_value()?));
        }
        Ok(Node::Object(fields))
    }
}

/// A value and its place.
#[derive(Clone, Debug)]
pub(super) struct Value<'a> {
    pub(super) node: &'a Node,
    pub(super) place: Place,
}

impl<'a> Value<'a> {
    pub(super) fn top(node: &'a Node) -> Self {
        Self { node, place: Place::top() }
    }

    pub(super) fn refuse(&self, problem: impl Into<String>) -> InvalidConfig {
        InvalidConfig::new(self.place.clone(), problem)
    }

    fn expected(&self, what: &str) -> InvalidConfig {
        self.refuse(format!("expected {what}, found {}", self.node))
    }

    pub(super) fn object(&self) -> Result<Object<'a>, InvalidConfig> {
        match self.node {
            Node::Object(fields) => Ok(Object { fields, place: self.place.clone() }),
            _ => Err(self.expected("an object, in braces")),
        }
    }

    pub(super) fn list(&self) -> Result<Vec<Value<'a>>, InvalidConfig> {
        let Node::List(nodes) = self.node else { return Err(self.expected("a list, in brackets")) };
        let value = |(index, node)| Value { node, place: self.place.index(index) };
        Ok(nodes.iter().enumerate().map(value).collect())
    }

    pub(super) fn text(&self) -> Result<&'a str, InvalidConfig> {
        match self.node {
            Node::Text(text) => Ok(text),
            _ => Err(self.expected("a text, in quotes")),
        }
    }

    /// Parses a text.
    pub(super) fn parse<T: FromStr<Err: fmt::Display>>(&self) -> Result<T, InvalidConfig> {
        self.text()?.parse().map_err(|problem: T::Err| self.refuse(problem.to_string()))
    }

    pub(super) fn count(&self) -> Result<u64, InvalidConfig> {
        match self.node {
            Node::Count(number) => Ok(*number),
            _ => Err(self.expected("a whole number")),
        }
    }

    pub(super) fn size(&self) -> Result<u64, InvalidConfig> {
        match self.node {
            Node::Count(bytes) => Ok(*bytes),
            Node::Text(text) => parse_size(text).map_err(|problem| self.refuse(problem.to_string())),
            _ => Err(self.expected("a size such as \"64MiB\", or a whole number of bytes")),
        }
    }

    pub(super) fn duration(&self) -> Result<Duration, InvalidConfig> {
        match self.node {
            Node::Count(seconds) => Ok(Duration::from_secs(*seconds)),
            Node::Text(text) => parse_duration(text).map_err(|problem| self.refuse(problem.to_string())),
            _ => Err(self.expected("a duration such as \"7d\", or a whole number of seconds")),
        }
    }

    /// `None` for `null`.
    pub(super) fn unless_null(self) -> Option<Self> {
        (!matches!(self.node, Node::Null)).then_some(self)
    }
}

/// The fields of an object.
#[derive(Debug)]
pub(super) struct Object<'a> {
    fields: &'a [(String, Node)],
    pub(super) place: Place,
}

impl<'a> Object<'a> {
    pub(super) fn all(&self) -> impl Iterator<Item = (&'a str, Value<'a>)> {
        self.fields.iter().map(|(name, node)| (name.as_str(), Value { node, place: self.place.field(name) }))
    }

    pub(super) fn get(&self, name: &str) -> Option<Value<'a>> {
        self.all().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Refuses unknown fields.
    pub(super) fn only(self, known: &[&str]) -> Result<Self, InvalidConfig> {
        if let Some((name, value)) = self.all().find(|(name, _)| !known.contains(name)) {
            return Err(
                value.refuse(format!("there is no field {name:?}; the fields are {}", known.join(", ")))
            );
        }
        Ok(self)
    }
}

/// Finds the line and column of a value in a JSON text; of the object that lacks it, if it is missing.
pub(super) fn locate(text: &str, place: &Place) -> Option<(usize, usize)> {
    // serde_json reports positions only in errors. So this deserializer fails on purpose at the wanted value.
    let mut reader = serde_json::Deserializer::from_str(text);
    let found = PositionFinder(place.steps()).deserialize(&mut reader).err()?;
    Some((found.line(), found.column()))
}

struct PositionFinder<'a>(&'a [Step]);

impl<'de> DeserializeSeed<'de> for PositionFinder<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for PositionFinder<'_> {
    type Value = ();

    /// Every scalar is unexpected: the error has its position.
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("something else")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        if let Some((Step::Index(index), rest)) = self.0.split_first() {
            for _ in 0..*index {
                access.next_element::<IgnoredAny>()?;
            }
            access.next_element_seed(PositionFinder(rest))?;
        }
        Err(A::Error::custom("here"))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        if let Some((Step::Field(name), rest)) = self.0.split_first() {
            while let Some(found) = access.next_key::<String>()? {
                match found == *name {
                    true => access.next_value_seed(PositionFinder(rest))?,
                    false => access.next_value::<IgnoredAny>().map(|_| ())?,
                }
            }
        }
        Err(A::Error::custom("here"))
    }
}

//! The content of a page for the browser: texts, attributes and lists, each by the id of its element.
//!
//! The browser has no logic of its own. It puts the texts in elements by `id`, and makes the rows of a list
//! from a template that the page carries; inside a row, places are named by `data-part`.

use std::collections::BTreeMap;

use serde::Serialize;

/// Attributes by name; one without a value is taken away.
type Attributes = BTreeMap<&'static str, Option<String>>;

/// All that changes on a page.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Shown {
    texts: BTreeMap<String, String>,
    attributes: BTreeMap<String, Attributes>,
    lists: BTreeMap<String, Vec<Row>>,
}

/// One row of a list, and the rows inside it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Row {
    key: String,
    attributes: Attributes,
    texts: BTreeMap<&'static str, String>,
    parts: BTreeMap<&'static str, Attributes>,
    rows: Vec<Row>,
}

impl Shown {
    /// The element of this id says so.
    pub(super) fn say(&mut self, id: impl Into<String>, text: impl Into<String>) {
        self.texts.insert(id.into(), text.into());
    }

    /// The element of this id has this attribute, or has it no more.
    pub(super) fn mark(&mut self, id: impl Into<String>, name: &'static str, value: Option<String>) {
        self.attributes.entry(id.into()).or_default().insert(name, value);
    }

    /// The element of this id has these rows.
    pub(super) fn list(&mut self, id: impl Into<String>, rows: Vec<Row>) {
        self.lists.insert(id.into(), rows);
    }

    /// Returns the text of the element with this id.
    pub(super) fn text(&self, id: &str) -> &str {
        self.texts.get(id).map_or("", String::as_str)
    }

    /// An attribute of the element of this id.
    pub(super) fn attribute(&self, id: &str, name: &str) -> Option<&str> {
        self.attributes.get(id)?.get(name)?.as_deref()
    }

    /// The rows of the element of this id.
    pub(super) fn rows(&self, id: &str) -> &[Row] {
        self.lists.get(id).map_or(&[], Vec::as_slice)
    }

    /// As it travels.
    pub(super) fn to_json(&self) -> String {
        // Maps with keys of text always have a JSON form.
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl Row {
    /// An empty row. The key is what it is known by when it changes or moves.
    pub(super) fn new(key: impl Into<String>) -> Self {
        Self { key: key.into(), ..Self::default() }
    }

    /// The part of this name says so.
    pub(super) fn say(mut self, part: &'static str, text: impl Into<String>) -> Self {
        self.texts.insert(part, text.into());
        self
    }

    /// The row itself has this attribute.
    pub(super) fn mark(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.attributes.insert(name, Some(value.into()));
        self
    }

    /// The part of this name has this attribute, or has it no more.
    pub(super) fn mark_part(mut self, part: &'static str, name: &'static str, value: Option<String>) -> Self {
        self.parts.entry(part).or_default().insert(name, value);
        self
    }

    /// The rows inside it.
    pub(super) fn with_rows(mut self, rows: Vec<Self>) -> Self {
        self.rows = rows;
        self
    }

    /// Its key.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// Returns the text of a part.
    pub(super) fn text(&self, part: &str) -> &str {
        self.texts.get(part).map_or("", String::as_str)
    }

    /// An attribute of the row.
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name)?.as_deref()
    }

    /// An attribute of a part.
    pub(super) fn part(&self, part: &str, name: &str) -> Option<&str> {
        self.parts.get(part)?.get(name)?.as_deref()
    }

    /// The rows inside it.
    pub(super) fn rows(&self) -> &[Self] {
        &self.rows
    }
}

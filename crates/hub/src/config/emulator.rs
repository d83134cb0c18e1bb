//! Reads the `Config.json` of the Event Hubs emulator, so that existing compose files work unchanged.
//!
//! ```text
//! { "UserConfig": {
//!     "NamespaceConfig": [ { "Type": "EventHub", "Name": "emulatorNs1", "Entities": [
//!         { "Name": "homes", "PartitionCount": "4", "ConsumerGroups": [ { "Name": "alarms" } ] } ] } ],
//!     "LoggingConfig": { "Type": "File" } } }
//! ```
//!
//! Keys are compared without case. `PartitionCount` is a number or a text. Unknown fields are noted and ignored. The
//! emulator's limits (10 hubs, 32 partitions) do not apply.

use ephor_wire::address::same_name;
use std::collections::BTreeMap;

use ephor_core::ids::{ConsumerGroup, DEFAULT_CONSUMER_GROUP};

use super::NamespaceConfig;
use super::file::{ConfigFile, missing_name, new_hub, partitions};
use super::hub::HubConfig;
use super::invalid::{InvalidConfig, Place};
use super::json::{Node, Object, Value};

const ROOT: &str = "UserConfig";
const NAMESPACE_TYPE: &str = "EventHub";

/// Whether this is an emulator's file.
pub(super) fn recognises(top: &Value<'_>) -> bool {
    top.object().is_ok_and(|fields| find(&fields, ROOT).is_some())
}

pub(super) fn read(top: &Value<'_>) -> Result<ConfigFile, InvalidConfig> {
    let mut reader = Reader::default();
    let config = reader.top(top)?;
    config.validate().map_err(|error| match reader.places.get(&error.place) {
        Some(place) => InvalidConfig::new(place.clone(), error.problem),
        None => error,
    })?;
    Ok(ConfigFile { config, notes: reader.notes })
}

#[derive(Default)]
struct Reader {
    notes: Vec<String>,
    /// The places in this file of the values that `validate` calls by our names.
    places: BTreeMap<Place, Place>,
}

impl Reader {
    fn top(&mut self, top: &Value<'_>) -> Result<NamespaceConfig, InvalidConfig> {
        let fields = self.fields(top, &[ROOT])?;
        let Some(user) = find(&fields, ROOT) else { return Err(top.refuse("there is no UserConfig")) };
        let fields = self.fields(&user, &["NamespaceConfig", "LoggingConfig"])?;
        if let Some(logging) = find(&fields, "LoggingConfig") {
            self.fields(&logging, &["Type"])?;
        }
        let namespace = self.namespace(&user, &fields)?;
        let fields = self.fields(&namespace, &["Type", "Name", "Entities"])?;
        let mut config = NamespaceConfig::default();
        if let Some(name) = find(&fields, "Name") {
            config.name = name.parse()?;
        }
        for hub in list(&fields, "Entities")? {
            let place = Place::top().field("hubs").index(config.hubs.len());
            config.hubs.push(self.hub(&hub, &place)?);
        }
        Ok(config)
    }

    /// The one namespace of event hubs.
    fn namespace<'a>(&mut self, user: &Value<'a>, fields: &Object<'a>) -> Result<Value<'a>, InvalidConfig> {
        let (mut ours, mut others) = (Vec::new(), Vec::new());
        for namespace in list(fields, "NamespaceConfig")? {
            // The emulator accepts a namespace without a type, too.
            match find(&namespace.object()?, "Type").map(|kind| kind.text()).transpose()? {
                Some(kind) if !same_name(kind, NAMESPACE_TYPE) => others.push((namespace.place, kind)),
                _ => ours.push(namespace),
            }
        }
        let place = find(fields, "NamespaceConfig")
            .map_or_else(|| user.place.field("NamespaceConfig"), |it| it.place);
        for (place, kind) in others {
            self.notes.push(format!("{place} is of Type {kind:?} and was ignored"));
        }
        let count = ours.len();
        match ours.pop() {
            Some(only) if count == 1 => Ok(only),
            Some(_) => Err(InvalidConfig::new(
                place,
                format!(
                    "{count} namespaces are of Type {NAMESPACE_TYPE}, and only one can be served; leave one"
                ),
            )),
            None => Err(InvalidConfig::new(
                place,
                format!("no namespace is of Type {NAMESPACE_TYPE}; write one, with its hubs as Entities"),
            )),
        }
    }

    fn hub(&mut self, hub: &Value<'_>, ours: &Place) -> Result<HubConfig, InvalidConfig> {
        let fields = self.fields(hub, &["Name", "PartitionCount", "ConsumerGroups"])?;
        let name = find(&fields, "Name").ok_or_else(|| missing_name(&hub.place, "Name"))?;
        let mut config = new_hub(&name)?;
        self.places.insert(ours.field("name"), name.place);
        if let Some(count) = find(&fields, "PartitionCount") {
            config.partitions = partitions(&count, number(&count)?)?;
        }
        for group in list(&fields, "ConsumerGroups")? {
            let fields = self.fields(&group, &["Name"])?;
            let Some(name) = find(&fields, "Name") else {
                return Err(InvalidConfig::new(
                    group.place.field("Name"),
                    "this consumer group has no name; every group needs one",
                ));
            };
            let group: ConsumerGroup = name.parse()?;
            if same_name(group.as_str(), DEFAULT_CONSUMER_GROUP) {
                self.notes.push(format!("{} is {group:?}, which always exists", name.place));
                continue;
            }
            self.places.insert(ours.field("groups").index(config.groups.len()), name.place);
            config.groups.push(group);
        }
        Ok(config)
    }

    /// Returns the fields of an object. Unknown ones are noted.
    fn fields<'a>(&mut self, value: &Value<'a>, known: &[&str]) -> Result<Object<'a>, InvalidConfig> {
        let fields = value.object()?;
        for (name, value) in fields.all() {
            if !known.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                self.notes.push(format!("{} is unknown and was ignored", value.place));
            }
        }
        Ok(fields)
    }
}

/// Finds a field by its name, compared without case. `null` counts as missing.
fn find<'a>(fields: &Object<'a>, name: &str) -> Option<Value<'a>> {
    fields
        .all()
        .find(|(known, _)| known.eq_ignore_ascii_case(name))
        .and_then(|(_, value)| value.unless_null())
}

fn list<'a>(fields: &Object<'a>, name: &str) -> Result<Vec<Value<'a>>, InvalidConfig> {
    find(fields, name).map_or_else(|| Ok(Vec::new()), |value| value.list())
}

/// Reads a number: older versions of the emulator write a text, newer ones a number.
fn number(value: &Value<'_>) -> Result<u64, InvalidConfig> {
    match value.node {
        Node::Text(text) => text.trim().parse().map_err(|_| {
            value.refuse(format!("expected a whole number, found {}; write one from 1 on", value.node))
        }),
        _ => value.count(),
    }
}

//! The hubs that `ephor dev` serves: takes them from the options, a file or a default, creates those that are
//! missing with their consumer groups, and adds partitions if that is allowed.

use std::cmp::Ordering;
use std::fmt::Display;

use ephor_core::BoxError;
use ephor_core::ids::{DEFAULT_CONSUMER_GROUP, InvalidName};
use ephor_hub::config::{ConfigFile, DEFAULT_PARTITIONS};
use ephor_hub::{Durability, HubConfig, HubError, LocalNamespace, NamespaceConfig};

use crate::arguments::Dev;
use crate::table::counted;

/// The hub that is created if none is asked for.
const FIRST_HUB: &str = "homes";

/// The configuration that the options ask for.
pub(super) struct Configuration {
    /// Everything except the hubs.
    pub(super) namespace: NamespaceConfig,
    pub(super) hubs: Vec<Wanted>,
    /// Messages for the user.
    pub(super) notes: Vec<String>,
}

/// A hub that has to exist.
pub(super) struct Wanted {
    hub: HubConfig,
    /// True if its number of partitions was given explicitly.
    counted: bool,
    /// True if its retention was given explicitly; an option cannot do that.
    retained: bool,
}

pub(super) fn configuration(options: &Dev) -> Result<Configuration, BoxError> {
    let (mut config, notes) = match &options.config {
        Some(file) => {
            let ConfigFile { config, notes } = NamespaceConfig::from_file(file)?;
            (config, notes)
        }
        None => (NamespaceConfig::default(), Vec::new()),
    };
    let in_file = config.hubs.len();
    if options.memory {
        config.durability = Durability::Memory;
    } else if options.page_cache {
        config.durability = Durability::PageCache;
    }
    for hub in &options.hubs {
        config.hubs.push(hub_of(hub)?);
    }
    config.validate()?;
    check_groups(&config, options)?;
    // A file gives every hub a number, even if it is the default; an option may give none.
    let counted = |index: usize| index.checked_sub(in_file).is_none_or(|at| options.hubs[at].contains(':'));
    let hubs = std::mem::take(&mut config.hubs).into_iter().enumerate();
    let hubs =
        hubs.map(|(index, hub)| Wanted { hub, counted: counted(index), retained: index < in_file }).collect();
    Ok(Configuration { namespace: config, hubs, notes })
}

/// Checks `--group` as far as possible before the namespace is opened.
fn check_groups(config: &NamespaceConfig, options: &Dev) -> Result<(), BoxError> {
    // Existing hubs are known only after the folder is opened.
    let all_known = options.memory || !options.data.exists();
    for given in &options.groups {
        let (hub, group) = hub_and_group(given)?;
        let wrong = |error: &dyn Display| format!("--group {given}: {error}");
        let mut asked = HubConfig::new(hub, 1).map_err(|error| wrong(&error))?;
        if !group.eq_ignore_ascii_case(DEFAULT_CONSUMER_GROUP) {
            asked.groups.push(group.parse().map_err(|error: InvalidName| wrong(&error))?);
        }
        asked.validate().map_err(|error| wrong(&error))?;
        if all_known && !makes(config, hub) {
            return Err(wrong(&format!("there is no hub {hub:?}; create it with --hub {hub}")).into());
        }
    }
    Ok(())
}

/// True if a new namespace would have this hub.
fn makes(config: &NamespaceConfig, hub: &str) -> bool {
    match config.hubs.is_empty() {
        true => hub.eq_ignore_ascii_case(FIRST_HUB),
        false => config.hubs.iter().any(|made| made.name.as_str().eq_ignore_ascii_case(hub)),
    }
}

/// Splits `HUB/GROUP`; the hub's name may contain slashes.
fn hub_and_group(given: &str) -> Result<(&str, &str), String> {
    given.rsplit_once('/').ok_or_else(|| format!("--group {given}: write HUB/GROUP, such as homes/alarms"))
}

/// Parses `NAME` or `NAME:PARTITIONS`.
fn hub_of(given: &str) -> Result<HubConfig, BoxError> {
    let (name, partitions) = match given.rsplit_once(':') {
        Some((name, partitions)) => {
            let number = partitions.parse();
            let wrong =
                |_| format!("--hub {given}: {partitions:?} is not a number of partitions; try {name}:4");
            (name, number.map_err(wrong)?)
        }
        None => (given, DEFAULT_PARTITIONS),
    };
    Ok(HubConfig::new(name, partitions).map_err(|error| format!("--hub {given}: {error}"))?)
}

impl Wanted {
    /// The number of partitions that an existing hub gets, with notes for the user.
    fn resolve_partitions(&self, present: u32, grow: bool, notes: &mut Vec<String>) -> Result<u32, String> {
        let (name, wanted) = (&self.hub.name, self.hub.partitions);
        match wanted.cmp(&present) {
            Ordering::Less if self.counted => notes.push(format!(
                "{name} keeps its {present} partitions instead of {wanted}: a hub cannot shrink"
            )),
            Ordering::Greater if self.counted && grow => {
                notes.push(format!(
                    "{name} grew from {present} to {wanted} partitions permanently; keys map to other \
                     partitions from now on"
                ));
                return Ok(wanted);
            }
            Ordering::Greater if self.counted => {
                let has = counted(present as usize, "partition");
                return Err(format!(
                    "the hub {name} has {has}, but {wanted} are requested; growth is permanent, and keys map to \
                     other partitions afterwards: add --grow to do it, or request {present}, as in --hub \
                     {name}:{present}"
                ));
            }
            _ => {}
        }
        Ok(present)
    }
}

/// Creates the hubs that are asked for; if there is no hub at all, it creates a default one. Existing hubs
/// grow only if `grow` is set: growth is permanent, and keys choose other partitions afterwards. If one may
/// not grow, nothing is changed. Returns notes for the user.
pub(super) fn ensure(
    namespace: &LocalNamespace,
    wanted: &[Wanted],
    grow: bool,
) -> Result<Vec<String>, BoxError> {
    let mut notes = Vec::new();
    let mut hubs = Vec::new();
    for asked in wanted {
        let mut hub = asked.hub.clone();
        match namespace.hub(hub.name.as_str()) {
            Ok(there) => {
                let there = there.describe();
                hub.partitions = asked.resolve_partitions(there.partitions, grow, &mut notes)?;
                hub.retention = if asked.retained { hub.retention } else { there.retention };
            }
            // A hub that cannot be opened has been reported; the others are served.
            Err(HubError::Broken { .. }) => continue,
            Err(_) => {}
        }
        hubs.push(hub);
    }
    for hub in &hubs {
        namespace.ensure_hub(hub)?;
    }
    if namespace.hubs_open().is_empty() && namespace.broken().is_empty() {
        namespace.create_hub(HubConfig::new(FIRST_HUB, DEFAULT_PARTITIONS)?)?;
    }
    Ok(notes)
}

/// Creates the groups that are asked for. A hub that cannot be opened gets none, and the others are served.
/// Returns notes for the user.
pub(super) fn ensure_groups(namespace: &LocalNamespace, groups: &[String]) -> Result<Vec<String>, BoxError> {
    let mut notes = Vec::new();
    for given in groups {
        let (hub, group) = hub_and_group(given)?;
        match namespace.hub(hub).and_then(|hub| hub.create_group(group)) {
            Ok(_) => {}
            Err(HubError::Broken { name, .. }) => {
                notes.push(format!("--group {given} was not created: the hub {name} cannot be opened"));
            }
            Err(error) => return Err(format!("--group {given}: {error}").into()),
        }
    }
    Ok(notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hub_is_a_name_with_or_without_a_number_of_partitions() {
        assert_eq!(hub_of("homes").unwrap().partitions, DEFAULT_PARTITIONS);
        let hub = hub_of("a/b:16").unwrap();
        assert_eq!((hub.name.as_str(), hub.partitions), ("a/b", 16));
        let error = |given: &str| hub_of(given).unwrap_err().to_string();
        assert_eq!(
            error("homes:many"),
            "--hub homes:many: \"many\" is not a number of partitions; try homes:4"
        );
        assert!(error("homes:0").starts_with("--hub homes:0: "), "{}", error("homes:0"));
        assert!(error("ho mes").contains("contains ' '"), "{}", error("ho mes"));
    }

    #[test]
    fn a_hub_that_is_there_grows_only_if_that_is_said_and_never_shrinks() {
        let namespace = LocalNamespace::in_memory(NamespaceConfig::default()).unwrap();
        let ensure = |asked: &str, grow| {
            let wanted =
                Wanted { hub: hub_of(asked).unwrap(), counted: asked.contains(':'), retained: false };
            let notes = ensure(&namespace, &[wanted], grow).map_err(|error| error.to_string());
            (notes, namespace.hub("meters").unwrap().describe().partitions)
        };
        assert_eq!(ensure("meters:8", false), (Ok(vec![]), 8));
        assert_eq!(ensure("Meters:8", false), (Ok(vec![]), 8));
        // Four is the default for a hub without a number.
        assert_eq!(ensure("meters", true), (Ok(vec![]), 8));
        let (refused, count) = ensure("meters:16", false);
        assert!(refused.as_ref().is_err_and(|error| error.contains("--grow")), "{refused:?}");
        assert_eq!(count, 8);
        let (notes, count) = ensure("meters:4", true);
        assert!(notes.as_ref().is_ok_and(|notes| notes[0].contains("cannot shrink")), "{notes:?}");
        assert_eq!(count, 8);
        let (notes, count) = ensure("meters:16", true);
        assert!(notes.as_ref().is_ok_and(|notes| notes[0].contains("from 8 to 16")), "{notes:?}");
        assert_eq!(count, 16);
    }

    #[test]
    fn a_namespace_without_hubs_gets_one_and_groups_are_made() {
        let namespace = LocalNamespace::in_memory(NamespaceConfig::default()).unwrap();
        ensure(&namespace, &[], false).unwrap();
        ensure(&namespace, &[], false).unwrap();
        assert_eq!(namespace.hubs_open().len(), 1);
        ensure_groups(&namespace, &["homes/alarms".to_owned()]).unwrap();
        assert_eq!(namespace.hub("homes").unwrap().describe().groups.len(), 2);
        let error = ensure_groups(&namespace, &["alarms".to_owned()]).unwrap_err().to_string();
        assert_eq!(error, "--group alarms: write HUB/GROUP, such as homes/alarms");
        let error = ensure_groups(&namespace, &["none/alarms".to_owned()]).unwrap_err().to_string();
        assert_eq!(error, "--group none/alarms: hub \"none\" does not exist");
    }
}

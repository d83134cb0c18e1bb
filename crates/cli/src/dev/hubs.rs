//! Which hubs there shall be: from the options, a file, or the one that a newcomer gets.

use std::fmt::Display;

use ephor_core::BoxError;
use ephor_core::ids::{DEFAULT_CONSUMER_GROUP, InvalidName};
use ephor_hub::config::{ConfigFile, DEFAULT_PARTITIONS};
use ephor_hub::{Durability, HubConfig, LocalNamespace, NamespaceConfig};

use crate::arguments::Dev;

/// The hub of those who ask for none.
const FIRST_HUB: &str = "homes";

/// The configuration that the options ask for, and what is to be said about it.
pub(super) fn configuration(options: &Dev) -> Result<(NamespaceConfig, Vec<String>), BoxError> {
    let (mut config, notes) = match &options.config {
        Some(file) => {
            let ConfigFile { config, notes } = NamespaceConfig::from_file(file)?;
            (config, notes)
        }
        None => (NamespaceConfig::default(), Vec::new()),
    };
    if options.memory {
        config.durability = Durability::Memory;
    } else if options.relaxed {
        config.durability = Durability::PageCache;
    }
    for hub in &options.hubs {
        config.hubs.push(hub_of(hub)?);
    }
    config.validate()?;
    check_groups(&config, options)?;
    Ok((config, notes))
}

/// What can be said of `--group` before there is a namespace.
fn check_groups(config: &NamespaceConfig, options: &Dev) -> Result<(), BoxError> {
    // Hubs of an earlier time are known when the folder is opened.
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
            return Err(wrong(&format!("there is no hub {hub:?}")).into());
        }
    }
    Ok(())
}

/// Whether a new namespace has this hub.
fn makes(config: &NamespaceConfig, hub: &str) -> bool {
    match config.hubs.is_empty() {
        true => hub.eq_ignore_ascii_case(FIRST_HUB),
        false => config.hubs.iter().any(|made| made.name.as_str().eq_ignore_ascii_case(hub)),
    }
}

/// `HUB/GROUP`; the hub's own name may have slashes.
fn hub_and_group(given: &str) -> Result<(&str, &str), String> {
    given.rsplit_once('/').ok_or_else(|| format!("--group {given}: write HUB/GROUP, such as homes/alarms"))
}

/// `NAME` or `NAME:PARTITIONS`.
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

/// A namespace without any hub gets one: there shall be something to send to.
pub(super) fn ensure_one(namespace: &LocalNamespace) -> Result<(), BoxError> {
    if namespace.hubs_open().is_empty() && namespace.broken().is_empty() {
        namespace.create_hub(HubConfig::new(FIRST_HUB, DEFAULT_PARTITIONS)?)?;
    }
    Ok(())
}

/// Makes the groups that were asked for.
pub(super) fn ensure_groups(namespace: &LocalNamespace, groups: &[String]) -> Result<(), BoxError> {
    for given in groups {
        let (hub, group) = hub_and_group(given)?;
        namespace
            .hub(hub)
            .and_then(|hub| hub.create_group(group))
            .map_err(|error| format!("--group {given}: {error}"))?;
    }
    Ok(())
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
    fn a_namespace_without_hubs_gets_one_and_groups_are_made() {
        let namespace = LocalNamespace::in_memory(NamespaceConfig::default()).unwrap();
        ensure_one(&namespace).unwrap();
        ensure_one(&namespace).unwrap();
        assert_eq!(namespace.hubs_open().len(), 1);
        ensure_groups(&namespace, &["homes/alarms".to_owned()]).unwrap();
        assert_eq!(namespace.hub("homes").unwrap().describe().groups.len(), 2);
        let error = ensure_groups(&namespace, &["alarms".to_owned()]).unwrap_err().to_string();
        assert_eq!(error, "--group alarms: write HUB/GROUP, such as homes/alarms");
        let error = ensure_groups(&namespace, &["none/alarms".to_owned()]).unwrap_err().to_string();
        assert_eq!(error, "--group none/alarms: there is no hub \"none\"");
    }
}

//! `ephor verify`: checks a whole data folder, and changes nothing.

use std::fmt::{self, Write as _};
use std::process::ExitCode;

use ephor_core::BoxError;
use ephor_hub::{HubVerification, verify_folder};
use serde_json::Value;

use crate::arguments::Verify;
use crate::store_commands::arguments::Output;
use crate::table::{counted, object, plural, pretty, say};

pub(crate) fn run(options: &Verify) -> Result<ExitCode, BoxError> {
    let hubs = verify_folder(&options.data)?;
    let damaged = hubs.iter().filter(|hub| !hub.is_intact()).count();
    if options.output == Output::Json {
        say(&pretty(&hubs.iter().map(described).collect()))?;
    } else {
        let mut text = String::new();
        hubs.iter().try_for_each(|hub| show(&mut text, hub))?;
        match damaged {
            0 => writeln!(text, "{} checked, no damage found", counted(hubs.len(), "hub"))?,
            _ => writeln!(text, "{} checked, {damaged} damaged", counted(hubs.len(), "hub"))?,
        }
        say(&text)?;
    }
    Ok(if damaged == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The same as `show`, for programs.
fn described(hub: &HubVerification) -> Value {
    let log = hub.log.as_ref().ok();
    let damage = log.into_iter().flat_map(|log| &log.damage).map(ToString::to_string);
    let errors = hub.record.as_ref().err().into_iter().chain(hub.log.as_ref().err());
    object([
        ("hub", hub.hub.as_ref().map(|name| name.as_str()).into()),
        ("folder", hub.folder.as_str().into()),
        ("intact", hub.is_intact().into()),
        ("events", log.map(|log| log.events).into()),
        ("segments", log.map(|log| log.segments).into()),
        ("bytes", log.map(|log| log.bytes).into()),
        ("torn_bytes", log.map(|log| log.torn_bytes).into()),
        ("damage", damage.collect()),
        ("errors", errors.map(String::as_str).collect()),
    ])
}

fn show(text: &mut String, hub: &HubVerification) -> fmt::Result {
    let name = hub.hub.as_ref().map_or(hub.folder.as_str(), |name| name.as_str());
    match &hub.log {
        Ok(log) => {
            let (events, segments, bytes) = (log.events, log.segments, log.bytes);
            writeln!(
                text,
                "{name}: {events} {} in {segments} {}, {bytes} bytes",
                plural(events, "event"),
                plural(segments, "segment")
            )?
        }
        Err(error) => writeln!(text, "{name}: {error}")?,
    }
    if let Err(error) = &hub.record {
        writeln!(text, "  {error}")?;
    }
    for log in hub.log.iter() {
        log.damage.iter().try_for_each(|damage| writeln!(text, "  {damage}"))?;
        if log.torn_bytes > 0 {
            writeln!(
                text,
                "  {} {} of an incomplete commit at the end; it was never acknowledged, unless the end was damaged \
                 later",
                log.torn_bytes,
                plural(log.torn_bytes, "byte")
            )?;
        }
    }
    Ok(())
}

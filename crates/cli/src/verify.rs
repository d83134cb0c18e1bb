//! `ephor verify`: reads a whole data folder and changes nothing.

use std::process::ExitCode;

use ephor_core::BoxError;
use ephor_hub::{HubVerification, verify_folder};

use crate::arguments::Verify;

pub(crate) fn run(options: &Verify) -> Result<ExitCode, BoxError> {
    let hubs = verify_folder(&options.data)?;
    hubs.iter().for_each(show);
    let damaged = hubs.iter().filter(|hub| !hub.is_intact()).count();
    match damaged {
        0 => println!("{} hubs, all intact", hubs.len()),
        _ => println!("{} hubs, {damaged} damaged", hubs.len()),
    }
    Ok(if damaged == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn show(hub: &HubVerification) {
    let name = hub.hub.as_ref().map_or(hub.folder.as_str(), |name| name.as_str());
    match &hub.log {
        Ok(log) => {
            println!("{name}: {} events in {} segments, {} bytes", log.events, log.segments, log.bytes)
        }
        Err(error) => println!("{name}: {error}"),
    }
    if let Err(error) = &hub.record {
        println!("  {error}");
    }
    for log in hub.log.iter() {
        log.damage.iter().for_each(|damage| println!("  {damage}"));
        if log.torn_bytes > 0 {
            println!(
                "  {} bytes of a commit that was cut short; nobody was told that it was stored, unless the end was damaged later",
                log.torn_bytes
            );
        }
    }
}

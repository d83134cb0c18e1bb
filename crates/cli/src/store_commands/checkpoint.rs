//! `ephor checkpoint list`, `export` and `import`; `seek` is in `seek.rs`.

use ephor_core::BoxError;
use ephor_core::ids::{GroupId, Namespace};
use ephor_core::source::EventSource;
use ephor_core::store::{SeekOutcome, SeekRequest, View};
use ephor_stores::export::{self, Export, Exported};

use super::arguments::{self, Import, Look};
use super::group::{partitions, position};
use super::seek::{all_done, who};
use super::store_and_group::{IsNew, Kind, Place};
use crate::arguments::Connection;
use crate::open_client;
use crate::table::{Cell, Table, say};

pub(crate) async fn list(options: &Look) -> Result<(), BoxError> {
    let view = Place::find(&options.name, &options.common.store).await?.view().await?;
    let mut table = Table::new(&["part", "checkpoint", "offset", "epoch", "saved", "saved at", "log"]);
    for (partition, checkpoint) in &view.checkpoints {
        let offset = match &checkpoint.position {
            ephor_core::checkpoint::Position::Finished { offset, .. } => offset.as_ref(),
            ephor_core::checkpoint::Position::Start(_) => None,
        };
        table.row(vec![
            Cell::number(partition.0.into()),
            position(&checkpoint.position),
            Cell::or_none(offset.map(Cell::text)),
            Cell::number(checkpoint.epoch.get()),
            Cell::duration(view.at.since(checkpoint.saved_at)),
            Cell::text(checkpoint.saved_at),
            Cell::or_none(checkpoint.log.as_ref().map(Cell::text)),
        ]);
    }
    table.print(options.common.output)
}

/// Prints an export, always as JSON: it is for `import`.
pub(crate) async fn export(options: &arguments::Export) -> Result<(), BoxError> {
    let place = Place::find(&options.name, &options.store).await?;
    let view = place.view().await?;
    check_complete(&view, options.incomplete, place.kind)?;
    if view.checkpoints.is_empty() {
        eprintln!("ephor: {} has no checkpoints: this export contains no positions", place.group);
    }
    say(&format!("{}\n", export::write(&place.group, &view.checkpoints)))
}

/// Refuses an incomplete export: an import would not notice the missing positions.
fn check_complete(view: &View, incomplete: bool, kind: Kind) -> Result<(), BoxError> {
    if view.damaged.is_empty() || incomplete {
        return Ok(());
    }
    let mend = match kind {
        Kind::LegacyContainer => {
            "Add --incomplete to export all other positions, and write the missing ones into the file"
        }
        _ => {
            "Repair a checkpoint with `ephor checkpoint seek --partition NUMBER`, or add --incomplete to \
             export all other positions"
        }
    };
    Err(format!(
        "nothing was exported, because not all records of the group can be read: {}; after an import such a \
         partition would start at the initial position. {mend}",
        view.damaged.join("; ")
    )
    .into())
}

pub(crate) async fn import(options: &Import) -> Result<(), BoxError> {
    let export = read(options)?;
    check_hub(&export, options)?;
    let check = async |group: &GroupId, new: IsNew| ask_hub(&export, group, new, options).await;
    let look = &options.look;
    let place =
        Place::find_or_begin(&look.name, &look.common.store, &export.group, options.yes, check).await?;
    let view = place.view().await?;
    check_partitions(&export, &view, &place)?;
    let mut table = Table::new(&["part", "now", "new", "outcome"]);
    let (mut failed, mut undone, all) = (None, 0, export.checkpoints.len());
    for exported in export.checkpoints {
        let now = view.checkpoint(exported.partition).map(|checkpoint| &checkpoint.position);
        let (part, new) = (Cell::number(exported.partition.0.into()), position(&exported.position));
        let outcome = match options.yes {
            true => match take_over(&place, exported).await {
                Ok(SeekOutcome::Done { epoch }) => Cell::text(format!("done in epoch {epoch}")),
                Ok(SeekOutcome::OtherSdkOwner { owner }) => {
                    undone += 1;
                    Cell::text(format!("not done: {owner} would not notice"))
                }
                Err(error) => {
                    failed = Some(error);
                    Cell::text("failed; the partitions after it were not changed")
                }
            },
            false => Cell::none(),
        };
        table.row(vec![part, Cell::or_none(now.map(position)), new, outcome]);
        if failed.is_some() {
            break;
        }
    }
    table.print(options.look.common.output)?;
    if !options.yes {
        eprintln!(
            "nothing was changed: add --yes to make these changes; the owners then restart at these positions"
        );
    }
    failed.map_or_else(|| all_done(undone, all), Err)
}

/// Reads the export from a file or from standard input. Some editors begin a file with a byte-order mark.
fn read(options: &Import) -> Result<Export, BoxError> {
    let name = name(options);
    let text = match options.file.to_str() {
        Some("-") => std::io::read_to_string(std::io::stdin()),
        _ => std::fs::read_to_string(&options.file),
    };
    let text = text.map_err(|error| format!("{name}: {error}"))?;
    let export = export::read(text.trim_start_matches('\u{feff}'));
    let export = export.map_err(|error| format!("{name}: {error}"))?;
    if export.checkpoints.is_empty() {
        return Err(format!(
            "{name} contains no positions: hosts would start at the initial position. Was it exported from \
             the right store and group?"
        )
        .into());
    }
    Ok(export)
}

/// The name of the export's source.
fn name(options: &Import) -> String {
    match options.file.to_str() {
        Some("-") => "standard input".into(),
        _ => options.file.display().to_string(),
    }
}

async fn take_over(place: &Place, exported: Exported) -> Result<SeekOutcome, BoxError> {
    let Exported { partition, position, log } = exported;
    let request = SeekRequest { partition, position, log, by: who(), force: false };
    Ok(place.store.seek(&place.group, &request).await?)
}

/// Checks against the hub what a store that no host has used yet cannot know: that hosts will look for these
/// records, and which partitions exist.
async fn ask_hub(
    export: &Export,
    group: &GroupId,
    IsNew(new): IsNew,
    options: &Import,
) -> Result<(), BoxError> {
    if options.connection.is_none() && options.connection_file.is_none() {
        if new {
            eprintln!(
                "ephor: the namespace was not checked, because there is no --connection: hosts find these \
                 positions only if {} is exactly the text after Endpoint=sb:// in their connection string",
                group.namespace
            );
        }
        return Ok(());
    }
    let connection = Connection {
        connection: options.connection.clone().unwrap_or_default(),
        connection_file: options.connection_file.clone(),
        trust: options.trust.clone(),
        allow_insecure: options.allow_insecure,
    };
    let hub = open_client::open_impatiently(&connection, group.hub.as_str())?;
    check_namespace(group, hub.namespace())?;
    let there = match hub.hub_properties().await {
        Ok(properties) => properties.partitions,
        Err(error) => {
            eprintln!(
                "ephor: the partitions were not checked, because the properties of the hub cannot be read: \
                 {error}"
            );
            return Ok(());
        }
    };
    match export.checkpoints.iter().find(|exported| !there.contains(&exported.partition)) {
        Some(strange) => Err(no_partition(group, strange, there.len())),
        None => Ok(()),
    }
}

/// Compares exactly: hosts find nothing under another spelling.
fn check_namespace(group: &GroupId, theirs: &Namespace) -> Result<(), BoxError> {
    if group.namespace == *theirs {
        return Ok(());
    }
    Err(format!(
        "the positions would be stored for {group}, but hosts with this connection string look for them in \
         the namespace {theirs}: add --namespace {theirs} if that is the right hub"
    )
    .into())
}

fn no_partition(group: &GroupId, strange: &Exported, there: usize) -> BoxError {
    let partition = strange.partition;
    format!("{group} has no partition {partition}; it has {there} in all: is this the export of another hub?")
        .into()
}

/// Refuses the positions of another hub, which mean nothing here. Another group of the same hub is allowed.
fn check_hub(export: &Export, options: &Import) -> Result<(), BoxError> {
    let (theirs, ours) = (&export.group.hub, &options.look.name.group.hub);
    // SDKs write the name in lower case, whatever the hub is called.
    if theirs.as_str().eq_ignore_ascii_case(ours.as_str()) {
        return Ok(());
    }
    let file = name(options);
    Err(format!(
        "{file} contains positions of the hub {theirs}, which are meaningless for {ours}; if both are names \
         of the same hub, correct the name in the file"
    )
    .into())
}

/// Refuses partitions that the group does not have: they would stay in its records for ever.
fn check_partitions(export: &Export, view: &View, place: &Place) -> Result<(), BoxError> {
    let known = partitions(view, &[]);
    let strange = export.checkpoints.iter().find(|exported| !known.contains(&exported.partition));
    match strange {
        Some(strange) if view.origin.is_some() => Err(no_partition(&place.group, strange, known.len())),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_that_would_miss_a_position_fails_unless_that_is_wanted() {
        let whole = View::default();
        let torn = View { damaged: vec!["the checkpoint of partition 2".into()], ..View::default() };
        check_complete(&whole, false, Kind::Database).unwrap();
        let error =
            check_complete(&torn, false, Kind::Database).expect_err("a position is missing").to_string();
        assert!(error.contains("checkpoint of partition 2") && error.contains("--incomplete"), "{error}");
        check_complete(&torn, true, Kind::Database).unwrap();
    }
}

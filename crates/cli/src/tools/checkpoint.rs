//! `ephor checkpoint list`, `export` and `import`.

use ephor_core::BoxError;
use ephor_core::store::{Seek, SeekRequest, View};
use ephor_stores::export::{self, Export, Exported};

use super::arguments::{self, Import, Look};
use super::group::{partitions, position};
use super::place::Place;
use super::seek::who;
use super::table::{Cell, Table, say};

pub(crate) async fn list(options: &Look) -> Result<(), BoxError> {
    let view = Place::find(options).await?.view().await?;
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

/// Always JSON: it is for `import`.
pub(crate) async fn export(options: &arguments::Export) -> Result<(), BoxError> {
    let place = Place::find(&options.look).await?;
    let view = place.view().await?;
    check_complete(&view, options.incomplete)?;
    say(&format!("{}\n", export::write(&place.group, &view.checkpoints)))
}

/// A position that is missing is not noticed by whoever imports the rest.
fn check_complete(view: &View, incomplete: bool) -> Result<(), BoxError> {
    if view.damaged.is_empty() || incomplete {
        return Ok(());
    }
    Err(format!(
        "nothing was exported, because not all of the group can be read: {}; an import would begin such a \
         partition anew. Mend a checkpoint with `ephor checkpoint seek --partition NUMBER`, or add --incomplete \
         to export what can be read",
        view.damaged.join("; ")
    )
    .into())
}

pub(crate) async fn import(options: &Import) -> Result<(), BoxError> {
    let file = options.file.display();
    let text = std::fs::read_to_string(&options.file).map_err(|error| format!("{file}: {error}"))?;
    let export = export::read(&text).map_err(|error| format!("{file}: {error}"))?;
    check_hub(&export, options)?;
    let place = Place::find_or_begin(&options.look, &export.group, options.yes).await?;
    let view = place.view().await?;
    check_partitions(&export, &view, &place)?;
    let mut table = Table::new(&["part", "now", "new", "outcome"]);
    let mut failed = None;
    for exported in export.checkpoints {
        let now = view.checkpoint(exported.partition).map(|checkpoint| &checkpoint.position);
        let (part, new) = (Cell::number(exported.partition.0.into()), position(&exported.position));
        let outcome = match options.yes {
            true => take_over(&place, exported).await.unwrap_or_else(|error| {
                failed = Some(error);
                Cell::text("failed; those behind it are as they were")
            }),
            false => Cell::none(),
        };
        table.row(vec![part, Cell::or_none(now.map(position)), new, outcome]);
        if failed.is_some() {
            break;
        }
    }
    table.print(options.look.common.output)?;
    if !options.yes {
        eprintln!("nothing was changed: add --yes to do it; owners will begin anew at these positions");
    }
    failed.map_or(Ok(()), Err)
}

async fn take_over(place: &Place, exported: Exported) -> Result<Cell, BoxError> {
    let Exported { partition, position, log } = exported;
    let request = SeekRequest { partition, position, log, by: who(), force: false };
    Ok(match place.store.seek(&place.group, &request).await? {
        Seek::Done { epoch } => Cell::text(format!("done in epoch {epoch}")),
        Seek::ForeignOwner { owner } => Cell::text(format!("not done: {owner} would not notice")),
    })
}

/// Positions of one hub mean nothing in another. Those of another group of the same hub do.
fn check_hub(export: &Export, options: &Import) -> Result<(), BoxError> {
    let (theirs, ours) = (&export.group.hub, &options.look.group.hub);
    if theirs == ours {
        return Ok(());
    }
    let file = options.file.display();
    Err(format!(
        "{file} holds positions of the hub {theirs}, which mean nothing in {ours}; if that is the same hub \
         under another name, correct it in the file"
    )
    .into())
}

/// What a group does not have stays in its records for ever.
fn check_partitions(export: &Export, view: &View, place: &Place) -> Result<(), BoxError> {
    let known = partitions(view, &[]);
    let strange = export.checkpoints.iter().find(|exported| !known.contains(&exported.partition));
    match strange {
        Some(strange) if view.founding.is_some() => Err(format!(
            "{} has no partition {}; it has {}: is this the export of another hub?",
            place.group,
            strange.partition,
            known.len()
        )
        .into()),
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
        check_complete(&whole, false).unwrap();
        let error = check_complete(&torn, false).expect_err("a position is missing").to_string();
        assert!(error.contains("checkpoint of partition 2") && error.contains("--incomplete"), "{error}");
        check_complete(&torn, true).unwrap();
    }
}

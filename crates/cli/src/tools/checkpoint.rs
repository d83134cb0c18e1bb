//! `ephor checkpoint list`, `export` and `import`.

use ephor_core::BoxError;
use ephor_core::store::{Seek, SeekRequest};
use ephor_stores::export::{self, Exported};

use super::arguments::{Import, Look};
use super::group::position;
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
pub(crate) async fn export(options: &Look) -> Result<(), BoxError> {
    let place = Place::find(options).await?;
    let view = place.view().await?;
    say(&format!("{}\n", export::write(&place.group, &view.checkpoints)))
}

pub(crate) async fn import(options: &Import) -> Result<(), BoxError> {
    let file = options.file.display();
    let text = std::fs::read_to_string(&options.file).map_err(|error| format!("{file}: {error}"))?;
    let exported = export::read(&text).map_err(|error| format!("{file}: {error}"))?;
    let place = Place::find(&options.look).await?;
    let view = place.view().await?;
    let mut table = Table::new(&["part", "now", "new", "outcome"]);
    for Exported { partition, position: new, log } in exported {
        let now = view.checkpoint(partition).map(|checkpoint| &checkpoint.position);
        let outcome = if options.yes {
            let request = SeekRequest { partition, position: new.clone(), log, by: who(), force: false };
            match place.store.seek(&place.group, &request).await? {
                Seek::Done { epoch } => Cell::text(format!("done in epoch {epoch}")),
                Seek::ForeignOwner { owner } => Cell::text(format!("not done: {owner} would not notice")),
            }
        } else {
            Cell::none()
        };
        table.row(vec![
            Cell::number(partition.0.into()),
            Cell::or_none(now.map(position)),
            position(&new),
            outcome,
        ]);
    }
    table.print(options.look.common.output)?;
    if !options.yes {
        eprintln!("nothing was changed: add --yes to do it; owners will begin anew at these positions");
    }
    Ok(())
}

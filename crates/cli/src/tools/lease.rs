//! `ephor lease history`: who owned what, and why that changed.

use ephor_core::BoxError;
use ephor_core::ids::{HostId, PartitionId};

use super::arguments::History;
use super::place::Place;
use super::table::{Cell, Table};

pub(crate) async fn history(options: &History) -> Result<(), BoxError> {
    let place = Place::find(&options.look).await?;
    let partition = options.partition.map(PartitionId);
    let changes = place.store.history(&place.group, partition, options.last).await?;
    let mut table = Table::new(&["at", "part", "epoch", "from", "to", "why"]);
    let host = |host: &Option<HostId>| {
        Cell::or_none(host.as_ref().map(|host| Cell::both(&host.name, host.to_string())))
    };
    for change in &changes {
        table.row(vec![
            Cell::text(change.at),
            Cell::number(change.partition.0.into()),
            Cell::number(change.epoch.get()),
            host(&change.from),
            host(&change.to),
            Cell::text(&change.reason),
        ]);
    }
    table.print(options.look.common.output)
}

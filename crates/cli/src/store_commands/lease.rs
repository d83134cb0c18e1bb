//! `ephor lease history`: the changes of owners, and their reasons.

use std::collections::BTreeSet;

use ephor_core::BoxError;
use ephor_core::ids::{HostId, PartitionId};

use super::arguments::History;
use super::group::partitions;
use super::store_and_group::Place;
use crate::table::{Cell, Table};

pub(crate) async fn history(options: &History) -> Result<(), BoxError> {
    let place = Place::find(&options.look.name, &options.look.common.store).await?;
    let partition = options.partition.map(PartitionId);
    if let Some(wanted) = partition {
        check(wanted, &partitions(&place.view().await?, &[]), &place)?;
    }
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

/// Refuses a partition that does not exist: it must not look like one without a history.
fn check(wanted: PartitionId, known: &BTreeSet<PartitionId>, place: &Place) -> Result<(), BoxError> {
    if known.is_empty() || known.contains(&wanted) {
        return Ok(());
    }
    Err(format!("{} has no partition {wanted}; it has {}", place.group, ranges(known)).into())
}

/// `0 to 3, 7`
fn ranges(partitions: &BTreeSet<PartitionId>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &PartitionId(id) in partitions {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(id) => *last = id,
            _ => ranges.push((id, id)),
        }
    }
    let words = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first} to {last}"),
    };
    ranges.iter().map(words).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_that_follow_each_other_are_named_together() {
        for (ids, text) in [
            (&[0, 1, 2, 3][..], "0 to 3"),
            (&[4], "4"),
            (&[0, 1, 5, 7, 8, u32::MAX], "0 to 1, 5, 7 to 8, 4294967295"),
        ] {
            assert_eq!(ranges(&ids.iter().copied().map(PartitionId).collect()), text);
        }
    }
}

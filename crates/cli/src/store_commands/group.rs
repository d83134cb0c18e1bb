//! `ephor group list`, and `ephor group describe`: owners, positions and lag of each partition.

use std::collections::BTreeSet;
use std::time::Duration;

use ephor_core::BoxError;
use ephor_core::checkpoint::Position;
use ephor_core::host_record::HostState;
use ephor_core::ids::PartitionId;
use ephor_core::lease::Lease;
use ephor_core::progress::{Lag, lag};
use ephor_core::source::{EventSource, PartitionProperties};
use ephor_core::store::View;
use ephor_core::time::duration_text;
use serde_json::Value;

use super::arguments::{Describe, List, Output};
use super::store_and_group::{self, Place, same_namespace};
use crate::open_client;
use crate::table::{Cell, SINCE_RESTART, Table, counted, object, plural, pretty, say, thousands};

pub(crate) async fn list(options: &List) -> Result<(), BoxError> {
    let store = store_and_group::open(&options.common.store.url()?).await?;
    let mut table = Table::new(&["hub", "group", "namespace", "hosts", "partitions", "owned"]);
    for group in store.groups().await? {
        let view = store.view(&group).await?;
        let owned = view.leases.iter().filter(|lease| lease.owner.is_some()).count();
        table.row(vec![
            Cell::text(&group.hub),
            Cell::text(&group.group),
            Cell::text(&group.namespace),
            Cell::number(alive(&view) as u64),
            Cell::number(partitions(&view, &[]).len() as u64),
            Cell::number(owned as u64),
        ]);
    }
    table.print(options.common.output)
}

pub(crate) async fn describe(options: &Describe) -> Result<(), BoxError> {
    let place = Place::find(&options.look.name, &options.look.common.store).await?;
    let view = place.view().await?;
    let hub = ask_hub(options, &place).await.unwrap_or_else(|error| {
        eprintln!("ephor: the hub cannot be read, so latest and lag are unknown: {error}");
        Vec::new()
    });
    let rows: Vec<Row> = partitions(&view, &hub).into_iter().map(|id| Row::of(id, &view, &hub)).collect();
    let table = table(&rows);
    match options.look.common.output {
        Output::Table => say(&format!("{}\n\n{}", summary(&place, &view, &rows), table.text())),
        Output::Json => say(&pretty(&json(&place, &view, &rows, table.json()))),
    }
}

/// The properties of the hub's partitions.
async fn ask_hub(options: &Describe, place: &Place) -> Result<Vec<PartitionProperties>, BoxError> {
    let hub = open_client::open_impatiently(&options.hub, place.group.hub.as_str())?;
    same_namespace(&place.group, &hub)?;
    let mut partitions = Vec::new();
    for id in hub.hub_properties().await?.partitions {
        partitions.push(hub.partition_properties(id).await?);
    }
    Ok(partitions)
}

/// All partitions that the store or the hub knows.
pub(crate) fn partitions(view: &View, hub: &[PartitionProperties]) -> BTreeSet<PartitionId> {
    let origin = view.origin.iter().flat_map(|origin| origin.partitions.iter().copied());
    let leases = view.leases.iter().map(|lease| lease.partition);
    let checkpoints = view.checkpoints.iter().map(|(partition, _)| *partition);
    origin.chain(leases).chain(checkpoints).chain(hub.iter().map(|partition| partition.id)).collect()
}

fn alive(view: &View) -> usize {
    view.hosts.iter().filter(|host| host.age_known && host.age <= host.record.lease_duration).count()
}

/// The number of hosts whose liveness is not known yet.
fn unheard(view: &View) -> usize {
    view.hosts.iter().filter(|host| !host.age_known).count()
}

/// One partition.
struct Row {
    id: PartitionId,
    lease: Option<Lease>,
    /// The state of the owner's host.
    host: Option<HostState>,
    checkpoint: Option<Position>,
    since: Option<Duration>,
    saved: Option<Duration>,
    latest: Option<u64>,
    lag: Option<Lag>,
    /// The waiting time of the oldest unfinished event; none if it is unknown.
    behind: Option<Duration>,
}

impl Row {
    fn of(id: PartitionId, view: &View, hub: &[PartitionProperties]) -> Self {
        let lease = view.lease(id).cloned();
        let owner = lease.as_ref().and_then(|lease| lease.owner.as_ref());
        let checkpoint = view.checkpoint(id);
        let known = hub.iter().find(|partition| partition.id == id);
        let finished = checkpoint.and_then(|checkpoint| match &checkpoint.position {
            Position::Finished { sequence, enqueued_at, .. } => Some((*sequence, *enqueued_at)),
            Position::Start(_) => None,
        });
        let lag = known.map(|partition| lag(partition, finished));
        // Without the time of the last finished event there is nothing to count from.
        let counted = |lag: &Lag| lag.events == 0 || matches!(finished, Some((_, Some(_))));
        Self {
            id,
            host: owner.and_then(|owner| Some(view.host(owner)?.record.state)),
            since: owner.and(lease.as_ref()).map(|lease| view.at.since(lease.acquired_at)),
            saved: checkpoint.map(|checkpoint| view.at.since(checkpoint.saved_at)),
            checkpoint: checkpoint.map(|checkpoint| checkpoint.position.clone()),
            latest: known.and_then(|partition| Some(partition.last.as_ref()?.sequence.0)),
            lag,
            behind: lag.filter(counted).map(|lag| lag.time),
            lease,
        }
    }

    fn is_owned(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.owner.is_some())
    }

    /// The state in words.
    fn state(&self) -> String {
        let Some(lease) = self.lease.as_ref().filter(|lease| lease.owner.is_some()) else {
            return "unowned".into();
        };
        if !lease.age_known {
            return format!("owned, not renewed {SINCE_RESTART}");
        }
        if let Some(late) = lease.duration.and_then(|duration| lease.age.checked_sub(duration))
            && !late.is_zero()
        {
            return format!("expired {} ago", duration_text(late));
        }
        match self.host {
            Some(HostState::Draining) => "owned, its host is draining".into(),
            Some(HostState::Unhealthy) => "owned, its host is unhealthy".into(),
            _ => format!("owned, renewed {} ago", duration_text(lease.age)),
        }
    }
}

fn table(rows: &[Row]) -> Table {
    let columns =
        &["part", "owner", "epoch", "since", "checkpoint", "latest", "lag", "behind", "saved", "state"];
    let mut table = Table::new(columns);
    for row in rows {
        let owner = row.lease.as_ref().and_then(|lease| lease.owner.as_ref());
        table.row(vec![
            Cell::number(row.id.0.into()),
            Cell::or_none(owner.map(|owner| Cell::both(&owner.name, owner.to_string()))),
            Cell::or_none(row.lease.as_ref().map(|lease| Cell::number(lease.epoch.get()))),
            Cell::or_none(row.since.map(Cell::duration)),
            Cell::or_none(row.checkpoint.as_ref().map(position)),
            Cell::or_none(row.latest.map(Cell::number)),
            Cell::or_none(row.lag.map(|lag| Cell::number(lag.events))),
            Cell::or_none(row.behind.map(Cell::duration)),
            Cell::or_none(row.saved.map(Cell::duration)),
            Cell::text(row.state()),
        ]);
    }
    table
}

/// The last finished event, or the start position.
pub(crate) fn position(position: &Position) -> Cell {
    match position {
        Position::Finished { sequence, .. } => Cell::number(sequence.0),
        Position::Start(start) => Cell::text(format!("starts {start}")),
    }
}

fn summary(place: &Place, view: &View, rows: &[Row]) -> String {
    let group = &place.group;
    let owned = rows.iter().filter(|row| row.is_owned()).count();
    let lag = match total_lag(rows) {
        Some((events, time)) => {
            let time = time.map_or(String::new(), |time| format!(" ({})", duration_text(time)));
            format!("lag {} {}{time}", thousands(events), plural(events, "event"))
        }
        None => "lag unknown".into(),
    };
    let unheard = match unheard(view) {
        0 => String::new(),
        unheard => format!(" ({unheard} without a heartbeat {SINCE_RESTART})"),
    };
    format!(
        "{} on {} ({})   {}{unheard}   {owned}/{} {} owned   {lag}",
        group.group,
        group.hub,
        group.namespace,
        counted(alive(view), "host"),
        rows.len(),
        plural(rows.len() as u64, "partition")
    )
}

/// The total number of events, and the longest delay of a partition, if it is known for all.
fn total_lag(rows: &[Row]) -> Option<(u64, Option<Duration>)> {
    let known: Vec<(Lag, Option<Duration>)> =
        rows.iter().filter_map(|row| Some((row.lag?, row.behind))).collect();
    let times: Option<Vec<Duration>> = known.iter().map(|(_, behind)| *behind).collect();
    let events = known.iter().map(|(lag, _)| lag.events).sum();
    (!known.is_empty()).then(|| (events, times.and_then(|times| times.into_iter().max())))
}

fn json(place: &Place, view: &View, rows: &[Row], partitions: Value) -> Value {
    let lag = total_lag(rows);
    object([
        ("hub", place.group.hub.as_str().into()),
        ("group", place.group.group.as_str().into()),
        ("namespace", place.group.namespace.as_str().into()),
        ("at", view.at.to_string().into()),
        ("hosts", alive(view).into()),
        ("hosts_unheard", unheard(view).into()),
        ("lag_events", lag.map(|(events, _)| events).into()),
        ("lag_seconds", lag.and_then(|(_, time)| time).map(|time| time.as_secs_f64()).into()),
        ("partitions", partitions),
    ])
}

#[cfg(test)]
mod tests {
    use ephor_core::checkpoint::Checkpoint;
    use ephor_core::epoch::Epoch;
    use ephor_core::host_record::{HostRecord, HostStatistics};
    use ephor_core::ids::{HostId, Incarnation};
    use ephor_core::lease::LeaseVersion;
    use ephor_core::position::{Offset, SequenceNumber};
    use ephor_core::source::LastEnqueued;
    use ephor_core::store::HostEntry;
    use ephor_core::time::Timestamp;

    use super::*;

    /// A partition and its owner, whose last heartbeat is `age` seconds old.
    fn view(age: u64, age_known: bool) -> View {
        let id = HostId { name: "vm-1".parse().unwrap(), incarnation: Incarnation(1) };
        let lasts = Duration::from_secs(30);
        let lease = Lease {
            partition: PartitionId(0),
            owner: Some(id.clone()),
            epoch: Epoch::FIRST,
            duration: Some(lasts),
            acquired_at: Timestamp(0),
            age: Duration::from_secs(age),
            age_known,
            version: LeaseVersion::revision(1),
            previous_owner: None,
            takeover_delay: Duration::ZERO,
            successor: None,
        };
        let record = HostRecord {
            id,
            beat: 1,
            state: HostState::Active,
            lease_duration: lasts,
            max_partitions: None,
            wants: vec![],
            answers: vec![],
            statistics: HostStatistics::default(),
            software: String::new(),
            hub: None,
        };
        let host = HostEntry { record, age: Duration::from_secs(age), age_known };
        View { leases: vec![lease], hosts: vec![host], ..View::default() }
    }

    #[test]
    fn an_owner_whose_age_is_not_known_counts_neither_as_alive_nor_as_dead() {
        for (age, age_known, state, counted) in [
            (2, true, "owned, renewed 2 s ago", (1, 0)),
            (40, true, "expired 10 s ago", (0, 0)),
            (0, false, "owned, not renewed since the store restarted", (0, 1)),
        ] {
            let view = view(age, age_known);
            assert_eq!(Row::of(PartitionId(0), &view, &[]).state(), state);
            assert_eq!((alive(&view), unheard(&view)), counted, "{state}");
        }
    }

    #[test]
    fn how_long_a_partition_is_behind_is_told_only_where_it_is_known() {
        let hub = |last: u64| {
            let last = LastEnqueued {
                sequence: SequenceNumber(last),
                offset: Offset::number(last),
                enqueued_at: Timestamp(9_000),
            };
            PartitionProperties::without_gap(PartitionId(0), SequenceNumber(0), Some(last))
        };
        let view = |position: Option<Position>| {
            let checkpoint =
                |position| Checkpoint { position, log: None, epoch: Epoch::NONE, saved_at: Timestamp(0) };
            let checkpoints = position.map(|position| (PartitionId(0), checkpoint(position)));
            View { checkpoints: checkpoints.into_iter().collect(), ..View::default() }
        };
        let finished = |enqueued_at: Option<i64>| Position::Finished {
            sequence: SequenceNumber(9),
            offset: None,
            enqueued_at: enqueued_at.map(Timestamp),
        };
        let second = Duration::from_secs(1);
        for (position, last, events, behind) in [
            (None, 99, 100, None),
            (Some(finished(None)), 99, 90, None),
            (Some(finished(Some(2_000))), 99, 90, Some(second * 7)),
            (Some(finished(None)), 9, 0, Some(Duration::ZERO)),
        ] {
            let row = Row::of(PartitionId(0), &view(position), &[hub(last)]);
            assert_eq!((row.lag.map(|lag| lag.events), row.behind), (Some(events), behind));
            assert_eq!(table(&[row]).json()[0]["behind"], Value::from(behind.map(|time| time.as_secs_f64())));
        }
        let row = |position| Row::of(PartitionId(0), &view(position), &[hub(99)]);
        assert_eq!(total_lag(&[row(None), row(Some(finished(Some(2_000))))]), Some((190, None)));
        assert_eq!(total_lag(&[row(Some(finished(Some(2_000))))]), Some((90, Some(second * 7))));
        assert_eq!(total_lag(&[]), None);
    }
}

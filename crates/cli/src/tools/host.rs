//! `ephor host list` and `ephor host drain`.

use ephor_core::BoxError;
use ephor_core::host_record::HostState;
use ephor_core::store::{HostEntry, HostOrders};

use super::arguments::{Drain, Look};
use super::place::Place;
use super::table::{Cell, SINCE_RESTART, Table, say, words};

pub(crate) async fn list(options: &Look) -> Result<(), BoxError> {
    let view = Place::find(&options.name, &options.common.store).await?.view().await?;
    table(&view.hosts).print(options.common.output)
}

fn table(hosts: &[HostEntry]) -> Table {
    let mut table =
        Table::new(&["host", "state", "owned", "events", "lag", "failures", "heard", "version", "id"]);
    for host in hosts {
        let record = &host.record;
        table.row(vec![
            Cell::text(&record.id.name),
            Cell::text(state(host)),
            Cell::number(record.statistics.owned.into()),
            Cell::number(record.statistics.events),
            Cell::number(record.statistics.lag_events),
            Cell::number(record.statistics.failures),
            Cell::or_none(host.age_known.then(|| Cell::duration(host.age))),
            Cell::text(&record.software),
            Cell::text(&record.id),
        ]);
    }
    table
}

fn state(host: &HostEntry) -> String {
    if !host.age_known {
        return format!("not heard {SINCE_RESTART}");
    }
    if let Some(silent) = host.age.checked_sub(host.record.lease_duration)
        && !silent.is_zero()
    {
        return format!("silent for {}", words(host.age));
    }
    match host.record.state {
        HostState::Active => "active",
        HostState::Standby => "standby",
        HostState::Draining => "draining",
        HostState::Unfit => "unfit",
    }
    .into()
}

pub(crate) async fn drain(options: &Drain) -> Result<(), BoxError> {
    let place = Place::find(&options.look.name, &options.look.common.store).await?;
    let orders = HostOrders { drain: !options.undo };
    let what =
        if options.undo { "may take partitions again" } else { "is asked to hand over all its partitions" };
    for id in ephor::admin::order(&*place.store, &place.group, &options.host, orders).await? {
        say(&format!("{id} {what}; it hears of it with its next heartbeat\n"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ephor_core::host_record::{HostRecord, HostStatistics};
    use ephor_core::ids::{HostId, Incarnation};

    use super::*;

    fn entry(age: u64, age_known: bool) -> HostEntry {
        let record = HostRecord {
            id: HostId { name: "vm-1".parse().unwrap(), incarnation: Incarnation(1) },
            beat: 1,
            state: HostState::Active,
            lease_duration: Duration::from_secs(30),
            max_partitions: None,
            wants: vec![],
            answers: vec![],
            statistics: HostStatistics::default(),
            software: String::new(),
            hub: None,
        };
        HostEntry { record, age: Duration::from_secs(age), age_known }
    }

    #[test]
    fn nobody_is_called_active_whose_age_is_not_known() {
        assert_eq!(state(&entry(0, true)), "active");
        assert_eq!(state(&entry(90, true)), "silent for 1m30s");
        assert_eq!(state(&entry(0, false)), "not heard since the store's restart");
        let heard = |entry| table(&[entry]).json()[0]["heard"].clone();
        assert_eq!((heard(entry(3, true)), heard(entry(0, false))), (3.0.into(), serde_json::Value::Null));
    }
}

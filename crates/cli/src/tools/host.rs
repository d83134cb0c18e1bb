//! `ephor host list` and `ephor host drain`.

use ephor_core::BoxError;
use ephor_core::host_record::HostState;
use ephor_core::store::{HostEntry, HostOrders};

use super::arguments::{Drain, Look};
use super::place::Place;
use super::table::{Cell, Table, say, words};

pub(crate) async fn list(options: &Look) -> Result<(), BoxError> {
    let view = Place::find(options).await?.view().await?;
    let mut table =
        Table::new(&["host", "state", "owned", "events", "lag", "failures", "heard", "version", "id"]);
    for host in &view.hosts {
        let record = &host.record;
        table.row(vec![
            Cell::text(&record.id.name),
            Cell::text(state(host)),
            Cell::number(record.statistics.owned.into()),
            Cell::number(record.statistics.events),
            Cell::number(record.statistics.lag_events),
            Cell::number(record.statistics.failures),
            Cell::duration(host.age),
            Cell::text(&record.software),
            Cell::text(&record.id),
        ]);
    }
    table.print(options.common.output)
}

fn state(host: &HostEntry) -> String {
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
    let place = Place::find(&options.look).await?;
    let orders = HostOrders { drain: !options.undo };
    let what =
        if options.undo { "may take partitions again" } else { "is asked to hand over all its partitions" };
    for id in ephor::admin::order(&*place.store, &place.group, &options.host, orders).await? {
        say(&format!("{id} {what}; it hears of it with its next heartbeat\n"))?;
    }
    Ok(())
}

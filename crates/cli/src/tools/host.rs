//! `ephor host list` and `ephor host drain`.

use ephor_core::BoxError;
use ephor_core::host_record::HostState;
use ephor_core::store::{HostEntry, HostOrders};

use super::arguments::{Drain, Look};
use super::place::Place;
use super::table::{Cell, Table, words};

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
    table.print(options.common.output);
    Ok(())
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
    let view = place.view().await?;
    let ids = view.hosts.iter().map(|host| &host.record.id);
    let named = ids.clone().filter(|id| id.name.as_str() == options.host || id.to_string() == options.host);
    let mut told = 0;
    for id in named {
        let orders = HostOrders { drain: !options.undo };
        if place.store.order(&place.group, id, orders).await? {
            told += 1;
            let what = if options.undo {
                "may take partitions again"
            } else {
                "is asked to hand over all its partitions"
            };
            println!("{id} {what}; it hears of it with its next heartbeat");
        }
    }
    if told > 0 {
        return Ok(());
    }
    let known: Vec<String> = ids.map(|id| id.name.to_string()).collect();
    let known =
        if known.is_empty() { "there is none".into() } else { format!("there are {}", known.join(", ")) };
    Err(format!("no host {:?} in this group; {known}", options.host).into())
}

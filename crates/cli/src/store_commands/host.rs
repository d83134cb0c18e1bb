//! `ephor host list` and `ephor host drain`.

use std::time::Duration;

use ephor_core::BoxError;
use ephor_core::host_record::HostState;
use ephor_core::ids::HostId;
use ephor_core::store::{DesiredState, HostEntry};
use ephor_core::time::duration_text;

use super::arguments::{Drain, Look, Output};
use super::store_and_group::Place;
use crate::table::{Cell, SINCE_RESTART, Table, say};

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
        return format!("no heartbeat {SINCE_RESTART}");
    }
    if let Some(silent) = silence(host) {
        return format!("no heartbeat for {}", duration_text(silent));
    }
    match host.record.state {
        HostState::Active => "active",
        HostState::Standby => "standby",
        HostState::Draining => "draining",
        HostState::Unhealthy => "unhealthy",
        _ => "unknown",
    }
    .into()
}

/// The time since the last heartbeat of a host, if it exceeds the lease duration: then the host is considered
/// dead.
fn silence(host: &HostEntry) -> Option<Duration> {
    (host.age_known && host.age > host.record.lease_duration).then_some(host.age)
}

pub(crate) async fn drain(options: &Drain) -> Result<(), BoxError> {
    let place = Place::find(&options.look.name, &options.look.common.store).await?;
    let hosts = place.view().await?.hosts;
    let desired = DesiredState { drain: !options.undo };
    let ordered =
        ephor::admin::set_desired_state(&*place.store, &place.group, &options.host, desired).await?;
    let silence = |id: &HostId| hosts.iter().find(|host| host.record.id == *id).and_then(silence);
    let ordered: Vec<Ordered> = ordered.into_iter().map(|id| (id.clone(), silence(&id))).collect();
    match options.look.common.output {
        Output::Json => {
            let mut table = Table::new(&["host", "id", "drain", "silent for"]);
            for (id, silent) in &ordered {
                table.row(vec![
                    Cell::text(&id.name),
                    Cell::text(id),
                    Cell::both(desired.drain, desired.drain),
                    Cell::or_none(silent.map(Cell::duration)),
                ]);
            }
            table.print(Output::Json)?;
        }
        Output::Table => {
            for (id, silent) in &ordered {
                say(&format!("{}\n", told(id, desired, *silent)))?;
            }
        }
    }
    heard(&options.host, &ordered)
}

/// A host whose desired state was set, and the time since its last heartbeat if it is considered dead.
type Ordered = (HostId, Option<Duration>);

/// Fails if no living host gets its new desired state.
fn heard(host: &str, ordered: &[Ordered]) -> Result<(), BoxError> {
    match ordered.iter().all(|(_, silent)| silent.is_some()) {
        true => Err(format!("{host} is dead and cannot receive the request").into()),
        false => Ok(()),
    }
}

/// Describes the effect of a new desired state.
fn told(id: &HostId, desired: DesiredState, silent: Option<Duration>) -> String {
    let what = match desired.drain {
        true => "is asked to hand over all its partitions",
        false => "may take partitions again",
    };
    match silent {
        None => format!("{id} {what}; it receives the request with its next heartbeat"),
        Some(silent) => format!(
            "{id} has sent no heartbeat for {} and is considered dead: it {what}, but receives the request \
             only if it comes back; other hosts take over its partitions when its leases expire",
            duration_text(silent)
        ),
    }
}

#[cfg(test)]
mod tests {
    use ephor_core::host_record::{HostRecord, HostStatistics};
    use ephor_core::ids::Incarnation;

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
        assert_eq!(state(&entry(90, true)), "no heartbeat for 1m30s");
        assert_eq!(state(&entry(0, false)), "no heartbeat since the store restarted");
        let heard = |entry| table(&[entry]).json()[0]["heard"].clone();
        assert_eq!((heard(entry(3, true)), heard(entry(0, false))), (3.0.into(), serde_json::Value::Null));
    }

    #[test]
    fn who_drains_a_dead_host_is_told_that_it_is_dead() {
        let id = entry(0, true).record.id;
        let drain = DesiredState { drain: true };
        assert_eq!(silence(&entry(30, true)), None);
        assert_eq!(silence(&entry(90, false)), None, "the age is unknown");
        let silent = silence(&entry(163, true));
        let text = told(&id, drain, silent);
        assert!(text.contains("no heartbeat for 2m43s and is considered dead"), "{text}");
        assert!(!text.contains("next heartbeat"), "{text}");
        let text = told(&id, drain, None);
        assert!(text.ends_with(
            "is asked to hand over all its partitions; it receives the request with its next heartbeat"
        ));
        let (alive, dead) = ((id.clone(), None), (id, silent));
        assert!(heard("vm-1", &[alive.clone(), dead.clone()]).is_ok());
        assert!(heard("vm-1", &[dead]).unwrap_err().to_string().contains("vm-1 is dead"));
        assert!(heard("vm-1", &[alive]).is_ok());
    }
}

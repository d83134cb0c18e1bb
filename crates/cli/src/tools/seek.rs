//! `ephor checkpoint seek`: moves the position of a group; without `--yes` it is a dry run.

use std::str::FromStr;
use std::sync::Arc;

use ephor::admin::{Admin, SeekMode, SeekOutcome, SeekStep, SeekTo};
use ephor_core::BoxError;
use ephor_core::ids::PartitionId;
use ephor_core::position::{Offset, SequenceNumber};
use ephor_core::time::Timestamp;

use super::arguments::Seek;
use super::group::position;
use super::place::{Place, same_namespace};
use super::table::{Cell, Table, plural, thousands};
use crate::connection;

/// The parsed target of a seek.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Aim(SeekTo);

impl FromStr for Aim {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            "write earliest, latest, seq:N, offset:TEXT, time:2026-08-21T12:00:00Z, or by:-500 for 500 events back"
                .to_owned()
        };
        Ok(Self(match text.split_once(':') {
            None if text == "earliest" => SeekTo::Earliest,
            None if text == "latest" => SeekTo::Latest,
            Some(("seq", number)) => SeekTo::Sequence(SequenceNumber(number.parse().map_err(|_| wrong())?)),
            Some(("offset", offset)) if !offset.is_empty() => SeekTo::Offset(Offset::new(offset)),
            Some(("time", time)) => SeekTo::Time(parse_time(time).ok_or_else(wrong)?),
            Some(("by", events)) => SeekTo::By(events.parse().map_err(|_| wrong())?),
            _ => return Err(wrong()),
        }))
    }
}

pub(crate) async fn run(options: &Seek) -> Result<(), BoxError> {
    let place = Place::find_to_change(&options.look.name, &options.look.common.store).await?;
    let hub = connection::open(&options.hub, options.look.name.group.hub.as_str())?;
    same_namespace(&place.group, &hub)?;
    let admin = Admin::new(place.store.clone(), Arc::new(hub), place.group.clone(), who());
    let partitions: Vec<PartitionId> = options.partitions.iter().copied().map(PartitionId).collect();
    let mode = if options.yes { SeekMode::Apply } else { SeekMode::DryRun };
    let steps = admin.seek(&partitions, &options.to.0, mode).await?;
    table(&steps).print(options.look.common.output)?;
    let now = place.store.view(&place.group).await?.at;
    if let Some(warning) = warning(&options.to.0, now) {
        eprintln!("ephor: {warning}");
    }
    if !options.yes {
        eprintln!(
            "nothing was changed: add --yes to make these changes; the owners then restart in a new epoch"
        );
    }
    let foreign = |step: &&SeekStep| matches!(step.outcome, Some(SeekOutcome::ForeignOwner(_)));
    all_done(steps.iter().filter(foreign).count(), steps.len())
}

/// Fails if any position was not changed, also for programs that do not read the table.
pub(crate) fn all_done(undone: usize, all: usize) -> Result<(), BoxError> {
    if undone == 0 {
        return Ok(());
    }
    Err(format!(
        "positions not changed: {undone} of {all}, because processors of another SDK own the partitions; \
         stop those processors, wait until Ephor hosts own the partitions (leases that were not released \
         must expire first), and try again"
    )
    .into())
}

/// A warning about risks that the plan does not show.
fn warning(to: &SeekTo, now: Timestamp) -> Option<String> {
    match to {
        SeekTo::Offset(offset) => Some(format!(
            "the offset {offset} was not checked, because only the hub can read offsets. If it is invalid, \
             the hosts follow their `on_invalid_position`: they start at the earliest event, at the latest, \
             or not at all. A sequence number (seq:N) is checked"
        )),
        SeekTo::Time(time) if *time > now => Some(format!(
            "{time} is in the future (now: {now}): no event is read until then, and events that are enqueued \
             before are skipped"
        )),
        _ => None,
    }
}

fn table(steps: &[SeekStep]) -> Table {
    let mut table = Table::new(&["part", "now", "new", "change", "owner", "outcome"]);
    for step in steps {
        let change = step.distance.map(|distance| {
            let events = distance.unsigned_abs();
            let events = format!("{} {}", thousands(events), plural(events, "event"));
            match distance {
                0 => Cell::both("none", 0),
                1.. => Cell::both(format!("{events} skipped"), distance),
                _ => Cell::both(format!("{events} read again"), distance),
            }
        });
        table.row(vec![
            Cell::number(step.partition.0.into()),
            Cell::or_none(step.from.as_ref().map(position)),
            position(&step.to),
            Cell::or_none(change),
            Cell::or_none(step.owner.as_ref().map(|owner| Cell::both(&owner.name, owner.to_string()))),
            Cell::or_none(step.outcome.as_ref().map(|outcome| match outcome {
                SeekOutcome::Done(epoch) => Cell::text(format!("done in epoch {epoch}")),
                SeekOutcome::ForeignOwner(owner) => Cell::text(format!("not done: {owner} would not notice")),
            })),
        ]);
    }
    table
}

/// The name of the user, for the history.
pub(crate) fn who() -> String {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
    user.map_or_else(|_| "ephor".into(), |user| format!("{user} by ephor"))
}

/// Parses `2026-08-21T12:00:00.5Z`; seconds and their fraction may be left out, and so may the time of day.
fn parse_time(text: &str) -> Option<Timestamp> {
    let (date, time) = match text.split_once('T') {
        Some((date, time)) => (date, time.strip_suffix('Z')?),
        None => (text, "00:00"),
    };
    let number = |text: &str, range: std::ops::RangeInclusive<i64>| {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|number| digits && range.contains(number))
    };
    let mut date = date.splitn(3, '-');
    let year = number(date.next()?, 1970..=9999)?;
    let month = number(date.next()?, 1..=12)?;
    let day = number(date.next()?, 1..=days_in(year, month))?;
    let mut time = time.splitn(3, ':');
    let hour = number(time.next()?, 0..=23)?;
    let minute = number(time.next()?, 0..=59)?;
    let (second, part) = match time.next() {
        Some(seconds) => seconds.split_once('.').unwrap_or((seconds, "0")),
        None => ("0", "0"),
    };
    let second = number(second, 0..=59)?;
    let millis = number(&format!("{part:0<3}")[..3], 0..=999)?;
    let days = days_before(year) + (1..month).map(|month| days_in(year, month)).sum::<i64>() + day - 1;
    Some(Timestamp((((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000 + millis))
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// The days from 1970-01-01 to the first day of this year.
fn days_before(year: i64) -> i64 {
    (1970..year).map(|year| if is_leap(year) { 366 } else { 365 }).sum()
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_aim_is_read() {
        let number = SequenceNumber(7);
        for (text, aim) in [
            ("earliest", SeekTo::Earliest),
            ("latest", SeekTo::Latest),
            ("seq:7", SeekTo::Sequence(number)),
            ("offset:a:b", SeekTo::Offset(Offset::new("a:b"))),
            ("by:-500", SeekTo::By(-500)),
            ("time:1970-01-02T00:00:01.5Z", SeekTo::Time(Timestamp(86_401_500))),
        ] {
            assert_eq!(text.parse(), Ok(Aim(aim)), "{text}");
        }
        for text in
            ["", "soon", "seq:", "seq:-1", "offset:", "by:x", "time:yesterday", "time:2026-02-30", "seq"]
        {
            assert!(text.parse::<Aim>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_checked_and_what_is_yet_to_come_is_said() {
        let said = |to| warning(&to, Timestamp(5_000));
        let text = said(SeekTo::Offset(Offset::new("zzz"))).unwrap();
        assert!(text.contains("was not checked") && text.contains("offset zzz"), "{text}");
        let text = said(SeekTo::Time(Timestamp(5_001))).unwrap();
        assert!(text.contains("1970-01-01T00:00:05.001Z is in the future"), "{text}");
        for to in [SeekTo::Time(Timestamp(5_000)), SeekTo::Latest, SeekTo::By(-1)] {
            assert_eq!(said(to), None);
        }
    }

    #[test]
    fn times_read_as_they_are_written() {
        for text in ["1970-01-01T00:00:00.000Z", "2000-02-29T23:59:59.999Z", "2026-11-15T09:52:49.120Z"] {
            assert_eq!(parse_time(text).unwrap().to_string(), text);
        }
        for (text, full) in [
            ("2026-08-21", "2026-08-21T00:00:00.000Z"),
            ("2026-08-21T12:00Z", "2026-08-21T12:00:00.000Z"),
            ("2026-08-21T12:00:07.5Z", "2026-08-21T12:00:07.500Z"),
        ] {
            assert_eq!(parse_time(text).unwrap().to_string(), full);
        }
        for text in
            ["2026-08-21T12:00", "2026-13-01", "2026-8-+1", "2026-08-21T24:00Z", "2026-08-21T12:00:07.Z5"]
        {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }
}

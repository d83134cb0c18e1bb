//! `ephor checkpoint seek`: moves the position of a group; without `--yes` it is a dry run.

use std::str::FromStr;
use std::sync::Arc;
use std::time::SystemTime;

use ephor::admin::{Admin, SeekMode, SeekStep, SeekStepOutcome, SeekTo};
use ephor_core::BoxError;
use ephor_core::ids::PartitionId;
use ephor_core::position::{Offset, SequenceNumber};
use ephor_core::time::Timestamp;
use time::{Date, Month};

use super::arguments::Seek;
use super::group::position;
use super::store_and_group::{Place, same_namespace};
use crate::open_client;
use crate::table::{Cell, Table, plural, thousands};

/// The parsed target of a seek.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Aim(SeekTo);

impl FromStr for Aim {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(Self(match text.split_once(':') {
            None if text == "earliest" => SeekTo::Earliest,
            None if text == "latest" => SeekTo::Latest,
            Some(("seq", number)) => SeekTo::Sequence(SequenceNumber(number.parse().map_err(|_| {
                format!("{number:?} is not a sequence number: write a whole number, such as seq:500")
            })?)),
            Some(("offset", "")) => {
                return Err(
                    "the offset is empty: write the text of an event's offset, such as offset:4096".into()
                );
            }
            Some(("offset", offset)) => SeekTo::Offset(Offset::new(offset)),
            Some(("time", time)) => SeekTo::Time(
                parse_time(time).map_err(|problem| format!("{time:?} is not a time: {problem}; {TIMES}"))?,
            ),
            Some(("by", events)) => SeekTo::By(events.parse().map_err(|_| {
                format!(
                    "{events:?} is not a number of events: write by:-500 for 500 events back, by:500 ahead"
                )
            })?),
            _ => {
                return Err(format!(
                    "write earliest, latest, seq:N, offset:TEXT, time:{EXAMPLE}, or by:-500 for 500 events back"
                ));
            }
        }))
    }
}

pub(crate) async fn run(options: &Seek) -> Result<(), BoxError> {
    let place = Place::find_to_change(&options.look.name, &options.look.common.store).await?;
    let hub = open_client::open(&options.hub, options.look.name.group.hub.as_str())?;
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
    let not_done = |step: &&SeekStep| matches!(step.outcome, Some(SeekStepOutcome::OtherSdkOwner(_)));
    all_done(steps.iter().filter(not_done).count(), steps.len())
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
                SeekStepOutcome::Done(epoch) => Cell::text(format!("done in epoch {epoch}")),
                SeekStepOutcome::OtherSdkOwner(owner) => {
                    Cell::text(format!("not done: {owner} would not notice"))
                }
                other => Cell::text(format!("{other:?}")),
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

const EXAMPLE: &str = "2026-08-21T12:00:00Z";
const TIMES: &str = "write it in UTC, as 2026-08-21T12:00:00.5Z, 2026-08-21T12:00Z or 2026-08-21";

/// Parses `2026-08-21T12:00:00.5Z`; seconds and their fraction may be left out, and so may the time of day.
/// The error says what is wrong.
fn parse_time(text: &str) -> Result<Timestamp, &'static str> {
    let (date, time) = match text.split_once('T') {
        Some((date, time)) => (date, time.strip_suffix('Z').ok_or("it does not end in Z")?),
        None => (text, "00:00"),
    };
    let [year, month, day] = numbers(date, '-')[..] else { return Err("the date is not YEAR-MONTH-DAY") };
    let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
    let (hour, minute, second) = match numbers(time, ':')[..] {
        [hour, minute] if fraction.is_empty() => (hour, minute, 0),
        [hour, minute, second] => (hour, minute, second),
        _ => return Err("the time of day is not HOUR:MINUTE or HOUR:MINUTE:SECOND"),
    };
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("the fraction of the second has something other than digits");
    }
    let millisecond = format!("{fraction:0<3}")[..3].parse().unwrap_or(0);
    if !(1970..=9999).contains(&year) {
        return Err("the year is not between 1970 and 9999");
    }
    let month = small(month).and_then(|month| Month::try_from(month).ok()).ok_or("there is no such month")?;
    let date = small(day).and_then(|day| Date::from_calendar_date(year.into(), month, day).ok());
    let date = date.ok_or("the month has no such day")?;
    let (Some(hour), Some(minute), Some(second)) = (small(hour), small(minute), small(second)) else {
        return Err(NO_SUCH_TIME);
    };
    let time = date.with_hms_milli(hour, minute, second, millisecond).map_err(|_| NO_SUCH_TIME)?.assume_utc();
    Ok(SystemTime::from(time).into())
}

const NO_SUCH_TIME: &str = "the day has no such time";

/// The numbers between separators; none if anything else is there.
fn numbers(text: &str, separator: char) -> Vec<u16> {
    let digits = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit());
    let number = |part: &str| Some(part).filter(digits)?.parse().ok();
    text.split(separator).map(number).collect::<Option<Vec<u16>>>().unwrap_or_default()
}

fn small(number: u16) -> Option<u8> {
    number.try_into().ok()
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
        for (text, words) in [
            ("", "write earliest, latest"),
            ("soon", "write earliest, latest"),
            ("seq", "write earliest, latest"),
            ("seq:", "\"\" is not a sequence number"),
            ("seq:-1", "\"-1\" is not a sequence number"),
            ("offset:", "the offset is empty"),
            ("by:x", "\"x\" is not a number of events"),
            ("time:yesterday", "\"yesterday\" is not a time"),
            ("time:2026-02-30", "the month has no such day; write it in UTC"),
        ] {
            let error = text.parse::<Aim>().expect_err(text);
            assert!(error.contains(words), "{text}: {error}");
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
        for (text, words) in [
            ("2026-08-21T12:00", "end in Z"),
            ("2026-08-21T12:00:07.Z5", "end in Z"),
            ("2026-08-21T12:00+02:00", "end in Z"),
            ("yesterday", "YEAR-MONTH-DAY"),
            ("", "YEAR-MONTH-DAY"),
            ("2026-08", "YEAR-MONTH-DAY"),
            ("2026-8-+1", "YEAR-MONTH-DAY"),
            ("99999-01-01", "YEAR-MONTH-DAY"),
            ("1969-12-31", "between 1970 and 9999"),
            ("2026-13-01", "no such month"),
            ("2026-256-01", "no such month"),
            ("2026-02-29", "no such day"),
            ("2026-08-00", "no such day"),
            ("10000-01-01", "between 1970 and 9999"),
            ("2026-08-21T12Z", "HOUR:MINUTE"),
            ("2026-08-21T12:00.5Z", "HOUR:MINUTE"),
            ("2026-08-21T24:00Z", "no such time"),
            ("2026-08-21T12:00:60Z", "no such time"),
            ("2026-08-21T12:00:07.äZ", "fraction"),
        ] {
            let problem = parse_time(text).expect_err(text);
            assert!(problem.contains(words), "{text}: {problem}");
        }
    }
}

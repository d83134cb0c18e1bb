//! The page of the city: totals, the auditor's verdict, map, and alarms.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::format::{count, counted, percent, span, when};
use super::layout::{Page, document};
use super::map;
use super::page_content::{Row, Shown};
use crate::time::CityTime;
use crate::view::model::{AlarmLine, Audit, CityNow, NEIGHBOURHOOD, Neighbourhood};

/// From here on data is old, in milliseconds.
const STALE: u64 = 5_000;

/// Steps of brightness.
const LEVELS: u8 = 9;

/// The least difference of two neighbourhoods, as a share of their homes, that spans all the steps.
const MIN_RANGE: f64 = 0.04;

/// All that changes on the city's page.
pub(super) fn shown(city: &CityNow, rates: &[f64]) -> Shown {
    let mut shown = Shown::default();
    numbers(&mut shown, city, rates);
    audit(&mut shown, &city.audit);
    blocks(&mut shown, city);
    shown.list("alarms", alarm_rows(&city.alarms, city.time));
    let open = city.neighbourhoods.iter().map(|neighbourhood| u64::from(neighbourhood.alarms)).sum();
    shown.say("alarms-open", format!("{} now", counted(open, "home", "homes")));
    shown.say("alarms-none", if city.alarms.is_empty() { "No alarms yet." } else { "" });
    shown
}

fn numbers(shown: &mut Shown, city: &CityNow, rates: &[f64]) {
    let or_dash = |milliseconds: Option<u64>| milliseconds.map_or_else(|| "–".to_owned(), span);
    shown.say("time", if city.age.is_some() { city.time.hours_and_minutes() } else { "–".to_owned() });
    let faster = (city.speed - 1.0).abs() > 0.001 && city.speed > 0.0;
    shown.say("speed", if faster { format!("runs {} times as fast", city.speed) } else { String::new() });
    shown.say("rate", count(city.rate.max(0.0).round() as u64));
    let line = sparkline(rates);
    let first = 120 - rates.len().saturating_sub(1);
    let area = if line.is_empty() { String::new() } else { format!("{line}V32H{first}Z") };
    shown.mark("sparkline-area", "d", Some(area));
    shown.mark("sparkline", "d", Some(line));
    shown.say("age", or_dash(city.age));
    shown.say("p50", or_dash(city.p50));
    shown.say("p99", or_dash(city.p99));
    let stale = city.age.is_none_or(|age| age > STALE);
    let why = match city.age {
        None => "waiting for the first data",
        Some(_) if stale => "old: no new data has arrived",
        Some(_) => "newest reading in the results",
    };
    shown.say("age-says", why);
    shown.mark("content", "data-stale", stale.then(|| "yes".to_owned()));
}

/// A line from left to right in a box of 120 by 32, newest at the right.
fn sparkline(rates: &[f64]) -> String {
    let most = rates.iter().copied().fold(1.0, f64::max);
    let mut path = String::new();
    for (at, rate) in rates.iter().enumerate() {
        let x = 120.0 - (rates.len() - 1 - at) as f64;
        let y = 30.0 - rate.max(0.0) / most * 28.0;
        let _ = write!(path, "{}{x:.0} {y:.1}", if at == 0 { 'M' } else { 'L' });
    }
    path
}

fn audit(shown: &mut Shown, audit: &Audit) {
    let in_flight = audit.sent.saturating_sub(audit.processed);
    let nothing_missing = in_flight == 0 && audit.homes_behind == 0;
    let (verdict, sentence) = match (audit.sent, audit.invented) {
        (_, 1..) => {
            let readings = counted(audit.invented, "reading", "readings");
            ("wrong", format!("The results contain {readings} that were never sent. This is an error."))
        }
        (0, _) => ("waiting", "No reading has been sent yet.".to_owned()),
        _ if audit.overdue > 0 => {
            let late = counted(audit.overdue, "reading is", "readings are");
            (
                "late",
                format!(
                    "{late} overdue: late or lost. The usual cause is a hub or a host that does not run."
                ),
            )
        }
        _ if nothing_missing => ("right", "Every reading sent is in the results, home by home.".to_owned()),
        _ if in_flight == 0 => {
            let homes = counted(audit.homes_behind.into(), "home is", "homes are");
            (
                "right",
                format!("The results contain as many readings as were sent; {homes} not up to date yet."),
            )
        }
        _ => ("right", format!("Every reading sent is accounted for; {} in flight.", count(in_flight))),
    };
    shown.say("audit-sentence", sentence);
    shown.mark("audit", "data-verdict", Some(verdict.to_owned()));
    shown.say("audit-sent", count(audit.sent));
    shown.say("audit-processed", count(audit.processed));
    shown.say("audit-repeated", count(audit.sensor_repeats));
    shown.say("audit-replayed", count(audit.replayed));
    shown.say("audit-flight", count(in_flight));
    let behind = counted(audit.homes_behind.into(), "home", "homes");
    shown
        .say("audit-behind", if nothing_missing { String::new() } else { format!("in flight for {behind}") });
    let overdue = match audit.overdue {
        0 => "none".to_owned(),
        late => format!("{} overdue", count(late)),
    };
    shown.say("audit-lost", overdue);
}

fn share(neighbourhood: &Neighbourhood) -> f64 {
    f64::from(neighbourhood.active) / f64::from(neighbourhood.homes.max(1))
}

/// The least and the most activity, which the brightness spans.
fn range(neighbourhoods: &[Neighbourhood]) -> (f64, f64) {
    let shares = || neighbourhoods.iter().filter(|neighbourhood| neighbourhood.homes > 0).map(share);
    let least = shares().fold(f64::INFINITY, f64::min).min(1.0);
    let most = shares().fold(0.0, f64::max);
    if most - least >= MIN_RANGE { (least, most) } else { ((most - MIN_RANGE).max(0.0), most) }
}

fn level(share: f64, (least, most): (f64, f64)) -> u8 {
    let height = (share - least) / (most - least).max(f64::EPSILON);
    (height.clamp(0.0, 1.0) * f64::from(LEVELS)).round() as u8
}

fn blocks(shown: &mut Shown, city: &CityNow) {
    let range = range(&city.neighbourhoods);
    let mut all = Neighbourhood::default();
    for (number, neighbourhood) in city.neighbourhoods.iter().enumerate() {
        let id = map::block_id(number);
        let first = number as u32 * NEIGHBOURHOOD;
        let homes = first..first + NEIGHBOURHOOD;
        let alarm = city.alarms.iter().find(|alarm| alarm.open && homes.contains(&alarm.home));
        let to = alarm.map_or(first, |alarm| alarm.home);
        let mut marks = Vec::new();
        if neighbourhood.alarms > 0 {
            marks.push("alarm");
        }
        if neighbourhood.silent > 0 {
            marks.push("silent");
        }
        shown.mark(&id, "href", Some(format!("/home/{to}")));
        shown.mark(&id, "data-level", Some(level(share(neighbourhood), range).to_string()));
        shown.mark(&id, "data-marks", Some(marks.join(" ")));
        shown.mark(&id, "aria-label", Some(describe(number, neighbourhood)));
        shown.say(format!("{id}-silent"), count(neighbourhood.silent.into()));
        all.homes += neighbourhood.homes;
        all.active += neighbourhood.active;
        all.armed += neighbourhood.armed;
        all.silent += neighbourhood.silent;
    }
    shown.say("city-homes", count(all.homes.into()));
    shown.say("city-active", count(all.active.into()));
    shown.say("city-armed", count(all.armed.into()));
    shown.say("city-silent", count(all.silent.into()));
    let (least, most) = range;
    shown.say("level-least", percent((least.min(most) * 1_000.0) as u32, 1_000));
    shown.say("level-most", percent((most * 1_000.0) as u32, 1_000));
}

fn describe(number: usize, neighbourhood: &Neighbourhood) -> String {
    let first = number as u32 * NEIGHBOURHOOD;
    let mut text = format!(
        "Homes {} to {}: {} with movement, {} away",
        first,
        first + NEIGHBOURHOOD - 1,
        count(neighbourhood.active.into()),
        count(neighbourhood.armed.into()),
    );
    if neighbourhood.alarms > 0 {
        let _ = write!(text, ", {}", counted(neighbourhood.alarms.into(), "alarm", "alarms"));
    }
    if neighbourhood.silent > 0 {
        let _ = write!(text, ", {} silent", count(neighbourhood.silent.into()));
    }
    text
}

/// Alarms as rows of a list.
pub(super) fn alarm_rows(alarms: &[AlarmLine], now: CityTime) -> Vec<Row> {
    let row = |alarm: &AlarmLine| {
        Row::new(format!("{}/{}/{}", alarm.home, alarm.since.0, alarm.what))
            .mark("data-state", if alarm.open { "open" } else { "over" })
            .say("glyph", if alarm.open { "▲" } else { "✓" })
            .say("what", &alarm.what)
            .say("home", format!("home {}", alarm.home))
            .mark_part("home", "href", Some(format!("/home/{}", alarm.home)))
            .say("since", when(alarm.since, now))
            .say("state", if alarm.open { "ongoing" } else { "ended" })
    };
    alarms.iter().map(row).collect()
}

/// One alarm; the default row is the template.
pub(super) fn alarm(row: &Row) -> Markup {
    html! {
        li.alarm data-key=(row.key()) data-state=[row.attribute("data-state")] {
            span.glyph aria-hidden="true" data-part="glyph" { (row.text("glyph")) }
            span.what data-part="what" { (row.text("what")) }
            a data-part="home" href=[row.part("home", "href")] { (row.text("home")) }
            time data-part="since" { (row.text("since")) }
            span.state data-part="state" { (row.text("state")) }
        }
    }
}

/// A list of alarms with its template.
pub(super) fn alarms(shown: &Shown) -> Markup {
    html! {
        ul.alarms #alarms data-template="alarm-template" data-news="yes" {
            @for row in shown.rows("alarms") { (alarm(row)) }
        }
        template #alarm-template { (alarm(&Row::default())) }
        p.none #alarms-none { (shown.text("alarms-none")) }
    }
}

/// The page.
pub(super) fn page(shown: &Shown, homes: u32) -> Markup {
    let text = |id: &str| html! { span id=(id) { (shown.text(id)) } };
    let blocks = (homes.div_ceil(NEIGHBOURHOOD)) as usize;
    let content = html! {
        div.city {
            section.panel.plan aria-labelledby="plan-title" {
                header {
                    h1 #plan-title { "The city at " (text("time")) }
                    p.muted { (text("speed")) }
                }
                p.inspect #inspect {
                    (text("city-active")) " of " (text("city-homes")) " homes with movement, "
                    (text("city-armed")) " away, " (text("city-silent")) " silent"
                }
                p.inspect #inspected hidden aria-hidden="true" {}
                (map::plan(shown, blocks))
                p.legend {
                    span { "movement " (text("level-least")) }
                    span.scale aria-hidden="true" { @for level in 0..=LEVELS { i data-level=(level) {} } }
                    span { (text("level-most")) }
                    span.key { svg.mark viewBox="-16 -16 32 32" aria-hidden="true" { g.alarm { use href="#mark-alarm" {} } } "alarm" }
                    span.key { svg.mark viewBox="-16 -16 32 32" aria-hidden="true" { g.silent { use href="#mark-silent" {} } } "silent homes" }
                }
            }
            div.beside {
                section.numbers aria-label="Numbers" {
                    div.number.wide {
                        h2 { "Readings a second" }
                        p.big { (text("rate")) }
                        svg.sparkline viewBox="0 0 122 32" preserveAspectRatio="none" role="img" aria-label="The last two minutes" {
                            path #sparkline-area d=[shown.attribute("sparkline-area", "d")] {}
                            path #sparkline d=[shown.attribute("sparkline", "d")] {}
                        }
                    }
                    div.number { h2 { "Data age" } p.big.fades { (text("age")) } p.muted #age-says { (shown.text("age-says")) } }
                    div.number {
                        h2 { "From push to page" }
                        p.big { (text("p50")) }
                        p.muted { "median; 99 of 100 under " (text("p99")) }
                    }
                }
                (audit_panel(shown))
                section.panel aria-labelledby="alarms-title" {
                    header { h2 #alarms-title { "Alarms" } p.muted { (text("alarms-open")) } }
                    (alarms(shown))
                }
            }
        }
    };
    let page = Page { title: "The city", here: "/", live: Some("/live/city"), script: Some("city.js") };
    document(&page, &content)
}

fn audit_panel(shown: &Shown) -> Markup {
    let line = |name: &str, id: &str, help: &str| {
        html! { div title=(help) { dt { (name) } dd id=(id) { (shown.text(id)) } } }
    };
    html! {
        section.panel.audit #audit data-verdict=[shown.attribute("audit", "data-verdict")] aria-labelledby="audit-title" {
            header { h2 #audit-title { "The auditor" } p.muted #audit-behind { (shown.text("audit-behind")) } }
            p.sentence #audit-sentence { (shown.text("audit-sentence")) }
            dl {
                (line("sent", "audit-sent", "Readings the hub has acknowledged, each counted once"))
                (line("processed", "audit-processed", "Readings in the results, each counted once"))
                (line("in flight", "audit-flight", "Sent, and not in the results yet"))
                (line("repeated", "audit-repeated", "Sent more than once by a sensor, and counted once"))
                (line("replayed", "audit-replayed", "Delivered again after a change of owner, and counted once"))
                (line("lost", "audit-lost", "Sent more than half a minute ago and not in the results"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentence(audit: Audit) -> (String, String) {
        let mut shown = Shown::default();
        super::audit(&mut shown, &audit);
        let verdict = shown.attribute("audit", "data-verdict").unwrap().to_owned();
        (verdict, shown.text("audit-sentence").to_owned())
    }

    #[test]
    fn the_auditor_says_it_in_a_sentence() {
        let audit = Audit { sent: 10_000, processed: 8_796, homes_behind: 900, ..Audit::default() };
        let flying = "Every reading sent is accounted for; 1,204 in flight.";
        assert_eq!(sentence(audit), ("right".to_owned(), flying.to_owned()));
        let all = "Every reading sent is in the results, home by home.";
        assert_eq!(sentence(Audit { processed: 10_000, homes_behind: 0, ..audit }).1, all);
        assert_ne!(sentence(Audit { processed: 10_000, ..audit }).1, all, "the sum is right, homes are not");
        assert_eq!(sentence(Audit { invented: 1, ..audit }).0, "wrong");
        let late = sentence(Audit { overdue: 1_204, ..audit });
        assert!(late.0 == "late" && late.1.starts_with("1,204 readings are overdue"), "{late:?}");
        assert_eq!(sentence(Audit::default()).0, "waiting");
    }

    #[test]
    fn brightness_spans_the_least_and_the_most() {
        let of = |active| Neighbourhood { homes: 1_000, active, ..Neighbourhood::default() };
        let wide = range(&[of(100), of(300), of(200), Neighbourhood::default()]);
        assert_eq!([0.1, 0.2, 0.3].map(|share| level(share, wide)), [0, 5, 9]);
        let narrow = range(&[of(300), of(301)]);
        assert!(level(0.300, narrow) >= 8, "noise is no difference");
        assert_eq!(level(0.0, range(&[])), 0);
        assert_eq!(level(0.0, range(&[of(0)])), 0);
    }

    #[test]
    fn the_newest_rate_is_at_the_right() {
        assert_eq!(sparkline(&[]), "");
        assert_eq!(sparkline(&[0.0, 50.0, 100.0]), "M118 30.0L119 16.0L120 2.0");
    }
}

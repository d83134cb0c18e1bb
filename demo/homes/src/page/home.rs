//! The page of one home: its rooms and sensors, its day, and its alarms.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::city::{alarm_rows, alarms};
use super::format::{ago, count, counted, when};
use super::layout::{Page, document};
use super::page_content::{Row, Shown};
use crate::time::{CityTime, MINUTES_PER_DAY};
use crate::view::model::{HomeNow, SensorNow};

/// Below this a battery should be changed, in percent.
const LOW_BATTERY: u8 = 15;

/// The lanes of the day: name, bit, and id.
const LANES: [(&str, u8, &str); 4] = [
    ("heard", 1, "lane-heard"),
    ("movement", 2, "lane-movement"),
    ("door open", 4, "lane-door"),
    ("alarm", 8, "lane-alarm"),
];

/// All that changes on a home's page.
pub(super) fn shown(home: &HomeNow, now: CityTime) -> Shown {
    let mut shown = Shown::default();
    shown.say("mood", mood(home, now));
    let alarm = home.alarms.iter().any(|alarm| alarm.open);
    shown.mark("mood", "data-mood", Some(if alarm { "alarm" } else { "calm" }.to_owned()));
    shown.say(
        "people",
        if home.armed { "everybody is out, the house is armed" } else { "somebody is at home" },
    );
    shown.say("readings", counted(home.readings, "reading", "readings"));
    shown.say("repeats", counted(home.repeats.into(), "repeat", "repeats"));
    shown.list("sensors", home.sensors.iter().map(|sensor| sensor_row(sensor, now)).collect());
    let none = if home.sensors.is_empty() { "No sensor of this home has sent a reading yet." } else { "" };
    shown.say("sensors-none", none);
    for (_, bit, id) in LANES {
        shown.mark(id, "d", Some(lane(&home.today, bit)));
    }
    shown.mark("today", "data-minutes", Some(digits(&home.today)));
    shown.mark("now", "x1", Some(home.minute.to_string()));
    shown.mark("now", "x2", Some(home.minute.to_string()));
    shown.say("today-time", format!("{:02}:{:02}", home.minute / 60, home.minute % 60));
    shown.say("today-says", summary(&home.today));
    shown.list("alarms", alarm_rows(&home.alarms, now));
    shown.say("alarms-none", if home.alarms.is_empty() { "No alarms." } else { "" });
    shown
}

fn mood(home: &HomeNow, now: CityTime) -> String {
    if let Some(alarm) = home.alarms.iter().find(|alarm| alarm.open) {
        return format!("▲ {}, since {}", alarm.what, when(alarm.since, now));
    }
    let silent = home.sensors.iter().filter(|sensor| sensor.silent).count();
    match (home.sensors.is_empty(), silent) {
        (true, _) => "Waiting for the first reading.".to_owned(),
        (_, 0) => "All is well.".to_owned(),
        (_, silent) => {
            format!("No alarm, but {} silent.", counted(silent as u64, "sensor is", "sensors are"))
        }
    }
}

fn sensor_row(sensor: &SensorNow, now: CityTime) -> Row {
    let low = sensor.battery < LOW_BATTERY;
    Row::new(format!("{}/{}", sensor.room, sensor.name))
        .mark("data-state", if sensor.silent { "silent" } else { "heard" })
        .say("room", sensor.room)
        .say("name", sensor.name)
        .say("says", &sensor.says)
        .mark_part("battery", "value", Some(sensor.battery.to_string()))
        .say("charge", format!("battery {} %{}", sensor.battery, if low { ", low" } else { "" }))
        .say("heard", format!("heard {}, {}", when(sensor.heard, now), ago(sensor.heard, now)))
        .say("silent", if sensor.silent { "⊘ silent" } else { "" })
        .say("clock", if sensor.clock_wrong { "◷ its clock is wrong" } else { "" })
}

/// The minutes that have a bit, as boxes of height 1 on a line of 1,440.
fn lane(today: &[u8], bit: u8) -> String {
    let mut path = String::new();
    let mut at = 0;
    for minutes in today.chunk_by(|one, next| one & bit == next & bit) {
        if minutes[0] & bit != 0 {
            let _ = write!(path, "M{at} 0h{0}v1h-{0}z", minutes.len());
        }
        at += minutes.len();
    }
    path
}

/// One hexadecimal digit a minute.
fn digits(today: &[u8]) -> String {
    today.iter().filter_map(|minute| char::from_digit(u32::from(minute & 15), 16)).collect()
}

fn summary(today: &[u8]) -> String {
    let minutes = |bit: u8| today.iter().filter(|minute| **minute & bit != 0).count() as u64;
    let heard = counted(minutes(1), "minute", "minutes");
    format!("heard in {heard}, movement in {}, door open in {}", count(minutes(2)), count(minutes(4)))
}

/// The page.
pub(super) fn page(shown: &Shown, number: u32, homes: u32) -> Markup {
    let text = |id: &str| html! { span id=(id) { (shown.text(id)) } };
    let partition = crate::reading::partition_of(number).0;
    let content = html! {
        div.home {
            header.hero {
                nav.turn aria-label="Neighbours" {
                    @if number > 0 { a href=(format!("/home/{}", number - 1)) rel="prev" { "← " (number - 1) } }
                    @if number + 1 < homes { a href=(format!("/home/{}", number + 1)) rel="next" { (number + 1) " →" } }
                }
                h1 { "Home " (number) }
                p.mood #mood data-mood=[shown.attribute("mood", "data-mood")] role="status" { (shown.text("mood")) }
                p.muted {
                    (text("people")) " · " (text("readings")) " counted, " (text("repeats")) " ignored · partition " (partition)
                }
            }
            section aria-labelledby="sensors-title" {
                h2 #sensors-title { "Rooms and sensors" }
                ul.sensors #sensors data-template="sensor-template" {
                    @for row in shown.rows("sensors") { (sensor(row)) }
                }
                template #sensor-template { (sensor(&Row::default())) }
                p.none #sensors-none { (shown.text("sensors-none")) }
            }
            (day(shown))
            section.panel aria-labelledby="alarms-title" {
                header { h2 #alarms-title { "Its alarms" } }
                (alarms(shown))
            }
        }
    };
    let (title, live) = (format!("Home {number}"), format!("/live/home/{number}"));
    document(&Page { title: &title, here: "", live: Some(&live), script: Some("home.js") }, &content)
}

fn sensor(row: &Row) -> Markup {
    html! {
        li.sensor data-key=(row.key()) data-state=[row.attribute("data-state")] {
            p.room data-part="room" { (row.text("room")) }
            h3 data-part="name" { (row.text("name")) }
            p.says data-part="says" { (row.text("says")) }
            p.charge {
                meter data-part="battery" min="0" max="100" low=(LOW_BATTERY) optimum="100" aria-label="battery"
                    value=(row.part("battery", "value").unwrap_or("0")) {}
                span data-part="charge" { (row.text("charge")) }
            }
            p.muted data-part="heard" { (row.text("heard")) }
            p.flags { span data-part="silent" { (row.text("silent")) } span data-part="clock" { (row.text("clock")) } }
        }
    }
}

fn day(shown: &Shown) -> Markup {
    let minute = shown.attribute("now", "x1");
    html! {
        section.panel.day aria-labelledby="today-title" {
            header {
                h2 #today-title { "Today until " span #today-time { (shown.text("today-time")) } }
                p.muted #today-says { (shown.text("today-says")) }
            }
            div.strip #today data-minutes=[shown.attribute("today", "data-minutes")] {
                ul.lanes aria-hidden="true" { @for (name, _, _) in LANES { li { (name) } } }
                svg viewBox="0 0 1440 4" preserveAspectRatio="none" aria-hidden="true" {
                    @for (lane, (_, _, id)) in LANES.iter().enumerate() {
                        g transform=(format!("translate(0 {lane}.12) scale(1 .76)")) {
                            rect.ground width=(MINUTES_PER_DAY) height="1" {}
                            path id=(id) d=[shown.attribute(id, "d")] {}
                        }
                    }
                    line #now x1=[minute] x2=[minute] y1="0" y2="4" {}
                }
                ol.hours aria-hidden="true" { @for hour in (0..=24).step_by(3) { li { (format!("{hour:02}")) } } }
            }
            p.muted #minute { "Point at the chart to see a minute." }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_has_a_box_for_each_run_of_minutes() {
        let today = [0, 1, 3, 1, 0, 2];
        assert_eq!(lane(&today, 1), "M1 0h3v1h-3z");
        assert_eq!(lane(&today, 2), "M2 0h1v1h-1zM5 0h1v1h-1z");
        assert_eq!(lane(&today, 8), "");
        assert_eq!((digits(&[0, 1, 15, 255]), lane(&[], 1)), ("01ff".to_owned(), String::new()));
        assert_eq!(summary(&[0, 1]), "heard in 1 minute, movement in 0, door open in 0");
        assert_eq!(summary(&today), "heard in 3 minutes, movement in 2, door open in 0");
    }
}

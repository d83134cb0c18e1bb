//! Builds the page's data of one home and of one alarm from the consolidated state, with the values of
//! sensors as text.

use super::model::{AlarmLine, HomeNow, SensorNow};
use crate::city::room_of;
use crate::consolidate::{Alarm, Homes};
use crate::reading::Sensor;

pub(super) fn line(home: u32, alarm: &Alarm) -> AlarmLine {
    AlarmLine { home, what: alarm.what(), since: alarm.since, open: alarm.is_open() }
}

/// A home that was never heard of has no sensors yet.
pub(super) fn home(number: u32, partition: u32, homes: &Homes) -> HomeNow {
    let found = homes.home(number);
    let sensors = found.map_or(Vec::new(), |home| {
        let now = home.sensors().map(|(sensor, state)| SensorNow {
            name: sensor.name(),
            room: room_of(number, sensor),
            says: says(sensor, state.value),
            heard: state.heard,
            battery: state.battery,
            silent: state.silent,
            clock_wrong: state.clock_wrong,
        });
        now.collect()
    });
    HomeNow {
        home: number,
        partition,
        armed: found.is_some_and(|home| home.armed()),
        sensors,
        today: homes.today(number),
        minute: homes.time().minute_of_day(),
        alarms: found.map_or(Vec::new(), |home| home.alarms().map(|alarm| line(number, alarm)).collect()),
        readings: found.map_or(0, |home| home.readings()),
        repeats: found.map_or(0, |home| home.repeats()),
    }
}

fn says(sensor: Sensor, value: u16) -> String {
    match (sensor, value) {
        (Sensor::Motion, 0) => "no movement".into(),
        (Sensor::Motion, 1) => "1 movement".into(),
        (Sensor::Motion, many) => format!("{many} movements"),
        (Sensor::Door, 0) => "closed".into(),
        (Sensor::Door, _) => "open".into(),
        (Sensor::Glass, 0) => "quiet".into(),
        (Sensor::Glass, _) => "broken".into(),
        (Sensor::CarbonMonoxide, parts) => format!("{parts} ppm"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sensors_speak_in_words() {
        assert_eq!(says(Sensor::Motion, 0), "no movement");
        assert_eq!(says(Sensor::Motion, 1), "1 movement");
        assert_eq!(says(Sensor::Motion, 3), "3 movements");
        assert_eq!(says(Sensor::Door, 1), "open");
        assert_eq!(says(Sensor::Door, 0), "closed");
        assert_eq!(says(Sensor::Glass, 1), "broken");
        assert_eq!(says(Sensor::Glass, 0), "quiet");
        assert_eq!(says(Sensor::CarbonMonoxide, 42), "42 ppm");
    }
}

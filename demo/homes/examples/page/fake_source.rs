//! A fake data source for the page: plausible numbers that change, and hosts that react to actions. For the
//! example and the tests of the page.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ephor_homes::page::{Action, Source};
use ephor_homes::time::CityTime;
use ephor_homes::view::model::{
    AlarmLine, Audit, CityNow, FleetNow, GroupNow, HomeNow, HostNow, HostProcess, NEIGHBOURHOOD,
    Neighbourhood, PartitionNow, SensorNow,
};
use futures_util::future::BoxFuture;

/// Homes of the made-up city.
pub(crate) const HOMES: u32 = 100_000;

const PARTITIONS: u32 = 16;
const MORNING: u64 = 1_790_000_000_000;

/// A home that broke its glass.
pub(crate) const BROKEN: u32 = 41_234;

/// The made-up city.
pub(crate) struct Fake {
    began: Instant,
    fleet: Mutex<FleetNow>,
}

impl Fake {
    /// Five hosts own 16 partitions in two groups.
    pub(crate) fn new() -> Self {
        let fleet = FleetNow { hub_up: true, ..FleetNow::default() };
        let fake = Self { began: Instant::now(), fleet: Mutex::new(fleet) };
        for _ in 0..5 {
            add_host(&mut fake.fleet_now());
        }
        fake.fleet_now().groups = ["consolidate", "alarms"].map(group).to_vec();
        let mut fleet = fake.fleet_now();
        balance(&mut fleet, "the demo began");
        fleet.changes.truncate(8);
        drop(fleet);
        fake
    }

    fn passed(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(0)
    }

    fn now(&self) -> CityTime {
        CityTime(MORNING + 3 * 3_600_000 + self.passed())
    }

    fn fleet_now(&self) -> MutexGuard<'_, FleetNow> {
        self.fleet.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn group(name: &str) -> GroupNow {
    let partition = |id| PartitionNow {
        id,
        owner: None,
        epoch: 0,
        since: 0,
        expired: false,
        lag: 40 + u64::from(id) * 7,
    };
    GroupNow { name: name.to_owned(), partitions: (0..PARTITIONS).map(partition).collect() }
}

fn add_host(fleet: &mut FleetNow) -> String {
    let name = format!("host-{}", fleet.hosts.len() + 1);
    let host = HostNow {
        name: name.clone(),
        state: HostProcess::Running,
        cores: 0.08 + 0.01 * fleet.hosts.len() as f64,
        memory: (38 + fleet.hosts.len() as u64) << 20,
        slow: 0,
    };
    fleet.hosts.push(host);
    name
}

/// Gives every running host its share; only what must move moves.
fn balance(fleet: &mut FleetNow, why: &str) {
    let running: Vec<String> = fleet
        .hosts
        .iter()
        .filter(|host| host.state == HostProcess::Running)
        .map(|host| host.name.clone())
        .collect();
    let FleetNow { groups, changes, .. } = fleet;
    for group in groups {
        let most = (PARTITIONS as usize).div_ceil(running.len().max(1));
        let owned = |group: &GroupNow, host: &str| {
            group.partitions.iter().filter(|partition| partition.owner.as_deref() == Some(host)).count()
        };
        for at in 0..group.partitions.len() {
            let owner = group.partitions[at].owner.clone();
            let stays =
                owner.as_ref().is_some_and(|owner| running.contains(owner) && owned(group, owner) <= most);
            if stays {
                continue;
            }
            let least = running.iter().min_by_key(|host| owned(group, host)).cloned();
            if least == owner {
                continue;
            }
            let partition = &mut group.partitions[at];
            partition.owner = least;
            partition.epoch += 1;
            partition.since = 0;
            let (to, name) = (partition.owner.as_deref().unwrap_or("nobody"), &group.name);
            changes.insert(
                0,
                format!("{name} partition {} moves to {to}, epoch {}: {why}", partition.id, partition.epoch),
            );
        }
    }
    changes.truncate(40);
}

impl Source for Fake {
    fn city(&self) -> CityNow {
        let (passed, now) = (self.passed(), self.now());
        let wave = |at: u32| f64::from(at) * 0.7 + passed as f64 / 4_000.0;
        let neighbourhood = |at: u32| Neighbourhood {
            homes: NEIGHBOURHOOD,
            active: (330.0 + 90.0 * wave(at).sin() + 40.0 * wave(at * at % 37).cos()) as u32,
            armed: 410 + at % 50,
            alarms: u32::from(at == 41 || at == 77),
            silent: if at % 13 == 5 { 1 + at % 4 } else { 0 },
        };
        let sent = 41_000_000 + passed * 5;
        CityNow {
            time: now,
            speed: 1.0,
            rate: 5_000.0 + 260.0 * (passed as f64 / 3_000.0).sin() + (passed % 97) as f64,
            age: Some(180 + passed % 390),
            p50: Some(620 + passed % 60),
            p99: Some(1_310 + passed % 170),
            neighbourhoods: (0..HOMES / NEIGHBOURHOOD).map(neighbourhood).collect(),
            alarms: alarms(now, passed),
            audit: Audit {
                sent,
                processed: sent - 1_204 - passed % 900,
                sensor_repeats: 12_345 + passed / 400,
                replayed: 2_310,
                homes_behind: 1_100,
                overdue: 0,
                invented: 0,
            },
        }
    }

    fn home(&self, home: u32) -> Option<HomeNow> {
        (home < HOMES).then(|| {
            let now = self.now();
            let minute = now.minute_of_day();
            HomeNow {
                home,
                partition: ephor_homes::reading::partition_of(home).0,
                armed: home.is_multiple_of(3),
                sensors: sensors(home, now),
                today: (0..1_440).map(|at| day(home, at, minute)).collect(),
                minute,
                alarms: alarms(now, 0).into_iter().filter(|alarm| alarm.home == home).collect(),
                readings: 2_514 + self.passed() / 20_000,
                repeats: 3,
            }
        })
    }

    fn homes(&self) -> u32 {
        HOMES
    }

    fn fleet(&self) -> FleetNow {
        let mut fleet = self.fleet_now().clone();
        for partition in fleet.groups.iter_mut().flat_map(|group| &mut group.partitions) {
            partition.since += self.passed();
            partition.lag += self.passed() / 500 * 13 % 90;
        }
        fleet.cores = fleet.hosts.iter().map(|host| host.cores).sum::<f64>() + 0.3;
        fleet.memory = fleet.hosts.iter().map(|host| host.memory).sum::<u64>() + (210 << 20);
        fleet
    }

    fn act(&self, action: Action) -> BoxFuture<'_, Result<String, String>> {
        let done = self.obey(action);
        Box::pin(async move { done })
    }
}

impl Fake {
    fn obey(&self, action: Action) -> Result<String, String> {
        let mut fleet = self.fleet_now();
        let (host, state, slow, text) = match action {
            Action::AddHost => {
                let name = add_host(&mut fleet);
                balance(&mut fleet, &format!("{name} joined"));
                return Ok(format!("{name} starts."));
            }
            Action::RestartHub => return Ok("The hub starts again.".to_owned()),
            Action::CarbonMonoxide(on) => {
                fleet.carbon_monoxide = on;
                return Ok(format!("The detectors are {}.", if on { "on" } else { "off" }));
            }
            Action::StopHost(host) => (host, Some(HostProcess::Stopped), None, "stops"),
            Action::KillHost(host) => (host, Some(HostProcess::Dead), None, "was killed"),
            Action::PauseHost(host) => (host, Some(HostProcess::Paused), None, "is paused"),
            Action::ResumeHost(host) => (host, Some(HostProcess::Running), None, "continues"),
            Action::SlowHost(host, slow) => (host, None, Some(slow), "changes its speed"),
        };
        let found = fleet.hosts.iter_mut().find(|known| known.name == host);
        let found = found.ok_or_else(|| format!("There is no host {host}."))?;
        found.state = state.unwrap_or(found.state);
        found.slow = slow.unwrap_or(found.slow);
        if state == Some(HostProcess::Paused) {
            let mine = fleet.groups.iter_mut().flat_map(|group| &mut group.partitions);
            for partition in mine.filter(|partition| partition.owner.as_deref() == Some(&host)).step_by(2) {
                partition.expired = true;
            }
        } else if state.is_some() {
            balance(&mut fleet, &format!("{host} {text}"));
        }
        Ok(format!("{host} {text}."))
    }
}

fn alarms(now: CityTime, passed: u64) -> Vec<AlarmLine> {
    let line = |home, what: &str, minutes: u64, open| AlarmLine {
        home,
        what: what.to_owned(),
        since: CityTime(now.minute() * 60_000 - minutes * 60_000),
        open,
    };
    let mut alarms = vec![
        line(77_003, "carbon monoxide 71 ppm", 2, true),
        line(BROKEN, "glass break", 4, true),
        line(5_120, "silent: front door", 9, true),
        line(BROKEN, "door open while away", 61, false),
        line(99_999, "glass break", 75, false),
        line(18, "silent: motion", 240, false),
        line(30_777, "door open while away", 24 * 60, false),
        // What sensors say is text, whatever it looks like.
        line(BROKEN, "<img src=x onerror=alert(1)>", 3 * 24 * 60, false),
    ];
    for number in 0..(passed / 5_000).min(30) {
        alarms.insert(0, line(1_000 + number as u32 * 977, "door open while away", 0, number % 2 == 0));
    }
    alarms
}

fn sensors(home: u32, now: CityTime) -> Vec<SensorNow> {
    let before = |seconds: u64| CityTime(now.0 - seconds * 1_000);
    let sensor = |name, room, says: &str, heard, battery| SensorNow {
        name,
        room,
        says: says.to_owned(),
        heard,
        battery,
        silent: false,
        clock_wrong: false,
    };
    let broken = home == BROKEN;
    vec![
        sensor("motion", "living room", "3 movements", before(12), 82),
        SensorNow { clock_wrong: broken, ..sensor("front door", "hall", "closed", before(70), 64) },
        sensor("glass break", "kitchen", if broken { "broken glass" } else { "quiet" }, before(31), 9),
        SensorNow { silent: broken, ..sensor("carbon monoxide", "bedroom", "4 ppm", before(3_700), 41) },
    ]
}

fn day(home: u32, at: u16, minute: u16) -> u8 {
    if at > minute || (home == BROKEN && (300..340).contains(&at)) {
        return 0;
    }
    let noise = (u32::from(at).wrapping_mul(2_654_435_761) ^ home.wrapping_mul(40_503)) >> 7;
    let awake = (390..500).contains(&at) || (700..760).contains(&at) || at > 1_020;
    let moves = noise % 10 < if awake { 7 } else { 0 };
    let door = matches!(at, 482..=484 | 705..=706 | 1_024..=1_027);
    let alarm = home == BROKEN && minute - at < 5;
    1 + 2 * u8::from(moves) + 4 * u8::from(door) + 8 * u8::from(alarm)
}

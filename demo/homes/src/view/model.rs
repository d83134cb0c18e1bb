//! The data types that the page shows: plain structs.

use serde::Serialize;

use crate::time::CityTime;

/// Homes of a neighbourhood: numbers that follow each other.
pub const NEIGHBOURHOOD: u32 = 1_000;

/// The city at a glance.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CityNow {
    /// The newest moment in the results, in the city's time.
    pub time: CityTime,
    /// How much faster than ours the city's time runs.
    pub speed: f64,
    /// Readings consolidated a second, over the last seconds.
    pub rate: f64,
    /// How old the newest data is, in milliseconds of real time; none before there is any.
    pub age: Option<u64>,
    /// From a sensor's push to the page's data, over the last minute, in milliseconds: the median.
    pub p50: Option<u64>,
    /// And what 99 of 100 stay below.
    pub p99: Option<u64>,
    /// All of them, in order.
    pub neighbourhoods: Vec<Neighbourhood>,
    /// The newest alarms, newest first, at most 50.
    pub alarms: Vec<AlarmLine>,
    /// The audit.
    pub audit: Audit,
}

/// Some homes that lie together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Neighbourhood {
    /// Homes that have been heard of.
    pub homes: u32,
    /// Homes with movement in the last minutes.
    pub active: u32,
    /// Homes whose people are away.
    pub armed: u32,
    /// Homes with an alarm that is not over.
    pub alarms: u32,
    /// Homes with a sensor that has not been heard of for long.
    pub silent: u32,
}

/// One alarm, as the router passed it on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AlarmLine {
    /// The home.
    pub home: u32,
    /// The description: "glass break", "door open while away", "carbon monoxide 71 ppm", "silent: door".
    pub what: String,
    /// Since when, in the city's time.
    pub since: CityTime,
    /// Whether it goes on.
    pub open: bool,
}

/// The comparison of sent readings with the results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Audit {
    /// Readings that were sent at least once, each counted once: they are sent until the hub acknowledges them.
    pub sent: u64,
    /// Readings in the results, each counted once.
    pub processed: u64,
    /// Readings that sensors sent more than once, and that were counted once.
    pub sensor_repeats: u64,
    /// Events that were delivered again after a change of owner, and that were counted once.
    pub replayed: u64,
    /// Homes whose count or whose readings differ at the moment: what is in flight, or lost.
    pub homes_behind: u32,
    /// Readings that were sent more than half a minute ago and that the results do not say: late, or lost.
    pub overdue: u64,
    /// Readings that the results have and that nobody sent. Never anything but 0.
    pub invented: u64,
}

/// One home.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HomeNow {
    /// Its number.
    pub home: u32,
    /// Its partition.
    pub partition: u32,
    /// Whether the people are away.
    pub armed: bool,
    /// Its sensors, those that have been heard of.
    pub sensors: Vec<SensorNow>,
    /// Today, in the city's time: for each of 1,440 minutes a sum of 1 (heard of), 2 (movement), 4 (door open), 8 (an alarm).
    pub today: Vec<u8>,
    /// The minute of the day that it is.
    pub minute: u16,
    /// Its newest alarms, newest first.
    pub alarms: Vec<AlarmLine>,
    /// Readings counted.
    pub readings: u64,
    /// Repeats that were not counted.
    pub repeats: u32,
}

/// One sensor.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SensorNow {
    /// Its name for people.
    pub name: &'static str,
    /// The room it hangs in.
    pub room: &'static str,
    /// Its value as text: "3 movements", "closed", "42 ppm".
    pub says: String,
    /// When it was last heard of, in the city's time.
    pub heard: CityTime,
    /// The charge of its battery, in percent.
    pub battery: u8,
    /// Whether it has not been heard of for long.
    pub silent: bool,
    /// Whether its clock is wrong.
    pub clock_wrong: bool,
}

/// The operator's view.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FleetNow {
    /// The host processes, in order of their numbers.
    pub hosts: Vec<HostNow>,
    /// The groups, "consolidate" first.
    pub groups: Vec<GroupNow>,
    /// Whether the carbon-monoxide detectors are switched on.
    pub carbon_monoxide: bool,
    /// The newest changes of ownership, newest first, for people.
    pub changes: Vec<String>,
    /// CPU time of all processes, in cores, over the last seconds.
    pub cores: f64,
    /// Resident memory of all processes, in bytes.
    pub memory: u64,
    /// Whether the hub's process runs.
    pub hub_up: bool,
}

/// One host process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostNow {
    /// Such as `host-3`.
    pub name: String,
    /// Its state.
    pub state: HostProcess,
    /// CPU time, in cores.
    pub cores: f64,
    /// Resident memory in bytes.
    pub memory: u64,
    /// By how many milliseconds each batch is slowed down.
    pub slow: u32,
}

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HostProcess {
    /// It runs.
    Running,
    /// It was paused, and does not know.
    Paused,
    /// It finishes, and hands over.
    Stopping,
    /// It ended gracefully.
    Stopped,
    /// It was killed, or died.
    Dead,
}

/// One consumer group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupNow {
    /// Its name.
    pub name: String,
    /// Its partitions, in order.
    pub partitions: Vec<PartitionNow>,
}

/// A partition and its owner.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartitionNow {
    /// Its number.
    pub id: u32,
    /// The host, if one owns it.
    pub owner: Option<String>,
    /// The epoch.
    pub epoch: u64,
    /// For how many milliseconds it has had this owner.
    pub since: u64,
    /// Whether the lease has run out.
    pub expired: bool,
    /// Events behind the checkpoint.
    pub lag: u64,
}

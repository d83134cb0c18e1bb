//! The processes of the demo: starts, stops, kills, pauses and slows hosts; restarts the hub.
//!
//! Each host is a process of its own, so that it can die as machines do. All of them end with their parent.

mod hub;
mod process;
mod resource_usage;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use ephor::BoxError;

use self::hub::HubProcess;
use self::process::Process;
use crate::os::Signal;
use crate::view::model::{HostNow, HostProcess};

pub use self::hub::{ALARMS, CONSOLIDATE, HUB};
pub use self::process::Cost;
pub use self::resource_usage::Meter;

/// More hosts than partitions only wait; more than this would only take memory.
pub const MAX_HOSTS: usize = 32;
/// The number of ended hosts that are still shown.
const ENDED_SHOWN: usize = 4;
/// A host that is asked to stop gets this long before it is killed.
const STOP_PATIENCE: Duration = Duration::from_secs(15);

/// An action on the demo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start one more host.
    AddHost,
    /// Let a host finish, hand over and end.
    StopHost(String),
    /// Kill a host, as a power failure would.
    KillHost(String),
    /// Pause a host (SIGSTOP); it does not notice.
    PauseHost(String),
    /// Let a paused host go on.
    ResumeHost(String),
    /// Slow a host down by this many milliseconds for each batch; 0 for full speed.
    SlowHost(String, u32),
    /// Kill the hub and start it again.
    RestartHub,
    /// Switch the carbon-monoxide detectors of all homes on or off.
    CarbonMonoxide(bool),
}

/// The settings of hosts.
#[derive(Clone)]
pub struct Setting {
    /// The `ephor` program.
    pub program: PathBuf,
    /// The folder of logs, and of the hub's data.
    pub folder: PathBuf,
    /// Further arguments of every host: the hub, the store, the results.
    pub host_arguments: Vec<String>,
    /// The environment of every host: connection strings, which would be visible among the arguments.
    pub secrets: Vec<(String, String)>,
}

impl fmt::Debug for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Setting({}, {})", self.program.display(), self.folder.display())
    }
}

/// The processes.
#[derive(Debug)]
pub struct Fleet {
    setting: Setting,
    hub: Option<HubProcess>,
    hosts: BTreeMap<u32, Host>,
    started: u32,
}

#[derive(Debug)]
struct Host {
    process: Process,
    state: HostProcess,
    slow: u32,
}

impl Fleet {
    /// Without any process yet.
    pub fn new(setting: Setting) -> Self {
        Self { setting, hub: None, hosts: BTreeMap::new(), started: 0 }
    }

    /// Starts a hub of our own, and gives its connection string.
    pub async fn start_hub(&mut self) -> Result<String, BoxError> {
        let hub = HubProcess::start(&self.setting.program, &self.setting.folder).await?;
        let connection = hub.connection();
        self.hub = Some(hub);
        Ok(connection)
    }

    /// Sets the environment of hosts that start later.
    pub fn set_secrets(&mut self, secrets: Vec<(String, String)>) {
        self.setting.secrets = secrets;
    }

    /// Starts one more host, and gives its name.
    pub fn add_host(&mut self) -> Result<String, BoxError> {
        self.look();
        let alive = self.hosts.values().filter(|host| host.is_there()).count();
        if alive >= MAX_HOSTS {
            return Err(format!("{alive} hosts are running, which is the maximum: stop one first").into());
        }
        let number = self.started + 1;
        let name = name_of(number);
        let mut arguments = vec!["demo-host".to_owned(), format!("--name={name}")];
        arguments.extend(self.setting.host_arguments.iter().cloned());
        let log = self.setting.folder.join(format!("{name}.log"));
        let process = Process::start(&self.setting.program, &arguments, &self.setting.secrets, &log)?;
        self.started = number;
        self.hosts.insert(number, Host { process, state: HostProcess::Running, slow: 0 });
        Ok(name)
    }

    /// Does something to a host or to the hub; the answer is for people.
    pub async fn act(&mut self, action: &Action) -> Result<String, BoxError> {
        match action {
            Action::AddHost => {
                Ok(format!("{} starts; it will take its share of the partitions", self.add_host()?))
            }
            Action::StopHost(name) => self.stop_host(name),
            Action::KillHost(name) => {
                self.signal(name, Signal::Kill, HostProcess::Dead)?;
                Ok(format!("{name} is dead; the other hosts take over its partitions when its leases expire"))
            }
            Action::PauseHost(name) => {
                self.signal(name, Signal::Pause, HostProcess::Paused)?;
                Ok(format!("{name} is paused; it is fenced once its leases have expired"))
            }
            Action::ResumeHost(name) => {
                self.signal(name, Signal::Continue, HostProcess::Running)?;
                Ok(format!("{name} continues, and learns which partitions it has lost"))
            }
            Action::SlowHost(name, by) => {
                let host = self.find(name)?;
                host.process.tell(&format!("slow {by}")).await?;
                host.slow = *by;
                Ok(format!("{name} now takes {by} ms longer for each batch"))
            }
            Action::RestartHub => match &mut self.hub {
                Some(hub) => {
                    hub.restart().await?;
                    Ok("the hub was killed and is running again; everything that it had acknowledged is \
                        still there"
                        .into())
                }
                None => {
                    Err("this demo did not start the hub and cannot restart it: restart it where it runs"
                        .into())
                }
            },
            Action::CarbonMonoxide(_) => Err("the fleet cannot switch detectors".into()),
        }
    }

    fn stop_host(&mut self, name: &str) -> Result<String, BoxError> {
        let host = self.find(name)?;
        if host.state == HostProcess::Paused {
            host.process.signal(Signal::Continue)?;
        }
        host.process.signal(Signal::Terminate)?;
        host.state = HostProcess::Stopping;
        Ok(format!("{name} finishes its current batches, hands over its partitions and stops"))
    }

    fn signal(&mut self, name: &str, signal: Signal, state: HostProcess) -> Result<(), BoxError> {
        let host = self.find(name)?;
        host.process.signal(signal)?;
        host.state = state;
        Ok(())
    }

    fn find(&mut self, name: &str) -> Result<&mut Host, BoxError> {
        self.look();
        let there: Vec<String> = self
            .hosts
            .iter()
            .filter(|(_, host)| host.is_there())
            .map(|(number, _)| name_of(*number))
            .collect();
        let found = self.hosts.iter_mut().find(|(number, host)| name_of(**number) == name && host.is_there());
        let there =
            if there.is_empty() { "are none: add one".into() } else { format!("are {}", there.join(", ")) };
        found.map(|(_, host)| host).ok_or_else(|| format!("there is no host {name:?}; there {there}").into())
    }

    /// Takes note of those that have ended, and forgets all but the last of them.
    fn look(&mut self) {
        for host in self.hosts.values_mut() {
            if let Some(good) = host.process.ended()
                && host.is_there()
            {
                host.state = if good { HostProcess::Stopped } else { HostProcess::Dead };
            }
        }
        let ended: Vec<u32> =
            self.hosts.iter().filter(|(_, host)| !host.is_there()).map(|(number, _)| *number).collect();
        for number in &ended[..ended.len().saturating_sub(ENDED_SHOWN)] {
            self.hosts.remove(number);
        }
    }

    /// The names of the hosts that run.
    pub fn running(&mut self) -> Vec<String> {
        self.look();
        let running = self.hosts.iter().filter(|(_, host)| host.state == HostProcess::Running);
        running.map(|(number, _)| name_of(*number)).collect()
    }

    /// If every host has died, returns the last lines of one of them.
    pub fn all_dead(&mut self) -> Option<String> {
        self.look();
        let dead = !self.hosts.is_empty() && self.hosts.values().all(|host| host.state == HostProcess::Dead);
        dead.then(|| {
            self.hosts.values().next_back().map(|host| host.process.last_lines()).unwrap_or_default()
        })
    }

    /// All hosts, and what they cost since the last look.
    pub fn hosts(&mut self) -> Vec<HostNow> {
        self.look();
        let now = |(number, host): (&u32, &mut Host)| {
            let Cost { cores, memory } = host.process.cost();
            HostNow { name: name_of(*number), state: host.state, cores, memory, slow: host.slow }
        };
        self.hosts.iter_mut().map(now).collect()
    }

    /// Whether the hub runs, and what it costs. A hub that is not ours runs and costs nothing.
    pub fn hub(&mut self) -> (bool, Cost) {
        match &mut self.hub {
            Some(hub) => (hub.is_up(), hub.cost()),
            None => (true, Cost::default()),
        }
    }

    /// Ends all hosts in good order, those that take too long by force.
    pub async fn stop_hosts(&mut self) {
        for name in self.hosts.keys().map(|number| name_of(*number)).collect::<Vec<_>>() {
            drop(self.stop_host(&name));
        }
        for host in self.hosts.values_mut() {
            if !host.process.wait(STOP_PATIENCE).await {
                drop(host.process.signal(Signal::Kill));
                host.process.wait(STOP_PATIENCE).await;
            }
        }
        self.look();
    }

    /// Ends the hub.
    pub async fn stop_hub(&mut self) {
        if let Some(mut hub) = self.hub.take() {
            hub.stop().await;
        }
    }
}

impl Host {
    /// Whether there is a process that something can be done to.
    fn is_there(&self) -> bool {
        matches!(self.state, HostProcess::Running | HostProcess::Paused | HostProcess::Stopping)
    }
}

fn name_of(number: u32) -> String {
    format!("host-{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that does nothing, whatever it is told.
    fn idle_fleet(folder: &std::path::Path) -> Fleet {
        use std::os::unix::fs::PermissionsExt;
        let program = folder.join("idle");
        std::fs::write(&program, "#!/bin/sh\nread line\nread line\n").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let setting =
            Setting { program, folder: folder.to_owned(), host_arguments: Vec::new(), secrets: Vec::new() };
        Fleet::new(setting)
    }

    fn states(fleet: &mut Fleet) -> Vec<(String, HostProcess)> {
        fleet.hosts().into_iter().map(|host| (host.name, host.state)).collect()
    }

    #[tokio::test]
    async fn hosts_are_added_paused_slowed_and_killed() {
        let folder = tempfile::tempdir().unwrap();
        let mut fleet = idle_fleet(folder.path());
        for name in ["host-1", "host-2"] {
            assert_eq!(fleet.add_host().unwrap(), name);
        }
        fleet.act(&Action::PauseHost("host-1".into())).await.unwrap();
        assert_eq!(states(&mut fleet)[0].1, HostProcess::Paused);
        fleet.act(&Action::ResumeHost("host-1".into())).await.unwrap();
        fleet.act(&Action::SlowHost("host-1".into(), 20)).await.unwrap();
        assert_eq!(fleet.hosts()[0].slow, 20);
        fleet.act(&Action::KillHost("host-1".into())).await.unwrap();
        assert_eq!(states(&mut fleet)[0], ("host-1".into(), HostProcess::Dead));
        let error = fleet.act(&Action::StopHost("host-1".into())).await.unwrap_err().to_string();
        assert_eq!(error, "there is no host \"host-1\"; there are host-2");
        assert_eq!(fleet.running(), ["host-2"]);
        assert_eq!(fleet.add_host().unwrap(), "host-3", "a name is never used again");
        fleet.act(&Action::PauseHost("host-3".into())).await.unwrap();
        fleet.stop_hosts().await;
        assert!(fleet.running().is_empty());
        let error = fleet.act(&Action::KillHost("host-2".into())).await.unwrap_err().to_string();
        assert_eq!(error, "there is no host \"host-2\"; there are none: add one");
        assert!(fleet.hosts().iter().all(|host| !matches!(host.state, HostProcess::Running)));
    }

    #[tokio::test]
    async fn those_that_have_ended_are_forgotten_in_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut fleet = idle_fleet(folder.path());
        for number in 1..=6 {
            let name = fleet.add_host().unwrap();
            fleet.act(&Action::KillHost(name.clone())).await.unwrap();
            assert_eq!(name, format!("host-{number}"));
        }
        let left: Vec<String> = states(&mut fleet).into_iter().map(|(name, _)| name).collect();
        assert_eq!(left, ["host-3", "host-4", "host-5", "host-6"]);
    }
}

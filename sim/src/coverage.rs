//! Counts which fault hit partitions and hosts in which state, and lists combinations that never occurred.

use std::collections::BTreeMap;
use std::fmt;

use crate::fault_catalog::Fault;

/// The state of a partition when a fault hit it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum PartitionState {
    /// Nobody owns it.
    Unowned,
    /// Owned, and its processor is not open yet.
    Opening,
    /// Open, between two calls.
    Idle,
    /// In a call.
    InCall,
    /// Owned, and its processor is closed already.
    Closing,
    /// An operator holds it.
    Held,
}

impl PartitionState {
    const ALL: [Self; 6] =
        [Self::Unowned, Self::Opening, Self::Idle, Self::InCall, Self::Closing, Self::Held];
}

/// The state of a host when a fault hit it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum HostCondition {
    /// Started, and has not read the fleet yet.
    Starting,
    /// Owns partitions, or will.
    Active,
    /// Ready, with no partition to own.
    Standby,
    /// Drained by an operator.
    Draining,
    /// Unhealthy: it cannot serve.
    Unfit,
    /// Stopping.
    Stopping,
    /// Paused.
    Paused,
    /// It does not run.
    Down,
}

impl HostCondition {
    const ALL: [Self; 8] = [
        Self::Starting,
        Self::Active,
        Self::Standby,
        Self::Draining,
        Self::Unfit,
        Self::Stopping,
        Self::Paused,
        Self::Down,
    ];
}

/// The counts by fault and state.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Coverage {
    partitions: BTreeMap<String, BTreeMap<PartitionState, u64>>,
    hosts: BTreeMap<String, BTreeMap<HostCondition, u64>>,
    /// Network faults, by the call that they hit.
    calls: BTreeMap<String, u64>,
}

impl Coverage {
    /// Counts a fault that hit a partition in this state.
    pub fn partition(&mut self, fault: &str, state: PartitionState) {
        *entry(&mut self.partitions, fault).entry(state).or_default() += 1;
    }

    /// Counts a fault that hit a host in this state.
    pub fn host(&mut self, fault: &str, state: HostCondition) {
        *entry(&mut self.hosts, fault).entry(state).or_default() += 1;
    }

    /// Counts a network fault of a call.
    pub fn call(&mut self, what: String) {
        *self.calls.entry(what).or_default() += 1;
    }

    /// Adds another run's counts.
    pub fn add(&mut self, other: &Self) {
        for (fault, states) in &other.partitions {
            let mine = entry(&mut self.partitions, fault);
            states.iter().for_each(|(state, count)| *mine.entry(*state).or_default() += count);
        }
        for (fault, states) in &other.hosts {
            let mine = entry(&mut self.hosts, fault);
            states.iter().for_each(|(state, count)| *mine.entry(*state).or_default() += count);
        }
        for (call, count) in &other.calls {
            *self.calls.entry(call.clone()).or_default() += count;
        }
    }

    /// The number of times that this fault hit a partition in this state.
    pub fn of_partition(&self, fault: &str, state: PartitionState) -> u64 {
        self.partitions.get(fault).and_then(|states| states.get(&state)).copied().unwrap_or(0)
    }

    /// The number of times that this fault hit a host in this state.
    pub fn of_host(&self, fault: &str, state: HostCondition) -> u64 {
        self.hosts.get(fault).and_then(|states| states.get(&state)).copied().unwrap_or(0)
    }

    /// Every combination that can occur and never did, as text.
    pub fn holes(&self) -> Vec<String> {
        let mut holes = vec![];
        for fault in Fault::ALL {
            let name = format!("{fault:?}");
            for state in PartitionState::ALL.into_iter().filter(|state| reaches_partition(*fault, *state)) {
                if self.of_partition(&name, state) == 0 {
                    holes.push(format!("{name} on a partition that is {state:?}"));
                }
            }
            for state in HostCondition::ALL.into_iter().filter(|state| reaches_host(*fault, *state)) {
                if self.of_host(&name, state) == 0 {
                    holes.push(format!("{name} on a host that is {state:?}"));
                }
            }
        }
        holes
    }
}

fn entry<'a, T: Default>(map: &'a mut BTreeMap<String, T>, key: &str) -> &'a mut T {
    if !map.contains_key(key) {
        map.insert(key.to_owned(), T::default());
    }
    map.get_mut(key).expect("it was just put there")
}

/// True if this fault can hit a partition in this state.
fn reaches_partition(fault: Fault, state: PartitionState) -> bool {
    match (fault, state) {
        // An operator holds only a partition that is not held yet.
        (Fault::PausePartition, PartitionState::Held) => false,
        // A host that joins owns nothing yet.
        (Fault::Join | Fault::Namesake, _) => false,
        // A fault of a host hits only partitions that it owns.
        (fault, PartitionState::Unowned) => !hits_a_host(fault),
        _ => true,
    }
}

/// True if this fault can hit a host in this state.
fn reaches_host(fault: Fault, state: HostCondition) -> bool {
    match (fault, state) {
        (fault, _) if !hits_a_host(fault) => false,
        // Faults of a process need a running process; faults of a clock do not.
        (Fault::ClockDrift | Fault::ClockJump | Fault::WallClockSet, HostCondition::Down) => true,
        (_, HostCondition::Down) => false,
        // A host is not stopped twice, and a paused one cannot be told to stop.
        (
            Fault::Restart
            | Fault::Upgrade
            | Fault::BrokenUpgrade
            | Fault::Leave
            | Fault::LongStop
            | Fault::StoreHangsAtStop
            | Fault::StopTwice
            | Fault::StopCallerLeaves
            | Fault::StopDuringStart
            | Fault::PauseProcess
            | Fault::Suspend
            | Fault::Freeze,
            HostCondition::Paused,
        ) => false,
        (
            Fault::Restart
            | Fault::Upgrade
            | Fault::BrokenUpgrade
            | Fault::Leave
            | Fault::LongStop
            | Fault::StoreHangsAtStop
            | Fault::StopTwice
            | Fault::StopCallerLeaves
            | Fault::StopDuringStart,
            HostCondition::Stopping,
        ) => false,
        _ => true,
    }
}

/// True if this fault hits one host, and so the partitions that it owns.
fn hits_a_host(fault: Fault) -> bool {
    match fault {
        Fault::Crash
        | Fault::PauseProcess
        | Fault::Freeze
        | Fault::Suspend
        | Fault::Restart
        | Fault::Upgrade
        | Fault::BrokenUpgrade
        | Fault::LongStop
        | Fault::StoreHangsAtStop
        | Fault::Leave
        | Fault::ClockDrift
        | Fault::ClockJump
        | Fault::WallClockSet
        | Fault::StoreTrouble
        | Fault::StoreCutOff
        | Fault::StoreAnswersLost
        | Fault::HostUnseenInStore
        | Fault::HubTrouble
        | Fault::HubCutOff
        | Fault::HubAnswersLost
        | Fault::SlowProcessor
        | Fault::FailingProcessor
        | Fault::BlockedProcessor
        | Fault::HangingProcessor
        | Fault::OddCheckpoints
        | Fault::Drain
        | Fault::PausePartition
        | Fault::StopTwice
        | Fault::StopCallerLeaves
        | Fault::StopDuringStart => true,
        Fault::Join
        | Fault::Namesake
        | Fault::StoreThrottles
        | Fault::StoreWakesNobody
        | Fault::StoreOutage
        | Fault::StoreFailover
        | Fault::StoreRestored
        | Fault::HubRestart
        | Fault::LinkCut
        | Fault::HubLosesPower
        | Fault::HubPropertiesLag
        | Fault::HubReplicaLags
        | Fault::HubRecreated
        | Fault::HubRefilled
        | Fault::HubGrows
        | Fault::Retention
        | Fault::RetentionOvertakes
        | Fault::HubDamaged
        | Fault::HubCompacted
        | Fault::ForeignReader
        | Fault::Seek => false,
    }
}

/// At most this many missing combinations are named; after thousands of seeds there are fewer.
const MAX_NAMED: usize = 40;

fn table<S: Copy + Ord + fmt::Debug>(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    states: &[S],
    rows: &BTreeMap<String, BTreeMap<S, u64>>,
) -> fmt::Result {
    write!(f, "{title:<34}")?;
    for state in states {
        write!(f, "{:>10}", format!("{state:?}"))?;
    }
    for (fault, counts) in rows {
        write!(f, "\n{fault:<34}")?;
        for state in states {
            write!(f, "{:>10}", counts.get(state).copied().unwrap_or(0))?;
        }
    }
    writeln!(f)
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        table(f, "fault \\ state of a partition", &PartitionState::ALL, &self.partitions)?;
        writeln!(f)?;
        table(f, "fault \\ state of a host", &HostCondition::ALL, &self.hosts)?;
        writeln!(f, "\nnetwork faults, by call:")?;
        for (call, count) in &self.calls {
            writeln!(f, "{call:<34}{count:>10}")?;
        }
        let mut holes = self.holes();
        let count = holes.len();
        if count == 0 {
            return write!(f, "\nevery combination that can occur has occurred");
        }
        holes.truncate(MAX_NAMED);
        write!(f, "\n{count} combinations never occurred: {}", holes.join("; "))?;
        if count > MAX_NAMED {
            write!(f, "; and {} more: too few seeds", count - MAX_NAMED)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_and_print_as_tables_that_name_what_is_missing() {
        let mut a = Coverage::default();
        a.partition("Crash", PartitionState::Idle);
        let mut b = Coverage::default();
        b.partition("Crash", PartitionState::Idle);
        b.host("Crash", HostCondition::Active);
        b.call("store: Slow in Claim".into());
        a.add(&b);
        assert_eq!(a.of_partition("Crash", PartitionState::Idle), 2);
        assert_eq!(a.of_partition("Crash", PartitionState::InCall), 0);
        assert_eq!(a.of_host("Crash", HostCondition::Active), 1);
        let holes = a.holes();
        assert!(holes.contains(&"Crash on a partition that is InCall".to_owned()));
        assert!(!holes.contains(&"Crash on a partition that is Idle".to_owned()));
        assert!(!holes.iter().any(|hole| hole == "Crash on a partition that is Unowned"));
        assert!(!holes.iter().any(|hole| hole == "Seek on a host that is Active"));
        let text = a.to_string();
        assert!(text.contains("store: Slow in Claim") && text.contains("never occurred"), "{text}");
    }
}

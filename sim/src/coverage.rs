//! Which fault hit a partition in which state, counted.

use std::collections::BTreeMap;
use std::fmt;

/// What a partition was doing when a fault hit it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub enum PartitionState {
    /// Nobody owns it.
    Unowned,
    /// Owned, and its processor is not open yet or closed already.
    Opening,
    /// Open, between two calls.
    Idle,
    /// In a call.
    InCall,
}

impl PartitionState {
    const ALL: [Self; 4] = [Self::Unowned, Self::Opening, Self::Idle, Self::InCall];
}

/// Counts by fault and state.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Coverage(BTreeMap<String, BTreeMap<PartitionState, u64>>);

impl Coverage {
    /// A fault hit a partition in this state.
    pub fn count(&mut self, fault: &str, state: PartitionState) {
        match self.0.get_mut(fault) {
            Some(states) => *states.entry(state).or_default() += 1,
            None => {
                self.0.insert(fault.to_owned(), BTreeMap::from([(state, 1)]));
            }
        }
    }

    /// Adds another run's counts.
    pub fn add(&mut self, other: &Self) {
        for (fault, states) in &other.0 {
            let mine = self.0.entry(fault.clone()).or_default();
            for (state, count) in states {
                *mine.entry(*state).or_default() += count;
            }
        }
    }

    /// How often this fault hit a partition in this state.
    pub fn of(&self, fault: &str, state: PartitionState) -> u64 {
        self.0.get(fault).and_then(|states| states.get(&state)).copied().unwrap_or(0)
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<34}", "fault \\ state of a partition")?;
        for state in PartitionState::ALL {
            write!(f, "{:>12}", format!("{state:?}"))?;
        }
        for (fault, states) in &self.0 {
            write!(f, "\n{fault:<34}")?;
            for state in PartitionState::ALL {
                write!(f, "{:>12}", states.get(&state).copied().unwrap_or(0))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_and_print_as_a_table() {
        let mut a = Coverage::default();
        a.count("crash", PartitionState::Idle);
        let mut b = Coverage::default();
        b.count("crash", PartitionState::Idle);
        b.count("pause", PartitionState::InCall);
        a.add(&b);
        assert_eq!(a.of("crash", PartitionState::Idle), 2);
        assert_eq!(a.of("crash", PartitionState::InCall), 0);
        assert_eq!(a.of("other", PartitionState::InCall), 0);
        let table = a.to_string();
        assert_eq!(table.lines().count(), 3, "{table}");
        assert!(table.contains("crash") && table.contains("InCall"));
    }
}

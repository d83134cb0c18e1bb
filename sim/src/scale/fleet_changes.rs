//! The changes that a fleet goes through (joins, stops, crashes), and the fewest moves that each could cost.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;

/// The size of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size {
    /// Hosts at the start.
    pub hosts: usize,
    /// Partitions of the hub.
    pub partitions: usize,
}

impl Size {
    /// A tenth of the hosts, and at least one.
    pub(super) fn tenth(self) -> usize {
        (self.hosts / 10).max(1)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × {}", grouped(self.hosts as u64), grouped(self.partitions as u64))
    }
}

/// A change of a fleet, in the order in which they are played. Each begins at rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// All hosts start in one instant, and nothing is owned.
    ColdStart,
    /// One host joins.
    Join,
    /// One host stops gracefully.
    Stop,
    /// One host crashes.
    Crash,
    /// A tenth joins in one instant.
    TenthJoins,
    /// A tenth crashes in one instant.
    TenthCrashes,
    /// All hosts start, each at its own moment within [`SLOW_START`]. Played by a fleet of its own.
    SlowStart,
}

/// The time until the last host of a slow start has started.
pub const SLOW_START: Duration = Duration::from_secs(10);

impl Change {
    /// The changes that a fleet goes through once it has started.
    pub const LATER: [Self; 5] = [Self::Join, Self::Stop, Self::Crash, Self::TenthJoins, Self::TenthCrashes];

    /// Its description.
    pub fn words(self) -> &'static str {
        match self {
            Self::ColdStart => "all start at once",
            Self::Join => "one joins",
            Self::Stop => "one stops",
            Self::Crash => "one crashes",
            Self::TenthJoins => "a tenth joins",
            Self::TenthCrashes => "a tenth crashes",
            Self::SlowStart => "all start within 10 s",
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.words())
    }
}

/// The start times of a slow start, in order.
pub(super) fn slow_start(hosts: usize, random: &mut Rng) -> Vec<Duration> {
    let last = u64::try_from(SLOW_START.as_millis()).unwrap_or(u64::MAX);
    let mut moments: Vec<Duration> =
        (0..hosts).map(|_| Duration::from_millis(random.u64(0..=last))).collect();
    moments.sort_unstable();
    moments
}

/// The fewest changes of owner after which these hosts own everything, evenly: unowned partitions have to be
/// claimed, partitions above a share have to move, and as many hosts as possible keep the larger share.
pub(super) fn fewest(held: &[usize], partitions: usize) -> usize {
    let owned: usize = held.iter().sum();
    let mut sorted = held.to_vec();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    let share = |rank: usize| partitions / held.len() + usize::from(rank < partitions % held.len());
    let above = |(rank, held): (usize, &usize)| held.saturating_sub(share(rank));
    (partitions - owned) + sorted.iter().enumerate().map(above).sum::<usize>()
}

/// True if all is owned, and no host has two more than another.
pub(super) fn is_even(held: &[usize], partitions: usize) -> bool {
    let least = held.iter().min().copied().unwrap_or(0);
    let most = held.iter().max().copied().unwrap_or(0);
    held.iter().sum::<usize>() == partitions && most <= least + 1
}

/// A number with a comma at every thousand.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fewest_moves_leave_the_larger_share_where_it_is() {
        assert_eq!(fewest(&[0, 0], 7), 7, "everything has to be taken");
        assert_eq!(fewest(&[4, 3, 0], 7), 2, "shares are 3, 2 and 2: two have one to give");
        assert_eq!(fewest(&[4, 4, 4], 12), 0);
        assert_eq!(fewest(&[4, 4], 12), 4, "what the third had");
    }

    #[test]
    fn even_means_all_owned_and_at_most_one_apart() {
        assert!(is_even(&[2, 3, 2], 7));
        assert!(!is_even(&[2, 4, 1], 7));
        assert!(!is_even(&[2, 2, 2], 7));
    }

    #[test]
    fn numbers_are_grouped() {
        let all = [0, 12, 999, 1_000, 32_768, 1_234_567].map(grouped);
        assert_eq!(all, ["0", "12", "999", "1,000", "32,768", "1,234,567"]);
    }
}

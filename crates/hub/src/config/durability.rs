//! The durability setting: whether an acknowledged send is on disk, in the page cache, or in memory.

use std::fmt;
use std::str::FromStr;

/// The guarantee of an acknowledged send.
///
/// | word | acknowledged when | what may be lost |
/// |---|---|---|
/// | `disk` (the default) | the events are on disk | nothing |
/// | `page-cache` | the operating system has them | the newest events, when the machine loses power; nothing when only the process dies |
/// | `memory` | the process has them | everything, when the process ends |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Durability {
    /// An acknowledgement means that the events are on disk.
    #[default]
    Disk,
    /// An acknowledgement means that the events are in the page cache: a power failure may lose the newest ones.
    PageCache,
    /// The events are in memory only: the hubs are gone when the process ends.
    Memory,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disk => "disk",
            Self::PageCache => "page-cache",
            Self::Memory => "memory",
        })
    }
}

/// The error for an unknown durability.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a durability; write \"disk\" (acknowledged from disk), \"page-cache\" (a power failure may \
     lose the newest events), or \"memory\" (keeps nothing)"
)]
pub struct UnknownDurability(String);

impl FromStr for Durability {
    type Err = UnknownDurability;
    fn from_str(given: &str) -> Result<Self, UnknownDurability> {
        match given {
            "disk" => Ok(Self::Disk),
            "page-cache" => Ok(Self::PageCache),
            "memory" => Ok(Self::Memory),
            _ => Err(UnknownDurability(given.chars().take(80).collect())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_durability_reads_back_the_word_it_writes() {
        for durability in [Durability::Disk, Durability::PageCache, Durability::Memory] {
            assert_eq!(durability.to_string().parse(), Ok(durability));
        }
        assert_eq!(Durability::default(), Durability::Disk);
    }

    #[test]
    fn an_unknown_durability_is_told_the_known_ones() {
        assert_eq!(
            "fast".parse::<Durability>().unwrap_err().to_string(),
            "\"fast\" is not a durability; write \"disk\" (acknowledged from disk), \"page-cache\" (a power \
             failure may lose the newest events), or \"memory\" (keeps nothing)"
        );
    }
}

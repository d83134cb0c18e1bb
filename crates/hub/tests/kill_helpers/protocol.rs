//! Test helper: the messages between the parent and the child process.

use ephor_hub::Durability;

/// The orders to a child.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Orders {
    pub(crate) durability: Durability,
    pub(crate) round: u32,
    pub(crate) seed: u64,
}

impl Orders {
    pub(crate) fn text(&self) -> String {
        format!("{} {} {}", self.durability, self.round, self.seed)
    }

    pub(crate) fn read(text: &str) -> Self {
        let parts: Vec<&str> = text.split(' ').collect();
        let [durability, round, seed] = parts[..] else { panic!("no orders: {text:?}") };
        Self {
            durability: durability.parse().unwrap(),
            round: round.parse().unwrap(),
            seed: seed.parse().unwrap(),
        }
    }
}

/// A message of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// A batch was acknowledged; the hash is that of its last event.
    Stored { partition: u32, first: u64, size: u32, hash: u64 },
    /// A reader was handed this event.
    Seen { partition: u32, sequence: u64, hash: u64 },
}

impl Word {
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Stored { partition, first, size, hash } => {
                format!("stored {partition} {first} {size} {hash}")
            }
            Self::Seen { partition, sequence, hash } => format!("seen {partition} {sequence} {hash}"),
        }
    }

    pub(crate) fn read(text: &str) -> Self {
        let (kind, rest) = text.split_once(' ').unwrap();
        let numbers: Vec<u64> = rest.split(' ').map(|number| number.parse().unwrap()).collect();
        match (kind, &numbers[..]) {
            ("stored", [partition, first, size, hash]) => {
                Self::Stored { partition: *partition as u32, first: *first, size: *size as u32, hash: *hash }
            }
            ("seen", [partition, sequence, hash]) => {
                Self::Seen { partition: *partition as u32, sequence: *sequence, hash: *hash }
            }
            _ => panic!("not a message of a child: {text:?}"),
        }
    }
}

//! Measures how fleets scale: the time until a fleet is stable after a change, and its scans, moves and
//! store calls, for growing numbers of hosts and partitions.
//!
//! | to read about | open |
//! |---|---|
//! | the changes of a fleet, and the least that they could cost | [`fleet_changes`] |
//! | real hosts on virtual time | [`real_hosts`] |
//! | fleets so large that only their decisions can be played | [`decisions`] |
//! | the tables | [`table`] |
//! | the picture | `picture` |
//! | keeping `docs/scale.md` up to date | [`documents`] |
//!
//! For the command line: `ephor-sim scale …` is [`run`] with the arguments after `scale`. Print its result
//! (or its error, with exit code 2); it has written its files by then.

pub mod decisions;
pub mod documents;
pub mod fleet_changes;
pub mod real_hosts;
mod store;
mod svg_charts;
pub mod table;

use std::fmt;
use std::path::PathBuf;

use decisions::{Cost, Decisions};
use fleet_changes::Size;
use real_hosts::Whole;

/// The usage text.
pub const USAGE: &str = "usage: ephor-sim scale [--largest] [--write FOLDER]
  --largest       also 100 hosts × 1,024 partitions whole, and 300 × 8,192 and 1,000 × 32,768
                  with the decisions alone: minutes instead of seconds
  --write FOLDER  the largest, and with it the tables of FOLDER/scale.md and the picture
                  FOLDER/pictures/scale.svg written again";

/// The sizes of fleets of real hosts.
const WHOLE: [Size; 3] = [
    Size { hosts: 5, partitions: 16 },
    Size { hosts: 10, partitions: 64 },
    Size { hosts: 30, partitions: 256 },
];
/// More of them in the long form.
const WHOLE_LARGEST: [Size; 1] = [Size { hosts: 100, partitions: 1_024 }];
/// The sizes of fleets that only decide.
const DECISIONS: [Size; 1] = [Size { hosts: 100, partitions: 1_024 }];
/// More of them in the long form.
const DECISIONS_LARGEST: [Size; 2] =
    [Size { hosts: 300, partitions: 8_192 }, Size { hosts: 1_000, partitions: 32_768 }];
/// The seed of all fleets.
const SEED: u64 = 1;

/// The arguments of the command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    /// True for the long form.
    pub largest: bool,
    /// The folder of documents to write into.
    pub write: Option<PathBuf>,
}

impl Arguments {
    /// Parses the arguments after `scale`.
    pub fn parse(given: &[String]) -> Result<Self, String> {
        let mut arguments = Self::default();
        let mut given = given.iter();
        while let Some(name) = given.next() {
            match name.as_str() {
                "--largest" => arguments.largest = true,
                "--write" => {
                    let folder = given.next().ok_or_else(|| format!("--write needs a folder\n{USAGE}"))?;
                    (arguments.largest, arguments.write) = (true, Some(folder.into()));
                }
                _ => return Err(format!("unknown argument {name:?}\n{USAGE}")),
            }
        }
        Ok(arguments)
    }
}

/// The measurements. Their `Display` is the tables.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scale {
    /// Fleets of real hosts, each size on a store that notifies hosts and on one that cannot.
    pub wholes: Vec<(Whole, Whole)>,
    /// Fleets that only decide.
    pub decisions: Vec<Decisions>,
    /// The cost of a decision, by this machine's clock.
    pub costs: Vec<Cost>,
}

impl Scale {
    /// The picture.
    pub fn svg(&self) -> String {
        svg_charts::draw(self)
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&table::tables(self))
    }
}

/// Plays the fleets of these arguments, and writes the documents if they ask for it. Calls `report` with its
/// progress.
pub fn run(given: &[String], report: &mut dyn FnMut(&str)) -> Result<Scale, String> {
    let arguments = Arguments::parse(given)?;
    if let Some(folder) = &arguments.write {
        documents::ensure_writable(folder)?;
    }
    let scale = play(arguments.largest, report);
    if let Some(folder) = &arguments.write {
        documents::write(folder, &scale)?;
    }
    Ok(scale)
}

/// Plays all sizes, or all but the largest.
pub fn play(largest: bool, report: &mut dyn FnMut(&str)) -> Scale {
    let chosen = |some: &[Size], more: &[Size]| -> Vec<Size> {
        some.iter().chain(more.iter().filter(|_| largest)).copied().collect()
    };
    let mut scale = Scale::default();
    for size in chosen(&WHOLE, &WHOLE_LARGEST) {
        report(&format!("{size}: whole hosts"));
        scale.wholes.push((real_hosts::play(size, true, SEED), real_hosts::play(size, false, SEED)));
    }
    for size in chosen(&DECISIONS, &DECISIONS_LARGEST) {
        report(&format!("{size}: the decisions alone"));
        scale.decisions.push(decisions::play(size, SEED));
        scale.costs.push(decisions::cost(size));
    }
    scale
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(given: &[&str]) -> Result<Arguments, String> {
        Arguments::parse(&given.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_are_read_or_refused() {
        assert_eq!(parse(&[]), Ok(Arguments::default()));
        assert_eq!(parse(&["--largest"]), Ok(Arguments { largest: true, write: None }));
        let write = Arguments { largest: true, write: Some("docs".into()) };
        assert_eq!(parse(&["--write", "docs"]), Ok(write), "what is written is always all of it");
        assert!(parse(&["--write"]).is_err_and(|error| error.starts_with("--write needs a folder")));
        assert!(parse(&["--small"]).is_err_and(|error| error.contains("usage: ephor-sim scale")));
    }
}

//! Tests of bit rot: every flipped bit is detected, no damaged event is served, lost events are reported,
//! and all others are served.
//!
//! A small data folder is damaged in one place at a time: every bit of headers and metadata, one bit of each byte of the
//! events, whole sectors, ends of files, whole files.

use std::ops::Range;

use ephor_hub::files::Files;
use ephor_hub::verify_files;

use crate::common::faulty_files::FaultyFiles;
use crate::crash_model::Checked;
use crate::crash_model::folder::{Folder, Left};
use crate::crash_model::workers::{for_each, runtime};

const SECTOR: usize = 512;

/// The damage of some bytes of a file.
#[derive(Debug, Clone)]
struct Harm {
    path: String,
    bytes: Range<usize>,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Flip(u8),
    Zero,
    /// They and all behind them are gone.
    Cut,
    /// The whole file is.
    Remove,
}

impl Harm {
    fn new(path: &str, bytes: Range<usize>, kind: Kind) -> Harm {
        Harm { path: path.to_owned(), bytes, kind }
    }

    fn inflict(&self, files: &FaultyFiles) {
        match self.kind {
            Kind::Flip(bit) => files.flip_bit(&self.path, self.bytes.start, bit),
            Kind::Zero => {
                let zeros = vec![0; self.bytes.len()];
                files.open(&self.path).unwrap().write_at(self.bytes.start as u64, &[&zeros]).unwrap();
            }
            Kind::Cut => files.open(&self.path).unwrap().set_len(self.bytes.start as u64).unwrap(),
            Kind::Remove => files.remove(&self.path).unwrap(),
        }
    }
}

/// Whether verifying names the file.
fn is_named(files: &FaultyFiles, path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap();
    verify_files(files).unwrap().iter().any(|hub| {
        let log = hub.log.as_ref().map(|log| log.damage.iter().any(|damage| damage.file.contains(name)));
        log.unwrap_or_else(|error| error.contains(name))
            || hub.record.as_ref().is_err_and(|error| error.contains(name))
    })
}

/// Inflicts each harm on a copy of its own, and checks what comes of it.
fn check(folder: &Folder, harms: &[Harm], may_pass: impl Fn(&Harm) -> bool + Sync) {
    assert!(verify_files(&folder.files).unwrap().iter().all(|hub| hub.is_intact()));
    let violations = for_each(harms, |runtime, harm| -> Checked {
        let files = folder.copy();
        harm.inflict(&files);
        if !is_named(&files, &harm.path) && !may_pass(harm) {
            return Err(format!("verifying does not find it: {:?}", verify_files(&files)));
        }
        folder.check(&files, runtime, &harm.path, &harm.bytes)
    });
    violations.iter().take(10).for_each(|(at, violation)| println!("{:?}: {violation}\n", harms[*at]));
    println!("{} damaged places, {} violations", harms.len(), violations.len());
    assert!(violations.is_empty(), "{:?}: {}", harms[violations[0].0], violations[0].1);
}

/// Each bit of what tells where things are, one bit of each byte that was sent, and few of the zeros between
/// two headers; or one bit of each byte of all that.
fn flips(folder: &Folder, path: &str, length: usize, each_bit: bool) -> Vec<Harm> {
    let content = folder.files.read(path).unwrap();
    let mut flips = Vec::new();
    for at in 0..length {
        let byte = at..at + 1;
        let in_payload = folder.frames_in(path, &byte).any(|frame| at >= frame.range.start + 56);
        let in_zeros = content[at.saturating_sub(16)..length.min(at + 16)].iter().all(|byte| *byte == 0);
        let one = (at % 8) as u8;
        let bits = match (in_payload, in_zeros) {
            (_, true) if !at.is_multiple_of(61) => 0..0,
            (false, false) if each_bit => 0..8,
            _ => one..one + 1,
        };
        flips.extend(bits.map(|bit| Harm::new(path, byte.clone(), Kind::Flip(bit))));
    }
    flips
}

fn files_like(folder: &Folder, ending: &str) -> Vec<(String, usize)> {
    folder.files.files().into_iter().filter(|(path, _)| path.ends_with(ending)).collect()
}

fn all_flips(folder: &Folder, ending: &str, each_bit: bool) -> Vec<Harm> {
    let files = files_like(folder, ending);
    files.iter().flat_map(|(path, length)| flips(folder, path, *length, each_bit)).collect()
}

fn folder(left: Left) -> Folder {
    Folder::make(left, 3, &runtime()).unwrap()
}

#[test]
fn every_bit_of_a_closed_log_counts() {
    let folder = folder(Left::Closed);
    check(&folder, &all_flips(&folder, ".log", true), |_| false);
}

#[test]
fn every_byte_of_a_log_counts_after_a_power_failure() {
    let folder = folder(Left::Marked);
    check(&folder, &all_flips(&folder, ".log", false), |_| false);
}

/// Its header says nothing of the partitions: what is damaged may be all that there was of one.
#[test]
fn every_byte_of_the_first_segment_counts() {
    for left in [Left::Closed, Left::Marked] {
        let folder = Folder::make(left, 1, &runtime()).unwrap();
        check(&folder, &all_flips(&folder, ".log", false), |_| false);
    }
}

/// Nothing tells a damaged last commit from one that was cut short.
#[test]
fn without_a_mark_every_byte_before_the_last_commit_counts() {
    let folder = folder(Left::Unmarked);
    let last = folder.frames.last().unwrap().clone();
    let mut flips = all_flips(&folder, ".log", false);
    flips.retain(|harm| harm.path != last.path || harm.bytes.start < last.range.start);
    check(&folder, &flips, |_| false);
}

#[test]
fn every_bit_of_a_record_counts() {
    let folder = folder(Left::Closed);
    check(&folder, &all_flips(&folder, "hub.json", true), |_| false);
}

#[test]
fn what_can_be_made_anew_never_changes_what_is_read() {
    for left in [Left::Closed, Left::Marked] {
        let folder = folder(left);
        let mut harms = all_flips(&folder, ".index", false);
        harms.extend(all_flips(&folder, "/mark", true));
        for ending in [".index", "/mark"] {
            for (path, length) in files_like(&folder, ending) {
                harms.extend([0, 7, length / 2].map(|at| Harm::new(&path, at..length, Kind::Cut)));
                harms.push(Harm::new(&path, 0..length, Kind::Remove));
                harms.push(Harm::new(&path, 0..length, Kind::Zero));
            }
        }
        check(&folder, &harms, |_| true);
    }
}

#[test]
fn a_lost_sector_costs_only_what_was_in_it() {
    for left in [Left::Closed, Left::Marked] {
        let folder = folder(left);
        let sectors = folder.logs().into_iter().flat_map(|(path, length)| {
            let starts = (0..length).step_by(SECTOR);
            starts
                .map(move |at| Harm::new(&path, at..length.min(at + SECTOR), Kind::Zero))
                .collect::<Vec<_>>()
        });
        let sectors: Vec<Harm> = sectors.collect();
        let was_zero = |harm: &Harm| {
            let content = folder.files.read(&harm.path).unwrap();
            content[harm.bytes.clone()].iter().all(|byte| *byte == 0)
        };
        check(&folder, &sectors, was_zero);
    }
}

#[test]
fn a_file_that_was_cut_serves_what_is_left_of_it() {
    let folder = folder(Left::Closed);
    let mut cuts = Vec::new();
    for (path, length) in folder.logs() {
        let ends = folder.frames_in(&path, &(0..length)).map(|frame| frame.range.end).collect::<Vec<_>>();
        let places = ends.iter().flat_map(|end| [*end, end - 8, end - 100]).chain([0, 100, 1_000]);
        cuts.extend(places.filter(|at| *at < length).map(|at| Harm::new(&path, at..length, Kind::Cut)));
    }
    check(&folder, &cuts, |_| false);
}

#[test]
fn a_segment_that_was_removed_is_missed() {
    let folder = folder(Left::Closed);
    let logs = folder.logs();
    let removed = logs[1..logs.len() - 1].iter();
    let removed: Vec<Harm> =
        removed.map(|(path, length)| Harm::new(path, 0..*length, Kind::Remove)).collect();
    check(&folder, &removed, |_| false);
}

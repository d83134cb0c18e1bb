//! `ephor-recordings`: replays the recordings of a folder, and prints the differences between the service's
//! answers and Ephor's.

#![allow(clippy::print_stdout, reason = "a command that prints")]

use std::path::PathBuf;
use std::process::ExitCode;

use ephor_recordings::recording::read_folder;
use ephor_recordings::report::{Explanations, Report};

const USAGE: &str = "usage: ephor-recordings FOLDER [--explained FILE] [--all]
  FOLDER            recordings, also in folders below it
  --explained FILE  differences that are meant: kind | service | ours | reason
  --all             every unexplained difference instead of the first of each kind";

struct Arguments {
    folder: PathBuf,
    explained: Option<PathBuf>,
    all: bool,
}

fn arguments() -> Result<Arguments, String> {
    let (mut folder, mut explained, mut all) = (None, None, false);
    let mut given = std::env::args_os().skip(1);
    while let Some(argument) = given.next() {
        match argument.to_str() {
            Some("--explained") => {
                let file = given.next().ok_or_else(|| format!("--explained needs a file\n{USAGE}"))?;
                explained = Some(PathBuf::from(file));
            }
            Some("--all") => all = true,
            Some(option) if option.starts_with("--") => {
                return Err(format!("unknown argument {option:?}\n{USAGE}"));
            }
            _ if folder.is_none() => folder = Some(PathBuf::from(argument)),
            _ => return Err(format!("more than one folder\n{USAGE}")),
        }
    }
    let folder = folder.ok_or_else(|| format!("no folder of recordings\n{USAGE}"))?;
    Ok(Arguments { folder, explained, all })
}

fn run() -> Result<bool, String> {
    let Arguments { folder, explained, all } = arguments()?;
    let explanations = match explained {
        None => Explanations::default(),
        Some(path) => {
            let failed = |error: String| format!("{}: {error}", path.display());
            let text = std::fs::read_to_string(&path).map_err(|error| failed(error.to_string()))?;
            Explanations::parse(&text).map_err(failed)?
        }
    };
    let groups = read_folder(&folder).map_err(|error| error.to_string())?;
    if groups.is_empty() {
        return Err(format!("{}: no recordings (*.json)", folder.display()));
    }
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let outcome = ephor_recordings::play_all(groups, threads)?;
    let report = Report::of(outcome, &explanations);
    if all {
        for difference in report.differences() {
            println!("{difference}");
        }
    }
    println!("{report}");
    Ok(report.unexplained() == 0)
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("ephor-recordings: {error}");
            ExitCode::from(2)
        }
    }
}

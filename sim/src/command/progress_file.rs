//! The progress file, from which a stopped run resumes.
//!
//! It is small, written every few seconds and removed when the run is over. It names the build that wrote it:
//! the results of two builds are never mixed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ephor_sim::fingerprint::Fingerprint;
use ephor_sim::mutations;
use serde::{Deserialize, Serialize};

use super::arguments::{PlayArguments, Resume};
use super::seeds::Seeds;
use super::totals::Total;

/// The progress of a run, and its results so far.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Progress {
    program: String,
    from: u64,
    count: u64,
    mutation: Option<String>,
    pub(crate) seeds: Seeds,
    pub(crate) total: Total,
}

/// A run at its beginning, or at the point where it was stopped.
#[derive(Debug)]
pub(crate) struct StartPoint {
    /// The arguments: from the file, if there is one.
    pub(crate) arguments: PlayArguments,
    pub(crate) progress: Progress,
    /// The path of the progress file.
    pub(crate) file: PathBuf,
    /// The message to the user about the point where it begins.
    pub(crate) message: Option<String>,
}

impl Progress {
    fn new(arguments: &PlayArguments, program: &str) -> Self {
        Self {
            program: program.into(),
            from: arguments.from,
            count: arguments.count,
            mutation: arguments.mutation.map(|mutation| mutation.name.into()),
            seeds: Seeds::new(arguments.from, arguments.count),
            total: Total::default(),
        }
    }

    /// Reads a file, or returns why a run cannot resume from it.
    fn read(file: &Path, program: &str) -> Result<Self, String> {
        let text = fs::read_to_string(file)
            .map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
        let read: Self = serde_json::from_str(&text)
            .map_err(|error| format!("{} is not the progress of a run: {error}", file.display()))?;
        if read.program != program {
            return Err(format!(
                "{} was written by another build, and results are not mixed",
                file.display()
            ));
        }
        let mutations = read.mutation.iter().all(|mutation| mutations::find(mutation).is_some());
        if !(mutations && read.seeds.are(read.from, read.count) && read.total.runs == read.seeds.count_done())
        {
            return Err(format!("{} contradicts itself", file.display()));
        }
        Ok(read)
    }

    /// Writes the file atomically.
    pub(crate) fn write(&self, file: &Path) -> io::Result<()> {
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        let temporary = file.with_extension(format!("{}.new", std::process::id()));
        fs::write(&temporary, serde_json::to_vec(self)?)?;
        fs::rename(&temporary, file)
    }

    fn is_of(&self, arguments: &PlayArguments) -> bool {
        (self.from, self.count, self.mutation.as_deref())
            == (arguments.from, arguments.count, arguments.mutation.map(|mutation| mutation.name))
    }
}

/// Finds the point at which to begin. Returns an error if a file was named that does not exist.
pub(crate) fn begin(arguments: &PlayArguments, program: &str) -> Result<StartPoint, String> {
    let folder = arguments.folder.clone().unwrap_or_else(default_folder);
    let own = folder.join(file_name(arguments));
    let start_over = |message: Option<String>| StartPoint {
        arguments: arguments.clone(),
        progress: Progress::new(arguments, program),
        file: own.clone(),
        message: message.map(|why| format!("{why}; starts over")),
    };
    let file = match &arguments.resume {
        Resume::No => return Ok(start_over(None)),
        Resume::SameCommand if !own.exists() => return Ok(start_over(None)),
        Resume::SameCommand => own.clone(),
        Resume::Last => match newest(&folder) {
            Some(file) => file,
            None => {
                return Ok(start_over(Some(format!(
                    "there is no progress of a stopped run in {}",
                    folder.display()
                ))));
            }
        },
        Resume::File(file) if !file.exists() => return Err(format!("there is no file {}", file.display())),
        Resume::File(file) => file.clone(),
    };
    let progress = match Progress::read(&file, program) {
        Ok(progress) => progress,
        Err(why) => return Ok(start_over(Some(why))),
    };
    if arguments.resume == Resume::SameCommand && !progress.is_of(arguments) {
        return Ok(start_over(Some(format!("{} is of another command", file.display()))));
    }
    let mutation = progress.mutation.as_deref().and_then(mutations::find);
    let arguments =
        PlayArguments { from: progress.from, count: progress.count, mutation, ..arguments.clone() };
    let message = format!(
        "resumes where it was stopped: {} of {} seeds from {} on{} are done ({}; --anew starts over)",
        progress.seeds.count_done(),
        progress.count,
        progress.from,
        mutation.map_or(String::new(), |mutation| format!(" with --mutation {}", mutation.name)),
        file.display()
    );
    Ok(StartPoint { arguments, progress, file, message: Some(message) })
}

fn file_name(arguments: &PlayArguments) -> String {
    let mutation = arguments.mutation.map_or(String::new(), |mutation| format!("-{}", mutation.name));
    format!("progress-{}-{}{mutation}.json", arguments.from, arguments.count)
}

/// The folder `sim` in the build folder, usually `target`.
fn default_folder() -> PathBuf {
    let built = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.parent()?.to_owned()));
    let target = built.filter(|folder| folder.file_name().is_some_and(|name| name == "target"));
    target.unwrap_or_else(|| "target".into()).join("sim")
}

/// The file that was written last.
fn newest(folder: &Path) -> Option<PathBuf> {
    let files = fs::read_dir(folder).ok()?.flatten().filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with("progress-") && name.ends_with(".json")
    });
    files.max_by_key(|entry| entry.metadata().and_then(|data| data.modified()).ok()).map(|entry| entry.path())
}

/// The fingerprint of this program's bytes.
pub(crate) fn program() -> String {
    let mut fingerprint = Fingerprint::default();
    match std::env::current_exe().and_then(fs::read) {
        Ok(bytes) => fingerprint.add(&bytes),
        // A program that cannot read itself resumes only its own results.
        Err(_) => fingerprint.add(&std::process::id().to_le_bytes()),
    }
    fingerprint.to_string()
}

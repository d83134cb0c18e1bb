//! Tests of the command `ephor-sim`: its output, its files, and its exit codes.

#![cfg(unix)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

fn ephor_sim(arguments: &str, folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ephor-sim"));
    command.args(arguments.split_whitespace()).arg("--progress").arg(folder);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn text(output: &Output) -> String {
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn run(arguments: &str, folder: &Path) -> (i32, String) {
    let output = ephor_sim(arguments, folder).output().expect("the program runs");
    (output.status.code().expect("it ends by itself"), text(&output))
}

/// A folder for one test, removed after it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("ephor-sim-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for the test");
        Self(folder)
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.0).expect("it is there");
        entries.map(|entry| entry.expect("it can be read").path()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Asks a process to stop after a while, and returns its output.
#[expect(clippy::disallowed_methods, reason = "a test of a process, in real time")]
fn stopped(mut child: Child) -> (i32, String) {
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert!(child.try_wait().expect("it can be asked").is_none(), "it ended before it was stopped");
    let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill runs");
    assert!(killed.success());
    let output = child.wait_with_output().expect("it ends");
    (output.status.code().expect("by itself"), text(&output))
}

#[test]
fn a_run_without_violations_ends_well_and_leaves_nothing_behind() {
    let folder = Folder::new("well");
    let (code, said) = run("--from 10000 --count 4", &folder.0);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("\n4 seeds, ") && said.contains(", 0 violations; "), "{said}");
    assert!(said.contains("exempt because of\nCallsOverlap "), "{said}");
    assert_eq!(folder.files(), [] as [PathBuf; 0]);
}

#[test]
fn a_failing_seed_is_reported_and_the_others_are_played_all_the_same() {
    let folder = Folder::new("failing");
    let (code, said) = run("--count 4 --mutation epoch", &folder.0);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("THE REPORT OF SEED ") && said.contains("\n4 seeds, "), "{said}");
    assert!(
        said.contains("replay: ./check sim --from ") && said.contains("--count 1 --mutation epoch"),
        "{said}"
    );
    let (code, said) = run("--count 4 --mutation epoch --no-shrink", &folder.0);
    assert_eq!(code, 1, "{said}");
    assert!(!said.contains("THE REPORT") && said.contains("replay: "), "{said}");
}

#[test]
fn a_run_that_is_stopped_goes_on_with_the_same_command_or_by_resume() {
    let folder = Folder::new("stopped");
    let start = |arguments: &str| ephor_sim(arguments, &folder.0).spawn().expect("the program runs");
    let (code, said) = stopped(start("--from 10000 --count 100000 --jobs 1 --no-shrink"));
    assert!([1, 130].contains(&code), "{code}: {said}");
    assert!(said.contains("of 100000 seeds: the same command resumes from "), "{said}");
    assert_eq!(folder.files(), [folder.0.join("progress-10000-100000.json")]);
    let (_, said) = stopped(start("--from 10000 --count 100000 --jobs 1 --no-shrink"));
    assert!(said.starts_with("resumes where it was stopped: "), "{said}");
    // The file contains the arguments.
    let (_, said) = stopped(start("--count 20000 --resume --jobs 1 --no-shrink"));
    assert!(
        said.starts_with("resumes where it was stopped: ") && said.contains("of 100000 seeds from 10000 on"),
        "{said}"
    );
    let (code, said) = run("--from 10000 --count 1 --anew", &folder.0);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("\n1 seeds, "), "{said}");
}

#[test]
fn a_file_that_cannot_be_used_is_named_and_the_run_begins_anew() {
    let folder = Folder::new("bad");
    let file = folder.0.join("progress-10000-1.json");
    for (content, why) in [
        ("not json", "is not the progress of a run"),
        (
            r#"{"program":"other","from":10000,"count":1,"mutation":null,"seeds":{"from":10000,"end":10001,"next":10000,"ahead":[]},"total":null}"#,
            "is not the progress of a run",
        ),
    ] {
        std::fs::write(&file, content).expect("it can be written");
        let (code, said) = run("--from 10000 --count 1", &folder.0);
        assert_eq!(code, 0, "{said}");
        assert!(said.contains(why) && said.contains("starts over") && said.contains("\n1 seeds, "), "{said}");
    }
    let (code, said) = run("--resume --from 10000 --count 1", &folder.0);
    assert_eq!(code, 0, "{said}");
    assert!(said.starts_with("there is no progress of a stopped run in "), "{said}");
}

#[test]
fn bad_input_is_refused_with_the_reason() {
    let folder = Folder::new("input");
    for (arguments, why) in [
        ("--count many", "--count needs a number, not \"many\""),
        ("--mutation nothing", "there is no mutation \"nothing\""),
        ("--resume nowhere.json", "there is no file nowhere.json"),
        ("--faster", "there is no argument \"--faster\""),
    ] {
        let (code, said) = run(arguments, &folder.0);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains(why), "{said}");
    }
}
